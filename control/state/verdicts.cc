// What the observer reports by itself: begin and end of each trouble, the verdict, and the last minute.
#include <algorithm>
#include <boost/json/array.hpp>
#include <cmath>
#include <span>
#include <utility>

#include "observer.h"

namespace bulkhead::control {
namespace json = boost::json;
namespace {

constexpr double kRejectingShare = 0.01;                   // of the calls of the window
constexpr double kFullShare = 0.9;                         // of a second without a free unit
constexpr double kFailingShare = 0.2;                      // of the calls that ended in the window
constexpr double kNearMaxWait = 0.8;                       // the p99 of the wait, of max_wait
constexpr double kLongWait = 1;                            // seconds, if max_wait has no end
constexpr double kStuckFactor = 10, kStuckAtLeast = 30;    // of the usual p99; seconds
constexpr std::uint32_t kUsualFrom = 10, kUsualOver = 60;  // seconds

double seconds_of(std::uint16_t bucket) {
  return bucket == kNothing ? -1 : Histogram::upper_bound(bucket) / std::exp2(1.0 / 16) * 1e-9;
}

double seconds_of(std::chrono::nanoseconds time) { return std::chrono::duration<double>(time).count(); }

// Threads that have run for long after their caller gave up.
std::uint32_t abandoned_threads(const BulkheadSnapshot& now) {
  return now.pool && seconds_of(now.pool->oldest_abandoned) > kStuckAtLeast ? now.pool->abandoned : 0;
}

std::string percent(double share) { return std::to_string(std::lround(100 * share)) + " %"; }

std::string times_text(std::uint64_t n) { return n == 1 ? "once" : std::to_string(n) + " times"; }

// "open -> half_open -> open": probes can fail within less than the second between two looks. Empty: nothing changed.
std::string path_between(const BreakerSnapshot& before, const BreakerSnapshot& now) {
  const auto entered = [&](BreakerState state) {
    return now.entered[static_cast<std::size_t>(state)] > before.entered[static_cast<std::size_t>(state)];
  };
  if (now.generation == before.generation || (now.state == before.state && !entered(now.state))) return "";
  std::string path(to_string(before.state));
  for (const BreakerState between : {BreakerState::closed, BreakerState::open, BreakerState::half_open})
    if (between != now.state && between != before.state && entered(between))
      path += " -> " + std::string(to_string(between));
  return path + " -> " + std::string(to_string(now.state));
}

}  // namespace

// An automatic event at the begin of an episode and one at its end.
void Observer::report(Episode::Step step, const Episode& episode, std::string_view kind,
                      std::string_view name, std::string begun, std::string ended) {
  if (step == Episode::Step::none) return;
  const bool over = step == Episode::Step::ended;
  JournalEntry entry{.kind = over ? "recovered" : std::string(kind),
                     .bulkhead = std::string(name),
                     .text = over ? std::move(ended) : std::move(begun),
                     .automatic = true,
                     .began = episode.since(),
                     .peak = episode.peak()};
  if (over) {
    entry.ended = episode.until();
    const auto lasted = std::chrono::duration<double>(episode.until() - episode.since()).count();
    entry.text += " (for " + span_text(lasted + 1) + ')';
  }
  journal_.add(std::move(entry));
}

void Observer::report_episodes(const RegistrySnapshot::Entry& entry, Row& row, const Sample& sample,
                               double saturated) {
  const Snapshot& gate = entry.now.gate;
  const WallTime now = last_second_;
  std::uint64_t rejected = 0, most = 0;
  for (std::size_t i = 0; i < kRejectReasons; ++i) rejected += sample.rejected[i];

  // A second with few calls is judged with the others of its window.
  const Counts &from = row.counts.front(), &to = row.counts.back();
  const std::uint64_t calls = to.calls() - from.calls();
  const double share =
      calls > 0 ? static_cast<double>(to.all_rejected() - from.all_rejected()) / static_cast<double>(calls)
                : 0;
  const auto rejects = row.rejecting.second(rejected > 0 && share >= kRejectingShare, share, now);
  if (row.rejecting.beginning())
    for (std::size_t i = 0; i < kRejectReasons; ++i)
      if (to.rejected[i] - from.rejected[i] > most) {
        most = to.rejected[i] - from.rejected[i];
        row.reason = to_string(static_cast<Reason>(i));
      }
  const std::string because = row.reason.empty() ? "" : " (" + row.reason + ')';
  report(
      rejects, row.rejecting, "rejecting", entry.name,
      "rejects calls: " + percent(share) + " of them" + because,
      "no longer rejects calls; at the peak " + percent(row.rejecting.peak()) + " were rejected" + because);

  const bool busy = gate.in_flight > 0 && gate.max_concurrent > 0;
  const bool measured = gate.saturated > std::chrono::nanoseconds(0);
  // Without a unit for normal calls it is saturated; with a free reserve it is not full.
  const bool reserve_free = entry.configured.critical_reserve > 0 && sample.in_flight < sample.max_concurrent;
  const bool is_full =
      busy && !reserve_free && (measured ? saturated >= kFullShare : gate.in_flight >= gate.max_concurrent);
  const std::string use = std::to_string(gate.in_flight) + '/' + std::to_string(gate.max_concurrent);
  report(row.full.second(is_full, gate.in_flight, now), row.full, "full", entry.name,
         "full: " + use + " in flight, " + std::to_string(gate.waiting) + " waiting", "has free units again");

  report_breaker(entry, row, share);

  const double wait = seconds_of(sample.times[0][2]);
  const double bound = entry.configured.max_wait == wait_forever
                           ? kLongWait
                           : kNearMaxWait * seconds_of(entry.configured.max_wait);
  report(row.long_wait.second(wait > 0 && wait >= bound, wait, now), row.long_wait, "waiting", entry.name,
         "calls wait long: p99 " + span_text(wait), "calls wait less than " + span_text(bound) + " again");

  const double oldest = gate.oldest_hold ? seconds_of(*gate.oldest_hold) : 0;
  const double usual = row.usual_seconds >= kUsualFrom ? std::exp(row.usual_p99) : 0;
  const std::uint32_t abandoned = abandoned_threads(entry.now);
  const bool stuck = abandoned > 0 || oldest > std::max(kStuckAtLeast, kStuckFactor * usual);
  report(row.stuck.second(stuck, oldest, now), row.stuck, "stuck", entry.name,
         abandoned == 1  ? "a thread still works for a caller that gave up"
         : abandoned > 0 ? std::to_string(abandoned) + " threads still work for callers that gave up"
                         : "a call has run for " + span_text(oldest),
         "no call is stuck");

  const auto since_start = [](std::uint64_t n, std::uint64_t before) {
    return static_cast<double>(n - std::min(n, before));
  };
  const double over = since_start(to.released, from.released), failed = since_start(to.failed, from.failed);
  const double failed_share = over > 0 ? failed / over : 0;
  report(row.failing.second(failed_share >= kFailingShare, failed_share, now), row.failing, "failing",
         entry.name, "calls fail: " + percent(failed_share) + " of them",
         "calls succeed again; at the peak " + percent(row.failing.peak()) + " failed");

  const auto& fleet = entry.now.fleet;
  const bool degraded = fleet && fleet->state == FleetState::degraded;
  report(row.cut_off.second(degraded, degraded ? seconds_of(fleet->degraded_for) : 0, now), row.cut_off,
         "cut_off", entry.name, "cut off from its fleet: " + (degraded ? fleet->problem : ""),
         "is part of its fleet again");

  // The usual time of a call: slowly learnt, and hardly from seconds that are far from usual.
  const double p50 = seconds_of(sample.times[1][0]), p99 = seconds_of(sample.times[1][2]);
  if (p50 <= 0 || p99 <= 0 || row.rejecting.beginning() || row.full.beginning()) return;
  const bool odd = row.usual_seconds >= kUsualFrom && std::log(p50) > row.usual_p50 + std::log(2.0);
  row.usual_seconds = std::min(row.usual_seconds + 1, kUsualOver);
  const double weight = (odd ? 0.05 : 1.0) / row.usual_seconds;
  row.usual_p50 += weight * (std::log(p50) - row.usual_p50);
  row.usual_p99 += weight * (std::log(p99) - row.usual_p99);
}

// One event when it opens and one when it has stayed closed: a breaker that opens every second must not fill the journal.
void Observer::report_breaker(const RegistrySnapshot::Entry& entry, Row& row, double share) {
  const auto& now = entry.now.breaker;
  const auto entered = [](const BreakerSnapshot& b, BreakerState state) {
    return b.entered[static_cast<std::size_t>(state)];
  };
  const std::string path = now && row.breaker ? path_between(*row.breaker, *now) : "";
  const bool open =
      now && (now->state != BreakerState::closed || now->mode == BreakerMode::forced_open || !path.empty());
  const Episode::Step step = row.open.second(open, share, last_second_);
  if (step == Episode::Step::begun) {
    row.opened = row.breaker ? entered(*row.breaker, BreakerState::open) : 0;
    row.probed = row.breaker ? entered(*row.breaker, BreakerState::half_open) : 0;
    journal_.add({.kind = "breaker",
                  .bulkhead = entry.name,
                  .text = "breaker " + (path.empty() ? std::string(to_string(now->state)) : path) + " (" +
                          std::string(to_string(now->reason)) + ')',
                  .automatic = true,
                  .began = row.open.since()});
  } else if (step == Episode::Step::ended && now) {
    journal_.add({.kind = "breaker",
                  .bulkhead = entry.name,
                  .text = "breaker closed (" + std::string(to_string(now->reason)) + "): it opened " +
                          times_text(entered(*now, BreakerState::open) - row.opened) + " and probed " +
                          times_text(entered(*now, BreakerState::half_open) - row.probed),
                  .automatic = true,
                  .began = row.open.since(),
                  .ended = row.open.until(),
                  .peak = row.open.peak()});
  }
  row.breaker = now;
}

// Ends what has begun: an event that has a begin has an end.
void Observer::forget(std::string_view name, Row& row, std::string_view why) {
  const std::pair<std::string_view, Episode*> all[] = {
      {"rejecting", &row.rejecting}, {"full", &row.full},       {"waiting", &row.long_wait},
      {"stuck", &row.stuck},         {"failing", &row.failing}, {"cut_off", &row.cut_off},
      {"breaker", &row.open}};
  for (const auto& [kind, episode] : all)
    if (episode->cut())
      report(Episode::Step::ended, *episode, kind, name, "",
             std::string(kind) + " ends: " + std::string(why));
}

void Observer::report_pools(const RegistrySnapshot& all) {
  for (const auto& pool : all.resources) {
    Episode& down = pools_.try_emplace(pool.name, Episode({.begin = 2, .end = 10})).first->second;
    report(down.second(pool.now.failures > 0, pool.now.failures, last_second_), down, "pool_down", pool.name,
           "the pool cannot connect: " + pool.now.last_failure, "the pool connects again");
  }
  for (auto known = pools_.begin(); known != pools_.end();) {
    auto& [name, down] = *known;
    const auto is_it = [&](const auto& pool) { return pool.name == name; };
    if (std::ranges::any_of(all.resources, is_it)) {
      ++known;
      continue;
    }
    if (down.cut())
      report(Episode::Step::ended, down, "pool_down", name, "", "pool_down ends: the pool was removed");
    known = pools_.erase(known);
  }
}

SeenBulkhead Observer::see(const RegistrySnapshot& all, const RegistrySnapshot::Entry& entry) const {
  const BulkheadSnapshot& now = entry.now;
  SeenBulkhead b{.name = entry.name,
                 .critical = entry.criticality == Priority::critical,
                 .in_flight = now.gate.in_flight,
                 .max_concurrent = now.gate.max_concurrent,
                 .waiting = now.gate.waiting,
                 .max_queue = now.gate.max_queue,
                 .closed = now.gate.closed,
                 .draining = now.draining,
                 .shadow = now.shadow,
                 .enabled = now.enabled,
                 .has_breaker = now.breaker.has_value(),
                 .abandoned = abandoned_threads(now)};
  if (now.breaker) {
    b.breaker_forced = now.breaker->mode == BreakerMode::forced_open;
    b.breaker_rejects = b.breaker_forced || (now.breaker->mode == BreakerMode::automatic &&
                                             now.breaker->state == BreakerState::open);
  }
  if (now.gate.oldest_hold) b.oldest = seconds_of(*now.gate.oldest_hold);
  if (now.fleet && now.fleet->state == FleetState::degraded)
    b.fleet = now.fleet->problem.empty() ? "no answer" : now.fleet->problem;
  for (const GroupSnapshot& group : all.groups) {
    if (group.name != entry.group) continue;
    if (const auto* const member = group.find(entry.name)) b.guaranteed = member->guaranteed;
    std::uint32_t most = 0;
    for (const auto& other : group.members)
      if (other.name != entry.name && other.borrowed > most) most = other.borrowed, b.borrower = other.name;
  }
  b.sized_by = !entry.group.empty() ? "its group" : now.adaptive ? "its adaptive limiter" : "";
  if (now.fault) {
    b.fault = fault_text(now.fault->latency, now.fault->error);
    b.fault_latency = now.fault->latency > std::chrono::nanoseconds(0);
  }
  if (b.draining || b.breaker_forced || now.fault)
    for (const json::value& o : operations_.of(entry.name)) {
      const json::object& fields = o.as_object();
      const std::string_view field = fields.at("field").as_string();
      const auto time = [&](std::string_view name) {
        return WallTime(std::chrono::milliseconds(std::llround(1000 * fields.at(name).to_number<double>())));
      };
      if (Author* const author = field == "drain"     ? &b.drain_by
                                 : field == "breaker" ? &b.breaker_by
                                 : field == "fault"   ? &b.fault_by
                                                      : nullptr)
        *author = {.by = fields.at("by").as_string().c_str(),
                   .why = fields.at("reason").as_string().c_str(),
                   .since = time("since"),
                   .until = time("expires")};
    }
  const auto found = rows_.find(entry.name);
  b.measured = found != rows_.end();
  if (!b.measured) return b;
  const Row& row = found->second;
  if (row.counts.size() > 1) {
    const Counts &from = row.counts.front(), &to = row.counts.back();
    const auto per_second = [n = row.counts.size() - 1](std::uint64_t count) {
      return static_cast<double>(count) / static_cast<double>(n);
    };
    b.calls = per_second(to.calls() - from.calls());
    b.rejected = per_second(to.all_rejected() - from.all_rejected());
    b.failed = per_second(to.failed - std::min(to.failed, from.failed));
    b.ended = per_second(to.released - std::min(to.released, from.released));
    b.would_reject = per_second(to.would_reject - std::min(to.would_reject, from.would_reject));
  }
  const auto times = [](HistogramCounts counts, const HistogramCounts& before, double q) {
    if (counts.count() < before.count()) return -1.0;  // reset_statistics()
    counts -= before;
    return counts.count() == 0 ? -1.0 : static_cast<double>(counts.quantile(q)) * 1e-9;
  };
  if (HistogramCounts window = now.service; window.count() > row.older.service.count()) {
    window -= row.older.service;
    b.mean = window.mean() * 1e-9;
  }
  b.p50 = times(now.service, row.older.service, 0.5);
  b.p99 = times(now.service, row.older.service, 0.99);
  b.wait_p99 = times(now.wait, row.older.wait, 0.99);
  if (row.usual_seconds >= kUsualFrom) {
    b.usual_p50 = std::exp(row.usual_p50);
    b.usual_p99 = std::exp(row.usual_p99);
  }
  if (const Minute minute = last_minute(row); minute.calls > 0)
    b.minute_share = static_cast<double>(minute.rejected) / static_cast<double>(minute.calls);
  b.reason = reason_of(row);
  b.rejecting = row.rejecting.active() && b.rejected > 0;
  b.full = row.full.active();
  b.long_wait = row.long_wait.active();
  b.stuck = row.stuck.active();
  if (row.failing.beginning()) b.failing_since = row.failing.since();
  b.since = begin_of(entry, row, b);
  return b;
}

// The begin of the condition that leads to its symptom, in the order of the symptoms; the epoch if no episode knows it.
WallTime Observer::begin_of(const RegistrySnapshot::Entry& entry, const Row& row,
                            const SeenBulkhead& b) const {
  if (b.closed || b.draining) return {};
  if (b.breaker_rejects && entry.bulkhead) {
    const WallTime since = wall_time(entry.now.breaker->since, entry.bulkhead->clock());
    return row.open.active() ? std::min(since, row.open.since()) : since;
  }
  const bool full = b.full && (b.rejecting || b.long_wait || b.waiting > 0);
  for (const auto& [holds, episode] : {std::pair(row.cut_off.active(), &row.cut_off),
                                       {b.stuck, &row.stuck},
                                       {row.rejecting.active(), &row.rejecting},
                                       {full, &row.full},
                                       {b.long_wait, &row.long_wait}})
    if (holds) return episode->since();
  // A burst in the last minute: its first second.
  if (b.minute_share > 0)
    for (std::size_t n = std::min(kMinute, row.history.size()); n > 0; --n) {
      const Sample& sample = row.history[row.history.size() - n];
      if (std::ranges::any_of(std::span(sample.rejected).first(kRejectReasons), [](auto r) { return r > 0; }))
        return last_second_ - std::chrono::seconds(n - 1);
    }
  return {};
}

// The most frequent one of the rejections: of an episode, or else of the last minute. Empty: none.
std::string_view Observer::reason_of(const Row& row) const {
  if (row.rejecting.beginning()) return row.reason;
  std::array<std::uint64_t, kRejectReasons> sums{};
  for (std::size_t n = std::min(kMinute, row.history.size()); n > 0; --n)
    for (std::size_t r = 0; r < kRejectReasons; ++r)
      sums[r] += row.history[row.history.size() - n].rejected[r];
  const auto most = std::ranges::max_element(sums);
  return *most == 0 ? "" : to_string(static_cast<Reason>(most - sums.begin()));
}

// What judge() needs, over the window of ten seconds. judge() itself has no state.
Seen Observer::see(const RegistrySnapshot& all) const {
  Seen seen{.now = last_second_};
  for (OverrideState& o : operations_.in_force())
    seen.overrides.push_back({.bulkhead = std::move(o.bulkhead), .field = std::move(o.field)});
  for (const auto& entry : all.bulkheads) {
    seen.bulkheads.push_back(see(all, entry));
    if (!entry.configured.nested) seen.calls += seen.bulkheads.back().calls;
    seen.rejected += seen.bulkheads.back().rejected;
  }
  for (const auto& pool : all.resources) {
    const auto known = pools_.find(pool.name);
    if (known == pools_.end()) continue;
    seen.pools.push_back({.name = pool.name,
                          .error = pool.now.last_failure,
                          .since = known->second.since(),
                          .down = known->second.active(),
                          .alive = pool.now.used + pool.now.idle,
                          .waiting = pool.now.gate.waiting});
  }
  if (!has_file(live_)) return seen;
  const ConfigStatus status = live_.status();
  seen.config_valid = status.last_reload_successful;
  seen.config_file = status.file;
  seen.needs_restart = status.needs_restart.size();
  if (!status.problems.empty()) {
    const std::string error = to_text(status.problems.front());
    seen.config_error = error.substr(0, error.find('\n'));
  }
  if (!seen.config_valid) seen.config_since = wall_time(status.last_attempt, live_.clock());
  return seen;
}

Observer::Minute Observer::last_minute(const Row& row) const {
  Minute minute{.seconds = std::min(kMinute, row.history.size())};
  for (std::size_t i = row.history.size() - minute.seconds; i < row.history.size(); ++i) {
    const Sample& s = row.history[i];
    minute.calls += s.calls;
    minute.failed += s.failed;
    for (std::size_t r = 0; r < kRejectReasons; ++r) minute.rejected += s.rejected[r];
  }
  return minute;
}

// Of its symptom; without one, of what has begun and is no trouble yet.
json::value Observer::since_json(const Row& row) {
  if (row.since != WallTime{}) return unix_seconds(row.since);
  for (const Episode* episode : {&row.rejecting, &row.full, &row.long_wait, &row.stuck})
    if (episode->active()) return unix_seconds(episode->since());
  return nullptr;
}

std::vector<MetricsWindow> Observer::windows() const {
  std::vector<MetricsWindow> list;
  for (const auto& [name, row] : rows_) {
    const Minute minute = last_minute(row);
    MetricsWindow window{.bulkhead = name,
                         .seconds = static_cast<double>(minute.seconds),
                         .requests = minute.calls,
                         .rejected = minute.rejected,
                         .failed = minute.failed};
    for (const Episode* episode : {&row.rejecting, &row.full})
      if (window.since == WallTime{} && episode->active()) window.since = episode->since();
    list.push_back(std::move(window));
  }
  return list;
}

json::object Observer::status() const {
  json::array bulkheads;
  for (const auto& [name, row] : rows_) {
    const Minute minute = last_minute(row);
    const double share =
        minute.calls > 0 ? static_cast<double>(minute.rejected) / static_cast<double>(minute.calls) : 0;
    json::object total{{"calls", 0}, {"rejected", 0}, {"failed", 0}};
    if (!row.counts.empty()) {
      const Counts& all = row.counts.back();
      total = {{"calls", all.calls()}, {"rejected", all.all_rejected()}, {"failed", all.failed}};
    }
    bulkheads.push_back(json::object{{"name", name},
                                     {"state", row.state},
                                     {"since", since_json(row)},
                                     {"calls", minute.calls},
                                     {"rejected", minute.rejected},
                                     {"rejected_percent", round_to(100 * share, 100)},
                                     {"seconds", minute.seconds},
                                     {"total", std::move(total)}});
  }
  return {{"time", unix_seconds(last_second_)},
          {"instance", options_.instance},
          {"verdict", verdict_json(verdict_)},
          {"bulkheads", std::move(bulkheads)}};
}

}  // namespace bulkhead::control
