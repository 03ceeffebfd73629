#include "app/sim/worlds.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace bulkhead::sim {
namespace {

constexpr double kSettledAfter = 60;
constexpr std::string_view kPulses = "Pulses";

WorldRow company(std::uint32_t instances, std::uint32_t slots, Arrival arrival, double timeout,
                 std::uint32_t retries, double seconds) {
  WorldRow row{.group = std::string(kCompany),
               .name = fmt::format("{} x {} slots, {}", instances, slots,
                                   arrival == Arrival::open ? "open" : "closed"),
               .from = kSettledAfter,
               .most_round_trip = 2,
               .least_limit = 0.8,
               .most_limit = 2.5,
               .least_share = 1.0 / 3};
  if (timeout > 0) row.name += fmt::format(", timeout {:.0f}x", timeout);
  if (retries > 0) row.name += ", retry";
  const double service = slots < 500 ? 40 : 250;
  row.scenario = {.arrival = arrival,
                  .capacity = slots,
                  .service_ms = service,
                  .seconds = seconds,
                  .timeout_ms = timeout * service,
                  .retries = retries,
                  .instances = instances};
  return row;
}

// The same row where the limiter learns of clients that give up in another way.
WorldRow ending_as(WorldRow row, Outcome end) {
  row.name += end == Outcome::ignored ? ", clients cancel" : ", timeouts are failures";
  row.scenario.given_up = end;
  return row;
}

}  // namespace

