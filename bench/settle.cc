// What Permit::settle() and Permit::try_grow() cost beside releasing the same permit, and what budgets cost a call of a bulkhead.
//
//   bulkhead_settle_bench            fails if a settle takes more than 1.5 times as long as a release, or if a call that names no
//                                    budget takes more than 1.1 times as long in a bulkhead that has one
//   bulkhead_settle_bench --quick    shows that it works, measures nothing
//
// Permits of 8 units are acquired in a batch; then each of them is grown, settled and released, one kind of step for the
// whole batch at a time. Calls of the bulkheads are made in turn, a batch of each. No call waits. The figures are medians over the
// batches.
#include <algorithm>
#include <cstdio>
#include <string_view>
#include <vector>

#include "bench/timing.h"
#include "bulkhead/bulkhead.h"
#include "bulkhead/gate.h"

namespace {

constexpr std::size_t kBatch = 4096;

double median(std::vector<double>& values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

template <class Step>
double time_each(std::vector<bulkhead::Permit>& permits, Step step) {
  const std::int64_t start = bench::now_ns();
  for (bulkhead::Permit& permit : permits) step(permit);
  return static_cast<double>(bench::now_ns() - start) / static_cast<double>(permits.size());
}

template <class Call>
double time_calls(Call call) {
  const std::int64_t start = bench::now_ns();
  for (std::size_t i = 0; i < kBatch; ++i) call();
  return static_cast<double>(bench::now_ns() - start) / static_cast<double>(kBatch);
}

}  // namespace

int main(int argc, char** argv) {
  const bool quick = argc > 1 && std::string_view(argv[1]) == "--quick";
  const int rounds = quick ? 3 : 1001;
  bulkhead::Gate gate{{.name = "tokens", .max_concurrent = 100'000'000}};
  std::vector<bulkhead::Permit> permits(kBatch);
  bulkhead::Bulkhead without{{.name = "without", .max_concurrent = 8}};
  bulkhead::Bulkhead with{
      {.name = "with", .max_concurrent = 8, .budgets = {{.name = "tokens", .max = 100'000}}}};
  std::vector<double> acquires, grows, settles, empties, releases, plain, unnamed, named;
  const auto work = [] { return 1; };
  for (int i = 0; i < rounds; ++i) {
    acquires.push_back(time_each(permits, [&](bulkhead::Permit& p) { p = *gate.acquire({.cost = 8}); }));
    grows.push_back(time_each(permits, [](bulkhead::Permit& p) { (void)p.try_grow(8); }));
    settles.push_back(time_each(permits, [](bulkhead::Permit& p) { p.settle(4); }));
    releases.push_back(time_each(permits, [](bulkhead::Permit& p) { p.release(); }));
    for (bulkhead::Permit& p : permits) p = *gate.acquire({.cost = 8});
    empties.push_back(time_each(permits, [](bulkhead::Permit& p) { p.settle(0); }));
    for (bulkhead::Permit& p : permits) p.release();
    plain.push_back(time_calls([&] { (void)without.execute(work); }));
    unnamed.push_back(time_calls([&] { (void)with.execute(work); }));
    named.push_back(time_calls([&] { (void)with.execute(work, {.costs = {{"tokens", 100}}}); }));
  }
  const double release = median(releases), settle = median(settles);
  std::printf("acquire 8 units       %6.1f ns\n", median(acquires));
  std::printf("release them          %6.1f ns\n", release);
  std::printf("settle                %6.1f ns  %.2fx of a release, at most 1.50x\n", settle,
              settle / release);
  std::printf("settle at 0           %6.1f ns\n", median(empties));
  std::printf("try_grow              %6.1f ns\n", median(grows));
  const double call = median(plain), unconcerned = median(unnamed);
  std::printf("execute, no budgets   %6.1f ns\n", call);
  std::printf("a budget, not named   %6.1f ns  %.2fx, at most 1.10x\n", unconcerned, unconcerned / call);
  std::printf("a budget, named       %6.1f ns  %.2fx\n", median(named), median(named) / call);
  return gate.in_flight() != 0 || (!quick && (settle > 1.5 * release || unconcerned > 1.1 * call));
}
