#include <algorithm>
#include <boost/json/array.hpp>
#include <cmath>

#include "observer.h"

namespace bulkhead::control {
namespace json = boost::json;
namespace {

json::value middle_of(std::uint16_t bucket) {  // in seconds
  if (bucket == kNothing) return nullptr;
  return bucket == 0 ? 0 : round_to(Histogram::upper_bound(bucket) / std::exp2(1.0 / 16) * 1e-9, 1e6);
}

}  // namespace

json::object Observer::row_json(const std::string& name, const Row& row, std::size_t count, std::size_t step,
                                bool detail) const {
  // Bucket i is made of the samples of the seconds (end - (count - i) * step, ... + step].
  json::array in_flight, mean, max_concurrent, waiting, rejected, open, configured, rate, failed_rate;
  std::array<std::array<json::array, 3>, 2> times;  // wait, service
  std::array<json::array, kReasons> reasons;
  std::optional<std::uint32_t> last_max_concurrent, last_configured;
  constexpr std::size_t kNever = SIZE_MAX;
  std::size_t opened = kNever;
  const auto none = [&] {
    in_flight.push_back(nullptr);
    mean.push_back(nullptr);
    if (!detail) return;
    rate.push_back(nullptr);
    failed_rate.push_back(nullptr);
    for (auto& kind : times)
      for (auto& column : kind) column.push_back(nullptr);
  };
  for (std::size_t i = 0; i < count; ++i) {
    // Samples are numbered by seq: the newest is seq_, the first of the row since_seq.
    const std::uint64_t back = (count - i) * step;
    Sample sum{.times = kNoTimes};
    std::array<std::uint64_t, kReasons> by_reason{};
    std::size_t n = 0;
    for (std::size_t k = 0; k < step; ++k) {
      if (seq_ + 1 + k < back + row.since_seq) continue;
      const std::uint64_t at = seq_ + 1 + k - back - row.since_seq;
      if (at >= row.history.size()) continue;
      const Sample& s = row.history[at];
      ++n;
      if (n == 1 || std::uint64_t{s.in_flight} * sum.max_concurrent >=
                        std::uint64_t{sum.in_flight} * s.max_concurrent) {
        sum.in_flight = s.in_flight;
        sum.max_concurrent = s.max_concurrent;
      }
      sum.mean += s.mean;
      sum.configured = s.configured;
      sum.waiting = std::max(sum.waiting, s.waiting);
      sum.calls += s.calls;
      sum.failed += s.failed;
      sum.open |= s.open;
      for (std::size_t r = 0; r < kReasons; ++r) by_reason[r] += s.rejected[r];
      for (std::size_t t = 0; t < s.times.size(); ++t)
        for (std::size_t q = 0; q < s.times[t].size(); ++q) {
          const std::uint16_t bucket = s.times[t][q];
          std::uint16_t& most = sum.times[t][q];
          if (bucket != kNothing && (most == kNothing || bucket > most)) most = bucket;
        }
    }
    if (sum.open && opened == kNever) opened = i;
    if (!sum.open && opened != kNever) {
      open.push_back(json::array{opened, i});
      opened = kNever;
    }
    if (n == 0) {
      none();
      continue;
    }
    in_flight.push_back(sum.in_flight);
    mean.push_back(round_to(sum.mean / static_cast<float>(n), 10));
    if (last_max_concurrent != sum.max_concurrent) {
      max_concurrent.push_back(json::array{i, sum.max_concurrent});
      last_max_concurrent = sum.max_concurrent;
    }
    if (sum.waiting > 0) waiting.push_back(json::array{i, sum.waiting});
    std::uint64_t all = 0;
    for (std::size_t r = 0; r < kReasons; ++r) {
      all += by_reason[r];
      if (by_reason[r] > 0) reasons[r].push_back(json::array{i, by_reason[r]});
    }
    if (all > 0) rejected.push_back(json::array{i, all});
    if (!detail) continue;
    if (last_configured != sum.configured)
      configured.push_back(json::array{i, sum.configured}), last_configured = sum.configured;
    rate.push_back(round_to(sum.calls / static_cast<double>(n), 100));
    failed_rate.push_back(round_to(sum.failed / static_cast<double>(n), 100));
    for (std::size_t t = 0; t < times.size(); ++t)
      for (std::size_t q = 0; q < times[t].size(); ++q) times[t][q].push_back(middle_of(sum.times[t][q]));
  }
  if (opened != kNever) open.push_back(json::array{opened, count});
  json::object o{{"name", name},
                 {"in_flight", std::move(in_flight)},
                 {"mean", std::move(mean)},
                 {"max_concurrent", std::move(max_concurrent)},
                 {"waiting", std::move(waiting)},
                 {"rejected", std::move(rejected)},
                 {"open", std::move(open)}};
  if (!detail) return o;
  const auto columns = [&](std::array<json::array, 3>& c) {
    return json::object{{"p50", std::move(c[0])}, {"p90", std::move(c[1])}, {"p99", std::move(c[2])}};
  };
  o["configured_max_concurrent"] = std::move(configured);
  o["rate"] = std::move(rate);
  o["failed_rate"] = std::move(failed_rate);
  o["wait"] = columns(times[0]);
  o["service"] = columns(times[1]);
  json::object of_reasons;
  for (std::size_t r = 0; r < kReasons; ++r)
    if (!reasons[r].empty()) of_reasons[to_string(static_cast<Reason>(r))] = std::move(reasons[r]);
  o["reasons"] = std::move(of_reasons);
  return o;
}

// The sums of the last minute, second by second, for the tiles: each arriving call once.
json::object Observer::minute_json() const {
  std::array<std::uint64_t, kMinute> calls{}, rejected{}, waiting{}, open{};
  std::array<double, kMinute> critical{};
  for (const auto& [name, row] : rows_) {
    const std::size_t n = std::min(kMinute, row.history.size());
    for (std::size_t i = 0; i < n; ++i) {
      const Sample& s = row.history[row.history.size() - n + i];
      const std::size_t at = kMinute - n + i;
      std::uint64_t lost = 0;
      for (std::size_t r = 0; r < kRejectReasons; ++r) lost += s.rejected[r];
      if (!row.nested) calls[at] += s.calls;
      rejected[at] += lost;
      waiting[at] += s.waiting;
      open[at] += s.open;
      if (row.critical && s.calls > 0)
        critical[at] = std::max(critical[at], round_to(static_cast<double>(lost) / s.calls, 1000));
    }
  }
  const auto list = [](const auto& values) {
    json::array array;
    for (const auto value : values) array.push_back(value);
    return array;
  };
  return {{"calls", list(calls)},
          {"rejected", list(rejected)},
          {"critical", list(critical)},
          {"waiting", list(waiting)},
          {"open", list(open)}};
}

json::object Observer::history(std::size_t span, std::size_t step, const std::string* name) const {
  const std::size_t count = std::max<std::size_t>(1, span / step);
  json::array bulkheads;
  for (const auto& [row_name, row] : rows_)
    if (name ? row_name == *name : row.keeps_history)
      bulkheads.push_back(row_json(row_name, row, count, step, name != nullptr));
  if (name && bulkheads.empty())
    throw Problem{kNotFound, "there is no history of a bulkhead \"" + *name + '"'};
  json::array changes;
  const double end = std::floor(unix_seconds(last_second_)), start = end - static_cast<double>(count * step);
  // Changes by operators and reloads. What breakers and adaptive limiters do is in their columns.
  for (const JournalEntry& entry : journal_.list({.newest = 1000}))
    if (unix_seconds(entry.at) >= start && entry.kind != "start" && entry.kind != "adaptive" &&
        entry.kind != "breaker" && (!name || entry.bulkhead.empty() || entry.bulkhead == *name))
      changes.push_back(json::object{
          {"time", unix_seconds(entry.automatic && entry.kind != "recovered" ? entry.began : entry.at)},
          {"kind", entry.kind},
          {"automatic", entry.automatic},
          {"bulkhead", entry.bulkhead},
          {"text", entry.text}});
  json::object o{{"end", end},
                 {"step", step},
                 {"count", count},
                 {"bulkheads", std::move(bulkheads)},
                 {"changes", std::move(changes)}};
  if (!name) o["minute"] = minute_json();
  return o;
}

}  // namespace bulkhead::control
