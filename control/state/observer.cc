#include "observer.h"

#include <algorithm>
#include <boost/json/array.hpp>
#include <cmath>

#include "bulkhead/config.h"
#include "json_text.h"

namespace bulkhead::control {
namespace json = boost::json;
namespace {

double seconds(std::uint64_t ns) { return round_to(static_cast<double>(ns) * 1e-9, 1e6); }

json::value quantiles(const HistogramCounts& counts) {
  if (counts.count() == 0) return nullptr;
  return json::array{seconds(counts.quantile(0.5)), seconds(counts.quantile(0.9)),
                     seconds(counts.quantile(0.99))};
}

HistogramCounts difference(HistogramCounts now, const HistogramCounts& before) {
  if (now.count() < before.count()) return now;  // reset_statistics()
  now -= before;
  return now;
}

std::array<std::uint16_t, 3> buckets_of(const HistogramCounts& counts) {
  if (counts.count() == 0) return kNoTimes[0];
  const auto bucket = [&](double q) {
    return static_cast<std::uint16_t>(Histogram::bucket_of(counts.quantile(q)));
  };
  return {bucket(0.5), bucket(0.9), bucket(0.99)};
}

bool rejects(const BreakerSnapshot& breaker) noexcept {
  return breaker.mode == BreakerMode::forced_open ||
         (breaker.mode == BreakerMode::automatic && breaker.state == BreakerState::open);
}

json::value breaker_json(const BreakerSnapshot& b, Clock& clock) {
  json::object o{{"state", to_string(b.state)},
                 {"mode", to_string(b.mode)},
                 {"reason", to_string(b.reason)},
                 {"since", unix_seconds(wall_time(b.since, clock))},
                 {"next_probe", nullptr},
                 {"calls", b.calls},
                 {"failures", b.failures},
                 {"slow", b.slow},
                 {"opens", b.opens}};
  if (b.next_probe != no_deadline && b.state != BreakerState::closed)
    o["next_probe"] = unix_seconds(wall_time(b.next_probe, clock));
  return o;
}

json::object group_json(const RegistrySnapshot::Group& group) {
  json::array members, loans;
  for (const auto& m : group.members)
    members.push_back(json::object{{"name", m.name},
                                   {"guaranteed", m.guaranteed},
                                   {"max", m.max},
                                   {"allotted", m.allotted},
                                   {"in_flight", m.in_flight},
                                   {"waiting", m.waiting},
                                   {"called_back", m.called_back},
                                   {"lent", m.lent},
                                   {"borrowed", m.borrowed}});
  for (const auto& loan : group.loans)
    loans.push_back(
        json::object{{"lender", loan.lender}, {"borrower", loan.borrower}, {"units", loan.units}});
  json::object o{
      {"name", group.name},           {"total", group.total}, {"configured_total", group.configured},
      {"in_flight", group.in_flight}, {"free", group.free},   {"members", std::move(members)},
      {"loans", std::move(loans)}};
  if (group.adaptive) {
    o["floor"] = group.adaptive->floor;
    o["ceiling"] = group.adaptive->ceiling;
    o["why"] = group.adaptive->why.text();
  }
  return o;
}

json::object pool_json(const RegistrySnapshot& all, const RegistrySnapshot::Resource& pool) {
  const ResourceSnapshot& now = pool.now;
  json::object o{
      {"name", pool.name},
      {"kind", pool.kind},
      {"used", now.used},
      {"idle", now.idle},
      {"connecting", now.opening},
      {"waiting", now.gate.waiting},
      {"bulkhead", nullptr},
      {"bulkhead_waiting", nullptr},
      {"max", now.max},
      {"wait_p99", nullptr},
      {"oldest_use", nullptr},
      // As bulkhead_pg_timeouts_total: calls whose time was over in the queue, or while they waited for a connection.
      {"timeouts", now.gate.rejected(Reason::timeout) + now.gate.rejected(Reason::deadline)},
      {"failing_calls", now.failing_calls},
      {"open_failures", now.open_failures},
      {"failing", nullptr}};
  if (const auto* const around = pool.bulkhead.empty() ? nullptr : all.find(pool.bulkhead)) {
    o["bulkhead"] = around->name;
    o["bulkhead_waiting"] = around->now.gate.waiting;
  }
  if (now.wait.count() > 0) o["wait_p99"] = seconds(now.wait.quantile(0.99));
  if (now.failures > 0) o["failing"] = now.last_failure;  // of the last attempt
  if (now.used > 0) o["oldest_use"] = seconds(static_cast<std::uint64_t>(now.oldest_lease.count()));
  return o;
}

json::array members_json(const FleetSnapshot& now) {
  json::array members;
  for (const FleetMember& m : now.list->members)
    members.push_back(json::object{{"name", m.name},
                                   {"state", m.lapsed                            ? "lapsed"
                                             : now.state == FleetState::learning ? "learning"
                                                                                 : "leased"},
                                   {"held", m.held},
                                   {"needed", m.needed},
                                   {"lease_age", seconds(static_cast<std::uint64_t>(m.lease_age.count()))},
                                   {"own", m.own}});
  return members;
}

std::uint16_t narrow(std::uint64_t n) noexcept {
  return static_cast<std::uint16_t>(std::min<std::uint64_t>(n, 0xffff));
}

}  // namespace

Observer::Observer(LiveConfig& live, const Operations& operations, Journal& journal,
                   const ServerOptions& options)
    : live_(live),
      registry_(live.registry()),
      operations_(operations),
      journal_(journal),
      options_(options) {}

RegistrySnapshot Observer::look() const {
  return registry_.snapshot({.list_tenants = static_cast<std::uint32_t>(
                                 std::min<std::size_t>(options_.listed_tenants, 0xffff'ffff)),
                             .add_up = false});
}

std::uint64_t Observer::Counts::calls() const noexcept { return admitted + bypassed + all_rejected(); }

std::uint64_t Observer::Counts::all_rejected() const noexcept {
  std::uint64_t n = 0;
  for (std::size_t i = 0; i < kRejectReasons; ++i) n += rejected[i];  // the others were admitted
  return n;
}

void Observer::glance() {
  for (auto& [name, row] : rows_) {
    if (!row.keeps_history) continue;  // ten looks a second at thousands would cost more than they show
    const auto bulkhead = row.bulkhead.lock();
    if (!bulkhead) continue;
    const Snapshot s = bulkhead->gate().snapshot();
    row.glanced += s.in_flight;
    ++row.glances;
    if (s.in_flight >= row.peak) {
      row.peak = s.in_flight;
      row.peak_max_concurrent = s.max_concurrent;
    }
    row.peak_waiting = std::max(row.peak_waiting, s.waiting);
  }
}

// An adaptive limit moves all the time: an event for each change of a fifth, and at most one per window.
void Observer::report_limit(Reported& last, std::uint32_t limit,
                            const std::optional<LimiterSnapshot>& adaptive, std::string_view name,
                            std::string_view setting) {
  if (!adaptive || last.limit == 0) {
    last.limit = limit;
    return;
  }
  const bool far = std::abs(static_cast<double>(limit) - last.limit) > 0.2 * last.limit;
  if (!far || (last.at != 0 && seq_ < last.at + kWindow)) return;
  journal_.add({.kind = "adaptive",
                .bulkhead = std::string(name),
                .text = std::string(setting) + ' ' + std::to_string(last.limit) + " -> " +
                        std::to_string(limit) + ": " + adaptive->change.text()});
  last = {.limit = limit, .at = seq_};
}

void Observer::observe(const RegistrySnapshot::Entry& entry, Row& row) {
  const bool first = row.counts.empty();
  const Snapshot& gate = entry.now.gate;
  Counts now{.admitted = gate.admitted,
             .bypassed = entry.now.bypassed,
             .released = gate.released,
             .failed = gate.failed,
             .rejected = gate.rejected_by_reason};
  for (const auto n : entry.now.would_reject) now.would_reject += n;
  row.nested = entry.configured.nested;
  row.critical = entry.criticality == Priority::critical;
  row.bulkhead = registry_.find(entry.name);  // a new one, if it was removed and added again
  if (first) {
    row.last = row.older = row.newer = {entry.now.wait, entry.now.service};
    row.since_seq = seq_;
  }
  // max_concurrent of a member of a group moves all the time: keep the value that was in force at the peak.
  const bool fullest = gate.in_flight >= row.peak;
  Sample sample{.in_flight = fullest ? gate.in_flight : row.peak,
                .max_concurrent = fullest ? gate.max_concurrent : row.peak_max_concurrent,
                .configured = configured_max_concurrent(entry),
                .waiting = std::max(row.peak_waiting, gate.waiting)};
  // It was full for a moment, also if no glance saw it: full for calls that may not use the reserve.
  if (!first && gate.saturated > row.saturated)
    sample.in_flight =
        std::max(sample.in_flight,
                 static_cast<std::uint32_t>(sample.max_concurrent * (1 - entry.configured.critical_reserve)));
  const auto share = [&](std::chrono::nanoseconds integral, std::chrono::nanoseconds before) {
    return first || integral <= before || elapsed_ <= 0
               ? 0.0
               : std::chrono::duration<double>(integral - before).count() / elapsed_;
  };
  const double saturated = share(gate.saturated, row.saturated);
  const double mean = share(gate.occupancy, row.occupancy);
  sample.mean = static_cast<float>(mean > 0          ? std::min<double>(mean, sample.in_flight)
                                   : row.glances > 0 ? double{1} * row.glanced / row.glances
                                                     : gate.in_flight);
  row.saturated = gate.saturated;
  row.occupancy = gate.occupancy;
  row.glanced = row.glances = 0;
  row.last_peak = sample.in_flight;
  row.peak = row.peak_waiting = 0;
  if (!first && now.calls() >= row.counts.back().calls()) {
    const Counts& before = row.counts.back();
    sample.calls = static_cast<std::uint32_t>(now.calls() - before.calls());
    sample.failed = static_cast<std::uint32_t>(now.failed - std::min(now.failed, before.failed));
    for (std::size_t i = 0; i < kReasons; ++i)
      sample.rejected[i] = narrow(now.rejected[i] - before.rejected[i]);
  } else {
    row.counts.clear();  // after reset_statistics()
  }
  sample.times = {buckets_of(difference(entry.now.wait, row.last.wait)),
                  buckets_of(difference(entry.now.service, row.last.service))};
  sample.open = entry.now.breaker && rejects(*entry.now.breaker);
  row.last = {entry.now.wait, entry.now.service};
  if (seq_ % (kWindow / 2) == 0) {
    row.older = row.newer;
    row.newer = row.last;
  }
  row.counts.push_back(now);
  if (row.counts.size() > kWindow + 1) row.counts.pop_front();
  row.history.push_back(sample);
  while (row.history.size() > (row.keeps_history ? kHistory : kMinute)) {
    row.history.pop_front();
    ++row.since_seq;
  }
  report_limit(row.reported, gate.max_concurrent, entry.now.adaptive, entry.name, "max_concurrent");
  report_episodes(entry, row, sample, saturated);
}

// The value of the file, without overrides.
std::uint32_t Observer::configured_max_concurrent(const RegistrySnapshot::Entry& entry) const {
  return operations_.replaced(entry.name, kMaxConcurrent).value_or(entry.configured.max_concurrent);
}

// Each bulkhead that is no tenant has a row, because the verdict needs all. An hour of history is for history_bulkheads of
// them; tenants get a row, with history, where these leave room, and at most half of it: an hour is 260 KB.
void Observer::make_rows(const RegistrySnapshot& all) {
  const auto is_tenant = [](const RegistrySnapshot::Entry& entry) { return !entry.tenant_id.empty(); };
  for (auto& [name, row] : rows_) row.seen = false;
  for (const auto& entry : all.bulkheads) {
    const auto row = is_tenant(entry) ? rows_.find(entry.name) : rows_.try_emplace(entry.name).first;
    if (row != rows_.end()) row->second.seen = true;
  }
  const auto drop = [&](auto row, std::string_view why) {
    forget(row->first, row->second, why);
    return rows_.erase(row);
  };
  for (auto row = rows_.begin(); row != rows_.end();)
    row = row->second.seen ? std::next(row) : drop(row, "the bulkhead was removed");
  std::size_t own = 0, tenants = 0;
  for (const auto& [name, row] : rows_) (row.tenant ? tenants : own) += row.keeps_history;
  for (auto& [name, row] : rows_)
    if (!row.keeps_history && own < options_.history_bulkheads) row.keeps_history = true, ++own;
  for (auto row = rows_.begin(); row != rows_.end() && own + tenants > options_.history_bulkheads;) {
    if (!row->second.tenant) {
      ++row;
      continue;
    }
    row = drop(row, "the tenant is not observed any more");
    --tenants;
  }
  for (const auto& entry : all.bulkheads) {
    if (own + tenants >= options_.history_bulkheads || tenants >= options_.history_bulkheads / 2) break;
    if (!is_tenant(entry)) continue;
    const auto [row, added] = rows_.try_emplace(entry.name);
    if (!added) continue;
    row->second.tenant = row->second.keeps_history = true;
    ++tenants;
  }
}

void Observer::judge_all(const RegistrySnapshot& all) {
  verdict_ = judge(see(all), verdict_);
  for (auto& [name, row] : rows_) row.state = "ok", row.since = {};
  for (const Finding& finding : verdict_.findings) {
    if (!finding.of_bulkhead) continue;
    if (const auto row = rows_.find(finding.subject); row != rows_.end()) {
      row->second.state = finding.symptom;
      row->second.since = finding.since;
    }
  }
}

void Observer::stop() {
  for (auto& [name, row] : rows_) forget(name, row, "the process stops");
  for (auto& [name, down] : pools_)
    if (down.cut())
      report(Episode::Step::ended, down, "pool_down", name, "", "pool_down ends: the process stops");
}

void Observer::second() {
  glance();
  journal_.report_suppressed();
  ++seq_;
  last_second_ = std::chrono::system_clock::now();
  const RegistrySnapshot all = look();
  // A clock that tests hold still does not tell how long the second was.
  elapsed_ = all.taken > taken_ ? std::chrono::duration<double>(all.taken - taken_).count() : 1;
  taken_ = all.taken;
  make_rows(all);
  for (const auto& entry : all.bulkheads)
    if (const auto row = rows_.find(entry.name); row != rows_.end()) observe(entry, row->second);
  std::erase_if(groups_, [&](const auto& known) {
    return std::ranges::find(all.groups, known.first, &RegistrySnapshot::Group::name) == all.groups.end();
  });
  for (const auto& group : all.groups)
    report_limit(groups_[group.name], group.total, group.adaptive, group.name, "total");
  report_pools(all);
  judge_all(all);

  // All since the last frame: the journal keeps a bounded number.
  const auto events = journal_.list({.after = reported_event_, .newest = SIZE_MAX});
  if (!events.empty()) reported_event_ = events.back().id;
  frame_ = std::make_shared<const std::string>("id: " + std::to_string(seq_) + "\nevent: snapshot\ndata: " +
                                               text_of(frame_json(all, events)) + "\n\n");
}

// The fields are those of docs/formats/stream.md. A bulkhead without a row has no rates and peaks yet.
json::object Observer::entry_json(const RegistrySnapshot& all, const RegistrySnapshot::Entry& entry) const {
  const BulkheadSnapshot& now = entry.now;
  const auto found = rows_.find(entry.name);
  const Row* const row = found == rows_.end() ? nullptr : &found->second;
  std::uint32_t borrowed = 0, lent = 0;
  for (const GroupSnapshot& group : all.groups)
    if (group.name == entry.group)
      if (const auto* const member = group.find(entry.name)) borrowed = member->borrowed, lent = member->lent;

  json::object o{{"name", entry.name},
                 {"type", entry.type},
                 {"group", entry.group},
                 {"isolation", now.isolation == Isolation::threads ? "threads" : "semaphore"},
                 {"criticality", to_string(entry.criticality)},
                 {"enabled", now.enabled},
                 {"shadow", now.shadow},
                 {"nested", entry.configured.nested},
                 {"draining", now.draining},
                 {"closed", now.gate.closed},
                 {"in_flight", now.gate.in_flight},
                 {"peak", std::max(row ? row->last_peak : 0, now.gate.in_flight)},
                 {"borrowed", borrowed},
                 {"lent", lent},
                 {"max_concurrent", now.gate.max_concurrent},
                 {"configured_max_concurrent", configured_max_concurrent(entry)},
                 {"waiting", now.gate.waiting},
                 {"max_queue", now.gate.max_queue}};
  if (!entry.tenants.empty()) {
    o["tenants"] = entry.tenants;
    o["tenant"] = entry.tenant_id;
  }
  if (now.adaptive) {
    o["floor"] = now.adaptive->floor;
    o["ceiling"] = now.adaptive->ceiling;
    o["why"] = now.adaptive->why.text();
  }
  double rate = 0, failed_rate = 0, rejected_rate = 0;
  json::object rejected;
  if (row && row->counts.size() > 1) {
    const Counts &from = row->counts.front(), &to = row->counts.back();
    const double window = static_cast<double>(row->counts.size() - 1);
    const auto per_second = [&](std::uint64_t n) { return round_to(static_cast<double>(n) / window, 100); };
    rate = per_second(to.calls() - from.calls());
    failed_rate = per_second(to.failed - std::min(to.failed, from.failed));
    rejected_rate = per_second(to.all_rejected() - from.all_rejected());
    for (std::size_t i = 0; i < kReasons; ++i)
      if (to.rejected[i] > from.rejected[i])
        rejected[to_string(static_cast<Reason>(i))] = per_second(to.rejected[i] - from.rejected[i]);
  }
  o["rate"] = rate;
  o["failed_rate"] = failed_rate;
  o["rejected_rate"] = rejected_rate;
  o["rejected"] = std::move(rejected);
  o["wait"] = row ? quantiles(difference(now.wait, row->older.wait)) : nullptr;
  o["service"] = row ? quantiles(difference(now.service, row->older.service)) : nullptr;
  json::object by_reason;
  for (std::size_t i = 0; i < kReasons; ++i)
    if (now.gate.rejected_by_reason[i] > 0)
      by_reason[to_string(static_cast<Reason>(i))] = now.gate.rejected_by_reason[i];
  if (row) {
    const Minute minute = last_minute(*row);
    o["last_minute"] = json::object{{"seconds", minute.seconds},
                                    {"calls", minute.calls},
                                    {"rejected", minute.rejected},
                                    {"failed", minute.failed}};
    o["mean_in_flight"] = row->history.empty() ? 0 : round_to(row->history.back().mean, 10);
  }
  o["since"] = row ? since_json(*row) : nullptr;
  o["total"] = json::object{{"admitted", now.gate.admitted}, {"succeeded", now.gate.succeeded},
                            {"failed", now.gate.failed},     {"rejected", now.gate.rejected()},
                            {"timed_out", now.timed_out},    {"rejected_by_reason", std::move(by_reason)}};
  o["breaker"] =
      now.breaker && entry.bulkhead ? breaker_json(*now.breaker, entry.bulkhead->clock()) : nullptr;
  if (now.rate_limit)
    o["rate_limit"] = json::object{{"rate", now.rate_limit->rate},
                                   {"per", seconds(static_cast<std::uint64_t>(now.rate_limit->per.count()))},
                                   {"burst", now.rate_limit->burst},
                                   {"available", round_to(now.rate_limit->available, 100)}};
  if (now.holdback)
    o["holdback"] = json::object{
        {"saturation", round_to(now.holdback->saturation, 1000)},
        {"gauges", round_to(now.holdback->gauges, 1000)},
        {"headroom", round_to(now.holdback->headroom, 1000)},
        {"shadow", now.holdback->shadow},
        {"share", json::object{{"normal", round_to(now.holdback->share[1], 1000)},
                               {"best_effort", round_to(now.holdback->share[2], 1000)}}},
        {"held", json::object{{"normal", now.holdback->held[1]}, {"best_effort", now.holdback->held[2]}}}};
  if (!now.budgets.empty()) {
    json::array budgets;
    for (const BudgetSnapshot& one : now.budgets)
      budgets.push_back(json::object{{"name", one.name},
                                     {"in_use", one.in_use},
                                     {"max", one.max},
                                     {"per_call_max", one.per_call_max},
                                     {"calls", one.calls},
                                     {"waiting", one.waiting},
                                     {"max_queue", one.max_queue},
                                     {"admitted", one.admitted},
                                     {"rejected", one.rejected},
                                     {"scope", to_string(one.scope)}});
    o["budgets"] = std::move(budgets);
  }
  if (now.host_in_flight) o["host_in_flight"] = *now.host_in_flight;
  if (now.fleet) {
    const FleetSnapshot& f = *now.fleet;
    const auto rounded = [](std::chrono::nanoseconds time) {
      return round_to(std::chrono::duration<double>(time).count(), 1000);
    };
    o["fleet"] = json::object{{"state", to_string(f.state)},
                              {"mode", f.direct ? "direct" : "block"},
                              {"when_cut_off", to_string(f.when_cut_off)},
                              {"members", f.members},
                              {"held", f.held},
                              {"needed", f.needed},
                              {"lease_age", rounded(f.lease_age)},
                              {"degraded_for", rounded(f.degraded_for)},
                              {"pooling_loss", round_to(f.pooling_loss, 10'000)},
                              {"limit_version", f.limit_version},
                              {"requests", f.requests},
                              {"problem", f.problem}};
    if (f.list)
      o["fleet"].as_object()["list"] = json::object{
          {"age", rounded(f.list_age)}, {"leased", f.list->leased}, {"lapsed", f.list->lapsed},
          {"held", f.list->held},       {"needed", f.list->needed}, {"lapsed_held", f.list->lapsed_held}};
  }
  o["overrides"] = operations_.of(entry.name);
  return o;
}

json::object Observer::frame_json(const RegistrySnapshot& all,
                                  const std::vector<JournalEntry>& events) const {
  const WallTime now = std::chrono::system_clock::now();
  const std::size_t overrides = operations_.count();
  json::object config{{"state", overrides > 0 ? "drift" : "none"},
                      {"file", nullptr},
                      {"overrides", overrides},
                      {"needs_restart", 0},
                      {"error", nullptr}};
  std::string revision = std::to_string(all.revision);
  if (has_file(live_)) {
    const ConfigStatus status = live_.status();
    revision = revision_of(status);
    config["file"] = status.file;
    const std::size_t restart = status.needs_restart.size();
    config["state"] = !status.last_reload_successful ? "invalid"
                      : overrides + restart > 0      ? "drift"
                                                     : "in_sync";
    config["needs_restart"] = restart;
    // The first line only: the others quote the file, for a terminal.
    if (!status.problems.empty()) {
      const std::string error = to_text(status.problems.front());
      config["error"] = error.substr(0, error.find('\n'));
    }
  }
  json::object o{{"seq", seq_},
                 {"time", unix_seconds(now)},
                 {"instance", options_.instance},
                 {"version", options_.version},
                 {"uptime", round_to(std::chrono::duration<double>(now - started_).count(), 10)},
                 {"window", kWindow},
                 {"revision", revision},
                 {"verdict", verdict_json(verdict_)},
                 {"config", std::move(config)}};
  json::array bulkheads, groups, tenants;
  for (const auto& entry : all.bulkheads) bulkheads.push_back(entry_json(all, entry));
  for (const auto& group : all.groups) groups.push_back(group_json(group));
  for (const auto& t : all.tenants)
    tenants.push_back(json::object{{"name", t.name},
                                   {"live", t.live},
                                   {"max", t.max},
                                   {"created", t.created},
                                   {"retired", t.retired},
                                   {"overflowed", t.overflowed},
                                   {"rejected", t.rejected}});
  json::array pools;
  for (const auto& pool : all.resources) pools.push_back(pool_json(all, pool));
  json::array switches;
  for (const Switch& s : options_.switches)
    switches.push_back(json::object{{"name", s.name}, {"title", s.title}, {"on", s.is_on()}});
  o["bulkheads"] = std::move(bulkheads);
  o["groups"] = std::move(groups);
  o["pools"] = std::move(pools);
  o["tenants"] = std::move(tenants);
  o["switches"] = std::move(switches);
  o["events"] = events_json(events);
  return o;
}

json::object Observer::snapshot(std::size_t events) const {
  return frame_json(look(), journal_.list({.newest = events}));
}

// From the table of settings; with a file also the source of each value.
json::array Observer::settings_json(const RegistrySnapshot::Entry& entry) const {
  Config config;
  config.bulkheads.push_back({.options = entry.configured,
                              .type = entry.type,
                              .group = entry.group,
                              .criticality = entry.criticality});
  config.bulkheads[0].options.name = "it";  // its own name may contain dots
  // The defaults, in the same sections.
  Config standard;
  BulkheadOptions defaults{.name = "it"};
  if (entry.configured.breaker) defaults.breaker.emplace();
  if (entry.configured.rate_limit) defaults.rate_limit.emplace();
  if (entry.configured.adaptive) defaults.adaptive.emplace();
  if (entry.configured.holdback) defaults.holdback.emplace();
  standard.bulkheads.push_back({.options = std::move(defaults)});
  std::map<std::string, std::string> usual;
  for (Setting& setting : settings(standard)) usual[setting.path] = std::move(setting.value);
  json::array list, same;  // what differs from the defaults comes first
  for (const Setting& setting : settings(config)) {
    const std::string_view prefix = "bulkheads.it.", path = setting.path;
    if (!path.starts_with(prefix) || setting.value == "none" || setting.value == "\"\"") continue;
    const std::string_view name = path.substr(prefix.size());
    const auto known = usual.find(setting.path);
    const bool is_default = known != usual.end() && known->second == setting.value;
    json::object o{{"name", name}, {"value", setting.value}, {"default", is_default}};
    if (has_file(live_)) o["source"] = live_.source(entry.name, name);
    (is_default ? same : list).push_back(std::move(o));
  }
  for (json::value& setting : same) list.push_back(std::move(setting));
  return list;
}

// Also of a tenant that is not listed, so the registry is asked for this one.
json::object Observer::bulkhead(std::string_view name) const {
  const RegistrySnapshot all = look();
  const std::optional<RegistrySnapshot::Entry> entry = registry_.look(name);
  if (!entry) throw not_known("bulkhead", name, registry_.names(), "GET /v1/bulkheads lists them");
  json::object o = entry_json(all, *entry);
  o["settings"] = settings_json(*entry);
  json::array holders;
  if (entry->bulkhead)
    for (const Holder& h : entry->bulkhead->holders())
      holders.push_back(
          json::object{{"label", h.label},
                       {"age", seconds(static_cast<std::uint64_t>(h.age.count()))},
                       {"priority", to_string(h.priority)},
                       {"cost", h.cost},
                       {"where", std::string(h.where.file_name()) + ':' + std::to_string(h.where.line())}});
  o["holders"] = std::move(holders);
  if (entry->now.fleet && entry->now.fleet->list) o["fleet_members"] = members_json(*entry->now.fleet);
  return o;
}

}  // namespace bulkhead::control
