// pool_core.h - the implementation of ResourcePool: the slots, the idle stack, and the permission to open resources.
//
// Invariants
//  R1  alive_ counts the slots that are not vacant: opening, idle, lent, cleaning, doomed or closing. It grows only under
//      mutex_, where it is below limit_ (and the budget has a unit for it), and shrinks only after dispose() has returned.
//      So it exceeds `max` only after a shrink, and then nothing is opened until it no longer does.
//  R2  A slot has one owner: the stack of idle ones, the list of doomed ones, the list of jobs, or the thread that took it
//      from there. Only the owner accesses its members, except `rest`, `state` and `lent_at`.
//  R3  A call that finds nothing to lend joins seekers_ and looks again, under mutex_; a thread that makes a resource idle looks
//      at waiting_ afterwards. So one of the two sees the other. serve() runs after every event that could help a seeker: a
//      resource came back, was opened or validated, a slot was vacated, an opening failed.
//  R4  A resource is pushed before the permit that covered it is released: the next call that is admitted finds it.
//  R5  While a resource is idle, watching_ is set or a thread is about to set it: maintenance will look at it.
//  R6  No resource is past its lifetime unless aged_ is set, or the alarm that sets it is being fired: the alarm is set for
//      the first end of a lifetime of all that are alive, lent ones too.
//  R7  opening_ahead_ + validating_ is what is on the way for seekers and min_idle. serve() starts another opening only if
//      more seekers wait than are on the way: a seeker that was served otherwise leaves its opening to the next one.
//  R8  No function of the user and no other pool is called while mutex_ is held. What follows from a decision is collected in
//      an Aftermath and carried out afterwards. Nothing in there allocates: a slot is in at most one list, and the lists
//      have room for all slots before a slot is made.
//  R9  A pool lives while one of these is not 0: its permits, firing_, visitors_, jobs of its helpers. Every access from
//      outside holds one of them.
#pragma once

#include <array>
#include <atomic>
#include <optional>
#include <vector>

#include "bulkhead/detail/std_mutex.h"
#include "bulkhead/pool.h"
#include "bulkhead/resource_pool.h"
#include "resource/idle_stack.h"
#include "resource/seeker.h"

namespace bulkhead::detail {

struct CancelSeeker {
  ResourceCore& core;
  Seeker& seeker;
  void operator()() const noexcept;
};

class ResourceCore final : private Alarm {
 public:
  ResourceCore(ResourceSettings settings, ResourceOperations operations);
  ~ResourceCore();

  std::optional<ResourceError> try_acquire(const AcquireOptions& options, RawLease& lease);
  std::optional<ResourceError> acquire(const AcquireOptions& options, RawLease& lease);
  std::optional<ResourceError> acquire(std::source_location where, RawLease& lease);
  std::optional<RawResult> at_once(const AcquireOptions& options, bool claim,
                                   LeaseAdmission& admission) noexcept;
  void start(AcquireOptions options, bool claim, LeaseAdmission admission,
             LeaseOperation& operation) noexcept;
  void give_back(ResourceSlot& slot, Permit& permit) noexcept;
  Opening opening() const;
  void filled(ResourceSlot& slot, void* resource) noexcept;
  using Open = std::function<Result<void*, std::string>(const Opening&)>;
  ResourceError fill_elsewhere(ResourceSlot& slot, Permit& permit, Open open, Reason reason);
  ResourceError not_filled(ResourceSlot& slot, Permit& permit, std::string why);
  ResourceError out_of_memory() const noexcept;
  void resize(std::uint32_t max);
  void close() noexcept;
  bool drain(TimePoint until);
  TimePoint maintain(TimePoint now);
  ResourceSnapshot snapshot() const;
  Gate& gate() const noexcept { return gate_; }

 private:
  friend class bulkhead::ResourceBudget;
  friend class AsyncSeeker;
  friend struct CancelSeeker;
  using Lock = detail::UniqueLock<detail::StdMutex>;
  // What a call that is admitted may still do to get its resource.
  struct Terms {
    TimePoint began{}, until = no_deadline;
    std::stop_token stop{};
    bool claim = false;
  };
  using Obtained = Result<ResourceSlot*, ResourceError>;

  // ---- lending.cc ----
  Terms terms(const AcquireOptions& options, TimePoint began) const noexcept;
  TimePoint glance() const noexcept { return clocked_ ? clock_.glance() : TimePoint(); }
  bool fresh(const ResourceSlot& slot, TimePoint now) const noexcept;
  ResourceSlot* pop_fresh(TimePoint now) noexcept;
  bool lend_fresh(Permit& permit, TimePoint began, RawLease& lease) noexcept;
  std::optional<ResourceError> acquire_slowly(Result<Permit>& permit, const AcquireOptions& options,
                                              TimePoint began, RawLease& lease);
  void lend(ResourceSlot& slot, Permit&& permit, TimePoint began, TimePoint now, RawLease& lease) noexcept;
  void hand_over(ResourceSlot& slot, Permit&& permit, RawLease& lease) noexcept;
  void push(ResourceSlot& slot) noexcept;
  void put_back(ResourceSlot& slot, Aftermath& after) noexcept;
  Obtained obtain_by_hand(const Terms& terms);
  ResourceSlot* pop_good(TimePoint now, bool claim);

