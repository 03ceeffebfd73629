// codec.h - the numbers and the orders on a board, as bytes.
//
// Both ends run the same version of this code on one machine: the board's format() says so, and a board of another format
// is rejected. Times are those of CLOCK_MONOTONIC, which all processes of a machine share.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "adapters/workers/board.h"
#include "bulkhead/registry_snapshot.h"

namespace bulkhead::workers {

std::uint64_t format() noexcept;  // of the bytes; changes with the types that are written

// As many entries as fit into `room` bytes; `left_out` counts those that do not.
std::string encode(const RegistrySnapshot& all, std::size_t room, std::size_t& left_out);
RegistrySnapshot decode(std::string_view bytes);  // what is readable of it

std::string encode(const Orders& orders);
Orders decode_orders(std::string_view bytes);

}  // namespace bulkhead::workers
