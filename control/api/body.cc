#include "body.h"

#include <algorithm>
#include <array>
#include <boost/json/array.hpp>
#include <boost/json/parse.hpp>
#include <iterator>
#include <set>

#include "base/suggest.h"
#include "bulkhead/detail/turnstile.h"
#include "bulkhead/fault.h"
#include "config/values.h"

namespace bulkhead::control {
namespace json = boost::json;
namespace {

constexpr std::chrono::nanoseconds kMinTtl = std::chrono::seconds(1), kMaxTtl = std::chrono::hours(24);
constexpr std::size_t kMaxReason = 500;

constexpr Field kConcurrent{.name = "max_concurrent",
                            .about = "most calls at once",
                            .count = &Body::max_concurrent,
                            .least = 1,
                            .most = detail::word::kMaxLimit};
constexpr Field kQueue{.name = "max_queue",
                       .about = "most waiting calls",
                       .count = &Body::max_queue,
                       .most = detail::line::kMaxQueue};
constexpr Field kBudgets{.name = "budgets",
                         .type = FieldType::budgets,
                         .about = "the maximum of budgets, by name",
                         .least = 1,
                         .most = detail::word::kMaxLimit};
constexpr Field kTtl{
    "ttl", FieldType::ttl, false,
    "time until it ends by itself: seconds, or 90s, 15m, 1h30m; default 15 minutes, at most 24 hours"};
constexpr Field kReason{"reason", FieldType::reason, true,
                        "shown to other operators and written to the audit log"};
constexpr Field kState{"state", FieldType::breaker, true, "open: reject every call; closed: reject none"};
constexpr Field kFaultTtl{.name = "ttl",
                          .type = FieldType::ttl,
                          .required = true,
                          .about = "time until it ends by itself: seconds, or 90s, 15m; at most 1 hour",
                          .most = 3600};
constexpr Field kLatency{.name = "latency",
                         .type = FieldType::latency,
                         .about = "added to each call: seconds, or 250ms, 2s; at most 1 minute"};
constexpr Field kError{
    .name = "error", .type = FieldType::share, .about = "the share of the calls that fail, 0 to 1"};
constexpr Field kOn{"on", FieldType::on, true, "on or off"};

constexpr std::string_view kSizes[] = {"max_concurrent", "max_queue", "budgets"};
constexpr std::string_view kFaults[] = {"latency", "error"};

constexpr Field optional(Field field) {
  field.required = false;
  return field;
}

constexpr std::array kSizeFields{kConcurrent, kQueue, kBudgets, kTtl, kReason};
constexpr std::array kBreakerFields{kState, kTtl, kReason};
constexpr std::array kDrainFields{kTtl, kReason};
constexpr std::array kRevertFields{optional(kReason)};
constexpr std::array kFaultFields{kLatency, kError, kFaultTtl, kReason};
constexpr std::array kSwitchFields{kOn, optional(kReason)};

std::optional<std::chrono::nanoseconds> duration(const json::value& value) {
  if (const json::string* const text = value.if_string()) {
    const auto read =
        config::read_duration({.kind = config::Node::Kind::scalar, .text = std::string(*text)}, false);
    return read ? std::optional(*read) : std::nullopt;
  }
  if (!value.is_number()) return std::nullopt;
  const double seconds = value.to_number<double>();
  if (!(seconds >= 0 && seconds <= 1e9)) return std::nullopt;
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(seconds));
}

std::optional<std::uint32_t> count(const json::value& value, std::uint32_t least, std::uint32_t most) {
  boost::system::error_code error;
  const auto n = value.to_number<std::uint32_t>(error);  // 10.0 is 10, as in the schema
  if (error || n < least || n > most) return std::nullopt;
  return n;
}

std::size_t characters(std::string_view utf8) {
  return static_cast<std::size_t>(std::ranges::count_if(utf8, [](char c) { return (c & 0xc0) != 0x80; }));
}

std::string shown(const json::value& value) {
  std::string text = text_of(value);
  return text.size() > 60 ? text.substr(0, 57) + "..." : text;
}

// An empty message: the value is valid.
FieldError read(const Field& field, const json::value& value, Body& body) {
  const auto wrong = [&](const std::string& what, std::string hint = "") {
    return FieldError{.pointer = "", .message = shown(value) + " is not " + what, .hint = std::move(hint)};
  };
  switch (field.type) {
    case FieldType::count:
      if (!(body.*field.count = count(value, field.least, field.most)))
        return wrong(
            "a whole number from " + std::to_string(field.least) + " to " + std::to_string(field.most),
            field.least == 0 ? "" : "to reject all calls, drain it: PUT /v1/drains/NAME");
      break;
    case FieldType::budgets: {
      const json::object* const all = value.if_object();
      if (!all || all->empty()) return wrong("a map of names and numbers", R"(write {"tokens": 200000})");
      for (const auto& [name, max] : *all) {
        const auto n = count(max, field.least, field.most);
        if (!n) return wrong("a map of names and whole numbers from 1", R"(write {"tokens": 200000})");
        body.budgets[std::string(name)] = *n;
      }
      break;
    }
    case FieldType::ttl: {
      const auto ttl = duration(value);
      const std::chrono::nanoseconds most = field.most > 0 ? std::chrono::seconds(field.most) : kMaxTtl;
      if (!ttl || *ttl < kMinTtl || *ttl > most)
        return wrong(field.most > 0 ? "a duration from 1s to 1h" : "a duration from 1s to 24h",
                     "seconds as a number, or \"90s\", \"15m\", \"1h30m\"");
      body.ttl = *ttl;
      break;
    }
    case FieldType::latency: {
      const auto latency = duration(value);
      if (!latency || *latency > kMostFaultLatency)
        return wrong("a duration from 0 to 1m", "seconds as a number, or \"250ms\", \"2s\"");
      body.latency = *latency;
      break;
    }
    case FieldType::share: {
      const double share = value.is_number() ? value.to_number<double>() : -1;
      if (!(share >= 0 && share <= 1)) return wrong("a share from 0 to 1", "10 % is 0.1");
      body.error = share;
      break;
    }
    case FieldType::reason: {
      const json::string* const text = value.if_string();
      if (!text || characters(*text) > kMaxReason ||
          (field.required && text->find_first_not_of(' ') == json::string::npos) ||
          std::ranges::any_of(*text, [](char c) { return (c >= 0 && c < ' ') || c == '\x7f'; }))
        return wrong("a text of 1 to " + std::to_string(kMaxReason) + " characters in one line",
                     "other operators read it");
      body.reason = *text;
      break;
    }
    case FieldType::breaker:
      if (const json::string* const text = value.if_string(); text && (*text == "open" || *text == "closed"))
        body.breaker = *text;
      else
        return wrong("\"open\" or \"closed\"", "to return to automatic: DELETE");
      break;
    case FieldType::on:
      if (!value.is_bool()) return wrong("true or false");
      body.on = value.get_bool();
      break;
  }
  return {};
}

std::string escaped(std::string_view key) {  // RFC 6901
  std::string pointer;
  for (const char c : key)
    pointer += c == '~' ? std::string("~0") : c == '/' ? std::string("~1") : std::string(1, c);
  return pointer;
}

// The first key that occurs twice in an object of `text`, which is valid JSON.
std::optional<std::string> twice(std::string_view text) {
  std::vector<std::set<std::string>> open;  // the keys so far
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '{' || text[i] == '[') open.emplace_back();
    if (text[i] == '}' || text[i] == ']') open.pop_back();
    if (text[i] != '"') continue;
    const std::size_t start = i;
    for (++i; text[i] != '"'; ++i)
      if (text[i] == '\\') ++i;
    const std::size_t next = text.find_first_not_of(" \t\r\n", i + 1);
    if (next == std::string_view::npos || text[next] != ':') continue;
    const json::value key = json::parse({text.data() + start, i + 1 - start});
    if (!open.back().emplace(key.get_string()).second) return std::string(key.get_string());
  }
  return std::nullopt;
}

