#include "resource/pool_core.h"

#include <algorithm>
#include <thread>

#include "resource/budget.h"
#include "resource/checked.h"
#include "resource/util.h"

namespace bulkhead::detail {
namespace {

using std::chrono::nanoseconds;

// Idle resources are looked at often enough that none stays much too long, and seldom enough not to matter.
nanoseconds rhythm(const ResourceSettings& s) {
  const nanoseconds shortest = std::min({s.idle_timeout, s.max_lifetime, s.keepalive});
  if (shortest == wait_forever) return wait_forever;
  return std::clamp<nanoseconds>(shortest / 4, std::chrono::milliseconds(1), std::chrono::seconds(30));
}

GateOptions gate_options(const ResourceSettings& s) {
  GateOptions o = s.gate;
  o.name = s.name;
  o.max_concurrent = s.max;
  o.clock = s.clock;
  return o;
}

}  // namespace

ResourceCore::ResourceCore(ResourceSettings settings, ResourceOperations operations)
    : settings_(checked(std::move(settings), operations)),
      operations_(std::move(operations)),
      clock_(settings_.clock ? *settings_.clock : Clock::steady()),
      clocked_(settings_.maintenance == Maintenance::by_hand || settings_.gate.max_wait != wait_forever ||
               operations_.validate || settings_.histograms),
      stamps_returns_(operations_.validate || settings_.histograms),
      rhythm_(rhythm(settings_)),
      budget_(settings_.budget),
      limit_(settings_.max),
      random_(settings_.seed),
      own_gate_(settings_.on ? nullptr : std::make_unique<Gate>(gate_options(settings_))),
      gate_(settings_.on ? *settings_.on : *own_gate_) {
  if (own_gate_) idle_.live_in(own_gate_->turnstile_.companion_word());
  at = no_deadline;
  if (settings_.histograms) times_ = std::make_unique<Times>();
  if (budget_) budget_->state_->add(*this);
  if (settings_.min_idle > 0) kick();
}

ResourceCore::~ResourceCore() {
  close();
  run_jobs_by_hand();
  Deliveries::flush();
  gate_.drain();
  if (budget_) budget_->state_->remove(*this);
  {
    const Lock lock(mutex_);
    stopped_ = true;
    clock_.deadlines().disarm(*this);
  }
  // Acquire: what they did to this pool comes before its end.
  while (firing_.load(std::memory_order_acquire) != 0 || visitors_.load(std::memory_order_acquire) != 0)
    std::this_thread::yield();
  if (helpers_) helpers_->shutdown();
  while (do_job(true)) {  // what came too late for the helpers
  }
  while (close_an_idle_one()) {
  }
  if (unmet_.load(std::memory_order_relaxed) != 0) budget_->state_->hungry.fetch_sub(1);
  if (lacks_unit_.load(std::memory_order_relaxed)) budget_->state_->lacking.fetch_sub(1);
}

void ResourceCore::resize(std::uint32_t max) {
  check_max(settings_.name, max);
  if (settings_.on) {
    gate_.resize(max);  // says why not
    return;
  }
  Pool* helpers = nullptr;
  Aftermath after;
  {
    Lock lock(mutex_);
    if (!closed_) limit_ = max;
    careful_.store(true);
    doom_surplus(after);
    if (helpers_) helpers = &*helpers_;
  }
  if (helpers) helpers->resize(helper_threads(max));
  gate_.resize(max);
  serve_now(after);
  finish(after);
  kick();
}

void ResourceCore::close() noexcept {
  gate_.close();
  closing_.request_stop();
  Aftermath after;
  {
    Lock lock(mutex_);
    closed_ = true;
    careful_.store(true);
    doom_surplus(after);
    serve(after);
  }
  finish(after);
  kick();
}

bool ResourceCore::drain(TimePoint until) {
  run_jobs_by_hand();
  Deliveries::flush();
  return gate_.drain(until);
}

ResourceError ResourceCore::error_of(const Rejection& rejection) {
  return {.rejection = rejection, .name = rejection.name};
}

// For a call that had a place but gets no resource.
ResourceError ResourceCore::gave_up(Priority priority, Reason reason) {
  return error_of(gate_.reject(priority, reason));
}

ResourceError ResourceCore::out_of_memory() const noexcept {
  return {.name = gate_.name_, .failure = "out of memory", .failures = 1};  // short enough to need none
}

ResourceError ResourceCore::failing(TimePoint now) noexcept {
  count_.failing_calls.fetch_add(1, std::memory_order_relaxed);
  const Lock lock(mutex_);
  return {.name = gate_.name_,
          .failure = text_of(last_failure_.c_str()),
          .failures = std::max(failures_, 1u),
          .retry_after = std::max(retry_at_ - now, nanoseconds(0))};
}

ResourceSnapshot ResourceCore::snapshot() const {
  ResourceSnapshot s;
  s.gate = gate_.snapshot();
  s.min_idle = settings_.min_idle;
  s.opened = count_.opened.load(std::memory_order_relaxed);
  s.closed = count_.closed.load(std::memory_order_relaxed);
  s.broken = count_.broken.load(std::memory_order_relaxed);
  s.expired = count_.expired.load(std::memory_order_relaxed);
  s.idled_out = count_.idled_out.load(std::memory_order_relaxed);
  s.invalid = count_.invalid.load(std::memory_order_relaxed);
  s.surplus = count_.surplus.load(std::memory_order_relaxed);
  s.failing_calls = count_.failing_calls.load(std::memory_order_relaxed);
  s.histograms = settings_.histograms;
  s.timeouts = count_.timeouts.load(std::memory_order_relaxed);
  if (times_) {
    s.wait = times_->wait.counts();
    s.use = times_->use.counts();
    s.open = times_->open.counts();
  }
  const TimePoint now = clock_.now();
  const Lock lock(mutex_);
  s.max = limit_;
  s.alive = alive_;
  s.most_alive = most_alive_;
  s.open_failures = failures_ever_;
  s.failures = failures_;
  if (failures_ > 0) {
    s.last_failure = last_failure_;
    s.retry_after = std::max(retry_at_ - now, nanoseconds(0));
  }
  std::int64_t oldest = ns_of(now);
  for (std::uint32_t i = 0; i < idle_.size(); ++i) {
    const ResourceSlot& slot = idle_.at(i);
    // Relaxed: a slot is vacated and claimed under the lock, so each that is alive is counted once.
    switch (slot.state.load(std::memory_order_relaxed)) {
      case SlotState::vacant:
        break;
      case SlotState::opening:
        ++s.opening;
        break;
      case SlotState::idle:
      case SlotState::validating:
        ++s.idle;
        break;
      case SlotState::lent:
        ++s.used;
        break;
      case SlotState::cleaning:
        ++s.cleaning;
        break;
      case SlotState::closing:
        ++s.closing;
        break;
    }
    if (const std::int64_t since = slot.lent_at.load(std::memory_order_relaxed); since != 0)
      oldest = std::min(oldest, since);
  }
  s.oldest_lease = clocked_ ? nanoseconds(ns_of(now) - oldest) : s.gate.oldest_hold.value_or(nanoseconds(0));
  return s;
}

// 0 to below 1; under the lock.
double ResourceCore::random() noexcept {
  random_ += 0x9e3779b97f4a7c15;
  std::uint64_t z = random_;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return static_cast<double>((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

}  // namespace bulkhead::detail
