// The gate itself, through the API that users call: a Result<Permit> whose permit gives its unit back
// as it dies.
#pragma once

#include "bench/workload.h"
#include "bulkhead/gate.h"

namespace bench {

template <bulkhead::Fairness fairness>
class GateRival {
 public:
  static constexpr std::string_view name = fairness == bulkhead::Fairness::fifo      ? kGate
                                           : fairness == bulkhead::Fairness::barging ? kGateBarging
                                                                                     : kGateAdaptive;
  static constexpr Guarantees guarantees{
      .counters = true, .resize = true, .fifo = fairness == bulkhead::Fairness::fifo};

  explicit GateRival(unsigned limit)
      : gate_({.name = "bench", .max_concurrent = limit, .max_queue = 1024, .fairness = fairness}) {}

  template <class F>
  bool try_call(F&& body) {
    const auto permit = gate_.try_acquire();
    if (!permit) return false;
    body();
    return true;
  }
  template <class F>
  void call(F&& body) {
    const auto permit = gate_.acquire();
    if (permit) body();
  }

 private:
  bulkhead::Gate gate_;
};

}  // namespace bench
