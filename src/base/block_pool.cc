#include "bulkhead/detail/block_pool.h"

#include <atomic>
#include <mutex>
#include <new>

#include "bulkhead/detail/mutex.h"

namespace bulkhead::detail {
namespace {

constexpr std::size_t kLine = 64;  // blocks are whole cache lines, so that two of them share none
constexpr std::size_t kSmall = 256, kLarge = 512;
constexpr std::size_t kStaticBlocks = 64;  // of each size

struct Block {
  Block* next;
};

// Those who give blocks back and those who take them are mostly different threads. So they do not meet, except
// when the takers have used up theirs and take over all that was returned. (A cache per thread would have to be
// registered for the thread's end, which allocates.)
template <std::size_t Size>
struct Pool {
  alignas(kLine) std::atomic<Block*> returned{nullptr};
  alignas(kLine) Mutex mutex;  // guards what follows
  Block* free = nullptr;
  std::size_t fresh = 0;  // static blocks never handed out so far

  void* take();
  void give(void* address) noexcept;
};

constinit Pool<kSmall> small;
constinit Pool<kLarge> large;
template <std::size_t Size>
alignas(kLine) std::byte static_blocks[kStaticBlocks * Size];

// A block comes back in the cache of the thread that gave it. The next one is fetched from there while this
// one is being used.
void fetch(const Block* block) noexcept {
  const auto* bytes = reinterpret_cast<const std::byte*>(block);
  for (std::size_t at = 0; at < kSmall; at += kLine) __builtin_prefetch(bytes + at, 1);
}

template <std::size_t Size>
void* Pool<Size>::take() {
  {
    std::lock_guard lock(mutex);
    Block* block = free;
    // acquire: the next pointers of what was returned
    if (!block) block = returned.exchange(nullptr, std::memory_order_acquire);
    if (block) {
      free = block->next;
      if (free) fetch(free);
      return block;
    }
    if (fresh < kStaticBlocks) return static_blocks<Size> + Size * fresh++;
  }
  return ::operator new(Size, std::align_val_t{kLine});
}

template <std::size_t Size>
void Pool<Size>::give(void* address) noexcept {
  auto* block = new (address) Block;
  block->next = returned.load(std::memory_order_relaxed);
  // Only pushed here and only taken as a whole, so a head that comes back is the same list: no ABA.
  while (!returned.compare_exchange_weak(block->next, block, std::memory_order_release,
                                         std::memory_order_relaxed)) {
  }
}

}  // namespace

void* take_block(std::size_t size) {
  return size <= kSmall ? small.take() : size <= kLarge ? large.take() : ::operator new(size);
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
