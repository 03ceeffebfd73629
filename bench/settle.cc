// What Permit::settle() and Permit::try_grow() cost beside releasing the same permit, and what a plain pair costs.
//
//   bulkhead_settle_bench            fails if a settle takes more than 1.5 times as long as a release
//   bulkhead_settle_bench --quick    shows that it works, measures nothing
//
// Permits of 8 units are acquired in a batch; then each of them is grown, settled and released, one kind of step for the
// whole batch at a time. Nobody waits. The figures are medians over the batches.
#include <algorithm>
#include <cstdio>
#include <string_view>
#include <vector>

#include "bench/timing.h"
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

}  // namespace

int main(int argc, char** argv) {
  const bool quick = argc > 1 && std::string_view(argv[1]) == "--quick";
  const int rounds = quick ? 3 : 1001;
  bulkhead::Gate gate{{.name = "tokens", .max_concurrent = 100'000'000}};
  std::vector<bulkhead::Permit> permits(kBatch);
  std::vector<double> acquires, grows, settles, empties, releases;
  for (int i = 0; i < rounds; ++i) {
    acquires.push_back(time_each(permits, [&](bulkhead::Permit& p) { p = *gate.acquire({.cost = 8}); }));
    grows.push_back(time_each(permits, [](bulkhead::Permit& p) { (void)p.try_grow(8); }));
    settles.push_back(time_each(permits, [](bulkhead::Permit& p) { p.settle(4); }));
    releases.push_back(time_each(permits, [](bulkhead::Permit& p) { p.release(); }));
    for (bulkhead::Permit& p : permits) p = *gate.acquire({.cost = 8});
    empties.push_back(time_each(permits, [](bulkhead::Permit& p) { p.settle(0); }));
    for (bulkhead::Permit& p : permits) p.release();
  }
  const double release = median(releases), settle = median(settles);
  std::printf("acquire 8 units       %6.1f ns\n", median(acquires));
  std::printf("release them          %6.1f ns\n", release);
  std::printf("settle                %6.1f ns  %.2fx of a release, at most 1.50x\n", settle,
              settle / release);
  std::printf("settle at 0           %6.1f ns\n", median(empties));
  std::printf("try_grow              %6.1f ns\n", median(grows));
  return gate.in_flight() != 0 || (!quick && settle > 1.5 * release);
}