std::vector<WorldRow> world_rows(double seconds) {
  std::vector<WorldRow> rows;
  for (const std::uint32_t slots : {50u, 500u})
    for (const std::uint32_t n : {2u, 4u, 10u, 40u})
      for (const Arrival a : {Arrival::closed, Arrival::open})
        for (const auto& [timeout, retries] :
             {std::pair{0.0, 0u}, {0.0, 1u}, {5.0, 0u}, {5.0, 1u}, {12.0, 0u}, {12.0, 1u}}) {
          // With closed arrival a retry only takes the place of another call.
          if (a == Arrival::closed && retries > 0) continue;
          rows.push_back(company(n, slots, a, timeout, retries, seconds));
        }

  const auto changing = [&](std::string name, std::uint32_t n, const auto& change, double from) {
    WorldRow row = company(n, 50, Arrival::open, 5, 1, from + 240);
    row.group = "Instances that come and go";
    row.name = std::move(name);
    row.from = from;
    change(row.scenario);
    rows.push_back(std::move(row));
  };
  changing(
      "5 of 10 join at 120 s", 10,
      [](Scenario& s) {
        for (std::uint32_t i = 5; i < 10; ++i) s.deployments.push_back({120, i, false, true});
      },
      180);
  changing(
      "5 of 10 leave at 120 s", 10,
      [](Scenario& s) {
        for (std::uint32_t i = 5; i < 10; ++i) s.deployments.push_back({120, i, true, false});
      },
      180);
  changing(
      "rolling restart of 10", 10,
      [](Scenario& s) {
        for (std::uint32_t i = 0; i < 10; ++i) s.deployments.push_back({120 + 10.0 * i, i, true, true});
      },
      120);
  changing("one of two restarts", 2, [](Scenario& s) { s.deployments.push_back({120, 1, true, true}); }, 180);
  changing("zipf demand, 10", 10, [](Scenario& s) { s.zipf = 1; }, 60);
  changing("clocks apart, 4", 4, [](Scenario& s) { s.skew_ms = 60e3; }, 60);
  changing("clocks apart, 10", 10, [](Scenario& s) { s.skew_ms = 60e3; }, 60);

  const auto add = [&](std::string group, std::string name, double least, Scenario s) -> WorldRow& {
    rows.push_back({.group = std::move(group),
                    .name = std::move(name),
                    .scenario = std::move(s),
                    .least_goodput = least});
    return rows.back();
  };
  {
    const std::string g = "Nothing succeeds";
    WorldRow& a = add(g, "initial 400 on 20 slots, timeout 5x", 0.9,
                      {.capacity = 20, .seconds = 120, .initial = 400, .timeout_ms = 200});
    a.from = 30;
    std::vector<WorldRow> more;
    for (const Outcome end : {Outcome::ignored, Outcome::failure}) more.push_back(ending_as(a, end));
    WorldRow& a2 = add(g, "the same, open, retry", 0.9,
                       {.arrival = Arrival::open,
                        .capacity = 20,
                        .seconds = 120,
                        .load = 6,
                        .initial = 400,
                        .timeout_ms = 200,
                        .retries = 1});
    a2.from = 30;
    for (const Arrival arrival : {Arrival::closed, Arrival::open})
      for (const std::uint32_t retries : {0u, 1u}) {
        WorldRow& b = add(g,
                          fmt::format("a fifth of the capacity for 2 min, {}{}",
                                      arrival == Arrival::open ? "open" : "closed", retries ? ", retry" : ""),
                          0.9,
                          {.arrival = arrival,
                           .seconds = 240,
                           .phases = {{0, 50}, {120, 10}},
                           .timeout_ms = 200,
                           .retries = retries});
        b.from = 150;
        for (const Outcome end : {Outcome::ignored, Outcome::failure})
          if (retries == 0) more.push_back(ending_as(b, end));
        WorldRow& c = add(g,
                          fmt::format("a tenth of the capacity for 10 s, {}{}",
                                      arrival == Arrival::open ? "open" : "closed", retries ? ", retry" : ""),
                          0.9,
                          {.arrival = arrival,
                           .seconds = 240,
                           .phases = {{0, 50}, {120, 5}, {130, 50}},
                           .timeout_ms = 200,
                           .retries = retries});
        c.from = 160;
        WorldRow& d = add(g,
                          fmt::format("hangs for 30 s, {}{}", arrival == Arrival::open ? "open" : "closed",
                                      retries ? ", retry" : ""),
                          0.9,
                          {.arrival = arrival,
                           .seconds = 240,
                           .phases = {{0, 50}, {120, 50, 1.3, Health::hangs}, {150, 50}},
                           .timeout_ms = 200,
                           .retries = retries});
        d.from = 165;
      }
    rows.insert(rows.end(), more.begin(), more.end());
  }
  {
    const std::string g(kPulses);
    for (const std::uint32_t c : {50u, 100u}) {
      add(g, fmt::format("60 per 100 ms, {} slots", c), 0.85,
          {.arrival = Arrival::open, .capacity = c, .seconds = 180, .pulse = 60, .pulse_ms = 100})
          .from = 20;
      add(g, fmt::format("200 per 500 ms, {} slots", c), 0.85,
          {.arrival = Arrival::open, .capacity = c, .seconds = 180, .pulse = 200, .pulse_ms = 500})
          .from = 20;
    }
    add(g, "on 50 ms, off 150 ms, open", 0.85,
        {.arrival = Arrival::open, .seconds = 180, .load = 2, .on_ms = 50, .off_ms = 150})
        .from = 20;
    add(g, "on 50 ms, off 150 ms, closed", 0.85,
        {.arrival = Arrival::closed, .seconds = 180, .on_ms = 50, .off_ms = 150})
        .from = 20;
    add(g, "batches of 128, closed", 0.85,
        {.capacity = 128, .seconds = 180, .model = Model::batching, .batch_size = 128})
        .from = 20;
    add(g, "batches of 128, open", 0.85,
        {.arrival = Arrival::open,
         .capacity = 128,
         .seconds = 180,
         .model = Model::batching,
         .batch_size = 128})
        .from = 20;
    add(g, "lockstep, closed", 0.85, {.sigma = 0, .seconds = 180}).from = 20;
    add(g, "lockstep, 100 slots of 10 ms", 0.85,
        {.capacity = 100, .service_ms = 10, .sigma = 0, .seconds = 180})
        .from = 20;
  }
  {
    const std::string g = "Other dependencies";
    add(g, "three stations of 1", 0.85,
        {.capacity = 3, .service_ms = 60, .seconds = 300, .stations = {1, 1, 1}})
        .from = 30;
    add(g, "three stations of 10, 20, 30", 0.85,
        {.capacity = 30, .service_ms = 60, .seconds = 180, .stations = {10, 20, 30}})
        .from = 30;
    add(g, "USL with a peak at 32", 0.85,
        {.capacity = 32, .seconds = 180, .model = Model::shared, .contention = 0.02, .coherence = 0.00096})
        .from = 30;
    add(g, "USL with a peak at 100", 0.85,
        {.capacity = 100, .seconds = 180, .model = Model::shared, .contention = 0.005, .coherence = 0.0001})
        .from = 30;
    add(g, "Amdahl, 5 % serial", 0.85,
        {.capacity = 20, .seconds = 180, .model = Model::shared, .contention = 0.05})
        .from = 30;
    add(g, "thrashes above 60", 0.85, {.capacity = 50, .seconds = 180, .thrashes_above = 60}).from = 30;
    add(g, "thrashes above 60, open", 0.85,
        {.arrival = Arrival::open, .capacity = 50, .seconds = 180, .thrashes_above = 60})
        .from = 30;
  }
  {
    const std::string g = "Changes";
    WorldRow& a = add(g, "10x longer without overload", 0.9,
                      {.arrival = Arrival::open,
                       .capacity = 400,
                       .seconds = 300,
                       .load = 0.05,
                       .phases = {{0, 400, 0.05}, {60, 400, 0.05, Health::works, 10}}});
    a.from = 60;
    a.early_from = 60;
    a.early_to = 75;
    a.early_goodput = 0.5;
    WorldRow& b = add(g, "service times x4, closed", 0.9,
                      {.seconds = 240, .phases = {{0, 50}, {120, 50, 1.3, Health::works, 4}}});
    b.from = 120;
    b.early_from = 120;
    b.early_to = 135;
    b.early_goodput = 0.5;
    WorldRow& b2 = add(
        g, "service times x4, open", 0.9,
        {.arrival = Arrival::open, .seconds = 240, .phases = {{0, 50}, {120, 50, 1.3, Health::works, 4}}});
    b2.from = 120;
    b2.early_from = 120;
    b2.early_to = 135;
    b2.early_goodput = 0.5;
    add(g, "collections of 300 ms every 5 s, closed", 0.9,
        {.seconds = 180, .pause_every = 5, .pause_ms = 300})
        .from = 15;
    add(g, "collections of 300 ms every 5 s, open", 0.9,
        {.arrival = Arrival::open, .seconds = 180, .pause_every = 5, .pause_ms = 300})
        .from = 15;
    add(g, "sine of 10 s, closed", 0.9, {.seconds = 180, .swing = 0.5, .swing_period = 10}).from = 15;
    add(g, "sine of 10 s, open", 0.9,
        {.arrival = Arrival::open, .seconds = 180, .swing = 0.5, .swing_period = 10})
        .from = 15;
  }
  {
    const std::string g = "Small, large, slow";
    for (const Arrival a : {Arrival::closed, Arrival::open}) {
      const char* n = a == Arrival::open ? "open" : "closed";
      add(g, fmt::format("1 slot, {}", n), 0.9, {.arrival = a, .capacity = 1, .seconds = 300}).from = 30;
      add(g, fmt::format("2 slots, {}", n), 0.9, {.arrival = a, .capacity = 2, .seconds = 300}).from = 30;
      add(g, fmt::format("5000 slots of 250 ms from 20, {}", n), 0.9,
          {.arrival = a, .capacity = 5000, .service_ms = 250, .seconds = 120, .ceiling = 20000});
      add(g, fmt::format("10 slots of 2 s, {}", n), 0.9,
          {.arrival = a, .capacity = 10, .service_ms = 2000, .seconds = 3600});
      add(g, fmt::format("8 slots of 10 s, {}", n), 0.85,
          {.arrival = a, .capacity = 8, .service_ms = 10000, .seconds = 7200});
    }
  }
  // Pulses, batches and dependencies without slots have no limit at which calls do not wait and the goodput is the best one.
  for (WorldRow& row : rows)
    if (row.most_round_trip == 0 && row.group != kPulses && row.scenario.capacity < 5000 &&
        row.scenario.model == Model::slots)
      row.most_round_trip = 2 * (row.scenario.phases.empty() ? 1 : row.scenario.phases.back().slowdown);
  for (const Arrival a : {Arrival::closed, Arrival::open})
    for (const std::uint32_t n : {1u, 4u}) {
      WorldRow& row = add("Target latency of two service times",
                          fmt::format("{} x 50 slots, {}", n, a == Arrival::open ? "open" : "closed"), 0.9,
                          {.arrival = a, .seconds = 300, .load = 2, .instances = n});
      row.from = kSettledAfter;
      row.target_ms = 80;
      row.most_round_trip = 2;
      row.least_limit = 1.2;
    }
  return rows;
}

