// top_tenants.h - which tenants of a set have series of their own, and what they and the others count.
//
//   for (const auto& line : top.update(view, now)) write(line.tenant, line.admitted, line.rejected);
//
// A counter must never fall, and must not jump when a tenant gets its own series or loses them. So a tenant's
// series begin at 0 when it gets them, `other` keeps what was counted before, and counts in
// series that a tenant has lost are in no series any more.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "bulkhead/metrics.h"

namespace bulkhead::metrics {

class TopTenants {
 public:
  struct Line {
    std::string tenant;
    std::uint64_t admitted = 0, rejected = 0;
    std::uint64_t active_calls = 0;
    bool is_other = false;
  };
  struct View {
    std::vector<const RegistrySnapshot::Entry*> live;  // of one set, its overflow bulkhead too
    const BulkheadSnapshot* retired = nullptr;
    const BulkheadSnapshot* unlisted = nullptr;  // live ones that are not in `live`, added up
  };

  TopTenants(std::uint32_t most, std::chrono::nanoseconds stays) : most_(most), stays_(stays) {}
  std::vector<Line> update(const View& view, TimePoint now);

 private:
  using Pair = std::array<std::uint64_t, 2>;  // admitted, rejected
  struct Seen {
    Pair last{};
    double score = 0;  // calls and, ten times as heavy, rejections; halved every `stays`
  };
  struct Shown {
    TimePoint since{};
    Pair last{}, counted{};
  };

  void score(const View& view, TimePoint now);
  void elect(TimePoint now);

  std::uint32_t most_;
  std::chrono::nanoseconds stays_;
  TimePoint scored_{};
  std::unordered_map<std::string, Seen> seen_;    // exactly the live ones
  std::unordered_map<std::string, Shown> shown_;  // at most `most_`
  Pair total_{};                                  // as of the last update
  Pair other_{};
};

}  // namespace bulkhead::metrics
