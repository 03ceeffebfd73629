// block_pool.h - storage for asynchronous operations: a few static blocks, then a free list that grows. Blocks are
// aligned like std::max_align_t. Allocated blocks are kept for reuse and never freed. Threads: any.
#pragma once

#include "bulkhead/detail/language.h"

#include <cstddef>

namespace bulkhead::detail {

void* take_block(std::size_t size);               // std::bad_alloc
void* try_take_block(std::size_t size) noexcept;  // null: no memory
void give_block(void* block, std::size_t size) noexcept;

}  // namespace bulkhead::detail
