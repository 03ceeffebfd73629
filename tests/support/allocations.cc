#include "tests/support/allocations.h"

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

#if defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
#define COUNT_BY_SANITIZER 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define COUNT_BY_SANITIZER 1
#endif
#if defined(COUNT_BY_SANITIZER)
#include <sanitizer/allocator_interface.h>
#endif

namespace {

std::atomic<bool> counting = false;
std::atomic<std::uint64_t> allocations = 0;
std::atomic<std::int64_t> until_failure = -1;  // allocations before the one that fails; negative: none will
std::atomic<bool> failed = false;
constinit thread_local bulkhead::tests::ThreadMemory memory;

void count() {
  if (counting.load(std::memory_order_relaxed)) allocations.fetch_add(1, std::memory_order_relaxed);
}

#if defined(COUNT_BY_SANITIZER)
[[maybe_unused]] const int installed = __sanitizer_install_malloc_and_free_hooks(
    [](const volatile void*, std::size_t) { count(); }, [](const volatile void*) {});

}  // namespace
#else
bool is_to_fail() {
  if (memory.left == 0) {
    memory.failed = true;
    if (memory.once) memory.left = -1;
    return true;
  }
  if (memory.left > 0) --memory.left;
  if (until_failure.load(std::memory_order_relaxed) < 0) return false;
  if (until_failure.fetch_sub(1, std::memory_order_relaxed) != 0) return false;
  failed = true;
  return true;
}

void* counted_or_null(std::size_t size, std::size_t align) noexcept {
  count();
  if (is_to_fail()) return nullptr;
  const std::size_t rounded = (size + align - 1) / align * align;
  void* p = std::aligned_alloc(align, rounded > 0 ? rounded : align);
  if (!p) std::abort();
  return p;
}

void* counted_or_throw(std::size_t size, std::size_t align) {
  void* const p = counted_or_null(size, align);
  if (!p) throw std::bad_alloc();
  return p;
}

}  // namespace

void* operator new(std::size_t size) { return counted_or_throw(size, alignof(std::max_align_t)); }
void* operator new[](std::size_t size) { return counted_or_throw(size, alignof(std::max_align_t)); }
void* operator new(std::size_t size, std::align_val_t align) {
  return counted_or_throw(size, static_cast<std::size_t>(align));
}
void* operator new[](std::size_t size, std::align_val_t align) {
  return counted_or_throw(size, static_cast<std::size_t>(align));
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  return counted_or_null(size, alignof(std::max_align_t));
}
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept {
  return counted_or_null(size, alignof(std::max_align_t));
}
void* operator new(std::size_t size, std::align_val_t align, const std::nothrow_t&) noexcept {
  return counted_or_null(size, static_cast<std::size_t>(align));
}
void* operator new[](std::size_t size, std::align_val_t align, const std::nothrow_t&) noexcept {
  return counted_or_null(size, static_cast<std::size_t>(align));
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t) noexcept { std::free(p); }
void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }
void operator delete(void* p, const std::nothrow_t&) noexcept { std::free(p); }
void operator delete[](void* p, const std::nothrow_t&) noexcept { std::free(p); }
void operator delete(void* p, std::align_val_t, const std::nothrow_t&) noexcept { std::free(p); }
void operator delete[](void* p, std::align_val_t, const std::nothrow_t&) noexcept { std::free(p); }
#endif

namespace bulkhead::tests {

void start_counting() noexcept {
  allocations = 0;
  counting = true;
}

std::uint64_t stop_counting() noexcept {
  counting = false;
  return allocations;
}

bool can_fail_allocations() noexcept {
#if defined(COUNT_BY_SANITIZER)
  return false;
#else
  return true;
#endif
}
ThreadMemory& thread_memory() noexcept { return memory; }
void fail_allocations(bool fail) noexcept { memory.left = fail ? 0 : -1; }

void start_failing(std::uint64_t n) noexcept {
  failed = false;
  until_failure = static_cast<std::int64_t>(n);
}

bool stop_failing() noexcept {
  until_failure = -1;
  return failed;
}

}  // namespace bulkhead::tests
