// machine.h - the breaker's decisions, without threads: time, random numbers and the counts of the window are arguments.
//
//   Machine m(rules, BreakerMode::automatic, now);
//   m.judge({.calls = 100, .failures = 60}, now, dice);        // opens
//   m.admit(m.next_probe(), dice);                             // half open, and the first probe
//
// Threads: one at a time.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include "breaker/windows.h"
#include "bulkhead/breaker.h"

namespace bulkhead::breaker {

struct Rules {
  std::uint64_t minimum_calls;
  double failure_rate, slow_call_rate, half_open_failure_rate;
  std::chrono::nanoseconds open_for, max_open, probe_lease;
  double backoff, jitter;
  std::uint32_t half_open_calls;

  static Rules of(const BreakerOptions& options);
};

// True if `bad` of `calls` is this share or more. A share such as 2/3 is not exact in binary, so it counts as reached
// within a small tolerance.
inline bool reaches(std::uint64_t bad, std::uint64_t calls, double share) {
  return static_cast<double>(bad) >= share * static_cast<double>(calls) * (1 - 1e-12);
}

// Invariants:
//  M1 A change of state begins a new generation; leases belong to a generation and end with it.
//  M2 While half open, results + leases <= half_open_calls (unless an update made that smaller), and the state is left as
//     soon as the results decide.
//  M3 Open and half open always end: open at `next_probe`, each lease at its own time.
class Machine {
 public:
  Machine(const Rules& rules, BreakerMode mode, TimePoint now);

  struct Admission {
    std::uint32_t probe = 0;
    bool ordinary = false;  // closed: the call is neither a probe nor rejected
    std::chrono::nanoseconds retry_after{};
  };
  // In automatic mode. `dice` is a random number from [0, 1).
  Admission admit(TimePoint now, double dice);
  // False: the lease has ended or never existed.
  bool complete_probe(std::uint32_t probe, Outcome outcome, bool slow, TimePoint now, double dice);
  // The reason to open, if the counts of the window are above a threshold.
  std::optional<BreakerReason> verdict(const Counts& counts) const;
  // Opens if it is closed and the counts are above a threshold.
  bool judge(const Counts& counts, TimePoint now, double dice);

  void set_mode(BreakerMode mode, TimePoint now);
  void reset(TimePoint now) { close(BreakerReason::reset, now); }
  void force_open(std::chrono::nanoseconds how_long, TimePoint now);
  void force_half_open(TimePoint now);
  void renew(TimePoint now);  // the window has a new size; has an effect only while closed
  void update(const Rules& rules, TimePoint now, double dice);  // after reserve()
  void reserve(std::uint32_t probes) { leases_.reserve(probes); }

  const Rules& rules() const { return rules_; }
  BreakerState state() const { return state_; }
  BreakerMode mode() const { return mode_; }
  BreakerReason reason() const { return reason_; }
  std::uint64_t generation() const { return generation_; }
  TimePoint since() const { return since_; }
  std::chrono::nanoseconds open_time() const { return open_time_; }
  std::uint64_t opens() const { return opens_; }
  const std::array<std::uint64_t, 3>& entered() const { return entered_; }
  std::uint32_t opens_in_a_row() const { return in_a_row_; }
  const Counts& probe_results() const { return results_; }
  std::uint32_t probes_in_flight() const { return static_cast<std::uint32_t>(leases_.size()); }
  // Before this time, admit() rejects and changes nothing.
  TimePoint next_probe() const;

 private:
  struct Lease {
    std::uint32_t probe;
    TimePoint until;
  };

  void enter(BreakerState state, BreakerReason reason, TimePoint now);
  void open(BreakerReason reason, TimePoint now, double dice);
  void open_until(BreakerReason reason, TimePoint now, std::chrono::nanoseconds how_long);
  void close(BreakerReason reason, TimePoint now);
  void expire(TimePoint now, double dice);
  // Leaves half open if the results decide. `failed` is the reason if they failed.
  void decide(BreakerReason failed, TimePoint now, double dice);

  Rules rules_;
  BreakerMode mode_;
  BreakerState state_ = BreakerState::closed;
  BreakerReason reason_ = BreakerReason::created;
  std::uint64_t generation_ = 1;  // never 0, which is an empty slot of a window
  TimePoint since_;
  TimePoint probe_at_ = no_deadline;
  std::chrono::nanoseconds open_time_{};
  std::uint64_t opens_ = 0;
  std::array<std::uint64_t, 3> entered_{};
  std::uint32_t in_a_row_ = 0;
  std::uint32_t last_probe_ = 0;
  Counts results_;  // of the probes of this generation
  std::vector<Lease> leases_;
};

}  // namespace bulkhead::breaker
