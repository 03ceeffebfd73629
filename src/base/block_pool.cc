#include "bulkhead/detail/block_pool.h"

#include <atomic>
#include <cstdlib>
#include <new>

#include "bulkhead/detail/mutex.h"

namespace bulkhead::detail {
namespace {

constexpr std::size_t kLine = 64;  // blocks are whole cache lines, so that they do not share any
constexpr std::size_t kSmall = 256, kLarge = 640;
constexpr std::size_t kStaticBlocks = 64;  // of each size

struct Block {
  Block* next;
};

// Mostly different threads take blocks and give them back. So each side has its own list, and the takers take over all
// returned blocks when theirs are used up. (A cache per thread would need a destructor at the end of the thread, and
// registering that allocates.)
template <std::size_t Size>
struct Pool {
  alignas(kLine) std::atomic<Block*> returned{nullptr};
  alignas(kLine) Mutex mutex;
  Block* free BULKHEAD_GUARDED_BY(mutex) = nullptr;
  std::size_t fresh BULKHEAD_GUARDED_BY(mutex) = 0;  // static blocks that were never handed out

  void* take() noexcept;
  void give(void* address) noexcept;
};

constinit Pool<kSmall> small;
constinit Pool<kLarge> large;
template <std::size_t Size>
alignas(kLine) std::byte static_blocks[kStaticBlocks * Size];

// A returned block is in the cache of the thread that gave it back. Prefetch the next one while this one is used.
void fetch(const Block* block) noexcept {
  const auto* bytes = reinterpret_cast<const std::byte*>(block);
  for (std::size_t at = 0; at < kSmall; at += kLine) __builtin_prefetch(bytes + at, 1);
}

template <std::size_t Size>
void* Pool<Size>::take() noexcept {
  {
    detail::MutexLock lock(mutex);
    Block* block = free;
    // acquire: sees the next pointers of the returned blocks
    if (!block) block = returned.exchange(nullptr, std::memory_order_acquire);
    if (block) {
      free = block->next;
      if (free) fetch(free);
      return block;
    }
    if (fresh < kStaticBlocks) return static_blocks<Size> + Size * fresh++;
  }
  return ::operator new(Size, std::align_val_t{kLine}, std::nothrow);
}

template <std::size_t Size>
void Pool<Size>::give(void* address) noexcept {
  auto* block = new (address) Block;
  block->next = returned.load(std::memory_order_relaxed);
  // Blocks are pushed one by one and taken all at once, so an equal head means the same list: no ABA problem.
  while (!returned.compare_exchange_weak(block->next, block, std::memory_order_release,
                                         std::memory_order_relaxed)) {
  }
}

}  // namespace

void* try_take_block(std::size_t size) noexcept {
  return size <= kSmall ? small.take() : size <= kLarge ? large.take() : ::operator new(size, std::nothrow);
}

void* take_block(std::size_t size) {
  void* const block = try_take_block(size);
#if defined(__cpp_exceptions)
  if (!block) throw std::bad_alloc();
#else
  if (!block) std::abort();
#endif
  return block;
}

void give_block(void* address, std::size_t size) noexcept {
  if (size <= kSmall)
    small.give(address);
  else if (size <= kLarge)
    large.give(address);
  else
    ::operator delete(address);
}

}  // namespace bulkhead::detail
