// sample_test.h - the bulkheads that the tests and the fuzzer of the control plane work on: one with a queue, one with a
// breaker, one with an adaptive limiter.
#pragma once

#include "bulkhead/manual_clock.h"
#include "bulkhead/registry.h"

namespace bulkhead::control {

struct Sample {
  ManualClock clock;
  Registry registry{{.clock = &clock}};

  Sample() {
    add({.name = "db", .max_concurrent = 20, .max_queue = 10});
    add({.name = "pay/eu", .max_concurrent = 5, .breaker = BreakerOptions{}});
    add({.name = "auto", .max_concurrent = 5, .adaptive = LimiterOptions{}});
  }
  void add(const BulkheadOptions& options) { registry.add({.options = options}); }
  Bulkhead& operator[](std::string_view name) { return *registry.get(name); }
};

}  // namespace bulkhead::control
