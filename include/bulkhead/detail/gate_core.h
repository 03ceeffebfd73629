// gate_core.h - the implementation of a Gate around its turnstile. Not for direct use.
//
// Gate inherits from it privately; permits, asynchronous acquisitions, pools, groups and bulkheads are friends of Gate and
// use it. The functions are in src/gate/admission.cc.
#pragma once

#include "bulkhead/gate.h"

namespace bulkhead {
class UnitSource;
}

namespace bulkhead::detail {

class GateCore {
 public:
  using Turnstile = detail::Turnstile<StdPlatform>;
  using Waiter = Turnstile::Waiter;
  using Wakes = Turnstile::Wakes;
  struct Observers;  // hooks and holders; made only if the options need them

  GateCore(GateOptions options, const Membership* membership);
  GateCore(const GateCore&) = delete;
  GateCore& operator=(const GateCore&) = delete;
  ~GateCore();

  static bool plain(const AcquireOptions& o) noexcept {
    return o.cost == 1 && o.deadline == no_deadline && !o.stop.stop_possible();
  }
  Result<Permit> try_acquire_else(std::source_location where) noexcept;
  Result<Permit> try_acquire_else(const AcquireOptions& options) noexcept;
  Result<Permit> acquire_else(std::source_location where) noexcept;
  Result<Permit> acquire_else(const AcquireOptions& options) noexcept;
  Rejection reject(Priority priority, Reason reason) noexcept;
  Result<Permit> noted(const AcquireOptions& options) noexcept;
  Result<Permit> try_acquire_slow(const AcquireOptions& options, std::int64_t seen = 0) noexcept;
  Result<Permit> acquire_slow(const AcquireOptions& options) noexcept;
  void release_slow() noexcept;
  void release_lent() noexcept;
  std::stop_token lease(Permit& permit) noexcept;
  void release_measured(std::int64_t now) noexcept;
  void release_observed(const Permit::Parts& permit, std::uint32_t unmeasured, std::int64_t now) noexcept;
  void count_double_release() noexcept;
  // In src/gate/settle.cc. `permit` as it is after the change.
  void lower(const Permit::Parts& permit, std::uint32_t from) noexcept;
  bool raise(const Permit::Parts& permit, std::uint32_t units) noexcept;
  void note_cost(const Permit::Parts& permit) noexcept;

  struct WaitPlan;
  std::optional<Result<Permit>> decide_now(const AcquireOptions& options, bool may_queue,
                                           WaitPlan& plan) noexcept;
  bool pass_after_a_look(const AcquireOptions& options, const WaitPlan& plan) noexcept;
  std::optional<Result<Permit>> at_once(const AcquireOptions& options, std::int64_t seen = 0) noexcept;
  bool enter_at_once(const AcquireOptions& options, std::int64_t seen, Permit& permit) noexcept;
  Result<Permit> peek(const AcquireOptions& options) noexcept;  // try_acquire that does not count a rejection
  bool pass(const AcquireOptions& options, std::int64_t seen = 0) noexcept;
  // For a gate with a scope; in src/gate/scoped.cc.
  bool pass_scoped(Priority priority, std::uint32_t cost, std::int64_t seen) noexcept;
  void release_scoped(std::int64_t now) noexcept;
  Result<Permit> scoped_permit(Priority priority) noexcept;
  bool only_scoped() const noexcept { return source_ && !observers_ && !measure_; }
  bool only_measured() const noexcept { return meter_ && !observers_ && !measure_ && !backing_; }
  void measure(std::uint32_t units, Turnstile::Pass pass, std::int64_t seen = 0) noexcept;
  void post_to(Inbox<StdPlatform>& inbox) noexcept {  // before the first call
    if (!turnstile_.observed() && !flows_) turnstile_.post_to(inbox);
  }
  void discard_oldest() noexcept { turnstile_.discard_oldest(); }  // for a pool
  bool borrow(const AcquireOptions& options, bool may_queue) noexcept;
  Result<Permit> conclude(Waiter& w, const AcquireOptions& options) noexcept;
  Result<Permit> watched(const Waiter& w, const AcquireOptions& options) noexcept;
  Rejection rejection_of(Priority priority, const Turnstile::Look& look) noexcept;
  std::uint32_t shown(std::uint32_t limit) const noexcept;
  Turnstile::Look numbers(Priority priority) const noexcept;
  std::uint32_t limit() const noexcept;  // Snapshot::max_concurrent, without the other numbers
  // For holdback: the limit of a member of a group is its ceiling, because the group may lend it more.
  Turnstile::Look load() const noexcept {
    return {Verdict::pending, turnstile_.in_flight(), std::max(turnstile_.limit(), turnstile_.ceiling()),
            turnstile_.waiting(), turnstile_.max_queue()};
  }
  Event event(Priority priority, const Turnstile::Look& numbers) const noexcept;
  Event event(Priority priority) const noexcept;
  void announce(const Waiter& w) noexcept;
  void announce_all(const Wakes& wakes) noexcept;
  static void publish_all(Wakes& wakes) noexcept;
  void tell(Wakes& wakes) noexcept;
  void tell_lent(Wakes& wakes) noexcept;
  bool withdraw_and_tell(Waiter& w, Reason reason) noexcept;
  template <class F>
  void call_hook(const F& hook) noexcept;
  void count_rejection(Reason reason) noexcept;
  void pin() noexcept { pins_.fetch_add(1, std::memory_order_relaxed); }
  void unpin() noexcept { pins_.fetch_sub(1, std::memory_order_release); }
  void count_hook_error() noexcept { hook_errors_.fetch_add(1, std::memory_order_relaxed); }
  void sample(std::int64_t held_ns) noexcept;
  std::int64_t now_ns() const noexcept { return clock_.now().time_since_epoch().count(); }
  std::int64_t glance_ns() const noexcept { return clock_.glance().time_since_epoch().count(); }
  std::int64_t slow_now() const noexcept;

  Turnstile turnstile_;

  Name name_;
  Clock& clock_;
  DeadlineDriver& deadlines_;
  const std::chrono::nanoseconds max_wait_;
  const double critical_reserve_;
  const double critical_queue_reserve_;
  const Fairness fairness_;
  const bool measure_;
  Backing* const backing_;    // the source of more units, such as a group; mostly null
  UnitSource* const source_;  // of the units of each call, if the gate has a scope
  std::unique_ptr<Observers> observers_;
  std::unique_ptr<Meter> meter_;
  std::unique_ptr<FlowQueues<StdPlatform>> flows_;
  std::atomic<std::int64_t> mean_hold_{0};
  std::atomic<std::uint64_t> double_releases_{0};
  std::atomic<std::uint64_t> hook_errors_{0};
  // Calls that hold no units but will still access the gate: waiting calls, and releases with more to do.
  std::atomic<std::uint32_t> pins_{0};

  // Many cores may reject at the same time. So rejections have their own cache lines, mostly one per thread, which then
  // needs no atomic addition. The last stripe is shared by all other threads.
  struct alignas(64) Stripe {
    std::atomic<std::uint64_t> by_reason[kReasons]{};
    std::atomic<std::uint32_t> owner{0};  // the only thread that writes here; 0: none yet
  };
  static constexpr std::uint32_t kStripes = 4;
  Stripe rejections_[kStripes];
};

}  // namespace bulkhead::detail