// What config::read_duration() accepts: units from coarse to fine.
std::string duration_pattern() {
  std::string pattern = "^(?=.)";
  for (const char* const unit : {"d", "h", "m", "s", "ms", "[u\u00b5]s", "ns"})
    pattern += std::string(R"(([0-9]+\.?[0-9]*)") + unit + ")?";
  return pattern + '$';
}

}  // namespace

const BodySpec kSizeBody{"SizeOverride", kSizeFields, kSizes};
const BodySpec kFaultBody{"FaultInjection", kFaultFields, kFaults};
const BodySpec kBreakerBody{"BreakerOverride", kBreakerFields};
const BodySpec kDrainBody{"Drain", kDrainFields};
const BodySpec kRevertBody{"Revert", kRevertFields};
const BodySpec kReloadBody{"Reload", kRevertFields};
const BodySpec kSwitchBody{"SwitchChange", kSwitchFields};
const BodySpec kBatchBody{"Batch", {}};
const BodySpec kConfigBody{"ConfigText", {}};

json::object parse_object(std::string_view text) {
  boost::system::error_code error;
  json::parse_options strict;
  strict.max_depth = 16;
  json::value value = json::parse({text.data(), text.size()}, error, {}, strict);
  if (error) throw Problem{kBadRequest, "the body is not JSON: " + error.message()};
  if (!value.is_object()) throw Problem{kBadRequest, "the body is not a JSON object"};
  // Parsers differ in which of the two values they take.
  if (const auto key = twice(text)) throw Problem{kBadRequest, "the key \"" + *key + "\" occurs twice"};
  return std::move(value.get_object());
}

