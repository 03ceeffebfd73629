// scope.h - how far a limit reaches: one process, one host or a fleet; and the sources of units that processes share.
//
//   bulkhead::shm::Host host{{.region = "/run/shop/bulkhead"}};                    // adapters/shm/host.h
//   bulkhead::Registry registry{{.sources = &host}};
//   registry.add({.options = {.name = "gpu", .max_concurrent = 4, .scope = bulkhead::Scope::host}});
//
// A bulkhead with Scope::host caps the calls of all processes of the host together, one with Scope::fleet those of all
// processes that use one store (adapters/redis/fleet.h). Everything else is as for any bulkhead: each process has its own
// line, metrics, breaker and overrides. Snapshot::in_flight counts the calls of this process, and
// BulkheadSnapshot::host_in_flight those of the host; Snapshot::saturated is not measured.
//
// The classes below are for implementations of a scope, such as adapters/shm.
// Threads: take(), give_back(), limit(), in_use() and describe() of a source may be called by any number of threads at once,
//   the other functions by one thread at a time.
// Promises: no function of a source blocks, allocates or throws, except UnitSources::open() and describe().
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "bulkhead/clock.h"
#include "bulkhead/fleet.h"
#include "bulkhead/rejection.h"

namespace bulkhead {

enum class Scope : std::uint8_t {
  process,
  host,   // all processes that share a region of memory
  fleet,  // all hosts that share a store
};

constexpr std::string_view to_string(Scope scope) noexcept {
  constexpr std::string_view kNames[] = {"process", "host", "fleet"};
  return kNames[static_cast<std::size_t>(scope)];
}

// What one bulkhead of this process holds of a shared limit.
class UnitSource {
 public:
  // A call that asks for units: the first in line, or a new one.
  struct Head {
    Priority priority = Priority::normal;
    std::uint32_t cost = 1;
    TimePoint since = no_deadline;  // when it joined the line; no_deadline: a new call
    std::uint32_t line = 0;         // units that it and those behind it need, approximately; 0: a new call
  };

  virtual ~UnitSource() = default;
  // All units for one call, or none: there are not enough, or an older call of another process goes first.
  virtual bool take(const Head& head) noexcept = 0;
  // Offers them to other processes. The gate serves the line of its own process.
  virtual void give_back(std::uint32_t units) noexcept = 0;
  virtual std::uint32_t in_use() const noexcept = 0;  // units that this process has taken and not given back
  // Ends every change of the line: the first call in it; null: the line is empty. While there is a first call, the user
  // is called when take() may succeed. With null, units that are free now are offered to other processes.
  virtual void set_head(const Head* head) noexcept = 0;

  virtual std::uint32_t limit() const noexcept = 0;  // in force now, for all processes together
  // False: the number is more than this source can have.
  virtual bool resize(std::uint32_t limit) noexcept = 0;
  // When it returns, the user is not called any more, and is not being called, unless on this thread.
  virtual void mute() noexcept = 0;
  // Units that all processes of this host hold; none: they do not share the limit by a region.
  virtual std::optional<std::uint32_t> host_in_use() const noexcept { return std::nullopt; }
  // For a fleet; false: this source is not one.
  virtual bool describe(FleetSnapshot&) const { return false; }
};

// The gate that uses a source.
class UnitUser {
 public:
  virtual void units_may_be_free() noexcept = 0;  // on a thread of the source
  struct Usage {
    std::uint64_t arrived = 0,
                  admitted = 0;   // calls since the start; arrived: also rejected and waiting ones
    std::uint32_t in_flight = 0;  // units
  };
  virtual Usage usage() const noexcept = 0;  // by any thread
  // Around fork(), for a source whose units stay with the parent.
  virtual void before_fork() noexcept = 0;
  virtual void after_fork(bool in_child) noexcept = 0;

 protected:
  ~UnitUser() = default;
};

class UnitSources {
 public:
  struct Request {
    Scope scope = Scope::host;
    std::string_view bulkhead{};
    std::uint32_t max_concurrent = 1;
    double critical_reserve = 0;
    std::uint32_t max_queue = 0;
    bool weighed = false;  // calls cost many units each: a budget
  };
  // std::invalid_argument if the scope is not available or a number is out of range. The user outlives the source.
  virtual std::unique_ptr<UnitSource> open(const Request& request, UnitUser& user) = 0;
  // Throws what open() would because of the request, and changes nothing.
  virtual void check(const Request& request) const = 0;

