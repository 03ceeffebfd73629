// relacy_platform.h - the turnstile's Platform in which every interleaving and every stale read
// can be explored.
//
// Thin covers around Relacy's atomics, variables and mutex, so that the template of production compiles
// unchanged; and a futex that is nothing but a list of parked threads. Relacy reports data races, deadlocks
// (a lost wake-up is one) and the use of an object whose life is over; check() reports the rest.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <source_location>
#include <type_traits>

// Not relacy.hpp, which redefines new, delete, free and std::memory_order_*.
// clang-format off: they must come in this order
#include <relacy/base.hpp>
#include <relacy/context.hpp>
#include <relacy/context_base_impl.hpp>
#include <relacy/atomic_fence.hpp>
#include <relacy/atomic.hpp>
#include <relacy/var.hpp>
#include <relacy/thread_local.hpp>
#include <relacy/test_suite.hpp>
#include <relacy/dyn_thread.hpp>
#include <relacy/stdlib/mutex.hpp>
#include <relacy/stdlib/condition_variable.hpp>
#include <relacy/stdlib/semaphore.hpp>
#include <relacy/stdlib/event.hpp>
// clang-format on
#undef $

namespace bulkhead::detail {
class Meter;
}

namespace bulkhead::model {

struct Where : rl::debug_info {
  Where(const std::source_location& l = std::source_location::current())
      : debug_info("", l.file_name(), l.line()) {}
};

inline void check(bool truth, const char* what, Where where = {}) {
  if (!truth) rl::ctx().fail_test(what, rl::test_result_user_assert_failed, where);
}

inline unsigned choose(unsigned options) { return rl::ctx().rand(options, rl::sched_type_user); }
inline unsigned this_thread() { return static_cast<unsigned>(rl::ctx().current_thread()); }

constexpr rl::memory_order order(std::memory_order mo) {
  switch (mo) {
    case std::memory_order_relaxed:
      return rl::mo_relaxed;
    case std::memory_order_consume:
      return rl::mo_consume;
    case std::memory_order_acquire:
      return rl::mo_acquire;
    case std::memory_order_release:
      return rl::mo_release;
    case std::memory_order_acq_rel:
      return rl::mo_acq_rel;
    case std::memory_order_seq_cst:
      break;
  }
  return rl::mo_seq_cst;
}

template <class T>
class Atomic {
 public:
  Atomic(T value = T()) {
    rl::preemption_disabler no_switch(rl::ctx());  // nobody can see it yet
    a_.store(value, rl::mo_relaxed, Where());
  }
  Atomic(const Atomic&) = delete;
  Atomic& operator=(const Atomic&) = delete;

  T load(std::memory_order mo, Where where = {}) const { return a_.load(order(mo), where); }
  void store(T value, std::memory_order mo, Where where = {}) { a_.store(value, order(mo), where); }
  T fetch_add(T value, std::memory_order mo, Where where = {}) {
    return a_.fetch_add(value, order(mo), where);
  }
  T fetch_sub(T value, std::memory_order mo, Where where = {}) {
    return a_.fetch_sub(value, order(mo), where);
  }
  bool compare_exchange_weak(T& expected, T desired, std::memory_order success, std::memory_order failure,
                             Where where = {}) {
    return a_.compare_exchange(rl::bool_t<true>(), expected, desired, order(success), order(failure), where);
  }
  bool compare_exchange_strong(T& expected, T desired, std::memory_order success, std::memory_order failure,
                               Where where = {}) {
    return a_.compare_exchange(rl::bool_t<false>(), expected, desired, order(success), order(failure), where);
  }

  T latest() const { return a_.debug_value(); }  // what the kernel would see; no step of the model

 private:
  rl::atomic<T> a_;
};

// A variable that must not be raced for. Relacy prints what it holds, so it holds a number.
template <class T>
class Var {
 public:
  Var(T value) : v_(static_cast<int>(value)) {}
  Var(const Var&) = delete;
  Var& operator=(const Var&) = delete;

