// line_options.h - the options of a queue, shared by GateOptions, PoolOptions and BulkheadOptions.
//
//   bulkhead::Gate db{{.name = "db", .max_concurrent = 32, .max_queue = 64, .max_wait = 50ms}};
//   bulkhead::Pool reports{{.name = "reports", .max_concurrent = 4, .max_queue = 64, .max_wait = 50ms}};
//
// Each row below is one field of each of the three structs: type, name, default. To add an option, add a row, then use
// it in the constructor of the gate. The rows are a macro because users write the options flat: C++20 has no
// designated initialisers for members of a base class, and a nested struct would make every use longer.
// Name, max_concurrent and clock are not rows: users write the first two first, and the clock last.
#pragma once

#include <chrono>
#include <cstdint>

#include "bulkhead/fairness.h"
#include "bulkhead/snapshot.h"

namespace bulkhead {

inline constexpr std::chrono::nanoseconds wait_forever = std::chrono::nanoseconds::max();

}  // namespace bulkhead

// clang-format off
#define BULKHEAD_LINE_OPTIONS(OPTION)                                                                               \
  /* The maximum number of calls in line: 0 (a call that cannot run at once is rejected) to 2'097'151. */           \
  OPTION(std::uint32_t, max_queue, 0)                                                                               \
  /* The longest wait in line of a call that sets no timeout. */                                                    \
  OPTION(std::chrono::nanoseconds, max_wait, wait_forever)                                                          \
  /* The share of the limit that only Priority::critical may use: 0 to below 1, rounded up to whole units. */       \
  OPTION(double, critical_reserve, 0)                                                                               \
  /* Which call gets a unit that is released, see fairness.h. A pool offers fifo only. */                           \
  OPTION(Fairness, fairness, Fairness::fifo)                                                                        \
  /* How long newcomers may overtake the first call in line, with Fairness::adaptive. */                            \
  OPTION(std::chrono::nanoseconds, max_barge, std::chrono::microseconds(500))                                       \
  /* The share of max_queue that only Priority::critical may use; in a pool at least critical_reserve. */           \
  OPTION(double, critical_queue_reserve, 0)                                                                         \
  /* Fairness between flows: within a priority, calls wait in this many queues, which are served in turns of equal  \
     cost. Each flow (AcquireOptions::flow) is assigned flow_hand of the queues. A call whose flow has no call in   \
     line joins the one of them in which its turn comes first; a call whose flow has one joins the same queue. So   \
     each flow is FIFO, and a noisy flow delays only its own calls. Between queues that have been served equally,   \
     the one whose first call arrived first is next. When the line is full and holds no call of a lower priority,   \
     an arrival evicts the newest call of the longest queue of its own priority, if its own queue is then no longer \
     than that one. 0: off; 1 to 1024; 64 suits most uses. */                                                       \
  OPTION(std::uint32_t, flow_queues, 0)                                                                             \
  OPTION(std::uint32_t, flow_hand, 4) /* 1 to 16, and at most flow_queues */                                        \
  /* The seed of the queue assignment; keep it secret if callers choose their own keys. */                          \
  OPTION(std::uint64_t, flow_seed, 0)                                                                               \
  OPTION(Hooks, hooks, {})                                                                                          \
  /* Samples how long permits are held, so that Reason::deadline can predict the wait. */                           \
  OPTION(bool, measure_service, false)                                                                              \
  OPTION(bool, track_holders, false) /* records the calls in flight for Gate::holders() */                          \
  /* Measures Snapshot::occupancy and saturated; reads the clock twice per call. A bulkhead with histograms         \
     measures them in any case. */                                                                                  \
  OPTION(bool, measure_occupancy, false)
// clang-format on

#define BULKHEAD_LINE_OPTION_FIELD(type, name, otherwise) type name = otherwise;
