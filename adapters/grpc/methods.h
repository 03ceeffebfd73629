// methods.h - counters of the methods of a guard, and the entry of its list that a method matches.
#pragma once

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "bulkhead/detail/std_mutex.h"
#include "server_guard.h"

namespace bulkhead::grpc {

// gRPC's deadlines are on the system's clock, which may be set back and forth while an RPC waits: converted once.
TimePoint steady_deadline(std::chrono::system_clock::time_point deadline) noexcept;

// Throws std::invalid_argument with the place, the reason and the fix if the name is not "/", "/package.Service/" or
// "/package.Service/Method".
void check_method_name(std::string_view name, std::string_view place);
template <class Entries>
void check_methods(const Entries& entries, const Registry& registry) {
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const auto& entry = entries[i];
    const std::string place = "methods[" + std::to_string(i) + "]";
    check_method_name(entry.name, place + ".name");
    for (std::size_t j = 0; j < i; ++j)
      if (entries[j].name == entry.name)
        throw std::invalid_argument(place + ".name: \"" + entry.name + "\" is there twice; remove one");
    if (!entry.bulkhead.empty()) registry.get(entry.bulkhead);  // throws, and names similar ones
    if (entry.cost == 0) throw std::invalid_argument(place + ".cost: must be at least 1");
  }
}

// The entry with the longest name that matches; null: none. A name that ends in '/' matches what begins with it.
template <class Entries>
const typename Entries::value_type* match(const Entries& entries, std::string_view method) noexcept {
  const typename Entries::value_type* best = nullptr;
  for (const auto& entry : entries) {
    const std::string_view name = entry.name;
    const bool matches = name.ends_with('/') ? method.starts_with(name) : method == name;
    if (matches && (!best || best->name.size() < name.size())) best = &entry;
  }
  return best;
}

struct MethodCounters {
  std::string name;
  const Method* entry = nullptr;  // null: not protected
  bool exempt = false;
  std::atomic<std::uint64_t> started{0}, admitted{0}, retries{0}, ended_without_status{0};
  std::atomic<std::uint32_t> in_flight{0}, waiting{0};
  std::array<std::atomic<std::uint64_t>, kReasons> rejected{};
  std::array<std::atomic<std::uint64_t>, 17> ended{};
};

// Finds the counters of a method, and makes them for its first RPC. At most kMost methods, because clients may invent names:
// further ones share the counters of the entry or the exempt prefix that they match, and the rest those of "/".
class Methods {
 public:
  static constexpr std::size_t kMost = 1000;

  MethodCounters& of(std::string_view method, const ServerGuardOptions& options);
  std::vector<MethodSnapshot> snapshot() const;

 private:
  mutable bulkhead::detail::SharedMutex mutex_;
  std::map<std::string, std::unique_ptr<MethodCounters>, std::less<>> all_ BULKHEAD_GUARDED_BY(mutex_);
};

std::string to_prometheus(const std::vector<MethodSnapshot>& methods);

}  // namespace bulkhead::grpc
