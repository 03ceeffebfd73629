#include "app/sim/suite.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <future>
#include <thread>
#include <utility>

#include "app/sim/worlds.h"

namespace bulkhead::sim {
namespace {

constexpr std::string_view kDrops = "Capacity drops to a third, and recovers";
constexpr double kLaterSeeds = 900;   // seconds of saturation and of company with another seed than the first
constexpr double kSettledAfter = 30;  // seconds a limiter has to find the capacity
constexpr double kLeastInBand = 0.9, kLeastGoodput = 0.9, kMostRoundTrip = 2;
constexpr double kFollowDropWithin = 15, kFollowRecoveryWithin = 30;
constexpr double kDropAt = 120, kRecoveryAt = 240, kDropEnd = 360;
constexpr double kHalfAt = 120, kHalfSettledAt = 125, kHalfEnd = 720;
constexpr double kOutageAt = 60, kOutageEnd = 90, kAfterOutage = 180;

std::string_view name(Arrival arrival) { return arrival == Arrival::closed ? "closed" : "open"; }

std::string horizon(double seconds) {
  if (seconds < 120) return fmt::format("{:.0f} s", seconds);
  return seconds < 3600 ? fmt::format("{:.0f} min", seconds / 60) : fmt::format("{:.0f} h", seconds / 3600);
}

std::string reaction(double seconds) {
  return std::isfinite(seconds) ? fmt::format("{:.1f} s", seconds) : std::string("never");
}

std::vector<Run> runs_of(Scenario scenario, LimitAlgorithm algorithm, std::uint32_t seeds,
                         double later_seeds) {
  std::vector<Run> runs;
  for (std::uint32_t seed = 1; seed <= seeds; ++seed) {
    if (seed > 1) scenario.seconds = std::min(scenario.seconds, later_seeds);
    runs.push_back(simulate(scenario, {.algorithm = algorithm}, seed));
  }
  return runs;
}

double length(const Run& run) { return static_cast<double>(run.ticks.size() - 1) * Run::kTick; }

Cell judge_world(const WorldRow& world, LimitAlgorithm algorithm, std::uint32_t seeds, const Best& best) {
  Cell worst{.pass = true, .text = {}};
  double least = 1e9;
  for (std::uint32_t seed = 1; seed <= seeds; ++seed) {
    const Contender contender{
        .algorithm = algorithm,
        .target_latency = std::chrono::nanoseconds(static_cast<std::int64_t>(world.target_ms * 1e6))};
    WorldRow row = world;
    if (seed > 1 && row.group == kCompany) row.scenario.seconds = std::min(row.scenario.seconds, kLaterSeeds);
    const Verdict v = judge(row, simulate(row.scenario, contender, seed), best);
    if (worst.pass == v.pass ? v.goodput >= least : v.pass) continue;
    least = v.goodput;
    worst = {v.pass, v.text()};
  }
  return worst;
}

using Job = std::function<std::vector<SuiteRow>()>;

// Runs the jobs on several threads, and reports their rows in the order of the jobs.
std::vector<SuiteRow> in_order(const std::vector<Job>& jobs, std::uint32_t threads,
                               const std::function<void(const SuiteRow&)>& on_row) {
  std::vector<std::packaged_task<std::vector<SuiteRow>()>> tasks(jobs.begin(), jobs.end());
  std::atomic<std::size_t> next{0};
  std::vector<std::jthread> workers;
  for (std::uint32_t i = 0; i < threads; ++i)
    workers.emplace_back([&] {
      for (std::size_t at = next++; at < tasks.size(); at = next++) tasks[at]();
    });
  std::vector<SuiteRow> rows;
  for (auto& task : tasks)
    for (SuiteRow& row : task.get_future().get()) {
      on_row(row);
      rows.push_back(std::move(row));
    }
  return rows;
}

}  // namespace

Scenario saturated(Sized d, Arrival arrival, double seconds, double sigma) {
  return {.arrival = arrival,
          .capacity = d.capacity,
          .service_ms = d.service_ms,
          .sigma = sigma,
          .seconds = seconds,
          .ceiling = d.capacity < 1000 ? 1000u : 4 * d.capacity};
}

Scenario with_drop(Sized d, Arrival arrival) {
  Scenario s = saturated(d, arrival, kDropEnd);
  s.phases = {{.from = 0, .capacity = d.capacity},
              {.from = kDropAt, .capacity = d.capacity / 3},
              {.from = kRecoveryAt, .capacity = d.capacity}};
  return s;
}

Scenario with_half_load(Sized d) {
  Scenario s = saturated(d, Arrival::open, kHalfEnd);
  s.phases = {{.from = 0, .capacity = d.capacity}, {.from = kHalfAt, .capacity = d.capacity, .load = 0.5}};
  return s;
}

Scenario with_outage(Sized d, Arrival arrival, Health health) {
  Scenario s = saturated(d, arrival, kAfterOutage);
  s.phases = {{.from = 0, .capacity = d.capacity},
              {.from = kOutageAt, .capacity = d.capacity, .health = health},
              {.from = kOutageEnd, .capacity = d.capacity}};
  return s;
}

double best_fixed_goodput(const Scenario& scenario, std::uint32_t seed) {
  double best = 0;
  for (const double factor : {0.34, 0.8, 1.0, 1.1, 1.25, 1.5, 2.0}) {
    const auto limit = std::max(1u, static_cast<std::uint32_t>(std::lround(factor * scenario.capacity)));
    const Run run = simulate(scenario, {.fixed = limit}, seed);
    best = std::max(best, run.goodput(0, scenario.seconds));
  }
  return best;
}

Cell judge_saturated(const std::vector<Run>& runs, const Scenario& scenario, double seconds, double best) {
  double in_band = 1, goodput = 1e9, round_trip = 0;
  for (const Run& run : runs) {
    if (length(run) < seconds) continue;
    in_band = std::min(in_band, run.in_band(kSettledAfter, seconds));
    goodput = std::min(goodput, run.goodput(0, seconds) / best);
    round_trip = std::max(round_trip, run.round_trip(kSettledAfter, seconds) / scenario.service_ms);
  }
  return {in_band >= kLeastInBand && goodput >= kLeastGoodput && round_trip <= kMostRoundTrip,
          fmt::format("{:.0f} %, {:.2f}, {:.1f}x", std::floor(100 * in_band), goodput, round_trip)};
}

Cell judge_drop(const std::vector<Run>& runs, const Scenario& scenario, double best) {
  double down = 0, up = 0, goodput = 1e9;
  for (const Run& run : runs) {
    down = std::max(down, run.first_in_band(kDropAt, kRecoveryAt));
    up = std::max(up, run.first_in_band(kRecoveryAt, kDropEnd));
    goodput = std::min(goodput, run.goodput(0, scenario.seconds) / best);
  }
  return {down <= kFollowDropWithin && up <= kFollowRecoveryWithin && goodput >= kLeastGoodput,
          fmt::format("{}, {}, {:.2f}", reaction(down), reaction(up), goodput)};
}

Cell judge_half_load(const std::vector<Run>& runs) {
  std::string text;
  bool pass = true;
  for (const Run& run : runs) {
    const auto low = run.lowest(kHalfSettledAt, kHalfEnd), high = run.highest(kHalfSettledAt, kHalfEnd);
    if (low == high && !text.empty()) continue;
    pass = pass && low == high;
    text = low == high ? "no change" : fmt::format("{} to {}", low, high);
  }
  return {pass, text};
}

Cell judge_outage(const std::vector<Run>& runs) {
  double worst = 0;
  std::string text;
  for (const Run& run : runs) {
    // A window of a second that began before the outage may still raise the limit.
    const Tick& before = run.ticks[run.index(kOutageAt + 1.1)];
    const auto most = run.highest(kOutageAt + 1.1, kOutageEnd);
    const auto allowed = std::max(before.settled, before.limit);
    const double ratio = static_cast<double>(most) / allowed;
    if (ratio <= worst) continue;
    worst = ratio;
    text = fmt::format("{} to {}", allowed, most);
  }
  return {worst <= 1, text};
}

// The rows of docs/limiter.md. on_row is called as soon as a row is done, because all of them take minutes.
std::vector<SuiteRow> run_suite(const SuiteOptions& o, const std::function<void(const SuiteRow&)>& on_row) {
  std::vector<Job> jobs;
  const std::size_t algorithms = o.known ? kAlgorithms.size() : 1;
  const auto wanted = [&](std::string_view group, std::string_view text) {
    return o.only.empty() || fmt::format("{}: {}", group, text).find(o.only) != std::string::npos;
  };
  const auto label = [](Arrival arrival, Sized d) {
    return fmt::format("{}, capacity {}", name(arrival), d.capacity);
  };

  const auto saturation = [&](std::string group, double sigma, const std::vector<double>& horizons) {
    for (const Arrival arrival : {Arrival::closed, Arrival::open})
      for (const Sized d : kSized) {
        if (!wanted(group, label(arrival, d))) continue;
        jobs.push_back([=, &o] {
          const Scenario s = saturated(d, arrival, horizons.back(), sigma);
          const double best = best_fixed_goodput(saturated(d, arrival, 120, sigma), 1);
          std::vector<SuiteRow> rows;
          for (const double h : horizons) rows.push_back({group, label(arrival, d) + ", " + horizon(h), {}});
          for (std::size_t a = 0; a < algorithms; ++a) {
            const auto runs = runs_of(s, kAlgorithms[a], o.seeds, kLaterSeeds);
            for (std::size_t h = 0; h < horizons.size(); ++h)
              rows[h].cells[a] = judge_saturated(runs, s, horizons[h], best);
          }
          return rows;
        });
      }
  };
  const auto each = [&](std::string group, std::string text, const Scenario& s, const auto& judge) {
    if (!wanted(group, text)) return;
    jobs.push_back([=, &o] {
      SuiteRow row{group, text, {}};
      for (std::size_t a = 0; a < algorithms; ++a)
        row.cells[a] = judge(runs_of(s, kAlgorithms[a], o.seeds, kLaterSeeds));
      return std::vector{row};
    });
  };

  std::vector<double> horizons{60, 900, 3600};
  std::erase_if(horizons, [&](double h) { return h > o.longest; });
  saturation("Saturated", 0.5, horizons);
  for (const Arrival arrival : {Arrival::closed, Arrival::open})
    for (const Sized d : kSized) {
      if (!wanted(kDrops, label(arrival, d))) continue;
      const Scenario s = with_drop(d, arrival);
      each(std::string(kDrops), label(arrival, d), s,
           [s](const std::vector<Run>& runs) { return judge_drop(runs, s, best_fixed_goodput(s, 1)); });
    }
  for (const Sized d : kSized) each("Half load", label(Arrival::open, d), with_half_load(d), judge_half_load);
  for (const Health health : {Health::fails_fast, Health::hangs})
    for (const Arrival arrival : {Arrival::closed, Arrival::open})
      for (const Sized d : kSized)
        each(health == Health::hangs ? "Hangs" : "Fails fast", label(arrival, d),
             with_outage(d, arrival, health), judge_outage);
  saturation("Saturated, heavy-tailed service", 1.0, {std::min(900.0, horizons.back())});
  for (const WorldRow& world : world_rows(std::clamp(o.longest, 180.0, o.company))) {
    if (!wanted(world.group, world.name)) continue;
    jobs.push_back([=, &o] {
      SuiteRow row{world.group, world.name, {}};
      const Best best = best_fixed(world, 1);
      for (std::size_t a = 0; a < algorithms; ++a)
        row.cells[a] = judge_world(world, kAlgorithms[a], o.seeds, best);
      return std::vector{row};
    });
  }
  return in_order(jobs, o.threads, on_row);
}

}  // namespace bulkhead::sim
