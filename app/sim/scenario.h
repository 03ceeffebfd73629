// scenario.h - what a simulated world consists of: the callers, the instances that serve them, and the one
// dependency all instances call.
//
//   Scenario{.arrival = Arrival::open, .capacity = 50, .service_ms = 40, .seconds = 600, .load = 1.3,
//            .instances = 10, .timeout_ms = 200, .retries = 1}
//
// Every field has a default that means "nothing unusual". Times of phases and deployments are seconds since
// the start.
#pragma once

#include <cstdint>
#include <vector>

#include "bulkhead/outcome.h"

namespace bulkhead::sim {

enum class Arrival : std::uint8_t {
  closed,  // enough clients that some call always waits; each calls again as soon as a place is free
  open,    // a stream that does not depend on the answers; a call that finds the gate full goes away
};

enum class Health : std::uint8_t { works, fails_fast, hangs };

// How the dependency does its work.
enum class Model : std::uint8_t {
  slots,     // `stations` in series, each with its own slots; what exceeds them queues inside
  batching,  // one worker that takes up to `batch_size` waiting calls at once
  shared,    // no slots: every call slows every other down, by the universal scalability law
};

// From `from` on, until the next phase.
struct Phase {
  double from = 0;
  std::uint32_t capacity = 0;
  double load = 1.3;  // open arrival, in capacities of the scenario
  Health health = Health::works;
  double slowdown = 1;  // of every service time
};

// An instance that stops, starts, or both: a restart forgets what its limiter had learnt.
struct Deployment {
  double at = 0;
  std::uint32_t instance = 0;
  bool stops = false, starts = false;
};

struct Scenario {
  // The callers.
  Arrival arrival = Arrival::closed;
  std::uint32_t capacity = 50;
  double service_ms = 40;  // mean, of an unloaded dependency
  double sigma = 0.5;      // of the logarithm of the service time; 0: all calls take the same time
  double seconds = 60;
  double load = 1.3;  // open arrival, all instances together, in capacities
  std::uint32_t floor = 1, ceiling = 1000, initial = 20;
  std::vector<Phase> phases{};  // empty: one, of this capacity and load

  std::uint32_t pulse = 0;  // open arrival: this many calls at once, every `pulse_ms`, instead of a stream
  double pulse_ms = 0;
  double on_ms = 0, off_ms = 0;         // calls arrive only in the first `on_ms` of every on_ms + off_ms
  double zipf = 0;                      // open arrival: instance i gets a share proportional to 1 / i^zipf
  double timeout_ms = 0;                // after which the client gives up; 0: never
  bool cancels = false;                 // a call whose client has gone is not begun; else its work is wasted
  Outcome given_up = Outcome::timeout;  // the outcome of a call whose client has given up, for the limiter
  std::uint32_t retries =
      0;  // of a call that timed out, failed, or was rejected: those try again after a service time

  // The instances, each with a gate and a limiter of its own.
  std::uint32_t instances = 1;
  std::vector<Deployment> deployments{};
  double skew_ms = 0;  // the clocks of the instances differ by up to this

  // The dependency.
  Model model = Model::slots;
  std::vector<std::uint32_t> stations{};  // slots of each in series; empty: one of `capacity`
  std::uint32_t batch_size = 0;
  double contention = 0, coherence = 0;  // sigma and kappa of the universal scalability law
  std::uint32_t thrashes_above = 0;      // calls inside, above which service times grow; 0: never
  double pause_every = 0, pause_ms = 0;  // garbage collections
  double swing = 0, swing_period = 0;    // capacity * (1 + swing * sin)
};

}  // namespace bulkhead::sim
