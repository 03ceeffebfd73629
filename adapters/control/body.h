// body.h - the bodies of requests: one table says which fields there are, reads them, and describes them.
#pragma once

#include <boost/json/object.hpp>
#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "message.h"

namespace bulkhead::control {

enum class FieldType : std::uint8_t { limit, queue, ttl, reason, circuit, on };

struct Field {
  std::string_view name;
  FieldType type{};
  bool required = false;
  std::string_view about;
};

struct BodySpec {
  std::string_view name;  // of its schema
  std::span<const Field> fields;
  bool one_of_size = false;  // `limit` or `queue` has to be there
};

extern const BodySpec kSizeBody, kCircuitBody, kDrainBody, kRevertBody, kReloadBody, kSwitchBody;

struct Body {
  std::optional<std::uint32_t> limit, queue;
  std::chrono::nanoseconds ttl = std::chrono::minutes(15);
  std::string reason, circuit;
  std::optional<bool> on;
};

// What `object` has and nobody knows, with what may have been meant.
std::vector<FieldError> unknown_fields(const boost::json::object& object,
                                       const std::vector<std::string>& known, const std::string& prefix = "");
Problem invalid_body(std::vector<FieldError> errors);
// Both throw a Problem with all that is wrong. `prefix` is put before each pointer.
boost::json::object parse_object(std::string_view text);
Body read_body(const BodySpec& spec, const boost::json::object& object, const std::string& prefix = "");

boost::json::object schema_of(const BodySpec& spec);  // JSON Schema

}  // namespace bulkhead::control
