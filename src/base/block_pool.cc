#include "bulkhead/detail/block_pool.h"

#include <mutex>
#include <new>
#include <utility>

namespace bulkhead::detail {
namespace {

constexpr std::size_t kBlockSize = 512;
constexpr std::size_t kStaticBlocks = 128;
constexpr std::size_t kBatch = 32;

// A free block. Blocks change hands between threads in batches: the one that submits takes and the one that
// works gives, and with one block at a time they would fight over the lock for each.
struct Block {
  Block* next;        // in the same batch
  Block* next_batch;  // in the first block of a batch
};

struct Pool {
  std::mutex mutex;
  Block* batches = nullptr;
  std::size_t fresh = 0;  // static blocks never handed out so far
};

constinit Pool pool;
alignas(64) std::byte static_blocks[kStaticBlocks * kBlockSize];

// What a thread keeps for itself; given back when it ends.
struct Cache {
  Block* blocks = nullptr;
  std::size_t count = 0;

  ~Cache() {
    if (blocks) hand_in(std::exchange(blocks, nullptr));
    count = kBatch;  // a block that comes after this goes straight to the pool
  }
  static void hand_in(Block* batch) {
    std::lock_guard lock(pool.mutex);
    batch->next_batch = pool.batches;
    pool.batches = batch;
  }
};
thread_local Cache cache;

}  // namespace

void* take_block(std::size_t size) {
  if (size > kBlockSize) return ::operator new(size);
  if (!cache.blocks) {
    std::lock_guard lock(pool.mutex);
    if (Block* batch = pool.batches) {
      pool.batches = batch->next_batch;
      cache.blocks = batch;
      cache.count = 0;
      for (const Block* b = batch; b; b = b->next) ++cache.count;
    } else if (pool.fresh < kStaticBlocks) {
      return static_blocks + kBlockSize * pool.fresh++;
    }
  }
  if (Block* block = cache.blocks) {
    cache.blocks = block->next;
    --cache.count;
    return block;
  }
  return ::operator new(kBlockSize);
}

void give_block(void* address, std::size_t size) noexcept {
  if (size > kBlockSize) return ::operator delete(address);
  auto* block = new (address) Block{cache.blocks, nullptr};
  cache.blocks = block;
  if (++cache.count < kBatch) return;
  Cache::hand_in(std::exchange(cache.blocks, nullptr));
  cache.count = 0;
}

}  // namespace bulkhead::detail
