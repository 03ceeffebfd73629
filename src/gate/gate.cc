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
  check_range(gate, "max_concurrent", limit, 1, detail::word::max_limit);
}

void check_queue(std::string_view gate, std::uint32_t max_queue) {
  check_range(gate, "max_queue", max_queue, 0, detail::line::max_queue);
}

std::string shortest(double number) {
  char text[32];
  return {text, std::to_chars(text, text + sizeof text, number).ptr};
}

void check(const GateOptions& o) {
  check_limit(o.name, o.max_concurrent);
  check_queue(o.name, o.max_queue);
  const auto refuse = [&](std::string_view setting, const std::string& value, std::string_view problem) {
    base::throw_invalid(base::join({"bulkhead \"", o.name, "\": ", setting, " = ", value, " ", problem}));
  };
  const auto check_share = [&](std::string_view setting, double share) {
    if (!(share >= 0 && share < 1))
      refuse(setting, shortest(share),
             "is out of range: give a share from 0 to below 1, such as 0.2 for a fifth");
  };
  const auto check_time = [&](std::string_view setting, std::chrono::nanoseconds time, std::string_view fix) {
    if (time < std::chrono::nanoseconds(0))
      refuse(setting, std::to_string(time.count()) + " ns", base::join({"is negative: give ", fix}));
  };
  check_share("critical_reserve", o.critical_reserve);
  check_share("critical_queue_reserve", o.critical_queue_reserve);
  check_range(o.name, "flow_queues", o.flow_queues, 0, detail::kMostFlowQueues);
  if (o.flow_queues > 0)
    check_range(o.name, "flow_hand", o.flow_hand, 1, std::min(o.flow_queues, detail::kMostFlowHand));
  check_time("max_wait", o.max_wait, "0 (do not wait) or more");
  check_time("max_barge", o.max_barge, "0 or more");
  if (o.fairness > Fairness::adaptive)
    refuse("fairness", std::to_string(static_cast<unsigned>(o.fairness)),
           "is none: give fifo, barging or adaptive");
}

// A share of the limit in whole units: at least the share, but never all of it.
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

Gate::Gate(GateOptions o, const detail::Membership* membership)
    : turnstile_(
          {.limit = (check(o), membership ? membership->allotted : o.max_concurrent),
           .reserve = units(o.critical_reserve, membership ? membership->guaranteed : o.max_concurrent),
           .max_queue = o.max_queue,
           .queue_reserve = places(o.critical_queue_reserve, o.max_queue),
           .fairness = o.fairness,
           .max_barge_ns = o.max_barge.count(),
           .observed = any(o.hooks) || o.track_holders || o.measure_service || o.measure_occupancy,
           .ceiling = membership ? membership->ceiling : 0}),
      name_(std::move(o.name)),
      clock_(o.clock ? *o.clock : Clock::steady()),
      deadlines_(o.deadlines ? *o.deadlines : clock_.deadlines()),
      max_wait_(o.max_wait),
      critical_reserve_(o.critical_reserve),
      critical_queue_reserve_(o.critical_queue_reserve),
      fairness_(o.fairness),
      measure_(o.measure_service),
      backing_(membership ? membership->backing : nullptr) {
  if (o.flow_queues > 0) {
    flows_ =
        std::make_unique<detail::FlowQueues<detail::StdPlatform>>(o.flow_queues, o.flow_hand, o.flow_seed);
    turnstile_.be_fair_with(*flows_);
  }
  if (o.measure_occupancy) {
    meter_ = std::make_unique<detail::Meter>();
    turnstile_.measure_with(*meter_);
    // A member may begin with nothing.
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
  // Waiters just rejected are still on their way out, and a release may still be in its hook. A handler of
  // this very thread that destroys its gate is not waited for.
  const std::uint32_t mine = detail::Frame::forget(*this);
  while (pins_.load(std::memory_order_acquire) != mine) std::this_thread::yield();
}

void Gate::resize(std::uint32_t max_concurrent) {
  if (backing_)
    base::throw_invalid(base::join(
        {"bulkhead \"", name_,
         "\": it is a member of a group, which moves its limit: ", "use Group::update or Group::resize"}));
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
  Turnstile::Drain drain;
  Wakes wakes;
  const bool waits = turnstile_.join_drain(drain, slow_now(), wakes);
  tell(wakes);
  if (!waits) return true;
  while (drain.signal.load(std::memory_order_acquire) != Waiter::done) {
    if (until != no_deadline && clock_.now() >= until) {
      Wakes others;
      const bool left = turnstile_.leave_drain(drain, slow_now(), others);
      tell(others);
      if (left) return false;
      // It is over and the word is on its way, unless a release hook undoes it: then it can leave
      // a little later.
      clock_.wait(drain.signal, Waiter::sleeping, clock_.now() + std::chrono::milliseconds(1));
      continue;
    }
    clock_.wait(drain.signal, Waiter::sleeping, until);
  }
  return true;
}

std::uint32_t detail::MemberGate::reserve(std::uint32_t guaranteed) const noexcept {
  return units(critical_reserve_, guaranteed);
}

void detail::MemberGate::reshape(std::uint32_t guaranteed, std::uint32_t ceiling, Wakes& wakes) noexcept {
  turnstile_.set_ceiling(ceiling);
  // Refuses those in line who cost more than that. The limit is moved by the group alone, which is the caller.
  turnstile_.resize(turnstile_.limit(), reserve(guaranteed), slow_now(), wakes);
}

void detail::MemberGate::unpin_and_tell(Wakes& wakes) noexcept {
  announce_all(wakes);
  unpin();
  publish_all(wakes);
}

Snapshot Gate::snapshot() const noexcept {
  Turnstile::Numbers n = turnstile_.read();
  // A thread lost its core between two numbers that belong together. Let it run, but not for ever.
  for (int tries = 0; n.torn && tries < 1000; ++tries) {
    if (tries < 100)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    n = turnstile_.read();
  }
  Snapshot s;
  s.in_flight = n.in_flight;
  s.max_concurrent = n.limit;
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
    s.saturated = std::chrono::nanoseconds(sums.saturated);
  }
  return s;
}

std::vector<Holder> Gate::holders() const {
  if (!observers_ || !observers_->holders) return {};
  return observers_->holders->list(clock_.now());
}

}  // namespace bulkhead
