#include <algorithm>
#include <boost/json/array.hpp>
#include <cmath>

#include "observer.h"

namespace bulkhead::control {
namespace json = boost::json;
namespace {

double round_to(double value, double steps) { return std::round(value * steps) / steps; }

double middle_of(std::uint16_t bucket) {  // in seconds
  return bucket == 0 ? 0 : round_to(Histogram::upper_bound(bucket) / std::exp2(1.0 / 16) * 1e-9, 1e6);
}

}  // namespace

json::object Observer::row_json(const std::string& name, const Row& row, std::size_t count, std::size_t step,
                                bool detail) const {
  // Bucket i is made of the samples of the seconds (end - (count - i) * step, ... + step].
  json::array used, limit, queue, rejected, open, configured, rate, failed_rate;
  std::array<std::array<json::array, 3>, 2> times;
  std::array<json::array, kReasons> reasons;
  std::optional<std::uint32_t> last_limit, last_configured;
  constexpr std::size_t never = SIZE_MAX;
  std::size_t opened = never;
  const auto none = [&] {
    used.push_back(nullptr);
    if (!detail) return;
    rate.push_back(nullptr);
    failed_rate.push_back(nullptr);
    for (auto& kind : times)
      for (auto& column : kind) column.push_back(nullptr);
  };
  for (std::size_t i = 0; i < count; ++i) {
    // Samples are numbered by seq: the newest is seq_, the first of the row since_seq.
    const std::uint64_t back = (count - i) * step;
    Sample sum{.wait = {kNothing, kNothing, kNothing}, .service = {kNothing, kNothing, kNothing}};
    std::array<std::uint64_t, kReasons> refused{};
    std::size_t n = 0;
    for (std::size_t k = 0; k < step; ++k) {
      if (seq_ + 1 + k < back + row.since_seq) continue;
      const std::uint64_t at = seq_ + 1 + k - back - row.since_seq;
      if (at >= row.history.size()) continue;
      const Sample& s = row.history[at];
      ++n;
      if (n == 1 || std::uint64_t{s.used} * sum.limit >= std::uint64_t{sum.used} * s.limit) {
        sum.used = s.used;
        sum.limit = s.limit;
      }
      sum.configured = s.configured;
      sum.queue = std::max(sum.queue, s.queue);
      sum.calls += s.calls;
      sum.failed += s.failed;
      sum.open |= s.open;
      for (std::size_t r = 0; r < kReasons; ++r) refused[r] += s.rejected[r];
      for (std::size_t q = 0; q < 3; ++q) {
        if (s.wait[q] != kNothing)
          sum.wait[q] = sum.wait[q] == kNothing ? s.wait[q] : std::max(sum.wait[q], s.wait[q]);
        if (s.service[q] != kNothing)
          sum.service[q] = sum.service[q] == kNothing ? s.service[q] : std::max(sum.service[q], s.service[q]);
      }
    }
    if (sum.open && opened == never) opened = i;
    if (!sum.open && opened != never) {
      open.push_back(json::array{opened, i});
      opened = never;
    }
    if (n == 0) {
      none();
      continue;
    }
    used.push_back(sum.used);
    if (last_limit != sum.limit) limit.push_back(json::array{i, sum.limit}), last_limit = sum.limit;
    if (sum.queue > 0) queue.push_back(json::array{i, sum.queue});
    std::uint64_t all = 0;
    for (std::size_t r = 0; r < kReasons; ++r) {
      all += refused[r];
      if (refused[r] > 0) reasons[r].push_back(json::array{i, refused[r]});
    }
    if (all > 0) rejected.push_back(json::array{i, all});
    if (!detail) continue;
    if (last_configured != sum.configured)
      configured.push_back(json::array{i, sum.configured}), last_configured = sum.configured;
    rate.push_back(round_to(sum.calls / static_cast<double>(n), 100));
    failed_rate.push_back(round_to(sum.failed / static_cast<double>(n), 100));
    for (std::size_t q = 0; q < 3; ++q) {
      times[0][q].push_back(sum.wait[q] == kNothing ? json::value(nullptr)
                                                    : json::value(middle_of(sum.wait[q])));
      times[1][q].push_back(sum.service[q] == kNothing ? json::value(nullptr)
                                                       : json::value(middle_of(sum.service[q])));
    }
  }
  if (opened != never) open.push_back(json::array{opened, count});
  json::object o{{"name", name},
                 {"used", std::move(used)},
                 {"limit", std::move(limit)},
                 {"queue", std::move(queue)},
                 {"rejected", std::move(rejected)},
                 {"open", std::move(open)}};
  if (!detail) return o;
  const auto columns = [&](std::array<json::array, 3>& c) {
    return json::object{{"p50", std::move(c[0])}, {"p90", std::move(c[1])}, {"p99", std::move(c[2])}};
  };
  o["configured"] = std::move(configured);
  o["rate"] = std::move(rate);
  o["failed_rate"] = std::move(failed_rate);
  o["wait"] = columns(times[0]);
  o["service"] = columns(times[1]);
  json::object by_reason;
  for (std::size_t r = 0; r < kReasons; ++r)
    if (!reasons[r].empty()) by_reason[to_string(static_cast<Reason>(r))] = std::move(reasons[r]);
  o["reasons"] = std::move(by_reason);
  return o;
}

json::object Observer::history(std::size_t span, std::size_t step, const std::string* name) const {
  const std::size_t count = std::max<std::size_t>(1, span / step);
  json::array bulkheads;
  for (const auto& [row_name, row] : rows_)
    if (!name || row_name == *name)
      bulkheads.push_back(row_json(row_name, row, count, step, name != nullptr));
  if (name && bulkheads.empty())
    throw Problem{
        .status = 404, .type = "not_found", .detail = "nothing is remembered of a bulkhead \"" + *name + '"'};
  json::array changes;
  const double end = std::floor(unix_seconds(last_second_)), start = end - static_cast<double>(count * step);
  // What people did. A breaker and a limit that move by themselves are seen in their columns.
  for (const Entry& entry : journal_.list({.limit = 1000}))
    if (unix_seconds(entry.at) >= start && entry.kind != "start" && entry.kind != "limit" &&
        entry.kind != "breaker" && (!name || entry.bulkhead.empty() || entry.bulkhead == *name))
      changes.push_back(
          json::object{{"time", unix_seconds(entry.at)}, {"bulkhead", entry.bulkhead}, {"text", entry.text}});
  return {{"end", end},
          {"step", step},
          {"count", count},
          {"bulkheads", std::move(bulkheads)},
          {"changes", std::move(changes)}};
}

}  // namespace bulkhead::control