  // ---- seeking.cc ----
  Obtained obtain(const Terms& terms);
  Obtained because(Reason reason) const;
  void admitted(AsyncSeeker& seeker, Result<Permit> permit) noexcept;
  void seek(AsyncSeeker& seeker) noexcept;
  void enlist(Seeker& seeker, Aftermath& after) noexcept BULKHEAD_REQUIRES(mutex_);
  void withdraw(Seeker& seeker, Reason reason, Aftermath& after) noexcept;
  void give_up(Seeker& seeker, Reason reason) noexcept;
  void decide(Seeker& seeker, Seeker::Decision decision, Aftermath& after) noexcept BULKHEAD_REQUIRES(mutex_);
  void assign(Seeker& seeker, ResourceSlot& slot, Aftermath& after) noexcept BULKHEAD_REQUIRES(mutex_);
  void serve(Aftermath& after) noexcept BULKHEAD_REQUIRES(mutex_);
  void serve_now(Aftermath& after) noexcept;
  void wake(Aftermath& after) noexcept;
  void finish(Aftermath& after) noexcept;
  bool backing_off(TimePoint now) const noexcept BULKHEAD_REQUIRES(mutex_) {
    return failures_ > 0 && now < retry_at_;
  }

  // ---- upkeep.cc ----
  ResourceSlot* begin_opening(bool* no_unit = nullptr) noexcept BULKHEAD_REQUIRES(mutex_);
  Result<void*, std::string> make(const Open& open) noexcept;
  void opened(ResourceSlot& slot, void* resource, TimePoint now, Aftermath& after) noexcept
      BULKHEAD_REQUIRES(mutex_);
  void failed_to_open(ResourceSlot& slot, std::string why) noexcept BULKHEAD_REQUIRES(mutex_);
  void note_failure(std::string why) noexcept BULKHEAD_REQUIRES(mutex_);
  void hand_in(ResourceSlot& slot, bool below, Aftermath& after) noexcept BULKHEAD_REQUIRES(mutex_);
  void do_open(ResourceSlot& slot) noexcept;
  void do_validate(ResourceSlot& slot) noexcept;
  void do_clean(ResourceSlot& slot) noexcept;
  bool still_good(ResourceSlot& slot) const noexcept;
  std::uint32_t staying() const noexcept BULKHEAD_REQUIRES(mutex_) {
    return alive_ - closing_now_ - static_cast<std::uint32_t>(doomed_.size());
  }
  void doom(ResourceSlot& slot, std::atomic<std::uint64_t>& why, Aftermath& after) noexcept
      BULKHEAD_REQUIRES(mutex_);
  void doom_now(ResourceSlot& slot, std::atomic<std::uint64_t>& why, Aftermath& after) noexcept;
  void dispose(ResourceSlot& slot) noexcept;
  void vacate(ResourceSlot& slot) noexcept BULKHEAD_REQUIRES(mutex_);
  void unit_freed(Aftermath& after) noexcept;
  bool dispose_one_doomed() noexcept;
  bool close_an_idle_one() noexcept;  // by hand on behalf of a neighbour, and in the end
  bool spare_one() noexcept;          // the same, but a helper closes it
  enum class Fate : std::uint8_t { keep, close, check };
  template <class Look>
  void sweep(Look&& look, ResourceSlot* below = nullptr) noexcept BULKHEAD_REQUIRES(mutex_);
  void suspect_all() noexcept;
  TimePoint look_for_aged(TimePoint now) BULKHEAD_REQUIRES(mutex_);
  void doom_surplus(Aftermath& after) noexcept BULKHEAD_REQUIRES(mutex_);
  TimePoint look_after_idle(TimePoint now, Aftermath& after) noexcept BULKHEAD_REQUIRES(mutex_);
  TimePoint refill(TimePoint now, Aftermath& after) noexcept BULKHEAD_REQUIRES(mutex_);
  void add_job(ResourceJob& job, JobKind kind) noexcept BULKHEAD_REQUIRES(mutex_);
  void post(std::uint32_t jobs) noexcept;
  bool ask_helper(void (ResourceCore::*what)() noexcept) noexcept;
  void work() noexcept;
  bool do_job(bool on_helper) noexcept;
  void run_jobs_by_hand() noexcept;
  void maintain_now() noexcept;
  void kick() noexcept;
  void watch(TimePoint next);
  double random() noexcept BULKHEAD_REQUIRES(mutex_);
  bool expire() noexcept override;
  void expired() noexcept override;

  // ---- core.cc ----
  static ResourceError error_of(const Rejection& rejection);
  ResourceError gave_up(Priority priority, Reason reason);
  ResourceError failing(TimePoint now) noexcept;
  bool by_hand() const noexcept { return settings_.maintenance == Maintenance::by_hand; }

