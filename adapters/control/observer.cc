#include "observer.h"

#include <algorithm>
#include <boost/json/array.hpp>
#include <cmath>

#include "bulkhead/config.h"

namespace bulkhead::control {
namespace json = boost::json;
namespace {

double round_to(double value, double steps) { return std::round(value * steps) / steps; }
double seconds(std::uint64_t ns) { return round_to(static_cast<double>(ns) * 1e-9, 1e6); }

WallTime wall(TimePoint time, Clock& clock) {
  return std::chrono::system_clock::now() +
         std::chrono::duration_cast<std::chrono::system_clock::duration>(time - clock.now());
}

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

std::array<std::uint16_t, 3> buckets_of(const HistogramCounts& counts, std::uint16_t nothing) {
  if (counts.count() == 0) return {nothing, nothing, nothing};
  const auto bucket = [&](double q) {
    return static_cast<std::uint16_t>(Histogram::bucket_of(counts.quantile(q)));
  };
  return {bucket(0.5), bucket(0.9), bucket(0.99)};
}

bool refuses(const BreakerSnapshot& breaker) noexcept {
  return breaker.mode == BreakerMode::forced_open ||
         (breaker.mode == BreakerMode::automatic && breaker.state == BreakerState::open);
}

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

json::value breaker_json(const BreakerSnapshot& b, Clock& clock) {
  json::object o{{"state", to_string(b.state)},
                 {"mode", to_string(b.mode)},
                 {"reason", to_string(b.reason)},
                 {"since", unix_seconds(wall(b.since, clock))},
                 {"next_probe", nullptr},
                 {"calls", b.calls},
                 {"failures", b.failures},
                 {"slow", b.slow},
                 {"opens", b.opens}};
  if (b.next_probe != no_deadline && b.state != BreakerState::closed)
    o["next_probe"] = unix_seconds(wall(b.next_probe, clock));
  return o;
}

json::object group_json(const GroupSnapshot& group) {
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
  return {{"name", group.name}, {"total", group.total},          {"in_flight", group.in_flight},
          {"free", group.free}, {"members", std::move(members)}, {"loans", std::move(loans)}};
}

json::object pool_json(const RegistrySnapshot::Resource& pool) {
  const ResourceSnapshot& now = pool.now;
  json::object o{{"name", pool.name},
                 {"kind", pool.kind},
                 {"used", now.used},
                 {"idle", now.idle},
                 {"connecting", now.opening},
                 {"waiting", now.gate.waiting},
                 {"max", now.max},
                 {"wait_p99", nullptr},
                 {"oldest_use", nullptr},
                 {"timeouts", now.timeouts},
                 {"open_failures", now.open_failures},
                 {"failing", nullptr}};
  if (now.wait.count() > 0) o["wait_p99"] = seconds(now.wait.quantile(0.99));
  if (now.failures > 0) o["failing"] = now.last_failure;  // the last attempt failed; later ones may not
  if (now.used > 0) o["oldest_use"] = seconds(static_cast<std::uint64_t>(now.oldest_lease.count()));
  return o;
}

json::array events_json(const std::vector<Entry>& entries) {
  json::array events;
  for (const Entry& entry : entries) events.push_back(entry.event());
  return events;
}

template <class T>
std::uint16_t narrow(T n) noexcept {
  return static_cast<std::uint16_t>(std::min<std::uint64_t>(n, 0xffff));
}

}  // namespace

Observer::Observer(Plant& plant, const Changes& changes, Journal& journal, const ServerOptions& options)
    : plant_(plant), changes_(changes), journal_(journal), options_(options) {}

std::uint64_t Observer::Counts::calls() const noexcept {
  std::uint64_t n = admitted;
  for (const auto r : rejected) n += r;
  return n;
}

Observer::Counts Observer::counts_of(const BulkheadSnapshot& now) {
  return {.admitted = now.gate.admitted, .failed = now.gate.failed, .rejected = now.gate.rejected_by_reason};
}

void Observer::glance() {
  for (auto& [name, row] : rows_) {
    const auto bulkhead = row.bulkhead.lock();
    if (!bulkhead) continue;
    const Snapshot s = bulkhead->gate().snapshot();
    if (s.in_flight >= row.peak) {
      row.peak = s.in_flight;
      row.peak_limit = s.max_concurrent;
    }
    row.peak_waiting = std::max(row.peak_waiting, s.waiting);
  }
}

void Observer::tell_changes(const RegistrySnapshot::Entry& entry, Row& row) {
  const auto& now = entry.now.breaker;
  if (now && row.breaker)
    if (const std::string path = path_between(*row.breaker, *now); !path.empty())
      journal_.add({.kind = "breaker",
                    .bulkhead = entry.name,
                    .text = "breaker " + path + " (" + std::string(to_string(now->reason)) + ')'});
  row.breaker = now;
  const std::uint32_t limit = entry.now.gate.max_concurrent;
  if (!entry.now.adaptive || row.told_limit == 0) {
    row.told_limit = limit;
  } else if (std::abs(static_cast<double>(limit) - row.told_limit) > 0.2 * row.told_limit) {
    journal_.add(
        {.kind = "limit",
         .bulkhead = entry.name,
         .text = "adaptive limit " + std::to_string(row.told_limit) + " -> " + std::to_string(limit)});
    row.told_limit = limit;
  }
}

void Observer::observe(const RegistrySnapshot::Entry& entry, Row& row) {
  const bool first = row.counts.empty();
  const Counts now = counts_of(entry.now);
  row.bulkhead = plant_.find(entry.name);  // another one, if it was removed and made anew
  if (first) {
    row.last = row.older = row.newer = {entry.now.wait, entry.now.service};
    row.since_seq = seq_;
  }
  // The limit of a member of a group moves all the time: the one that `used` was under tells how full it was.
  const bool fullest = entry.now.gate.in_flight >= row.peak;
  Sample sample{.used = fullest ? entry.now.gate.in_flight : row.peak,
                .limit = fullest ? entry.now.gate.max_concurrent : row.peak_limit,
                .configured = configured_limit(entry),
                .queue = std::max(row.peak_waiting, entry.now.gate.waiting)};
  // It was full for a moment, even if no glance saw it.
  if (!first && entry.now.gate.saturated > row.saturated) sample.used = std::max(sample.used, sample.limit);
  row.saturated = entry.now.gate.saturated;
  row.last_peak = sample.used;
  row.peak = row.peak_waiting = 0;
  if (!first && now.calls() >= row.counts.back().calls()) {
    const Counts& before = row.counts.back();
    sample.calls = static_cast<std::uint32_t>(now.calls() - before.calls());
    sample.failed = static_cast<std::uint32_t>(now.failed - std::min(now.failed, before.failed));
    for (std::size_t i = 0; i < kReasons; ++i)
      sample.rejected[i] = narrow(now.rejected[i] - before.rejected[i]);
  } else {
    row.counts.clear();  // reset_statistics(): start anew
  }
  sample.wait = buckets_of(difference(entry.now.wait, row.last.wait), kNothing);
  sample.service = buckets_of(difference(entry.now.service, row.last.service), kNothing);
  sample.open = entry.now.breaker && refuses(*entry.now.breaker);
  row.last = {entry.now.wait, entry.now.service};
  if (seq_ % (kWindow / 2) == 0) {
    row.older = row.newer;
    row.newer = row.last;
  }
  row.counts.push_back(now);
  if (row.counts.size() > kWindow + 1) row.counts.pop_front();
  row.history.push_back(sample);
  if (row.history.size() > kHistory) {
    row.history.pop_front();
    ++row.since_seq;
  }
  tell_changes(entry, row);
}

// As the file has it, whatever operators have made of it.
std::uint32_t Observer::configured_limit(const RegistrySnapshot::Entry& entry) const {
  return changes_.replaced_limit(entry.name).value_or(entry.configured.max_concurrent);
}

void Observer::second() {
  glance();
  ++seq_;
  last_second_ = std::chrono::system_clock::now();
  const RegistrySnapshot all = plant_.snapshot();
  for (auto& [name, row] : rows_) row.seen = false;
  for (const auto& entry : all.bulkheads) {
    auto row = rows_.find(entry.name);
    if (row == rows_.end()) {
      if (rows_.size() >= options_.history_bulkheads) continue;
      row = rows_.try_emplace(entry.name).first;
    }
    row->second.seen = true;
    observe(entry, row->second);
  }
  std::erase_if(rows_, [](const auto& row) { return !row.second.seen; });

  const auto events = journal_.list({.after = told_event_, .limit = 50});
  if (!events.empty()) told_event_ = events.back().id;
  frame_ = std::make_shared<const std::string>("id: " + std::to_string(seq_) + "\nevent: snapshot\ndata: " +
                                               text_of(frame_json(all, events)) + "\n\n");
}

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
                 {"draining", now.draining},
                 {"closed", now.gate.closed},
                 {"in_flight", now.gate.in_flight},
                 {"peak", std::max(row ? row->last_peak : 0, now.gate.in_flight)},
                 {"borrowed", borrowed},
                 {"lent", lent},
                 {"limit", now.gate.max_concurrent},
                 {"configured_limit", configured_limit(entry)},
                 {"queue", now.gate.waiting},
                 {"queue_limit", now.gate.max_queue}};
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
    rejected_rate = per_second(to.calls() - from.calls() - (to.admitted - from.admitted));
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
  o["overrides"] = changes_.of(entry.name);
  return o;
}