  Var& operator=(T value) {
    v_(Where()).store(static_cast<int>(value));
    return *this;
  }
  operator T() const { return static_cast<T>(v_(Where()).load()); }

 private:
  rl::var<int> v_;
};

class Mutex {
 public:
  void lock(Where where = {}) { m_.lock(where); }
  void unlock(Where where = {}) { m_.unlock(where); }

 private:
  rl::mutex m_;
};

// A thread parks while the word holds what it expects; whoever wakes an address need not know what is there
// by now. It orders no memory, less than the kernel's does, so the algorithm cannot lean on it.
class Futex {
 public:
  static void reset() { parked_ = {}; }

  // True: the time was up.
  static bool park(const Atomic<std::uint32_t>& word, std::uint32_t expected, bool timed, Where where = {}) {
    rl::context& c = rl::ctx();
    c.sched();
    if (word.latest() != expected) {
      c.yield(
          1,
          where);  // the kernel has seen the new value, so the next look will not find the old one for ever
      return false;
    }
    const bool spurious = c.is_random_sched() && choose(8) == 0;
    const unsigned me = this_thread();
    parked_[me] = &word;
    const rl::unpark_reason reason = c.park_current_thread(timed, spurious, false, where);
    parked_[me] = nullptr;
    return reason == rl::unpark_reason_timeout;
  }

  static void wake(const void* address, Where where = {}) {
    rl::context& c = rl::ctx();
    c.sched();
    for (unsigned i = 0; i < parked_.size(); ++i) {
      if (parked_[i] != address) continue;
      parked_[i] = nullptr;
      c.unpark_thread(static_cast<rl::thread_id_t>(i), false, where);
    }
  }

 private:
  static inline std::array<const void*, 8> parked_{};
};

// How each thread left the word of a turnstile.
class Memory {
 public:
  static void reset() { left_ = {}; }
  static std::uint64_t recall(const void* turnstile) {
    const Left& mine = left_[this_thread()];
    return mine.turnstile == turnstile && !mine.doubted ? mine.word : 0;
  }
  static void remember(const void* turnstile, std::uint64_t word) {
    left_[this_thread()].turnstile = turnstile;
    left_[this_thread()].word = word;
  }
  static void doubt() { left_[this_thread()].doubted = true; }
  static void compare(const void* turnstile, std::uint64_t word) {
    Left& mine = left_[this_thread()];
    if (mine.turnstile == turnstile && mine.word == word) mine.doubted = false;
  }

 private:
  struct Left {
    const void* turnstile;
    std::uint64_t word;
    bool doubted;
  };
  static inline std::array<Left, 8> left_{};
};

struct RelacyPlatform {
  template <class T>
  using Atomic = model::Atomic<T>;
  template <class T>
  using Var = model::Var<T>;
  using Mutex = model::Mutex;

  static constexpr int kLooks = 1;  // more are the same again
  static constexpr int kBatch = 1;  // so that whatever works by batches lets the lock go
  static std::uint64_t recall(const void* turnstile) noexcept { return Memory::recall(turnstile); }
  static void remember(const void* turnstile, std::uint64_t word) noexcept {
    Memory::remember(turnstile, word);
  }
  static void doubt() noexcept { Memory::doubt(); }
  static void compare(const void* turnstile, std::uint64_t word) noexcept {
    Memory::compare(turnstile, word);
  }
  static void fetch(const void*) noexcept {}
  static void yield() noexcept { rl::ctx().yield(1, Where()); }
  static void wake(const Atomic<std::uint32_t>* address) noexcept { Futex::wake(address); }
  static void measure(detail::Meter&, std::int64_t, int, std::int64_t) noexcept {
  }  // no gate here has a meter
  static void point(const char*) noexcept {}
};

}  // namespace bulkhead::model
