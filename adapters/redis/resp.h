// resp.h - the protocol of Redis and Valkey: requests as bytes, replies from bytes. No sockets. The store is spoken to in
// RESP2, which each server starts with (no HELLO 3, so a reply is never a push); the types of RESP3 are read, too.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "transport.h"

namespace bulkhead::redis {

// A reply that is larger or deeper than these is malformed.
inline constexpr std::size_t kMaxText = 1 << 20;
inline constexpr std::size_t kMaxElements = 1 << 16;
inline constexpr int kMaxDepth = 8;

enum class Parsed : std::uint8_t { done, incomplete, malformed };
// The first reply of `bytes`. done: `used` of them were it. Attributes of RESP3 are skipped.
Parsed parse(std::string_view bytes, Value& value, std::size_t& used);

// Appends one command to `out`.
void append_command(std::string& out, const std::vector<std::string>& words);

}  // namespace bulkhead::redis
