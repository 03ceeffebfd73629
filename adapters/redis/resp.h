// resp.h - the protocol of Redis and Valkey: requests as bytes, replies from bytes. No sockets. The store is spoken to in
// RESP2, which each server starts with (no HELLO 3, so a reply is never a push); the types of RESP3 are read, too.
//
//   std::string request;
//   bulkhead::redis::append_command(request, {"GET", "name"});
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace bulkhead::redis {

struct Value {
  enum class Kind : std::uint8_t { null, integer, number, boolean, text, error, list };
  Kind kind = Kind::null;
  std::int64_t integer = 0;   // also of a boolean: 0 or 1
  std::string text{};         // of a text, an error or a number (as it was sent)
  std::vector<Value> list{};  // also of a set, a push, and of a map: key, value, key ...

  bool is_error() const noexcept { return kind == Kind::error; }
};

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
