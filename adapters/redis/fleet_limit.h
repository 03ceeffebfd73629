// fleet_limit.h - one limit of the fleet as one bulkhead of this process uses it, between the threads that make calls and the
// thread that talks to the store.
//
// With a HostLease, all processes of the host are one member. In one of them, the agent, this object talks to the store for
// all; in the others it tells the agent what they need, and looks whether the agent is still there.
#pragma once

#include <time.h>

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "bulkhead/detail/std_mutex.h"
#include "bulkhead/scope.h"
#include "shared/demand.h"
#include "shared/lease.h"

namespace bulkhead::redis {

// Also counts while the machine sleeps: a lease that ended then is not valid afterwards.
inline std::int64_t boot_now() noexcept {
  timespec now{};
  ::clock_gettime(CLOCK_BOOTTIME, &now);
  return now.tv_sec * 1'000'000'000 + now.tv_nsec;
}

// The lease that a bulkhead asks for. The caller adds the name of the member and its tie-breaker.
shared::LeaseOptions lease_options(const FleetSettings& settings, const UnitSources::Request& request);

// Counts the forks of this process: the thread of a fleet does not exist in a child.
extern std::atomic<std::uint32_t> forks;
void watch_forks();

class FleetLimit {
 public:
  using Now = std::int64_t (*)() noexcept;  // another clock, for simulations
  using OpenLease = std::function<std::unique_ptr<HostLease>(std::function<void()> on_call)>;
  FleetLimit(std::string name, shared::LeaseOptions options, FleetMode mode, bool has_line, UnitUser& user,
             std::function<void()> wake, const OpenLease& open_lease = {}, Now now = boot_now);

  const std::string& name() const noexcept { return name_; }

  // ---- threads that make calls ----
  bool take(const UnitSource::Head& head) noexcept;
  void give_back(std::uint32_t units) noexcept {
    if (host_) [[unlikely]]
      return give_back_to_host(units);
    lease_.give_back(units);
    if (direct_.load(std::memory_order_relaxed)) return_idle();
  }
  std::uint32_t in_use() const noexcept { return host_ ? host_->in_use() : lease_.in_use(); }
  std::optional<std::uint32_t> host_in_use() const noexcept {
    return host_ ? host_->host_in_use() : std::nullopt;
  }
  void set_head(const UnitSource::Head* head) noexcept;
  std::uint32_t limit() const noexcept { return host_ ? host_->limit() : lease_.limit(); }
  bool resize(std::uint32_t limit) noexcept;
  void mute() noexcept;
  void describe(FleetSnapshot& now) const;

  // ---- the thread of the fleet ----
  // Before next(): true: this process has to talk to the store about this limit.
  bool tend(std::int64_t now);
  bool asks() const;
  std::optional<shared::StoreRequest> next(const std::string& run, std::int64_t now);
  std::int64_t due() const;
  // Null: no reply. Empty, or how the mode has changed.
  std::string on_reply(std::uint64_t seq, const shared::StoreReply* reply, double round_trip);
  // The request for a list of the members, if somebody has asked for one. Its reply, or null, goes to on_list().
  std::optional<shared::StoreRequest> list_request();
  void on_list(const shared::StoreReply* reply);
  bool has_to_leave();  // false: other processes of the host go on with the lease
  shared::StoreRequest leave(const std::string& run);
  // True, once: units or the limit have changed, and tell() is due.
  bool has_news() noexcept { return news_.exchange(false); }

  // ---- another thread ----
  // Calls the user, and so the handlers and coroutines of calls that have waited, which may take as long as they like.
  void tell() noexcept;

  void set_problem(const std::string& problem) noexcept;  // what the other processes of the host show
  // As the agent of the host has reported it; empty if this process is the agent, or the member.
  std::string problem_of_agent() const;

 private:
  shared::Lease::Needs needs() const noexcept BULKHEAD_REQUIRES(mutex_);
  void return_idle() noexcept;
  void give_back_to_host(std::uint32_t units) noexcept;
  bool forked() const noexcept { return forks_ != forks.load(std::memory_order_relaxed); }
  void called() noexcept;
  std::uint32_t line() const noexcept BULKHEAD_REQUIRES(mutex_) { return host_ ? host_line_ : line_.load(); }
  UnitUser::Usage usage() noexcept;
  void sample(const UnitUser::Usage& usage, std::int64_t now) noexcept BULKHEAD_REQUIRES(mutex_);
  std::string choose_mode(double round_trip) BULKHEAD_REQUIRES(mutex_);
  void forget_user() noexcept BULKHEAD_REQUIRES(telling_);

  const std::string name_;
  const FleetMode mode_;
  const bool has_line_;
  const std::uint32_t forks_;
  const std::function<void()> wake_;
  const Now now_;

  const std::unique_ptr<HostLease> host_;  // null: this process is the member

  mutable detail::StdMutex mutex_;  // of what only one thread may use of the lease, and of the estimate
  shared::Lease lease_;             // not checked by Clang: calls use the rest of it without the lock
  shared::Demand demand_ BULKHEAD_GUARDED_BY(mutex_);
  std::int64_t sampled_at_ BULKHEAD_GUARDED_BY(mutex_) = 0;
  std::uint64_t requests_ BULKHEAD_GUARDED_BY(mutex_) = 0;
  bool leads_ BULKHEAD_GUARDED_BY(mutex_) = false;
  mutable bool list_wanted_ BULKHEAD_GUARDED_BY(mutex_) = false;
  std::shared_ptr<const FleetList> list_ BULKHEAD_GUARDED_BY(mutex_);
  std::int64_t listed_at_ BULKHEAD_GUARDED_BY(mutex_) = 0;      // when list_ was made
  std::int64_t list_asked_at_ BULKHEAD_GUARDED_BY(mutex_) = 0;  // 0: not yet
  std::uint32_t host_line_ BULKHEAD_GUARDED_BY(mutex_) = 0, host_first_ BULKHEAD_GUARDED_BY(mutex_) = 0;
  std::uint32_t known_limit_ BULKHEAD_GUARDED_BY(mutex_) = 0;
  std::int64_t looked_at_ BULKHEAD_GUARDED_BY(mutex_) = 0, called_at_ BULKHEAD_GUARDED_BY(mutex_) = 0;
  HostLease::Sum since_sample_ BULKHEAD_GUARDED_BY(mutex_);
  UnitUser::Usage sampled_;  // of the thread of the fleet, so without a lock

  std::atomic<std::uint32_t> line_{0}, first_{0};  // units for all calls in line, and for the first
  std::atomic<std::uint32_t> rejected_{0};  // cost of a call that found too few units since the last request
  std::atomic<bool> direct_;
  std::atomic<std::uint32_t> kept_{0};  // see Lease::keeps()
  std::atomic<bool> asked_{false};      // a call has come since the last sample

  std::atomic<bool> news_{false};
  detail::StdMutex telling_;  // held by tell(), and to forget the user on any other thread
  std::atomic<std::thread::id> teller_{};
  // Held while the user's numbers are read, and to forget it. Not while its handlers run: leases go on.
  detail::StdMutex looking_;
  UnitUser* user_;  // written under both locks, so read under either; Clang cannot express that
};

}  // namespace bulkhead::redis
