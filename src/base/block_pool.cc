#include "bulkhead/detail/block_pool.h"

#include <mutex>
#include <new>

namespace bulkhead::detail {
namespace {

constexpr std::size_t kBlockSize = 512;
constexpr std::size_t kStaticBlocks = 128;

union Block {
  Block* next;
  alignas(std::max_align_t) std::byte bytes[kBlockSize];
};

struct Pool {
  std::mutex mutex;
  Block* free = nullptr;
  std::size_t fresh = 0;  // static blocks never handed out so far
};

constinit Pool pool;
alignas(64) std::byte static_blocks[kStaticBlocks * sizeof(Block)];

}  // namespace

void* take_block(std::size_t size) {
  if (size > kBlockSize) return ::operator new(size);
  {
    std::lock_guard lock(pool.mutex);
    if (Block* block = pool.free) {
      pool.free = block->next;
      return block;
    }
    if (pool.fresh < kStaticBlocks) return static_blocks + sizeof(Block) * pool.fresh++;
  }
  return ::operator new(sizeof(Block));
}

void give_block(void* address, std::size_t size) noexcept {
  if (size > kBlockSize) return ::operator delete(address);
  auto* block = new (address) Block;
  std::lock_guard lock(pool.mutex);
  block->next = pool.free;
  pool.free = block;
}

}  // namespace bulkhead::detail
