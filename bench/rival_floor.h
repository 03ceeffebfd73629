// The floor: what the atomic operations alone cost. Neither can make a call wait, the first cannot
// even reject one.
#pragma once

#include <atomic>

#include "bench/workload.h"

namespace bench {

class AddSub {
 public:
  static constexpr std::string_view name = kFloor;
  static constexpr Guarantees guarantees{.waits = false};
  explicit AddSub(unsigned) {}

  template <class F>
  bool try_call(F&& body) {
    count_.fetch_add(1, std::memory_order_acquire);
    body();
    count_.fetch_sub(1, std::memory_order_release);
    return true;
  }
  template <class F>
  void call(F&& body) {
    try_call(body);
  }

 private:
  alignas(64) std::atomic<std::uint64_t> count_{0};
};

class CasSub {
 public:
  static constexpr std::string_view name = "floor: CAS + fetch_sub";
  static constexpr Guarantees guarantees{.waits = false};
  explicit CasSub(unsigned limit) : limit_(limit) {}

  template <class F>
  bool try_call(F&& body) {
    std::uint64_t c = count_.load(std::memory_order_relaxed);
    do {
      if (c >= limit_) return false;
    } while (!count_.compare_exchange_weak(c, c + 1, std::memory_order_acquire, std::memory_order_relaxed));
    body();
    count_.fetch_sub(1, std::memory_order_release);
    return true;
  }
  template <class F>
  void call(F&& body) {
    while (!try_call(body)) {
    }
  }

 private:
  alignas(64) std::atomic<std::uint64_t> count_{0};
  alignas(64) const std::uint64_t limit_;
};

// The same without the load before the compare-exchange: it expects what this thread's last release
// left behind. On the Intel measured, a load of the word right after a locked operation on it costs 5
// ns of a pair's 17.
class GuessedCasSub {
 public:
  static constexpr std::string_view name = "floor: guessed CAS + fetch_sub";
  static constexpr Guarantees guarantees{.waits = false};
  explicit GuessedCasSub(unsigned limit) : limit_(limit) {}

  template <class F>
  bool try_call(F&& body) {
    std::uint64_t c = last_.of == this ? last_.count : count_.load(std::memory_order_relaxed);
    if (c >= limit_) c = count_.load(std::memory_order_relaxed);
    do {
      if (c >= limit_) return false;
    } while (!count_.compare_exchange_weak(c, c + 1, std::memory_order_acquire, std::memory_order_relaxed));
    body();
    last_ = {this, count_.fetch_sub(1, std::memory_order_release) - 1};
    return true;
  }
  template <class F>
  void call(F&& body) {
    while (!try_call(body)) {
    }
  }

 private:
  struct Last {
    const GuessedCasSub* of;
    std::uint64_t count;
  };
  static constinit inline thread_local Last last_{};
  alignas(64) std::atomic<std::uint64_t> count_{0};
  alignas(64) const std::uint64_t limit_;
};

}  // namespace bench
