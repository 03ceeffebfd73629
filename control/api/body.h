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
  std::chrono::nanoseconds latency{0};           // of a fault
  double error = 0;
};

enum class FieldType : std::uint8_t { count, ttl, reason, breaker, on, budgets, latency, share };

struct Field {
  std::string_view name;
  FieldType type{};
  bool required = false;
  std::string_view about;
  std::optional<std::uint32_t> Body::* count = nullptr;  // of a count: where to store it, and its bounds
  std::uint32_t least = 0, most = 0;                     // of a ttl: most seconds, 0: a day
};

struct BodySpec {
  std::string_view name;  // of its schema
  std::span<const Field> fields;
  std::span<const std::string_view> one_of{};  // at least one of these is required
};

extern const BodySpec kSizeBody, kBreakerBody, kDrainBody, kRevertBody, kReloadBody, kSwitchBody, kFaultBody;
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