Best best_fixed(const WorldRow& row, std::uint32_t seed) {
  Scenario s = row.scenario;
  if (row.group == kCompany) s.seconds = std::min(s.seconds, 120.0);
  const double to = row.to > 0 ? std::min(row.to, s.seconds) : s.seconds;
  Best best, unbounded;
  std::uint32_t last = 0;
  for (const double factor :
       {0.2, 0.34, 0.5, 0.67, 0.8, 1.0, 1.1, 1.25, 1.33, 1.5, 1.67, 2.0, 2.33, 2.5, 3.0, 4.0, 8.0, 20.0}) {
    const auto limit = std::max(s.instances, static_cast<std::uint32_t>(std::lround(factor * s.capacity)));
    if (limit == last || limit > 4 * s.ceiling) continue;
    if (s.instances > 1 && (factor < 0.67 || factor > 2.5)) continue;  // many rows, and the best is near 1
    last = limit;
    const Run run = simulate(s, {.fixed = limit}, seed);
    const bool in_time = row.most_round_trip == 0 ||
                         run.round_trip(row.from, to) <= row.most_round_trip * row.scenario.service_ms;
    for (Best* b : {&unbounded, &best}) {
      if (b == &best && !in_time) continue;
      b->goodput = std::max(b->goodput, run.goodput(row.from, to));
      if (row.early_to > 0) b->early = std::max(b->early, run.goodput(row.early_from, row.early_to));
    }
  }
  return best.goodput > 0 ? best : unbounded;
}

