// block_pool.h - storage for operations whose starter does not wait for them: a few static blocks, then a
// free list that grows and is reused. Blocks are aligned like std::max_align_t. Threads: any.
#pragma once

#include <cstddef>

namespace bulkhead::detail {

void* take_block(std::size_t size);
void give_block(void* block, std::size_t size) noexcept;

}  // namespace bulkhead::detail