  const ResourceSettings settings_;
  const ResourceOperations operations_;
  Clock& clock_;
  // An acquire needs to know the time. Lifetimes alone do not ask for that: an alarm sets aged_ (R6).
  const bool clocked_;
  const bool stamps_returns_;              // and so does a return
  const std::chrono::nanoseconds rhythm_;  // how often maintenance looks at idle resources
  ResourceBudget* const budget_;

  IdleStack idle_;
  std::atomic<std::uint32_t> waiting_{0};  // seekers_.size(), for R3
  std::atomic<bool> watching_{false};      // an alarm is set, or maintenance is about to run
  std::atomic<bool> aged_{false};          // a resource may be past its lifetime: look at the clock
  std::atomic<bool> careful_{false};       // more alive than allowed, or closed: a return has to look
  std::atomic<bool> kicked_{false};
  std::atomic<std::uint32_t> firing_{0};    // alarms on their way
  std::atomic<std::uint32_t> visitors_{0};  // neighbours that look at this pool, see budget.h
  std::atomic<std::uint32_t> unmet_{0};     // seekers that the budget has no unit for; written under the lock
  std::atomic<bool> lacks_unit_{false};     // the budget has no unit for min_idle
  std::atomic<std::uint32_t> leaving_{0};   // doomed or being closed; written under the lock

  mutable StdMutex mutex_;
  std::atomic<std::uint32_t> limit_, alive_{0};  // written under it; elsewhere a hint
  std::uint32_t opening_ BULKHEAD_GUARDED_BY(mutex_) = 0, most_alive_ BULKHEAD_GUARDED_BY(mutex_) = 0;
  std::uint32_t opening_ahead_ BULKHEAD_GUARDED_BY(mutex_) =
      0;                                                      // by helpers, for the first call that needs it
  std::uint32_t validating_ BULKHEAD_GUARDED_BY(mutex_) = 0;  // by helpers, for seekers
  std::uint32_t checking_ BULKHEAD_GUARDED_BY(mutex_) = 0;    // by helpers, because it is time to (keepalive)
  std::uint32_t closing_now_ BULKHEAD_GUARDED_BY(mutex_) =
      0;  // taken from doomed_, and dispose() has not returned
  SeekerList seekers_ BULKHEAD_GUARDED_BY(mutex_);
  // With room for all slots.
  std::vector<ResourceSlot*> vacant_ BULKHEAD_GUARDED_BY(mutex_), doomed_ BULKHEAD_GUARDED_BY(mutex_);
  ResourceJob* first_job_ BULKHEAD_GUARDED_BY(mutex_) = nullptr;
  ResourceJob* last_job_ BULKHEAD_GUARDED_BY(mutex_) = nullptr;
  std::uint32_t failures_ BULKHEAD_GUARDED_BY(mutex_) = 0;  // in a row
  std::uint64_t failures_ever_ BULKHEAD_GUARDED_BY(mutex_) = 0;
  TimePoint retry_at_ BULKHEAD_GUARDED_BY(mutex_){};
  std::string last_failure_ BULKHEAD_GUARDED_BY(mutex_);
  bool closed_ BULKHEAD_GUARDED_BY(mutex_) = false;
  std::uint64_t random_ BULKHEAD_GUARDED_BY(mutex_);
  std::optional<Pool> helpers_ BULKHEAD_GUARDED_BY(mutex_);  // made by the first job
  bool stopped_ BULKHEAD_GUARDED_BY(mutex_) = false;         // no alarms any more

  struct Counters {
    std::atomic<std::uint64_t> opened{0}, closed{0}, broken{0}, expired{0}, idled_out{0}, invalid{0},
        surplus{0};
    std::atomic<std::uint64_t> failing_calls{0}, timeouts{0};
  } count_;
  struct Times {
    Histogram wait, use, open;
  };
  std::unique_ptr<Times> times_;
  std::stop_source closing_;

  const std::unique_ptr<Gate> own_gate_;  // null: it stands on another's
  Gate& gate_;
};

// Invariants: `cancel` and the alarm are set before the seeker is listed, and ended by the thread that delivers it, before its
// permit is released. `references`: one of the thread that decides it, and one of an alarm that is being fired.
class AsyncSeeker final : public Seeker, public ResourceJob, private Alarm {
 public:
  AsyncSeeker(ResourceCore& core, LeaseOperation& operation, Priority priority, ResourceCore::Terms terms);

  void deliver() noexcept;  // and ends

 private:
  friend class ResourceCore;
  ~AsyncSeeker() override = default;
  RawResult lent() noexcept;
  RawResult denied() noexcept;
  void let_go() noexcept;
  void watch() noexcept;
  bool expire() noexcept override;
  void expired() noexcept override;

  ResourceCore& core_;
  LeaseOperation& operation_;
  const Priority priority_;
  const ResourceCore::Terms terms_;
  Permit permit_;
  std::atomic<std::uint32_t> references_{1};
  bool armed_ = false;
  std::optional<std::stop_callback<CancelSeeker>> cancel_;
};

}  // namespace bulkhead::detail
