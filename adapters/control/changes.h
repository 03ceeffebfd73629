// changes.h - what operators have changed for a while: sizes, breakers, drains; and how it ends.
//
// Of each kind a bulkhead has at most one override. It remembers what it replaced, and puts that back when it is taken
// back, when its time is over, and when this object dies. When something else has changed the replaced value meanwhile
// (the file was loaded anew), that wins: the override is dropped.
//
// Threads: any; one at a time makes changes, see Server.
#pragma once

#include <array>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "bulkhead/metrics.h"
#include "journal.h"
#include "message.h"

namespace bulkhead::control {

enum class ChangeKind : std::uint8_t { size, breaker, drain };

// What somebody asks for. `set` false: take it back.
struct Wish {
  ChangeKind kind{};
  bool set = true;
  std::string name{};
  std::optional<std::uint32_t> limit{}, queue{};
  BreakerMode mode = BreakerMode::automatic;
  std::chrono::nanoseconds ttl{};
  std::string reason{}, actor{};
};

struct Override {
  std::optional<std::uint32_t> limit{}, queue{}, base_limit{}, base_queue{};
  BreakerMode mode{}, base_mode{};
  bool base_draining = false;
  std::string actor{}, reason{};
  WallTime since{};
  TimePoint expires{};
};

// What a wish does or would do.
struct Change {
  boost::json::object before{}, after{};
  std::vector<std::string> effects{};
  std::string text{};  // in one line
  bool nothing = false;
};

class Changes {
 public:
  Changes(Plant& plant, Clock& clock) : plant_(plant), clock_(clock) {}
  ~Changes();

  Change plan(const Wish& wish) const;  // throws Problem if it cannot be done; taking back can always be done
  Change apply(const Wish& wish);       // plan(), and does it
  // All or none: each is planned before the first is done. `at` is told where in the list a Problem comes from.
  std::vector<Change> apply(const std::vector<Wish>& wishes, std::size_t& at);

  struct Ended {
    std::string name{}, text{};
    boost::json::object before{}, after{};
  };
  std::vector<Ended> expire();     // those whose time is over
  std::vector<Ended> reconcile();  // after settings were changed by others: drops, or puts in force again

  std::string etag(std::string_view name) const;  // of what can be changed about it
  boost::json::object resource(std::string_view name,
                               ChangeKind kind) const;  // throws Problem if there is no such bulkhead
  boost::json::array of(std::string_view name) const;   // as in the snapshot: one for each field
  std::optional<std::uint32_t> replaced_limit(std::string_view name) const;  // if its limit is overridden
  std::vector<OverrideState> in_force() const;  // the same for metrics, of all names
  std::size_t count() const;                    // of them
  std::vector<std::string> names() const;       // that have overrides

 private:
  using Set = std::array<std::optional<Override>, 3>;
  std::shared_ptr<Bulkhead> find(std::string_view name) const;
  WallTime ends(const Override& override) const;
  static boost::json::object state_of(ChangeKind kind, Bulkhead& bulkhead);
  // `now`: the override in force, or null; never null when it is taken back.
  static void plan_size(Change& change, const Wish& wish, Bulkhead& bulkhead, const Override* now);
  static void plan_breaker(Change& change, const Wish& wish, Bulkhead& bulkhead, const Override* now);
  static void plan_drain(Change& change, const Wish& wish, Bulkhead& bulkhead, const Override* now);
  void make(const Wish& wish, Bulkhead& bulkhead, std::optional<Override>& now);
  void forget(const Wish& wish);  // under mutex_
  void put_back(ChangeKind kind, Bulkhead& bulkhead, const Override& override);
  void resize(Bulkhead& bulkhead, std::uint32_t limit);
  void resize_queue(Bulkhead& bulkhead, std::uint32_t queue);

  Plant& plant_;
  Clock& clock_;
  // Invariants: under mutex_. No name has an empty set. What an override says is in force, except between a reload and
  // the reconcile() that follows it.
  mutable std::mutex mutex_;
  std::map<std::string, Set, std::less<>> overrides_;
  std::map<std::string, std::uint64_t, std::less<>> versions_;  // changes made so far, of names that had any
};

}  // namespace bulkhead::control
