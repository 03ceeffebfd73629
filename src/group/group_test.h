// group_test.h - what the tests of groups share.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <source_location>
#include <stop_token>
#include <vector>

#include "bulkhead/group.h"
#include "bulkhead/manual_clock.h"

namespace bulkhead::tests {

using Permits = std::vector<Permit>;

// Two members of five units each, which can borrow all of the other's.
inline GroupOptions halves(Lend lend, std::uint32_t queue = 8) {
  return {.name = "db",
          .total = 10,
          .lend = lend,
          .members = {{.name = "a", .guaranteed = {.percent = 50}, .gate = {.max_queue = queue}},
                      {.name = "b", .guaranteed = {.percent = 50}, .gate = {.max_queue = queue}}}};
}

// As many as are to be had, `most` at most.
inline Permits take(Gate& gate, std::size_t most) {
  Permits permits;
  while (permits.size() < most) {
    auto permit = gate.try_acquire();
    if (!permit) break;
    permits.push_back(*std::move(permit));
  }
  return permits;
}

// What must hold at every instant in which nobody moves units.
inline void expect_balanced(const Group& group,
                            std::source_location where = std::source_location::current()) {
  const ::testing::ScopedTrace trace(where.file_name(), static_cast<int>(where.line()), "expect_balanced");
  const GroupSnapshot s = group.snapshot();
  std::uint64_t sum = s.free, borrowed = 0, loans = 0;
  for (const auto& m : s.members) {
    sum += m.allotted + m.called_back;
    borrowed += m.borrowed;
    EXPECT_LE(m.in_flight, m.allotted + m.called_back) << m.name;
  }
  for (const auto& loan : s.loans) loans += loan.units;
  EXPECT_EQ(sum, s.total);
  EXPECT_LE(s.in_flight, s.total);
  EXPECT_EQ(loans, borrowed);
}

// Calls that end by themselves, in virtual time, or sooner when they are told to stop.
class Simulation {
 public:
  explicit Simulation(ManualClock& clock) : clock_(clock) {}

  void run(Permit& permit, std::chrono::nanoseconds service, std::chrono::nanoseconds grace) {
    auto& call = calls_.emplace_back(std::make_unique<Call>());
    call->permit = std::move(permit);
    call->end = clock_.now() + service;
    call->stop.emplace(call->permit.stop_token(), Stop{this, call.get(), grace});
  }
  void until_idle() {
    for (;;) {
      Call* next = nullptr;
      for (auto& c : calls_)
        if (c->permit && (!next || c->end < next->end)) next = c.get();
      if (!next) return;
      clock_.advance_to(next->end);
      next->permit.release();
    }
  }

 private:
  struct Call;
  struct Stop {
    Simulation* simulation;
    Call* call;
    std::chrono::nanoseconds grace;
    void operator()() const { call->end = std::min(call->end, simulation->clock_.now() + grace); }
  };
  struct Call {
    Permit permit;
    TimePoint end;
    std::optional<std::stop_callback<Stop>> stop;
  };
  ManualClock& clock_;
  std::vector<std::unique_ptr<Call>> calls_;
};

}  // namespace bulkhead::tests
