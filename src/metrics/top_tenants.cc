#include "metrics/top_tenants.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace bulkhead::metrics {
namespace {

using Pair = std::array<std::uint64_t, 2>;

constexpr std::string_view kOtherTenants = "other";

Pair counters(const BulkheadSnapshot& s) { return {s.gate.admitted + s.bypassed, s.gate.rejected()}; }

// How much a counter grew; one that fell was reset, and has grown from 0.
std::uint64_t growth(std::uint64_t now, std::uint64_t last) { return now < last ? now : now - last; }

}  // namespace

void TopTenants::score(const View& view, TimePoint now) {
  const double passed = std::chrono::duration<double>(now - scored_) / std::chrono::duration<double>(stays_);
  const double fade = scored_ == TimePoint{} ? 0 : std::exp2(-std::max(passed, 0.0));
  scored_ = now;
  std::unordered_map<std::string, Seen> seen;
  seen.reserve(view.live.size());
  for (const auto* entry : view.live) {
    // The overflow bulkhead belongs to no tenant; a tenant with the id "other" is counted among the others.
    if (entry->tenant_id.empty() || entry->tenant_id == kOtherTenants) continue;
    const auto before = seen_.find(entry->tenant_id);
    const Seen old = before != seen_.end() ? before->second : Seen{};
    const Pair counts = counters(entry->now);
    const auto rejected = static_cast<double>(growth(counts[1], old.last[1]));
    const auto calls = static_cast<double>(growth(counts[0], old.last[0])) + rejected;
    seen.emplace(entry->tenant_id, Seen{counts, old.score * fade + calls + 10 * rejected});
  }
  seen_ = std::move(seen);
}

// The tenants with the highest scores get series. A tenant keeps its series until one with a higher score replaces it, and
// for a minimum time.
void TopTenants::elect(TimePoint now) {
  std::erase_if(shown_, [&](const auto& s) { return !seen_.contains(s.first); });
  std::vector<const std::pair<const std::string, Seen>*> ranking;
  ranking.reserve(seen_.size());
  for (const auto& one : seen_) ranking.push_back(&one);
  const std::size_t most = std::min<std::size_t>(most_, ranking.size());
  std::ranges::partial_sort(ranking, ranking.begin() + static_cast<std::ptrdiff_t>(most), {},
                            [](const auto* one) { return std::pair(-one->second.score, one->first); });
  ranking.resize(most);
  const auto in_front = [&](const std::string& tenant) {
    return std::ranges::find(ranking, tenant, [](const auto* one) { return one->first; }) != ranking.end();
  };
  for (const auto* one : ranking) {
    if (shown_.contains(one->first)) continue;
    if (shown_.size() >= most_) {
      const auto loser = std::ranges::find_if(
          shown_, [&](const auto& s) { return now - s.second.since >= stays_ && !in_front(s.first); });
      if (loser == shown_.end()) continue;
      shown_.erase(loser);
    }
    shown_.emplace(one->first, Shown{.since = now, .last = one->second.last});
  }
}

std::vector<TopTenants::Line> TopTenants::update(const View& view, TimePoint now) {
  score(view, now);
  // What has been counted since the last time belongs to those that had series then.
  Pair total{}, credited{};
  for (const BulkheadSnapshot* const sum : {view.retired, view.unlisted})
    if (sum)
      for (std::size_t i = 0; i < total.size(); ++i) total[i] += counters(*sum)[i];
  for (const auto* entry : view.live) {
    const Pair counts = counters(entry->now);
    for (std::size_t i = 0; i < total.size(); ++i) total[i] += counts[i];
    const auto shown = shown_.find(entry->tenant_id);
    if (shown == shown_.end()) continue;
    for (std::size_t i = 0; i < total.size(); ++i) {
      const std::uint64_t grown = growth(counts[i], shown->second.last[i]);
      shown->second.counted[i] += grown;
      credited[i] += grown;
    }
    shown->second.last = counts;
  }
  for (std::size_t i = 0; i < total.size(); ++i) {
    const std::uint64_t grown = total[i] > total_[i] ? total[i] - total_[i] : 0;
    other_[i] += grown > credited[i] ? grown - credited[i] : 0;
  }
  total_ = total;
  elect(now);

  std::vector<Line> lines;
  Line other{
      .tenant = std::string(kOtherTenants), .admitted = other_[0], .rejected = other_[1], .is_other = true};
  if (view.unlisted) other.active_calls += view.unlisted->gate.permits;
  for (const auto* entry : view.live) {
    const auto shown = shown_.find(entry->tenant_id);
    if (shown == shown_.end()) {
      other.active_calls += entry->now.gate.permits;
      continue;
    }
    const Pair& counted = shown->second.counted;
    lines.push_back({.tenant = entry->tenant_id,
                     .admitted = counted[0],
                     .rejected = counted[1],
                     .active_calls = entry->now.gate.permits});
  }
  lines.push_back(std::move(other));
  return lines;
}

}  // namespace bulkhead::metrics
