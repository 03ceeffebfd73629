// body.h - bodies of requests: one table of fields, from which bodies are read and their JSON Schema is made.
#pragma once

#include <boost/json/object.hpp>
#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "message.h"

namespace bulkhead::control {

struct Body {
  std::optional<std::uint32_t> max_concurrent, max_queue;
  std::chrono::nanoseconds ttl = std::chrono::minutes(15);
  std::string reason, breaker;
  std::optional<bool> on;
  std::map<std::string, std::uint32_t> budgets;  // max, by name
};

enum class FieldType : std::uint8_t { count, ttl, reason, breaker, on, budgets };

struct Field {
  std::string_view name;
  FieldType type{};
  bool required = false;
  std::string_view about;
  std::optional<std::uint32_t> Body::* count = nullptr;  // of a count: where to store it, and its bounds
  std::uint32_t least = 0, most = 0;
};

struct BodySpec {
  std::string_view name;  // of its schema
  std::span<const Field> fields;
  bool one_of_size = false;  // requires max_concurrent, max_queue or budgets
};

extern const BodySpec kSizeBody, kBreakerBody, kDrainBody, kRevertBody, kReloadBody, kSwitchBody;
extern const BodySpec kBatchBody, kConfigBody;  // without fields: their handlers read them

// An error for each unknown field, with a similar name if there is one.
std::vector<FieldError> unknown_fields(const boost::json::object& object,
                                       const std::vector<std::string>& known, const std::string& prefix = "");
Problem invalid_body(std::vector<FieldError> errors);
// Both throw a Problem with all errors. `prefix` precedes each pointer.
boost::json::object parse_object(std::string_view text);
Body read_body(const BodySpec& spec, const boost::json::object& object, const std::string& prefix = "");

boost::json::object schema_of(const BodySpec& spec);  // JSON Schema

}  // namespace bulkhead::control
