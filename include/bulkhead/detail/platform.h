// platform.h - the platform of the turnstile in production: std atomics and the kernel's futex. tests/model has another
// one, which explores interleavings.
#pragma once

#include <atomic>
#include <cstdint>

#include "bulkhead/detail/mutex.h"

namespace bulkhead::detail {

class Meter;

struct StdPlatform {
  template <class T>
  using Atomic = std::atomic<T>;
  template <class T>
  using Var = T;
  using Mutex = detail::Mutex;

  // Tries to read numbers that a resize is changing, before the lock is taken. A resize takes less time unless its thread
  // was preempted.
  static constexpr int kLooks = 16;
  // Waiters visited per hold of the turnstile's lock: some tenths of a millisecond if all are cache misses.
  static constexpr int kBatch = 1024;
  static void pause() noexcept {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
  }
  static void fetch(const void* address) noexcept { __builtin_prefetch(address, 1); }  // about to be written
  // The word of this turnstile as this thread left it; 0: unknown, or other threads change it too.
  static std::uint64_t recall(const void* turnstile) noexcept {
    return last.turnstile == turnstile && !last.doubted ? last.word : 0;
  }
  static void remember(const void* turnstile, std::uint64_t word) noexcept {
    last.turnstile = turnstile;
    last.word = word;
  }
  static void doubt() noexcept { last.doubted = true; }  // the recalled word was wrong
  static void compare(const void* turnstile, std::uint64_t word) noexcept {
    if (last.turnstile == turnstile && last.word == word) last.doubted = false;
  }
  struct Last {
    const void* turnstile;
    std::uint64_t word;
    bool doubted;
  };
  static constinit inline thread_local Last last{};

  static void yield() noexcept;
  // Wakes the threads that park on this address. Does not read it: the object may be destroyed.
  static void wake(const std::atomic<std::uint32_t>* address) noexcept;
  static void measure(Meter& meter, std::int64_t units, int full, std::int64_t now) noexcept;
  // A sync point, at which a test can hold a thread; empty outside test builds.
  static void point(const char* name) noexcept;
};

}  // namespace bulkhead::detail