Verdict judge(const WorldRow& row, const Run& run, const Best& best) {
  const double to = row.to > 0 ? row.to : row.scenario.seconds;
  Verdict v;
  v.goodput = run.goodput(row.from, to) / best.goodput;
  v.round_trip = run.round_trip(row.from, to) / row.scenario.service_ms;
  v.limit = run.mean_limit(row.from, to);
  v.minute = run.highest_minute(row.from, to);
  v.share = row.scenario.instances > 1 ? run.least_share(row.from, to) : 1;
  if (row.early_to > 0) v.early = run.goodput(row.early_from, row.early_to) / best.early;
  v.pass = v.goodput >= row.least_goodput &&
           (row.most_round_trip == 0 || v.round_trip <= row.most_round_trip) && v.limit >= row.least_limit &&
           (row.most_limit == 0 || std::max(v.limit, v.minute) <= row.most_limit) &&
           v.share >= row.least_share && v.early >= row.early_goodput;
  return v;
}

std::string Verdict::text() const {
  return fmt::format("{:.2f}, {:.1f}x, limit {:.2f}{}{}{}", goodput, round_trip, limit,
                     minute > limit + 0.005 ? fmt::format(" to {:.2f}", minute) : "",
                     share < 1 ? fmt::format(", share {:.2f}", share) : "",
                     early < 1 ? fmt::format(", early {:.2f}", early) : "");
}

}  // namespace bulkhead::sim