json::object Observer::frame_json(const RegistrySnapshot& all, const std::vector<Entry>& events) const {
  const WallTime now = std::chrono::system_clock::now();
  const std::size_t overrides = changes_.count();
  json::object config{{"state", overrides > 0 ? "drift" : "none"},
                      {"file", nullptr},
                      {"overrides", overrides},
                      {"error", nullptr}};
  std::string revision = std::to_string(all.revision);
  if (!options_.config.path.empty()) {
    const ConfigStatus status = options_.config.status();
    revision = status.revision;
    config["file"] = options_.config.path;
    config["state"] = !status.valid ? "invalid" : overrides > 0 ? "drift" : "in_sync";
    // Where and what; the lines after that show it in the file, for a terminal.
    if (!status.valid) config["error"] = status.error.substr(0, status.error.find('\n'));
  }
  json::object o{{"seq", seq_},
                 {"time", unix_seconds(now)},
                 {"instance", options_.instance},
                 {"version", options_.version},
                 {"uptime", round_to(std::chrono::duration<double>(now - started_).count(), 10)},
                 {"window", kWindow},
                 {"revision", revision},
                 {"config", std::move(config)}};
  json::array bulkheads, groups, tenants;
  for (const auto& entry : all.bulkheads) bulkheads.push_back(entry_json(all, entry));
  for (const GroupSnapshot& group : all.groups) groups.push_back(group_json(group));
  for (const auto& t : all.tenants)
    tenants.push_back(json::object{{"name", t.name},
                                   {"live", t.live},
                                   {"max", t.max},
                                   {"created", t.created},
                                   {"retired", t.retired},
                                   {"overflowed", t.overflowed},
                                   {"refused", t.refused}});
  json::array pools;
  for (const auto& pool : all.resources) pools.push_back(pool_json(pool));
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
  return frame_json(plant_.snapshot(), journal_.list({.limit = events}));
}

