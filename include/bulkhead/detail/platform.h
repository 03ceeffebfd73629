// platform.h - what the turnstile is made of in production: std atomics and the kernel's futex.
// tests/model brings another platform, in which every interleaving can be explored.
#pragma once

#include <atomic>
#include <cstdint>

#include "bulkhead/detail/mutex.h"

namespace bulkhead::detail {

struct StdPlatform {
  template <class T>
  using Atomic = std::atomic<T>;
  template <class T>
  using Var = T;
  using Mutex = detail::Mutex;

  static void pause() noexcept {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
  }
  static void yield() noexcept;  // lets other threads run on this core
  // Wakes whoever parks on this address. Nothing is read there: the object may be gone.
  static void wake(const std::atomic<std::uint32_t>* address) noexcept;
  // A place where a test can hold a thread to force an interleaving; empty outside test builds.
  static void point(const char* name) noexcept;
};

}  // namespace bulkhead::detail
