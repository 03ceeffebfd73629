// core.h - the inside of a ResourcePool: who is alive, who is idle, who may open one more.
//
// Invariants
//  R1  alive_ counts the slots that are not vacant: opening, idle, lent, cleaning, doomed or closing. It
//     grows only under
//      mutex_, where it is below limit_ (and the budget has a unit for it), and shrinks only after dispose() has returned.
//      So it exceeds `max` only after a shrink, and then nothing is opened until it no longer does.
//  R2  A slot has one owner: the stack of idle ones, the list of doomed ones, or whoever took it from
//     there. Only the owner
//      touches anything in it but `rest`, `state` and `lent_at`.
//  R3  Who wants a thing and finds none reads epoch_ first, looks again under mutex_, and then waits for epoch_ to change;
//      it is changed after every event that could help: a thing pushed while somebody waits, a slot vacated, a failure.
//  R4  A thing is pushed before the permit that covered it is released: who is admitted next finds it.
//  R5  While a thing is idle, watching_ is set or somebody is on the way to set it: maintenance will
//     come to it.
//  R6  No thing is past its lifetime unless aged_ is set, or the alarm that sets it is being fired: the alarm
//      is set for the first end of a lifetime of all that are alive, lent ones too.
#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <mutex>
#include <optional>
#include <vector>

#include "bulkhead/pool.h"
#include "bulkhead/resource_pool.h"
#include "resource/idle_stack.h"

namespace bulkhead::detail {

class ResourceCore final : private Alarm {
 public:
  ResourceCore(ResourceSettings settings, ResourceOperations operations);
  ~ResourceCore();

  std::optional<ResourceError> try_acquire(const AcquireOptions& options, RawLease& lease);
  std::optional<ResourceError> acquire(const AcquireOptions& options, RawLease& lease);
  std::optional<ResourceError> acquire(std::source_location where, RawLease& lease);
  void async_acquire(AcquireOptions options, bool claim, RawHandler handler);
  void give_back(ResourceSlot& slot, Permit& permit) noexcept;
  Opening opening() const;
  void filled(ResourceSlot& slot, void* thing) noexcept;
  ResourceError not_filled(ResourceSlot& slot, Permit& permit, std::string why);
  void resize(std::uint32_t max);
  void close() noexcept;
  bool drain(TimePoint until);
  TimePoint maintain(TimePoint now);
  ResourceSnapshot snapshot() const;
  Gate& gate() const noexcept { return gate_; }

 private:
  friend class bulkhead::ResourceBudget;
  using Lock = std::unique_lock<std::mutex>;
  enum class How : std::uint8_t { open, claim };
  // What a call that is admitted may still do to get its thing.
  struct Terms {
    TimePoint began{}, until = no_deadline;
    std::stop_token stop{};
    How how = How::open;
  };
  using Obtained = std::expected<ResourceSlot*, ResourceError>;

  Terms terms(const AcquireOptions& options, TimePoint began) const noexcept;
  TimePoint glance() const noexcept { return clocked_ ? clock_.glance() : TimePoint(); }
  bool fresh(const ResourceSlot& slot, TimePoint now) const noexcept;
  ResourceSlot* pop_fresh(TimePoint now) noexcept;
  ResourceSlot* pop_good(TimePoint now, How how);
  bool lend_fresh(Result<Permit>& permit, TimePoint began, RawLease& lease) noexcept;
  std::optional<ResourceError> acquire_slowly(Result<Permit>& permit, const AcquireOptions& options,
                                              TimePoint began, RawLease& lease);
  Obtained obtain(const Terms& terms);
  Obtained because(Reason reason) const;
  ResourceSlot* begin_opening(Lock& lock);
  std::expected<void, std::string> open_into(ResourceSlot& slot);
  void open_elsewhere(ResourceSlot& slot);
  void opened(ResourceSlot& slot, void* thing, TimePoint now);
  void failed_to_open(ResourceSlot& slot, std::string why);
  void lend(ResourceSlot& slot, Permit&& permit, TimePoint began, TimePoint now, RawLease& lease) noexcept;
  void hand_over(ResourceSlot& slot, Permit&& permit, RawLease& lease) noexcept;
  void push(ResourceSlot& slot) noexcept;
  void put_back(ResourceSlot& slot) noexcept;
  void clean(ResourceSlot& slot) noexcept;
  void doom(ResourceSlot& slot, std::atomic<std::uint64_t>& why) noexcept;
  void dispose(ResourceSlot& slot) noexcept;
  void vacate(Lock& lock, ResourceSlot& slot);
  bool dispose_one_doomed();
  bool close_an_idle_one();  // on behalf of a neighbour
  template <class Keep>
  void sweep(Lock& lock, Keep&& keep);
  void suspect_all();
  TimePoint look_for_aged(TimePoint now);
  void doom_surplus(Lock& lock);
  ResourceError refused(const Rejection& rejection) const;
  ResourceError gave_up(Priority priority, Reason reason);
  ResourceError failing(TimePoint now);
  void changed() noexcept;
  void run_job(std::move_only_function<void()> job);
  void run_jobs_by_hand();
  void kick() noexcept;
  void watch(TimePoint next);
  double random() noexcept;
  bool expire() noexcept override;
  void expired() noexcept override;

  const ResourceSettings settings_;
  const ResourceOperations operations_;
  Clock& clock_;
  // An acquire needs to know the time. Lifetimes alone do not ask for that: an alarm sets aged_ (R6).
  const bool clocked_;
  const bool stamps_returns_;              // and so does a return
  const std::chrono::nanoseconds rhythm_;  // how often maintenance looks at idle things
  ResourceBudget* const budget_;

  IdleStack idle_;
  std::atomic<std::uint32_t> epoch_{0};    // what those who wait for a thing sleep on
  std::atomic<std::uint32_t> waiting_{0};  // how many of them
  std::atomic<bool> watching_{false};      // an alarm is set, or maintenance is about to run
  std::atomic<bool> aged_{false};          // some thing may be past its lifetime: look at the clock
  std::atomic<bool> careful_{false};       // more alive than allowed, or closed: a return has to look
  std::atomic<bool> kicked_{false};
  std::atomic<std::uint32_t> firing_{0};  // alarms on their way to a helper

  mutable std::mutex mutex_;                     // everything from here
  std::atomic<std::uint32_t> limit_, alive_{0};  // written under it; elsewhere a hint
  std::uint32_t opening_ = 0, most_alive_ = 0;
  std::uint32_t closing_now_ = 0;  // taken from doomed_, and dispose() has not returned
  std::vector<ResourceSlot*> vacant_, doomed_;
  std::uint32_t failures_ = 0;  // in a row
  std::uint64_t failures_ever_ = 0;
  TimePoint retry_at_{};
  std::string last_failure_;
  bool closed_ = false;
  std::uint64_t random_;
  std::deque<std::move_only_function<void()>> jobs_;  // by hand only
  std::optional<Pool> helpers_;                       // made by the first job
  bool stopped_ = false;                              // no alarms any more

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

}  // namespace bulkhead::detail
