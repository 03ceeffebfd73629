#include "bulkhead/gate.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <thread>

#include "base/text.h"
#include "gate/backing.h"
#include "gate/completions.h"
#include "gate/flow_queues.h"
#include "gate/member_gate.h"
#include "gate/meter.h"
#include "gate/observers.h"
#include "gate/sequence.h"
#include "gate/slow_path.h"

namespace bulkhead {
namespace {

void check_range(std::string_view gate, std::string_view setting, std::uint64_t value, std::uint64_t least,
                 std::uint64_t most) {
  if (value >= least && value <= most) return;
  base::throw_invalid(
      base::join({"bulkhead \"", gate, "\": ", setting, " = ", std::to_string(value),
                  " is out of range: give ", std::to_string(least), " to ", std::to_string(most)}));
}

void check_limit(std::string_view gate, std::uint32_t limit) {
  check_range(gate, "max_concurrent", limit, 1, detail::word::kMaxLimit);
}

void check_queue(std::string_view gate, std::uint32_t max_queue) {
  check_range(gate, "max_queue", max_queue, 0, detail::line::kMaxQueue);
}

std::string shortest(double number) {
  char text[32];
  return {text, std::to_chars(text, text + sizeof text, number).ptr};
}

// Each message names the bulkhead, the setting, its value and what to give instead.
void check(const GateOptions& o) {
  check_limit(o.name, o.max_concurrent);
  check_queue(o.name, o.max_queue);
  const auto reject = [&](std::string_view setting, const std::string& value, std::string_view problem) {
    base::throw_invalid(base::join({"bulkhead \"", o.name, "\": ", setting, " = ", value, " ", problem}));
  };
  const auto check_share = [&](std::string_view setting, double share) {
    if (!(share >= 0 && share < 1))
      reject(setting, shortest(share),
             "is out of range: give a share from 0 to below 1, such as 0.2 for a fifth");
  };
  const auto check_time = [&](std::string_view setting, std::chrono::nanoseconds time, std::string_view fix) {
    if (time < std::chrono::nanoseconds(0))
      reject(setting, std::to_string(time.count()) + " ns", base::join({"is negative: give ", fix}));
  };
  check_share("critical_reserve", o.critical_reserve);
  check_share("critical_queue_reserve", o.critical_queue_reserve);
  check_range(o.name, "flow_queues", o.flow_queues, 0, detail::kMostFlowQueues);
  if (o.flow_queues > 0)
    check_range(o.name, "flow_hand", o.flow_hand, 1, std::min(o.flow_queues, detail::kMostFlowHand));
  check_time("max_wait", o.max_wait, "0 (do not wait) or more");
  check_time("max_barge", o.max_barge, "0 or more");
  if (o.fairness > Fairness::adaptive)
    reject("fairness", std::to_string(static_cast<unsigned>(o.fairness)),
           "is none: give fifo, barging or adaptive");
}

// A share of the limit in whole units: rounded up, but never the whole limit.
std::uint32_t units(double share, std::uint32_t limit) {
  const auto wanted = static_cast<std::uint32_t>(std::ceil(share * limit - 1e-9));
  return limit == 0 ? 0 : std::min(wanted, limit - 1);
}

std::uint32_t places(double share, std::uint32_t max_queue) {
  return max_queue == 0 ? 0 : units(share, max_queue);
}

bool any(const Hooks& h) { return h.on_admit || h.on_release || h.on_resize || h.on_close || h.on_reject; }

}  // namespace

Gate::Gate(GateOptions options) : Gate(std::move(options), nullptr) {}
Gate::Gate(GateOptions options, const detail::Membership* membership)
    : GateCore(std::move(options), membership) {}

detail::GateCore::~GateCore() = default;
detail::GateCore::GateCore(GateOptions o, const Membership* membership)
    : turnstile_(
          {.limit = (check(o), membership ? membership->allotted : o.max_concurrent),
           .reserve = units(o.critical_reserve, membership ? membership->guaranteed : o.max_concurrent),
           .max_queue = o.max_queue,
           .queue_reserve = places(o.critical_queue_reserve, o.max_queue),
           .fairness = o.fairness,
           .max_barge_ns = o.max_barge.count(),
           .observed = any(o.hooks) || o.track_holders || o.measure_service || o.measure_occupancy ||
                       (membership && membership->source),
           .ceiling = membership ? membership->ceiling : 0}),
      name_(o.name),
      clock_(o.clock ? *o.clock : Clock::steady()),
      deadlines_(o.deadlines ? *o.deadlines : clock_.deadlines()),
      max_wait_(o.max_wait),
      critical_reserve_(o.critical_reserve),
      critical_queue_reserve_(o.critical_queue_reserve),
      fairness_(o.fairness),
      measure_(o.measure_service),
      backing_(membership ? membership->backing : nullptr),
      source_(membership ? membership->source : nullptr) {
  if (o.flow_queues > 0) {
    flows_ = std::make_unique<FlowQueues<StdPlatform>>(o.flow_queues, o.flow_hand, o.flow_seed);
    turnstile_.be_fair_with(*flows_);
  }
  if (o.measure_occupancy) {
    meter_ = std::make_unique<Meter>();
    turnstile_.measure_with(*meter_);
    // A member may start without units.
    if (membership && membership->allotted <= units(critical_reserve_, membership->guaranteed))
      meter_->step(0, 1, glance_ns());
  }
  if (!any(o.hooks) && !o.track_holders) return;
  observers_ = std::make_unique<Observers>();
  observers_->hooks = std::move(o.hooks);
  if (o.track_holders) observers_->holders.emplace();
}

Gate::~Gate() {
  close();
  drain();
  // Calls that were just rejected may still access the gate, and a release may still run its hook. Frames of this thread,
  // whose handler destroys the gate, are not waited for.
  const std::uint32_t mine = detail::Frame::forget(*this);
  while (pins_.load(std::memory_order_acquire) != mine) std::this_thread::yield();
}

// Hooks run before the waiters that were admitted are published: a published one may destroy the gate.
void Gate::resize(std::uint32_t max_concurrent) {
  if (backing_) {
    check_limit(name_, max_concurrent);
    if (backing_->resize(max_concurrent)) {
      if (observers_ && observers_->hooks.on_resize)
        call_hook([&] { observers_->hooks.on_resize(event(Priority::normal)); });
      return;
    }
    base::throw_invalid(base::join(
        {"bulkhead \"", name_,
         "\": it is a member of a group, which moves its limit: ", "use Group::update or Group::resize"}));
  }
  check_limit(name_, max_concurrent);
  Wakes wakes;
  turnstile_.resize(max_concurrent, units(critical_reserve_, max_concurrent), slow_now(), wakes);
  announce_all(wakes);
  if (observers_ && observers_->hooks.on_resize)
    call_hook([&] { observers_->hooks.on_resize(event(Priority::normal)); });
  publish_all(wakes);
}

void Gate::resize_queue(std::uint32_t max_queue) {
  check_queue(name_, max_queue);
  turnstile_.resize_queue(max_queue, places(critical_queue_reserve_, max_queue));
  if (observers_ && observers_->hooks.on_resize)
    call_hook([&] { observers_->hooks.on_resize(event(Priority::normal)); });
}

void Gate::close() noexcept {
  Wakes wakes;
  if (!turnstile_.close(wakes)) return;
  announce_all(wakes);
  if (observers_ && observers_->hooks.on_close)
    call_hook([&] { observers_->hooks.on_close(event(Priority::normal)); });
  if (backing_) backing_->settle();
  publish_all(wakes);
}

bool Gate::drain(TimePoint until) {
  detail::Completions::flush();
  const auto expired = [&] { return until != no_deadline && clock_.now() >= until; };
  const auto park = [&](const std::atomic<std::uint32_t>& signal, bool late) {
    clock_.wait(signal, Waiter::kSleeping, late ? clock_.now() + std::chrono::milliseconds(1) : until);
  };
  return detail::wait_idle<detail::StdPlatform, detail::GateCore>(turnstile_, *this, expired, park);
}

std::uint32_t detail::MemberGate::reserve(std::uint32_t guaranteed) const noexcept {
  return units(critical_reserve_, guaranteed);
}

void detail::MemberGate::reshape(std::uint32_t guaranteed, std::uint32_t ceiling) noexcept {
  turnstile_.set_ceiling(ceiling);
  turnstile_.set_reserve(reserve(guaranteed), slow_now());
}

void detail::MemberGate::unpin_and_tell(Wakes& wakes) noexcept {
  turnstile_.go_on(slow_now(), wakes);
  announce_all(wakes);
  unpin();
  publish_all(wakes);
}

std::uint32_t detail::GateCore::limit() const noexcept {
  const std::uint32_t allotted = turnstile_.limit();
  return backing_ ? backing_->limit(allotted) : allotted;
}

Snapshot Gate::snapshot() const noexcept {
  Turnstile::Numbers n = turnstile_.read();
  // A thread was preempted between two numbers that belong together. Let it run, for a bounded time.
  for (int tries = 0; n.torn && tries < 1000; ++tries) {
    if (tries < 100)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    n = turnstile_.read();
  }
  Snapshot s;
  s.in_flight = backing_ ? backing_->in_flight(n.in_flight) : n.in_flight;
  s.max_concurrent = backing_ ? backing_->limit(n.limit) : n.limit;
  s.max_queue = n.max_queue;
  for (std::size_t tier = 0; tier < kPriorities; ++tier)
    s.waiting_by_priority[tier] = detail::line::count(n.line, tier);
  s.waiting = detail::line::total(n.line);
  s.closed = n.closed;
  s.permits = n.permits;
  s.released = n.released;
  s.admitted = n.released + n.permits;
  s.failed = n.failed;
  s.succeeded = n.released - n.failed;
  s.underflows = n.underflow ? 1 : 0;
  s.double_releases = double_releases_.load(std::memory_order_relaxed);
  s.hook_errors = hook_errors_.load(std::memory_order_relaxed);
  for (const Stripe& stripe : rejections_)
    for (std::size_t reason = 0; reason < kReasons; ++reason)
      s.rejected_by_reason[reason] += stripe.by_reason[reason].load(std::memory_order_relaxed);
  s.mean_hold = std::chrono::nanoseconds(mean_hold_.load(std::memory_order_relaxed));
  if (observers_ && observers_->holders) s.oldest_hold = observers_->holders->oldest(clock_.now());
  if (meter_) {
    const detail::Meter::Reading sums = meter_->read(glance_ns());
    s.occupancy = std::chrono::nanoseconds(sums.occupancy);
    if (!backing_ || backing_->full_means_saturated()) s.saturated = std::chrono::nanoseconds(sums.saturated);
  }
  return s;
}

std::vector<Holder> Gate::holders() const {
  if (!observers_ || !observers_->holders) return {};
  return observers_->holders->list(clock_.now());
}

}  // namespace bulkhead
