#include "base/membarrier.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#include <linux/membarrier.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <thread>

#include "bulkhead/detail/mutex.h"

namespace bulkhead::base {
namespace {

bool ask(int command) noexcept { return syscall(SYS_membarrier, command, 0, 0) == 0; }

// When a page becomes read-only, the kernel interrupts every core that may have its old mapping cached, and the interrupt is
// a barrier. The page must be in memory (mlock) and mapped on this core, or there is nothing to invalidate. Processors other
// than x86-64 invalidate without an interrupt, as do those of AMD with the instruction INVLPGB, which newer kernels use.
#if defined(__x86_64__)
bool invalidates_by_interrupt() noexcept {
  constexpr unsigned kSizes = 0x8000'0008, kInvlpgb = 1U << 3;
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(kSizes, &a, &b, &c, &d) == 0 || (b & kInvlpgb) == 0;
}
#endif

bool barrier_by_page() noexcept {
#if defined(__x86_64__)
  static const bool works = invalidates_by_interrupt();
  if (!works) return false;
  static constinit detail::Mutex mutex;
  static constinit void* page = nullptr;
  const detail::MutexLock lock(mutex);
  const auto size = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  if (!page) {
    void* const made = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (made == MAP_FAILED) return false;
    mlock(made,
          size);  // if it fails, the page may be swapped out; the write below brings it back
    page = made;
  }
  if (mprotect(page, size, PROT_READ | PROT_WRITE) != 0) return false;
  static_cast<std::atomic<int>*>(page)->fetch_add(1);
  return mprotect(page, size, PROT_READ) == 0;
#else
  return false;
#endif
}

}  // namespace

bool membarrier_works() noexcept {
  static const bool works =
      ask(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) && ask(MEMBARRIER_CMD_PRIVATE_EXPEDITED);
  return works;
}

void membarrier() noexcept {
  static constinit std::atomic<bool> lost{false};
  if (!lost.load(std::memory_order_relaxed)) {
    // With some kernels it fails in a forked process, which is not registered.
    if (ask(MEMBARRIER_CMD_PRIVATE_EXPEDITED)) return;
    if (ask(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) && ask(MEMBARRIER_CMD_PRIVATE_EXPEDITED)) return;
    if (!lost.exchange(true, std::memory_order_relaxed))
      std::fputs(
          "bulkhead: the membarrier system call no longer works (a seccomp filter?); retiring tenants takes "
          "a slower "
          "way\n",
          stderr);
  }
  if (!barrier_by_page()) std::this_thread::sleep_for(std::chrono::milliseconds(20));
}

}  // namespace bulkhead::base
