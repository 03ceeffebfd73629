// access.h - makes the accessors of a settings row from a member of an options struct.
//
//   field<[](auto& b) -> auto& { return b.options.max_queue; }, BulkheadConfig>()
#pragma once

#include <algorithm>
#include <concepts>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "config/settings.h"

namespace bulkhead::config {

// Overloads, one for each type of a setting.
template <std::unsigned_integral T>
  requires(!std::same_as<T, bool>)
void store(T& to, const Value& value) {
  to = static_cast<T>(value.whole);
}
inline void store(int& to, const Value& value) { to = static_cast<int>(value.whole); }
inline void store(bool& to, const Value& value) { to = value.flag; }
inline void store(double& to, const Value& value) { to = value.number; }
inline void store(Share& to, const Value& value) { to = value.part; }
inline void store(std::chrono::nanoseconds& to, const Value& value) { to = value.span; }
inline void store(std::string& to, const Value& value) { to = value.text; }
inline void store(std::vector<std::string>& to, const Value& value) { to = value.texts; }
inline void store(std::vector<unsigned>& to, const Value& value) {
  to.clear();
  for (const std::uint64_t n : value.list) to.push_back(static_cast<unsigned>(n));
}
inline void store(FallbackOn& to, const Value& value) {  // the words are in the order of the bits
  to = FallbackOn::nothing;
  for (const std::uint64_t i : value.list) to = to | static_cast<FallbackOn>(1U << i);
}
template <class T>
  requires std::is_enum_v<T>
void store(T& to, const Value& value) {
  to = static_cast<T>(value.whole);
}

template <std::unsigned_integral T>
  requires(!std::same_as<T, bool>)
Value fetch(const T& from) {
  return {.whole = from};
}
inline Value fetch(const int& from) { return {.whole = static_cast<std::uint64_t>(from)}; }
inline Value fetch(const bool& from) { return {.flag = from}; }
inline Value fetch(const double& from) { return {.number = from}; }
inline Value fetch(const Share& from) { return {.part = from}; }
inline Value fetch(const std::chrono::nanoseconds& from) { return {.span = from}; }
inline Value fetch(const std::string& from) { return {.text = from}; }
inline Value fetch(const std::vector<std::string>& from) { return {.texts = from}; }
inline Value fetch(const std::vector<unsigned>& from) { return {.list = {from.begin(), from.end()}}; }
inline Value fetch(const FallbackOn& from) {
  Value value;
  for (unsigned i = 0; i < 3; ++i)
    if (static_cast<unsigned>(from) & (1U << i)) value.list.push_back(i);
  return value;
}
template <class T>
  requires std::is_enum_v<T>
Value fetch(const T& from) {
  return {.whole = static_cast<std::uint64_t>(from)};
}

template <class Target, auto Member>
consteval Access field() {
  return {
      .set = [](void* target, const Value& value) { store(Member(*static_cast<Target*>(target)), value); },
      .get = [](const void* target) { return fetch(Member(*static_cast<const Target*>(target))); }};
}

// A section that always exists.
template <class Target, auto Member>
consteval Access part() {
  return {
      .enter = [](void* target) -> void* { return &Member(*static_cast<Target*>(target)); },
      .look = [](const void* target) -> const void* { return &Member(*static_cast<const Target*>(target)); }};
}

// A section in a std::optional.
template <class Target, auto Member>
consteval Access optional_part() {
  return {.enter = [](void* target) -> void* {
            auto& section = Member(*static_cast<Target*>(target));
            if (!section) section.emplace();
            return &*section;
          },
          .look = [](const void* target) -> const void* {
            const auto& section = Member(*static_cast<const Target*>(target));
            return section ? &*section : nullptr;
          },
          .clear = [](void* target) { Member(*static_cast<Target*>(target)).reset(); }};
}

inline std::string& name_of(BulkheadConfig& b) { return b.options.name; }
inline std::string& name_of(GroupConfig& g) { return g.options.name; }
inline std::string& name_of(ResourceConfig& r) { return r.name; }
inline std::string& name_of(TenantsConfig& t) { return t.each.options.name; }
inline std::string& name_of(BudgetOptions& b) { return b.name; }
template <class T>
const std::string& name_of(const T& item) {
  return name_of(const_cast<T&>(item));
}

// A map of names, stored as a vector in the order of the file. Adding an existing name resets its entry.
template <class Target, auto Member>
consteval Access named() {
  return {.add = [](void* target, std::string_view name) -> void* {
            auto& all = Member(*static_cast<Target*>(target));
            for (auto& one : all)
              if (name_of(one) == name) {
                one = {};
                name_of(one) = name;
                return &one;
              }
            auto& one = all.emplace_back();
            name_of(one) = name;
            return &one;
          },
          .each =
              [](const void* target, const std::function<void(std::string_view, const void*)>& visit) {
                for (const auto& one : Member(*static_cast<const Target*>(target))) visit(name_of(one), &one);
              }};
}

// As named(), but an existing name keeps its settings: a bulkhead replaces those of its type one by one.
template <class Target, auto Member>
consteval Access named_parts() {
  Access access = named<Target, Member>();
  access.add = [](void* target, std::string_view name) -> void* {
    auto& all = Member(*static_cast<Target*>(target));
    for (auto& one : all)
      if (name_of(one) == name) return &one;
    auto& one = all.emplace_back();
    name_of(one) = name;
    return &one;
  };
  return access;
}

}  // namespace bulkhead::config