std::vector<FieldError> unknown_fields(const json::object& object, const std::vector<std::string>& known,
                                       const std::string& prefix) {
  std::vector<FieldError> errors;
  for (const auto& [key, value] : object) {
    const std::string_view name(key.data(), key.size());
    if (std::ranges::find(known, name) != known.end()) continue;
    const std::string close = base::suggest(name, known);
    errors.push_back({.pointer = prefix + '/' + escaped(name),
                      .message = "is not a field of this body",
                      .hint = close.empty() ? "" : "did you mean \"" + close + "\"?"});
  }
  return errors;
}

Problem invalid_body(std::vector<FieldError> errors) {
  return {.type = kInvalidBody,
          .detail = errors.size() == 1 ? errors[0].pointer + ": " + errors[0].message
                                       : std::to_string(errors.size()) + " errors",
          .errors = std::move(errors)};
}

// Collects all errors of the body, with a pointer to each field, before it throws.
Body read_body(const BodySpec& spec, const json::object& object, const std::string& prefix) {
  Body body;
  std::vector<FieldError> errors;
  std::vector<std::string> known;
  for (const Field& field : spec.fields) {
    known.emplace_back(field.name);
    const json::value* const value = object.if_contains(field.name);
    if (!value) {
      if (field.required)
        errors.push_back({.pointer = prefix + '/' + std::string(field.name),
                          .message = "is missing",
                          .hint = std::string(field.about)});
      continue;
    }
    FieldError error = read(field, *value, body);
    if (error.message.empty()) continue;
    error.pointer = prefix + '/' + std::string(field.name);
    errors.push_back(std::move(error));
  }
  std::ranges::move(unknown_fields(object, known, prefix), std::back_inserter(errors));
  if (!spec.one_of.empty() &&
      std::ranges::none_of(spec.one_of, [&](std::string_view field) { return object.contains(field); })) {
    std::string all(spec.one_of[1]);
    for (const std::string_view field : spec.one_of.subspan(2)) all += " and " + std::string(field);
    errors.push_back(
        {.pointer = prefix + '/' + std::string(spec.one_of[0]),
         .message = "is missing, and so " + std::string(spec.one_of.size() > 2 ? "are " : "is ") + all,
         .hint = "give at least one of them"});
  }
  if (!errors.empty()) throw invalid_body(std::move(errors));
  return body;
}

// From the rows by which bodies are read, so that schema and server cannot disagree.
json::object schema_of(const BodySpec& spec) {
  json::object properties;
  json::array required;
  for (const Field& field : spec.fields) {
    json::object o;
    switch (field.type) {
      case FieldType::count:
        o = {{"type", "integer"}, {"minimum", field.least}, {"maximum", field.most}};
        break;
      case FieldType::budgets:
        o = {{"type", "object"},
             {"minProperties", 1},
             {"additionalProperties",
              json::object{{"type", "integer"}, {"minimum", field.least}, {"maximum", field.most}}}};
        break;
      case FieldType::ttl:
        o = {{"oneOf",
              {json::object{
                   {"type", "number"}, {"minimum", 1}, {"maximum", field.most > 0 ? field.most : 86400}},
               json::object{{"type", "string"}, {"pattern", duration_pattern()}}}}};
        break;
      case FieldType::latency:
        o = {{"oneOf",
              {json::object{{"type", "number"}, {"minimum", 0}, {"maximum", 60}},
               json::object{{"type", "string"}, {"pattern", duration_pattern()}}}}};
        break;
      case FieldType::share:
        o = {{"type", "number"}, {"minimum", 0}, {"maximum", 1}};
        break;
      case FieldType::reason:
        o = {{"type", "string"}, {"maxLength", kMaxReason}};
        break;
      case FieldType::breaker:
        o = {{"type", "string"}, {"enum", {"open", "closed"}}};
        break;
      case FieldType::on:
        o = {{"type", "boolean"}};
        break;
    }
    o["description"] = field.about;
    properties[field.name] = std::move(o);
    if (field.required) required.push_back(json::string(field.name));
  }
  json::object schema{
      {"type", "object"}, {"additionalProperties", false}, {"properties", std::move(properties)}};
  if (!required.empty()) schema["required"] = std::move(required);
  json::array any;
  for (const std::string_view field : spec.one_of)
    any.push_back(json::object{{"required", json::array{json::string(field)}}});
  if (!any.empty()) schema["anyOf"] = std::move(any);
  return schema;
}

}  // namespace bulkhead::control
