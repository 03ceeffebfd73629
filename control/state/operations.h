// operations.h - the temporary changes that operators make: overrides of settings, forced breakers, drains and faults.
//
// LiveConfig owns the overrides of settings; this class requests, describes and ends them. It owns what is not a setting: a
// forced breaker, a drain and a fault, at most one of each per bulkhead. Each remembers the state that it replaced and
// restores it when it is ended, when its time is over, and when this object is destroyed. Each holds a handle of the
// bulkhead, so that a tenant is not retired meanwhile; when the bulkhead is removed, it ends.
//
// Threads: any; one at a time applies operations, see Server.
#pragma once

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bulkhead/detail/std_mutex.h"
#include "bulkhead/live_config.h"
#include "bulkhead/metrics.h"
#include "journal.h"
#include "problem.h"

namespace bulkhead::control {

inline constexpr std::string_view kMaxConcurrent = "max_concurrent", kMaxQueue = "max_queue";

bool has_file(const LiveConfig& live);                // false: it only holds overrides
std::string revision_of(const ConfigStatus& status);  // of the file in force

std::string budget_setting(std::string_view budget);  // "budgets.tokens.max"

enum class OperationKind : std::uint8_t { size, breaker, drain, fault };

// What an operator asks for.
struct Operation {
  OperationKind kind{};
  bool set = true;  // false: end it
  std::string name{};
  std::optional<std::uint32_t> max_concurrent{}, max_queue{};
  BreakerMode mode = BreakerMode::automatic;
  std::chrono::nanoseconds ttl{};
  std::string reason{}, actor{};
  std::map<std::string, std::uint32_t> budgets{};  // max, by name
  std::chrono::nanoseconds latency{};              // of a fault
  double error = 0;
};

// What an operation does or would do.
struct Change {
  boost::json::object before{}, after{};
  std::vector<std::string> effects{};
  std::string text{};  // in one line
  bool nothing = false;
};

std::string fault_text(std::chrono::nanoseconds latency, double error);  // "latency 2s, error 10 %"

class Operations {
 public:
  explicit Operations(LiveConfig& live, bool faults = false)  // faults: they are allowed
      : live_(live), registry_(live.registry()), clock_(live.clock()), faults_(faults) {}
  ~Operations();
  Operations(const Operations&) = delete;
  Operations& operator=(const Operations&) = delete;

  Change plan(
      const Operation& operation) const;     // throws Problem if it is impossible; ending is always possible
  Change apply(const Operation& operation);  // plan(), then does it
  // All or none: each is planned before the first is done. `at` is the index of the one that a Problem concerns.
  std::vector<Change> apply(const std::vector<Operation>& operations, std::size_t& at);

  struct Ended {
    std::string name{}, text{};
    boost::json::object before{}, after{};
  };
  std::vector<Ended> expire();     // ends those whose time is over; LiveConfig reports its own
  std::vector<Ended> reconcile();  // after others changed bulkheads: ends them, or puts them in force again

  std::string etag(std::string_view name) const;  // of everything about it that operators can change
  boost::json::object resource(std::string_view name,
                               OperationKind kind) const;  // throws Problem: unknown name
  boost::json::array of(std::string_view name) const;      // as in the snapshot: one for each field
  // The value that an override of max_concurrent or max_queue has replaced.
  std::optional<std::uint32_t> replaced(std::string_view name, std::string_view setting) const;
  std::vector<OverrideState> in_force() const;  // for metrics
  std::size_t count() const;
  std::vector<std::string> names() const;  // of the bulkheads that have overrides

 private:
  // A forced breaker, a drain or a fault in force.
  struct Forced {
    BreakerMode mode{}, base_mode{};
    bool base_draining = false;
    std::string actor{}, reason{};
    TimePoint since{}, expires{};
    std::chrono::nanoseconds latency{};
    double error = 0;
    std::shared_ptr<Bulkhead> bulkhead{};
  };
  using Key = std::pair<std::string, OperationKind>;
  std::shared_ptr<Bulkhead> find(std::string_view name) const;
  Snapshot gate_of(
      const Bulkhead& bulkhead) const;  // with the calls of other processes, see RegistryOptions::complete
  std::optional<Forced> forced(std::string_view name, OperationKind kind) const;
  static boost::json::object state_of(OperationKind kind, Bulkhead& bulkhead);
  void plan_size(Change& change, const Operation& operation, Bulkhead& bulkhead) const;
  // `now`: the one in force, or null; never null when it is ended.
  static void plan_breaker(Change& change, const Operation& operation, Bulkhead& bulkhead, const Forced* now);
  void plan_fault(Change& change, const Operation& operation, Bulkhead& bulkhead) const;
  void plan_drain(Change& change, const Operation& operation, Bulkhead& bulkhead, const Forced* now) const;
  std::map<Key, Forced> all_forced() const;
  Forced forced_by(const Operation& operation, const std::shared_ptr<Bulkhead>& bulkhead,
                   const Forced* now) const;
  static void enforce(OperationKind kind, const Forced& forced);
  static void restore(OperationKind kind, const Forced& forced);
  void apply_sizes(const std::vector<Operation>& operations, std::size_t& at);

  LiveConfig& live_;
  Registry& registry_;
  Clock& clock_;
  const bool faults_;
  // Invariants: under mutex_. What an entry says is in force, except between a reload and the reconcile() after it.
  mutable detail::StdMutex mutex_;
  std::map<Key, Forced> forced_ BULKHEAD_GUARDED_BY(mutex_);
  std::map<std::string, std::uint64_t, std::less<>> versions_
      BULKHEAD_GUARDED_BY(mutex_);  // operations so far, of names that had any
};

}  // namespace bulkhead::control