 protected:
  ~UnitSources() = default;
};

// The state of a fleet's lease that the agent of a host keeps where the next agent finds it: src/shared/lease.h explains it.
struct LeaseTerms {
  std::int64_t deadline = 0;      // the lease is valid until then; ns, CLOCK_BOOTTIME, as the other times
  std::int64_t static_until = 0;  // after the deadline, static_cap units may be used until then
  std::uint32_t static_cap = 0, granted = 0, members = 0;
  std::uint32_t limit = 0;  // of the fleet
  std::uint64_t limit_version = 0, seq = 0, seen_ver = 0;
  std::int64_t renewed_at = 0, learning_until = 0;
  bool direct = false;
};

// A lease of a fleet that all processes of a host share. One of them, the agent, talks to the store; when it ends, however it
// ends, another process continues as the same member. take() admits within the lease.
// Threads: as for a UnitSource; the functions below are for the thread that talks to the store.
class HostLease : public UnitSource {
 public:
  virtual bool lead() noexcept = 0;          // true: this process is the agent, from now until stop_leading()
  virtual void stop_leading() noexcept = 0;  // another process may lead
  virtual bool alone() const noexcept = 0;   // no other process uses the lease now
  virtual std::string problem() const = 0;   // as the agent has last reported it
  virtual void set_problem(const std::string& problem) noexcept = 0;
  // The name of the member and its tie-breaker: those of the first agent.
  virtual void identify(std::string& member, std::uint32_t& tie) noexcept = 0;

  virtual std::uint32_t capacity() const noexcept = 0;  // the most units it can hold
  virtual std::uint32_t cap() const noexcept = 0;       // units that may be in use while the lease is valid
  virtual void set_cap(std::uint32_t units) noexcept = 0;  // offers new units to the processes that wait
  virtual std::uint32_t in_use_by_all() const noexcept = 0;
  std::optional<std::uint32_t> host_in_use() const noexcept final { return in_use_by_all(); }
  virtual LeaseTerms terms() const noexcept = 0;
  virtual void set_terms(const LeaseTerms& terms) noexcept = 0;

  // Publishes the usage of this process for the agent; sum() adds up that of all processes.
  virtual void report(const UnitUser::Usage& usage) noexcept = 0;
  struct Sum {
    std::uint64_t arrived = 0, admitted = 0;  // since the last call
    std::uint32_t line = 0;                   // units that calls wait for
    std::uint32_t first = 0;                  // the most that the first call of a process waits for
    std::uint32_t stated_limit = 0;           // by the statement with the highest version; 0: none
    std::uint64_t stated_version = 0;
  };
  virtual Sum sum() noexcept = 0;
  virtual void state_limit(std::uint32_t limit, std::uint64_t version) noexcept = 0;
  virtual void call_agent() noexcept = 0;  // any thread: on_call of the agent is called soon
};

class HostLeases {
 public:
  // `store` distinguishes leases of one name that belong to different stores. on_call: on a thread of the host, while this
  // process is the agent. std::invalid_argument as UnitSources::open().
  virtual std::unique_ptr<HostLease> open_lease(const UnitSources::Request& request, std::string_view store,
                                                UnitUser& user, std::function<void()> on_call) = 0;
  virtual bool available() const noexcept = 0;  // false: there is no region, so each process is a member
  virtual void check_lease(const UnitSources::Request& request) const = 0;

 protected:
  ~HostLeases() = default;
};

// Limits of the host and of a fleet in one registry: each request goes to the source of its scope. Null: not available.
class SourcesByScope final : public UnitSources {
 public:
  SourcesByScope(UnitSources* host, UnitSources* fleet) noexcept : host_(host), fleet_(fleet) {}
  std::unique_ptr<UnitSource> open(const Request& request, UnitUser& user) override {
    return of(request).open(request, user);
  }
  void check(const Request& request) const override { of(request).check(request); }

 private:
  UnitSources& of(const Request& request) const;  // std::invalid_argument

  UnitSources* host_;
  UnitSources* fleet_;
};

}  // namespace bulkhead
