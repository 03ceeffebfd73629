// helpers.cc - the work of a resource pool: done by helper threads, or by the caller with Maintenance::by_hand.
#include <utility>

#include "base/sync_point.h"
#include "resource/budget.h"
#include "resource/pool_core.h"
#include "resource/util.h"

namespace bulkhead::detail {

void ResourceCore::add_job(ResourceJob& job, JobKind kind) noexcept {
  job.job = kind;
  job.next_job = nullptr;
  (last_job_ ? last_job_->next_job : first_job_) = &job;
  last_job_ = &job;
}

namespace {

// Room in line for whatever can be due at once, so that no caller has to do it.
PoolOptions helper_options(const ResourceSettings& s, std::uint32_t max) {
  return {.name = "+" + s.name,
          .max_concurrent = helper_threads(max),
          .max_queue = 1 << 16,
          .keep_alive = std::chrono::seconds(2),
          .on_reject = OnReject::caller_runs};
}

// This thread is giving work to the pool of helpers. Work that runs meanwhile runs on this thread: without any helper thread
// its giver stands in for one.
constinit thread_local bool asking = false;

class Asking {
 public:
  Asking() noexcept : outer_(std::exchange(asking, true)) {}
  ~Asking() { asking = outer_; }
  Asking(const Asking&) = delete;
  Asking& operator=(const Asking&) = delete;

 private:
  const bool outer_;
};

}  // namespace

// False: there is no memory for it. Without a thread for it, it has run on this one.
bool ResourceCore::ask_helper(void (ResourceCore::*what)() noexcept) noexcept {
  return guarded(
      [&] {
        base::sync_point("resource.ask_helper");
        Pool* helpers = nullptr;
        {
          const Lock lock(mutex_);
          if (!helpers_) helpers_.emplace(helper_options(settings_, limit_));
          helpers = &*helpers_;
        }
        // Rejected only when the pool ends, which then does what is left.
        const Asking mark;
        static_cast<void>(helpers->post([this, what] { (this->*what)(); }).has_value());
        base::sync_point("resource.asked_helper");
        return true;
      },
      [](auto) { return false; });
}

// As many jobs as that were added, or resources doomed.
void ResourceCore::post(std::uint32_t jobs) noexcept {
  for (; jobs > 0; --jobs)
    if (!ask_helper(&ResourceCore::work)) do_job(false);
}

void ResourceCore::work() noexcept { do_job(!asking); }

// Does one of the added jobs, or closes a resource. Without a helper the caller does it, except for an opening, which fails:
// a lease does not wait for it, and a failure can be reported to its caller.
bool ResourceCore::do_job(bool on_helper) noexcept {
  ResourceJob* job = nullptr;
  {
    Lock lock(mutex_);
    job = first_job_;
    if (job) {
      first_job_ = job->next_job;
      if (!first_job_) last_job_ = nullptr;
    }
  }
  if (!job) return !by_hand() && dispose_one_doomed();
  if (job->job == JobKind::seek) {
    auto& seeker = static_cast<AsyncSeeker&>(*job);
    Obtained slot = seeker.operation_.taken() ? because(Reason::cancelled) : obtain_by_hand(seeker.terms_);
    seeker.decision = slot                     ? Seeker::Decision::served
                      : slot.error().rejection ? Seeker::Decision::rejected
                                               : Seeker::Decision::failing;
    if (slot)
      seeker.slot = *slot;
    else if (slot.error().rejection)
      seeker.reason = slot.error().rejection->reason;
    SeekerList decided;
    decided.push_back(seeker);
    Deliveries::run(decided);
    return true;
  }
  auto& slot = static_cast<ResourceSlot&>(*job);
  if (job->job == JobKind::clean) {
    do_clean(slot);
  } else if (job->job != JobKind::open) {
    do_validate(slot);
  } else if (on_helper) {
    do_open(slot);
  } else {
    Permit held = std::move(slot.held);
    slot.opener = nullptr;
    Aftermath after;
    {
      Lock lock(mutex_);
      --opening_ahead_;
      failed_to_open(slot, asking ? "no thread to open it" : "out of memory");
      serve(after);
    }
    unit_freed(after);
    wake(after);
    held.release();
    Deliveries::run(after.decided);
  }
  return true;
}

void ResourceCore::run_jobs_by_hand() noexcept {
  while (by_hand() && do_job(true)) {
  }
}

void ResourceCore::maintain_now() noexcept {
  if (asking) watching_.store(false);  // before kicked_: the next kick sets it again
  kicked_.store(false);
  if (!asking) maintain(clock_.now());
}

// Without memory or a thread for it, maintenance is late: the next event that needs it tries again.
void ResourceCore::kick() noexcept {
  if (by_hand() || kicked_.exchange(true)) return;
  watching_.store(true);
  if (ask_helper(&ResourceCore::maintain_now)) return;
  watching_.store(false);
  kicked_.store(false);
}

}  // namespace bulkhead::detail
