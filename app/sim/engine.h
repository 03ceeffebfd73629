// engine.h - callers, replicas with the shipped bulkheads, and the dependencies behind them, on virtual time.
//
//   Plan plan{.streams = {{.rate = 300, .service = {.mean = 45e6, .sigma = 0.35}}}, .dependencies = {{}},
//             .targets = 1, .duration = 60'000'000'000};
//   Engine engine(plan, /*seed=*/1);
//   const Outcomes outcomes = engine.run([&](std::uint32_t) { return std::make_unique<MyReplica>(engine.clock()); });
//
// A call arrives, is sent to one replica, passes the bulkhead that the replica names for it, waits for a slot of its
// dependency, and ends. Arrivals and service times depend on the seed and on nothing that a replica decides, so two
// configurations with one seed get the same calls.
//
// Threads: one. The engine advances the clock of the bulkheads, which call back into the engine.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <queue>
#include <random>
#include <stop_token>
#include <vector>

#include "app/sim/dependency.h"
#include "app/sim/scenario.h"
#include "bulkhead/bulkhead.h"
#include "bulkhead/histogram.h"
#include "bulkhead/manual_clock.h"

namespace bulkhead::sim {

inline constexpr std::uint32_t kNobody = UINT32_MAX;  // a call without a tenant

// A condition that holds for a time; factors of overlapping periods multiply.
struct Period {
  Nanos from = 0, to = 0;
  double factor = 1;
};

struct Arrivals {
  enum class Shape : std::uint8_t {
    poisson,
    constant,  // equal gaps
    bursts,    // `burst` calls at once, every `every`
    closed,    // `clients` that call, wait for the answer, and think; `load` changes their number
    recorded,  // Stream::recorded
  };
  Shape shape = Shape::poisson;
  double rate = 0;  // per second, of all replicas together
  std::uint32_t burst = 0, clients = 0;
  Nanos every = 0, think = 0;
  // Of rate: points of a curve with straight lines between them, repeated every `period`.
  std::vector<std::pair<Nanos, double>> curve{};
  Nanos period = 0;
};

struct ServiceTime {
  double mean = 1e6;  // ns
  double sigma = 0;   // of its logarithm; 0: constant
  bool exponential = false;
};

// One call of a trace.
struct RecordedCall {
  Nanos at = 0, work = 0;
  std::uint32_t tenant = kNobody;
  Priority priority = Priority::normal;
  bool fails = false;
};

// Calls of one kind.
struct Stream {
  std::uint32_t target = 0;      // the bulkhead, a number that a Replica understands
  std::uint32_t dependency = 0;  // of Plan::dependencies
  Arrivals arrivals{};
  ServiceTime service{};
  std::vector<RecordedCall> recorded{};          // in the order of time
  double failures = 0;                           // the share of calls that the dependency fails
  std::array<double, kPriorities> mix{0, 1, 0};  // shares of the priorities
  std::uint32_t cost = 1;
  std::uint32_t tenants = 0;  // how many; 0: calls have none
  double zipf = 0;            // tenant i makes a share proportional to 1 / i^zipf of the calls

  Nanos client_timeout = 0;  // after which the client gives up; 0: never
  bool client_cancels =
      false;  // the replica notices, and the call leaves its line; else it goes on without a caller
  bool sends_deadline = false;  // the replica knows when the client gives up
  std::uint32_t retries = 0;    // of a call that was rejected, failed or timed out
  Nanos backoff = 0;            // before the first retry; twice as long each time
  bool runs_on = false;         // keeps its place after execution_timeout until the dependency has answered

  std::vector<Period> slower{}, load{}, fails{}, hangs{};
};

struct DependencyPlan {
  Scenario shape{.capacity = UINT32_MAX};  // what scenario.h says about the dependency
  std::vector<Period> slots{};             // factor: the slots in that time
};

struct Plan {
  std::vector<Stream> streams{};
  std::vector<DependencyPlan> dependencies{};
  std::uint32_t targets = 0;
  std::uint32_t replicas = 1;
  std::vector<Deployment> deployments{};  // instance: the replica
  Nanos duration = 0;
  // Only calls that arrive in this time are counted, and means over time are of it.
  Nanos measure_from = 0, measure_to = INT64_MAX;
  std::uint32_t points = 240;  // of the series over time
};

// A process that serves calls.
class Replica {
 public:
  virtual ~Replica() = default;
  virtual Result<Bulkhead*> bulkhead(std::uint32_t target, std::uint32_t tenant) = 0;
  virtual std::uint32_t limit(std::uint32_t target) = 0;  // max_concurrent in force; 0: unknown
};

// What became of calls. Each call is counted once in `calls` and once in one of the others.
struct Tally {
  std::uint64_t calls = 0, served = 0, failed = 0, timed_out = 0, gave_up = 0, unfinished = 0;
  std::uint64_t retries = 0;  // of `calls`
  std::array<std::uint64_t, kReasons> rejected_by_reason{};
  HistogramCounts wait{}, total{};  // of admitted and of served calls, from arrival, ns

