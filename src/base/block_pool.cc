#include "bulkhead/detail/block_pool.h"

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

struct Pool {
  Mutex mutex;
  Block* free = nullptr;
  std::size_t fresh = 0;  // static blocks never handed out so far
};

constinit Pool pool;
alignas(64) std::byte static_blocks[kStaticBlocks * kBlockSize];

}  // namespace

// One list for all threads: those that take and those that give are mostly different ones, and a cache per
// thread would have to be registered for the thread's end, which allocates.
void* take_block(std::size_t size) {
  if (size > kBlockSize) return ::operator new(size);
  {
    std::lock_guard lock(pool.mutex);
    if (Block* block = pool.free) {
      pool.free = block->next;
      return block;
    }
    if (pool.fresh < kStaticBlocks) return static_blocks + kBlockSize * pool.fresh++;
  }
  return ::operator new(kBlockSize);
}

void give_block(void* address, std::size_t size) noexcept {
  if (size > kBlockSize) return ::operator delete(address);
  auto* block = new (address) Block;
  std::lock_guard lock(pool.mutex);
  block->next = pool.free;
  pool.free = block;
}

}  // namespace bulkhead::detail