// By the one table of settings; where each comes from, as far as somebody knows.
json::array Observer::settings_json(const RegistrySnapshot::Entry& entry) const {
  Config config;
  config.bulkheads.push_back({.options = entry.configured,
                              .type = entry.type,
                              .group = entry.group,
                              .criticality = entry.criticality});
  config.bulkheads[0].options.name = "it";  // whatever its name contains, it is one step of the path
  json::array list;
  for (const Setting& setting : settings(config)) {
    const std::string_view prefix = "bulkheads.it.", path = setting.path;
    if (!path.starts_with(prefix) || setting.value == "none" || setting.value == "\"\"") continue;
    const std::string_view name = path.substr(prefix.size());
    json::object o{{"name", name}, {"value", setting.value}};
    if (options_.config.source) o["source"] = options_.config.source(entry.name, name);
    list.push_back(std::move(o));
  }
  return list;
}

json::object Observer::bulkhead(std::string_view name) const {
  const RegistrySnapshot all = plant_.snapshot();
  const auto entry = std::ranges::find(all.bulkheads, name, &RegistrySnapshot::Entry::name);
  if (entry == all.bulkheads.end()) {
    std::vector<std::string> known;
    for (const auto& e : all.bulkheads) known.push_back(e.name);
    throw not_known("bulkhead", name, known, "GET /v1/bulkheads lists them");
  }
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
  return o;
}

}  // namespace bulkhead::control
