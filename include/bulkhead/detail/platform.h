// platform.h - what the turnstile is made of in production: std atomics and the kernel's futex.
// tests/model brings another platform, in which every interleaving can be explored.
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

  // At numbers that a resize is changing, before the lock is taken: a resize takes less, unless it has lost its core.
  static constexpr int looks = 16;
  static void pause() noexcept {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
  }
  static void fetch(const void* address) noexcept { __builtin_prefetch(address, 1); }  // about to be written
  // The word of the turnstile at this address as this thread left it; 0: unknown, or others change it too.
  static std::uint64_t recall(const void* turnstile) noexcept {
    return last.turnstile == turnstile && !last.doubted ? last.word : 0;
  }
  static void remember(const void* turnstile, std::uint64_t word) noexcept {
    last.turnstile = turnstile;
    last.word = word;
  }
  static void doubt() noexcept { last.doubted = true; }  // what was recalled was wrong
  static void compare(const void* turnstile, std::uint64_t word) noexcept {
    if (last.turnstile == turnstile && last.word == word) last.doubted = false;
  }
  struct Last {
    const void* turnstile;
    std::uint64_t word;
    bool doubted;
  };
  static constinit inline thread_local Last last{};

  static void yield() noexcept;  // lets other threads run on this core
  // Wakes whoever parks on this address. Nothing is read there: the object may be gone.
  static void wake(const std::atomic<std::uint32_t>* address) noexcept;
  static void measure(Meter& meter, std::int64_t units, int full, std::int64_t now) noexcept;
  // A place where a test can hold a thread to force an interleaving; empty outside test builds.
  static void point(const char* name) noexcept;
};

}  // namespace bulkhead::detail
