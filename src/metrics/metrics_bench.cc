// What a page of many bulkheads costs, and what it costs the calls that go on meanwhile.
//
// Every bulkhead has a breaker, a rate limit, an adaptive limit and histograms with something in them. The target:
// 1000 of them in under 10 ms. p99_ns is of an acquire and its release on another thread.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "bulkhead/metrics.h"
#include "bulkhead/registry.h"

namespace bulkhead {
namespace {

struct Many {
  explicit Many(std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) {
      bulkheads.push_back(registry.add({.options = {.name = "dependency-" + std::to_string(i),
                                                    .max_concurrent = 20,
                                                    .max_queue = 40,
                                                    .breaker = BreakerOptions{},
                                                    .rate_limit = RateLimiterOptions{.rate = 1'000'000},
                                                    .adaptive = LimiterOptions{}},
                                        .criticality = static_cast<Priority>(i % 3)}));
      for (int call = 0; call < 20; ++call) static_cast<void>(bulkheads.back()->execute([] {}));
    }
  }
  RegistrySnapshot snapshot() const { return registry.snapshot(); }
  Bulkhead& operator[](std::size_t i) { return *bulkheads[i % bulkheads.size()]; }

  Registry registry;
  std::vector<std::shared_ptr<Bulkhead>> bulkheads;
};

Many& many(std::int64_t n) {
  static std::unique_ptr<Many> last;
  static std::int64_t size = 0;
  if (size != n) last = std::make_unique<Many>(n);
  size = n;
  return *last;
}

void render(benchmark::State& state, MetricsFormat format) {
  const RegistrySnapshot all = many(state.range(0)).snapshot();
  Metrics metrics;
  std::string page;
  for (auto _ : state) {
    metrics.render(page, all, format);
    benchmark::DoNotOptimize(page.data());
  }
  state.counters["bytes"] = static_cast<double>(page.size());
  state.counters["lines"] = static_cast<double>(std::ranges::count(page, '\n'));
}
BENCHMARK_CAPTURE(render, prometheus, MetricsFormat::prometheus)
    ->Arg(10)
    ->Arg(1000)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(render, openmetrics, MetricsFormat::openmetrics)->Arg(1000)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(render, json, MetricsFormat::json)->Arg(1000)->Unit(benchmark::kMillisecond);

void snapshot(benchmark::State& state) {
  const Many& registry = many(state.range(0));
  for (auto _ : state) benchmark::DoNotOptimize(registry.snapshot());
}
BENCHMARK(snapshot)->Arg(1000)->Unit(benchmark::kMillisecond);

// The time of acquire and release, one by one, while another thread looks and makes pages, or does not.
void acquire_meanwhile(benchmark::State& state, bool scraped) {
  Many& registry = many(1000);
  std::atomic<bool> done{false};
  std::jthread scraper;
  if (scraped)
    scraper = std::jthread([&] {
      Metrics metrics;
      std::string page;
      while (!done.load(std::memory_order_relaxed))
        metrics.render(page, registry.snapshot(), MetricsFormat::prometheus);
    });
  std::vector<std::int64_t> times;
  std::size_t next = 0;
  for (auto _ : state) {
    const auto start = std::chrono::steady_clock::now();
    static_cast<void>(registry[next++].try_acquire());
    times.push_back((std::chrono::steady_clock::now() - start).count());
  }
  done = true;
  std::ranges::sort(times);
  state.counters["p50_ns"] = static_cast<double>(times[times.size() / 2]);
  state.counters["p99_ns"] = static_cast<double>(times[times.size() * 99 / 100]);
}
BENCHMARK_CAPTURE(acquire_meanwhile, alone, false)->Iterations(300'000)->UseRealTime();
BENCHMARK_CAPTURE(acquire_meanwhile, scraped, true)->Iterations(300'000)->UseRealTime();

}  // namespace
}  // namespace bulkhead
