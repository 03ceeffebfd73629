#include "bulkhead/resource_pool.h"

#include "base/text.h"
#include "resource/budget.h"
#include "resource/checked.h"
#include "resource/pool_core.h"

namespace bulkhead {
namespace detail {
namespace {

using std::chrono::nanoseconds;

std::string decimal(nanoseconds t) {
  return std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(t).count());
}

}  // namespace

void check_max(std::string_view name, std::uint32_t max) {
  if (max >= 1 && max <= 10'000) return;
  base::throw_invalid(base::join(
      {"bulkhead \"", name, "\": max = ", std::to_string(max), " is out of range: give 1 to 10000"}));
}

// Each message names the setting and what to give instead.
ResourceSettings checked(ResourceSettings s, const ResourceOperations& operations) {
  const auto reject = [&](std::string_view setting, std::string_view problem) {
    base::throw_invalid(base::join({"bulkhead \"", s.name, "\": ", setting, " ", problem}));
  };
  const auto check_share = [&](std::string_view setting, double share) {
    if (!(share >= 0 && share <= 1))
      reject(setting, "is out of range: give a share from 0 to 1, such as 0.1");
  };
  const auto check_positive = [&](std::string_view setting, nanoseconds value) {
    if (value <= nanoseconds(0))
      reject(setting, base::join({"= ", decimal(value), " ms is not positive: give more than 0"}));
  };
  if (s.on) s.name = s.on->name();
  check_max(s.name, s.max);
  if (s.min_idle > s.max)
    reject("min_idle", base::join({"= ", std::to_string(s.min_idle),
                                   " is above max = ", std::to_string(s.max), ": give at most that"}));
  if (!operations.open) reject("open", "is missing: give the function that makes one");
  if (s.validate_after < nanoseconds(0)) reject("validate_after", "is negative: give 0 (always) or more");
  check_positive("keepalive", s.keepalive);
  if (s.keepalive != wait_forever && !operations.validate)
    reject("keepalive", "needs `validate`: give the function that says whether a resource is still good");
  check_positive("idle_timeout", s.idle_timeout);
  check_positive("max_lifetime", s.max_lifetime);
  check_positive("connect_timeout", s.connect_timeout);
  check_positive("backoff.initial", s.backoff.initial);
  if (s.backoff.max < s.backoff.initial)
    reject("backoff.max", base::join({"= ", decimal(s.backoff.max), " ms is below backoff.initial = ",
                                      decimal(s.backoff.initial), " ms: give at least that"}));
  check_share("backoff.jitter", s.backoff.jitter);
  check_share("lifetime_jitter", s.lifetime_jitter);
  return s;
}

void* RawLease::resource() const noexcept { return slot_ ? slot_->resource : nullptr; }
bool RawLease::vacant() const noexcept { return slot_ && !slot_->resource; }
bool RawLease::unchecked() const noexcept { return slot_ && slot_->suspect; }
void RawLease::mark_broken() noexcept {
  if (slot_) slot_->broken = true;
}
Opening RawLease::opening() const { return core_->opening(); }
void RawLease::fill(void* resource) noexcept { core_->filled(*slot_, resource); }
void RawLease::checked() noexcept { slot_->suspect = false; }
ResourceError RawLease::open_elsewhere(std::function<Result<void*, std::string>(const Opening&)> open,
                                       Reason reason) {
  return core_->fill_elsewhere(*std::exchange(slot_, nullptr), permit_, std::move(open), reason);
}
ResourceError RawLease::fail_to_open(std::string why) {
  return core_->not_filled(*std::exchange(slot_, nullptr), permit_, std::move(why));
}

RawPool::RawPool(ResourceSettings settings, ResourceOperations operations)
    : core_(std::make_unique<ResourceCore>(std::move(settings), std::move(operations))) {}
RawPool::~RawPool() = default;
std::optional<ResourceError> RawPool::try_acquire(const AcquireOptions& options, RawLease& lease) {
  return core_->try_acquire(options, lease);
}
std::optional<RawResult> RawPool::at_once(const AcquireOptions& options, bool claim,
                                          LeaseAdmission& admission) noexcept {
  return core_->at_once(options, claim, admission);
}
void RawPool::start(AcquireOptions options, bool claim, LeaseAdmission admission,
                    LeaseOperation& operation) noexcept {
  core_->start(std::move(options), claim, std::move(admission), operation);
}
ResourceError RawPool::out_of_memory() const noexcept { return core_->out_of_memory(); }
void RawPool::resize(std::uint32_t max) { core_->resize(max); }
void RawPool::close() noexcept { core_->close(); }
bool RawPool::drain(TimePoint until) { return core_->drain(until); }
TimePoint RawPool::maintain(TimePoint now) { return core_->maintain(now); }
ResourceSnapshot RawPool::snapshot() const { return core_->snapshot(); }
Gate& RawPool::gate() const noexcept { return core_->gate(); }

}  // namespace detail

std::string ResourceError::message() const {
  if (rejection) return rejection->message();
  return base::join({"bulkhead \"", name, "\" cannot open: ", failure, " (", std::to_string(failures),
                     failures == 1 ? " failure" : " failures in a row", "), next try ",
                     retry_after <= std::chrono::nanoseconds(0)
                         ? std::string("at once")
                         : base::join({"in ", detail::decimal(retry_after), " ms"})});
}

ResourceBudget::ResourceBudget(std::uint32_t total) : state_(std::make_unique<State>(total)) {
  if (total < 1) base::throw_invalid("resource budget: total = 0 is out of range: give 1 or more");
}
ResourceBudget::~ResourceBudget() = default;
std::uint32_t ResourceBudget::total() const noexcept { return state_->total; }
std::uint32_t ResourceBudget::alive() const noexcept { return state_->alive.load(); }
std::uint32_t ResourceBudget::most_alive() const noexcept { return state_->most.load(); }

}  // namespace bulkhead
