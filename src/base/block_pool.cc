#include "bulkhead/detail/block_pool.h"

#include <atomic>
#include <mutex>
#include <new>

#include "bulkhead/detail/mutex.h"

namespace bulkhead::detail {
namespace {

constexpr std::size_t kBlockSize = 512;
constexpr std::size_t kStaticBlocks = 128;

struct Block {
  Block* next;
};

// Those who give blocks back and those who take them are mostly different threads. So they do not meet, except
// when the takers have used up theirs and take over all that was returned. (A cache per thread would have to be
// registered for the thread's end, which allocates.)
struct Pool {
  alignas(64) std::atomic<Block*> returned{nullptr};
  alignas(64) Mutex mutex;  // guards what follows
  Block* free = nullptr;
  std::size_t fresh = 0;  // static blocks never handed out so far
};

constinit Pool pool;
alignas(64) std::byte static_blocks[kStaticBlocks * kBlockSize];

// A block comes back in the cache of the thread that gave it. The next one is fetched from there while this
// one is being used.
void fetch(const Block* block) noexcept {
  const auto* bytes = reinterpret_cast<const std::byte*>(block);
  for (std::size_t line = 0; line < 256; line += 64) __builtin_prefetch(bytes + line, 1);
}

}  // namespace

void* take_block(std::size_t size) {
  if (size > kBlockSize) return ::operator new(size);
  {
    std::lock_guard lock(pool.mutex);
    Block* block = pool.free;
    // acquire: the next pointers of what was returned
    if (!block) block = pool.returned.exchange(nullptr, std::memory_order_acquire);
    if (block) {
      pool.free = block->next;
      if (pool.free) fetch(pool.free);
      return block;
    }
    if (pool.fresh < kStaticBlocks) return static_blocks + kBlockSize * pool.fresh++;
  }
  return ::operator new(kBlockSize);
}

void give_block(void* address, std::size_t size) noexcept {
  if (size > kBlockSize) return ::operator delete(address);
  auto* block = new (address) Block;
  block->next = pool.returned.load(std::memory_order_relaxed);
  // Only pushed here and only taken as a whole, so a head that comes back is the same list: no ABA.
  while (!pool.returned.compare_exchange_weak(block->next, block, std::memory_order_release,
                                              std::memory_order_relaxed)) {
  }
}

}  // namespace bulkhead::detail