  std::uint64_t rejected() const noexcept;
  double served_share() const noexcept;
  double rejected_share() const noexcept;
  Tally& operator+=(const Tally& other) noexcept;
};

struct Point {
  double arrived = 0, served = 0, rejected = 0, failed = 0;  // per second
  double p50 = 0, p99 = 0;                                   // total, ms; of calls served in this time
  double in_flight = 0, waiting = 0, limit = 0;              // all replicas, at the end of it
};

struct TargetOutcome {
  std::array<Tally, kPriorities> by_priority{};
  std::vector<Point> series{};
  double in_flight = 0, limit = 0;   // means over the measured time, all replicas
  std::uint64_t served_in_time = 0;  // before the end of the duration, for goodput
  Tally all() const noexcept;
};

struct Outcomes {
  std::vector<TargetOutcome> targets{};
  std::vector<double> dependency_use{};  // busy slots over slots, of the measured time; 0 without slots
  double seconds = 0, interval = 0;      // duration; time between two points
  double measured = 0;                   // seconds in which calls were counted
  std::uint64_t calls = 0, events = 0;
};

class Engine {
 public:
  using MakeReplica = std::function<std::unique_ptr<Replica>(std::uint32_t replica)>;

  Engine(const Plan& plan, std::uint64_t seed);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  ManualClock& clock() noexcept { return clock_; }
  std::mt19937_64& random() noexcept { return random_; }  // of everything but arrivals and service times
  Nanos now() const noexcept { return now_; }
  void at(Nanos when, std::function<void()> what);  // what belongs to neither callers nor dependencies

  // `progress` gets the share of the duration that has passed, some hundred times; false ends the run early.
  Outcomes run(const MakeReplica& make, const std::function<bool(double)>& progress = {});

 private:
  enum class Kind : std::uint8_t {
    arrival,
    look_again,
    point,
    client_timeout,
    execution_timeout,
    retry,
    think,
    reset,
    slots,
    deployment,
    other
  };
  struct Event {
    Nanos at;
    std::uint64_t order;
    Kind kind;
    std::uint32_t id, generation;
    bool operator<(const Event& e) const noexcept { return at != e.at ? at > e.at : order > e.order; }
  };
  struct Ask {  // the properties of a call, independent of its server
    std::uint32_t stream = 0, tenant = kNobody, attempt = 0;
    Nanos work = 0;
    Priority priority = Priority::normal;
    bool fails = false, closed = false;
  };
  struct Call {
    Ask ask;
    bulkhead::Call place;
    std::optional<std::stop_source> stop;
    Nanos arrived = 0, admitted = 0;
    std::uint32_t replica = 0, generation = 0;
    bool used = false, has_client = false, in_line = false, in_dependency = false, counted = false;
    bool late = false;  // has run longer than its execution_timeout
  };
  struct Source {  // the state of a stream
    std::mt19937_64 arrivals{}, services{};
    std::optional<ServiceTimes> times;
    std::vector<double> tenants;  // shares, summed
    std::size_t next = 0;         // of recorded
    std::vector<Nanos> changes;   // times at which its rate jumps
    std::uint32_t clients = 0;    // of a closed stream, now
  };
  struct Current {  // of a target, since the last point
    std::uint64_t arrived = 0, served = 0, rejected = 0, failed = 0;
    HistogramCounts total{};
    std::uint32_t in_flight = 0, waiting = 0;
    Nanos since = 0;
    double occupied = 0;
  };
  struct Answer {
    std::uint32_t id;
    Result<bulkhead::Call> result;
  };

  void push(Nanos at, Kind kind, std::uint32_t id, std::uint32_t generation = 0);
  void handle(const Event& event);
  void settle();
  void deploy(const Deployment& d);
  void start(std::uint32_t replica);
  void stop(std::uint32_t replica);

  double rate(const Stream& stream) const;
  void schedule(std::uint32_t stream);
  void gather(std::uint32_t stream);
  std::uint32_t wanted_clients(const Stream& stream) const;
  double slots_over_time(const DependencyPlan& plan) const;
  void arrival(std::uint32_t stream);
  Ask ask(std::uint32_t stream, std::mt19937_64& random);
  void arrive(const Ask& ask);
  void answered(std::uint32_t id, Result<bulkhead::Call> result);
  void begin(std::uint32_t id);
  Nanos ends(Nanos now, std::uint32_t id, double factor) const;
  void advance_dependencies();
  void give_back(std::uint32_t id, Outcome outcome);
  enum class End : std::uint8_t { served, rejected, failed, timed_out, gave_up };
  void end_for_client(std::uint32_t id, End end, Reason reason = {});
  void release(std::uint32_t id);
  void occupied(std::uint32_t target, int by);
  void take_point();
  Tally& tally(const Call& call);

  const Plan plan_;
  ManualClock clock_;
  std::mt19937_64 random_;
  Nanos now_ = 0;
  std::uint64_t order_ = 0, events_done_ = 0, arrived_ = 0;
  std::priority_queue<Event> events_;
  std::vector<std::function<void()>> others_;
  std::vector<std::uint32_t> free_others_;
  std::vector<Source> sources_;
  std::vector<std::unique_ptr<Dependency>> dependencies_;
  MakeReplica make_;
  std::vector<std::unique_ptr<Replica>> replicas_;
  std::vector<std::uint32_t> running_;
  std::vector<Ask> retries_;
  std::vector<std::uint32_t> free_retries_;
  std::deque<Call> calls_;
  std::vector<std::uint32_t> free_;
  std::uint64_t open_ = 0;          // calls that have not ended
  std::deque<std::uint32_t> left_;  // the dependency, a moment ago
  std::deque<Answer> answers_;
  std::vector<Current> current_;
  Outcomes outcomes_;
  bool ending_ = false;  // bulkheads are being destroyed, and answers mean nothing any more
};

}  // namespace bulkhead::sim
