// As a bulkhead fills up, best-effort calls are rejected first, then normal ones. Critical calls keep their places.
#include <bulkhead/bulkhead.h>

#include <cstdio>
#include <vector>

using bulkhead::Priority;

int main() {
  double loop_lag = 0;  // of your event loop, as a share of the lag that you call overloaded
  bulkhead::Bulkhead api{
      {.name = "api",
       .max_concurrent = 100,
       .holdback = bulkhead::HoldbackOptions{
           .best_effort_from = 0.80, .normal_from = 0.95, .gauge = [&] { return loop_lag; }}}};
  std::vector<bulkhead::Call> calls;
  int rejected[3] = {};
  for (int i = 0; i < 300; ++i) {
    const auto priority = static_cast<Priority>(i % 3);
    if (auto call = api.try_acquire({.priority = priority}))
      calls.push_back(*std::move(call));
    else
      ++rejected[i % 3];
    if (calls.size() > 90) calls.erase(calls.begin());  // 90 of 100 places stay busy
  }
  const bulkhead::HoldbackSnapshot now = *api.snapshot().holdback;
  std::printf("saturation %.2f: rejected %d critical, %d normal, %d best effort\n", now.saturation,
              rejected[0], rejected[1], rejected[2]);
  return rejected[0] == 0 && rejected[1] == 0 && rejected[2] > 0 ? 0 : 1;
}
