#include "bench/pool/workloads.h"

#include <sched.h>
#include <sys/resource.h>
#include <time.h>

#include <array>
#include <functional>

#include "bench/pool/rival.h"
#include "bulkhead/pool.h"

namespace bench {
namespace {

// What the whole process used: on a busy machine the steadier figure, and what spinning cannot hide from.
struct Usage {
  double cpu_ns = 0, switches = 0;

  static Usage now() {
    timespec t{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    rusage r{};
    getrusage(RUSAGE_SELF, &r);
    return {static_cast<double>(t.tv_sec) * 1e9 + static_cast<double>(t.tv_nsec),
            static_cast<double>(r.ru_nvcsw)};
  }
};

constexpr std::int64_t rest_ns = 3'000'000;  // in which the design before falls asleep

struct Contender {
  std::string_view name;
  std::unique_ptr<PoolContender> pool;
};
using Contenders = std::vector<Contender>;

void run_on(unsigned core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  sched_setaffinity(0, sizeof set, &set);
}

// A thread starts where the one that starts it may run. So the workers, some of which start with the first
// task, do it while this thread is on their core. A design without workers cannot be apart: std::async starts a
// thread per task, on the submitter's core.
Contenders make_all(unsigned workers, Placement placement) {
  if (placement != Placement::free) run_on(1);
  Contenders all;
  for (const PoolEntry& e : all_pools())
    if (placement != Placement::apart || e.has_workers) all.push_back({e.name, e.make(workers)});
  for (const Contender& each : all) each.pool->throughput(0, now_ns() + 2'000'000);
  if (placement == Placement::apart) run_on(0);
  return all;
}

// run(until) gives how many tasks it ran.
Sample run_tasks(const std::function<std::uint64_t(std::int64_t until)>& run, std::int64_t window_ns) {
  nap(rest_ns);
  run(now_ns() + window_ns / 20);
  const Quiet quiet;
  const Usage before = Usage::now();
  const std::int64_t start = now_ns();
  const auto tasks = static_cast<double>(run(start + window_ns));
  const auto wall = static_cast<double>(now_ns() - start);
  const Usage after = Usage::now();
  return {
      .value = wall / tasks,
      .share = quiet.share(),
      .extra = {(after.cpu_ns - before.cpu_ns) / tasks, (after.switches - before.switches) * 1e3 / tasks}};
}

Sample run_trips(PoolContender& c, std::int64_t pause_ns, std::int64_t window_ns) {
  nap(rest_ns);
  std::vector<double> took_ns;
  c.round_trips(pause_ns, now_ns() + window_ns / 20, took_ns);
  took_ns.clear();
  const Quiet quiet;
  const Usage before = Usage::now();
  c.round_trips(pause_ns, now_ns() + window_ns, took_ns);
  const Usage after = Usage::now();
  const auto trips = static_cast<double>(took_ns.size());
  return {.value = quantile(took_ns, 0.5) * 1e-3,
          .share = quiet.share(),
          .extra = {quantile(took_ns, 0.99) * 1e-3, (after.cpu_ns - before.cpu_ns) * 1e-3 / trips}};
}

std::string count_workers(unsigned n) { return std::to_string(n) + (n == 1 ? " worker" : " workers"); }

// Windows long enough for the kernel's ticks to tell whether they were disturbed.
constexpr Plan plan{.rounds = 5, .windows = 3, .clean_share = 0.95};

void measure_all(const PoolSettings& settings, Results& results, Table table, unsigned workers,
                 const std::array<const char*, 2>& extra,
                 const std::function<Sample(PoolContender&, std::int64_t window_ns)>& sample) {
  if (!settings.wants(table.title)) return;
  const std::int64_t window_ns = settings.quick ? 4'000'000 : 100'000'000;
  const Contenders pools = make_all(workers, settings.placement);
  const auto series = take_turns(table.title, settings.apply(plan), pools.size(),
                                 [&](std::size_t i) { return sample(*pools[i].pool, window_ns); });
  for (std::size_t i = 0; i < pools.size(); ++i)
    table.add(pools[i].name, series[i]).extra = {{extra[0], series[i].median_extra(0)},
                                                 {extra[1], series[i].median_extra(1)}};
  results.push_back(std::move(table));
}

}  // namespace

void pool_throughput(const PoolSettings& settings, Results& results) {
  for (const unsigned workers : {1U, 2U}) {
    for (const std::int64_t task_ns : {0, 1'000}) {
      const std::string task = task_ns == 0 ? "empty tasks" : "tasks of 1 us";
      measure_all(settings, results,
                  {.workload = "pool_throughput",
                   .title = "submit to complete, " + count_workers(workers) + ", " + task,
                   .unit = "ns",
                   .threads = 1,
                   .permits = workers,
                   .section = task,
                   .rows = {}},
                  workers, {"CPU ns", "sleeps/1000"}, [=](PoolContender& c, std::int64_t window_ns) {
                    return run_tasks([&](std::int64_t until) { return c.throughput(task_ns, until); },
                                     window_ns);
                  });
    }
    measure_all(settings, results,
                {.workload = "pool_results",
                 .title = "submit and take the result, " + count_workers(workers) + ", empty tasks",
                 .unit = "ns",
                 .threads = 1,
                 .permits = workers,
                 .section = "results",
                 .rows = {}},
                workers, {"CPU ns", "sleeps/1000"}, [](PoolContender& c, std::int64_t window_ns) {
                  return run_tasks([&](std::int64_t until) { return c.results(until); }, window_ns);
                });
  }
}

void pool_round_trip(const PoolSettings& settings, Results& results) {
  for (const unsigned workers : {1U, 2U}) {
    for (const std::int64_t pause_ns : {0, 200'000}) {
      const std::string when = pause_ns == 0 ? "one after the other" : "200 us apart";
      measure_all(settings, results,
                  {.workload = "pool_round_trip",
                   .title = "round trip, " + count_workers(workers) + ", " + when,
                   .unit = "us p50",
                   .threads = 1,
                   .permits = workers,
                   .section = when,
                   .rows = {}},
                  workers, {"us p99", "CPU us"}, [=](PoolContender& c, std::int64_t window_ns) {
                    return run_trips(c, pause_ns, window_ns);
                  });
    }
  }
}

void pool_memory(const Settings&, Results& results) {
  Table table{.workload = "memory",
              .title = "pool memory",
              .unit = "",
              .threads = 1,
              .permits = 1,
              .section = "",
              .rows = {}};
  const auto row = [&](std::string name, std::size_t bytes) {
    table.rows.push_back({.design = std::move(name), .rounds = {static_cast<double>(bytes)}, .extra = {}});
  };
  const auto state = [](auto f) {
    using F = decltype(f);
    return sizeof(bulkhead::detail::TaskOf<decltype(f()), F, bulkhead::detail::NoFallback>);
  };
  std::array<char, 64> large{};
  row("bytes of the shared state, work of 8 bytes", state([p = &large] { (void)p; }));
  row("bytes of the shared state, work of 64 bytes", state([large] { (void)large; }));
  row("the same with an int as result", state([large] { return int{large[0]}; }));
  row("bytes of a Task", sizeof(bulkhead::Task<int>));
  row("bytes of a Pool's handle", sizeof(bulkhead::Pool));
  results.push_back(std::move(table));
}

}  // namespace bench
