// Injected faults: what they do to a call that has its place.
#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "bulkhead/bulkhead.h"
#include "bulkhead/bulkhead_core.h"

namespace bulkhead::detail {
namespace {

constexpr double kMillion = 1e6;

TimePoint time_of(std::int64_t ns) { return TimePoint(std::chrono::nanoseconds(ns)); }

}  // namespace

void BulkheadCore::inject(const Fault& fault) {
  const auto invalid = [&](std::string_view setting, std::string_view problem) {
    base::throw_invalid(base::join({"bulkhead \"", gate_->name(), "\": fault.", setting, " ", problem}));
  };
  if (fault.latency < std::chrono::nanoseconds(0) || fault.latency > kMostFaultLatency)
    invalid("latency", "is not from 0 to 1 minute");
  if (!(fault.error >= 0 && fault.error <= 1)) invalid("error", "is not a share from 0 to 1");
  if (fault.latency == std::chrono::nanoseconds(0) && fault.error == 0)
    invalid("latency", "and error are 0: give one of them, or call end_fault()");
  MutexLock lock(settings);
  faults.latency.store(fault.latency.count(), std::memory_order_relaxed);
  faults.error.store(static_cast<std::uint32_t>(std::lround(fault.error * kMillion)),
                     std::memory_order_relaxed);
  faults.until.store(fault.until.time_since_epoch().count(), std::memory_order_relaxed);
  // Relaxed, as every reader's: a call may see a part of an earlier fault.
  mode_.fetch_or(kFaulty, std::memory_order_relaxed);
}

void BulkheadCore::end_fault() {
  MutexLock lock(settings);
  mode_.fetch_and(static_cast<std::uint8_t>(~kFaulty), std::memory_order_relaxed);
}

// Not while another thread changes settings: a fault that it injects must stay. The next call tries again.
void BulkheadCore::end_fault_if_over(TimePoint now) noexcept {
  if (!settings.try_lock()) return;
  if (now >= time_of(faults.until.load(std::memory_order_relaxed)))
    mode_.fetch_and(static_cast<std::uint8_t>(~kFaulty), std::memory_order_relaxed);
  settings.unlock();
}

std::optional<Fault> BulkheadCore::fault() const {
  const Fault now{std::chrono::nanoseconds(faults.latency.load(std::memory_order_relaxed)),
                  faults.error.load(std::memory_order_relaxed) / kMillion,
                  time_of(faults.until.load(std::memory_order_relaxed))};
  const bool on = mode_.load(std::memory_order_relaxed) & kFaulty;
  return on && clock_.now() < now.until ? std::optional(now) : std::nullopt;
}

Injected CallPath::injected(TimePoint limit) noexcept {
  BulkheadCore::Faults& fault = core().faults;
  const TimePoint now = clock_.now(), until = time_of(fault.until.load(std::memory_order_relaxed));
  if (now >= until) {
    core().end_fault_if_over(now);  // calls pay nothing for it from now on
    return {now, false};
  }
  const auto latency = std::chrono::nanoseconds(fault.latency.load(std::memory_order_relaxed));
  // The error of call n is where n times the share passes a whole number.
  const std::uint64_t share = fault.error.load(std::memory_order_relaxed);
  const std::uint64_t n = fault.calls.fetch_add(1, std::memory_order_relaxed) % 1'000'000;
  return {std::min({now + latency, until, limit}), (n + 1) * share / 1'000'000 != n * share / 1'000'000};
}

Injected CallPath::injected(Call& call, TimePoint limit) noexcept {
  call.flags_ &= static_cast<std::uint8_t>(~Call::kFaulty);
  return injected(limit);
}

Injected CallPath::injected(Call& call, const CallBody& body) noexcept {
  if (call.began_ == TimePoint{}) call.began_ = clock_.now();  // its time limit counts from here
  const TimePoint limit = saturating_add(call.began_, time_limit(body.execution_timeout));
  return injected(call, std::min(limit, body.asked.deadline));
}

void CallPath::sleep(TimePoint until) noexcept {
  const std::atomic<std::uint32_t> word{0};
  while (clock_.now() < until) clock_.wait(word, 0, until);
}

void CallPath::run_faulty(Call& call, CallBody& body) noexcept {
  const Injected fault = injected(call, body);
  sleep(fault.until);
  run_after(fault, call, body);
}

void CallPath::run_after(const Injected& fault, Call& call, CallBody& body) noexcept {
  CallBody::Attempt attempt(*this, call, body);
  if (end_after(fault, attempt, body)) return;
  body.run(attempt);
  end(attempt, body);
}

bool CallPath::end_after(const Injected& fault, CallBody::Attempt& attempt, CallBody& body) noexcept {
  if (fault.error) {
    const TimePoint now = clock_.now();
    fail(attempt.call, body, {.now = now, .took = now - attempt.call.began_});
    return true;
  }
  if (attempt.until == no_deadline || clock_.now() < attempt.until) return false;
  end(attempt, body);  // its time is over
  return true;
}

void CallPath::fail(Call& call, CallBody& body, const Ending& ending) noexcept {
  const Pin pin(*this);
  leave(call, Outcome::failure, ending);
  const Rejection why = injected_rejection();
  body.reject(why);
  fall_back(body, {.kind = Cause::Kind::failed, .rejection = why});
}

Rejection CallPath::fail(Call& call) noexcept {
  const Pin pin(*this);
  call.finish(Outcome::failure);
  return injected_rejection();
}

Rejection CallPath::injected_rejection() noexcept {
  const Snapshot s = gate_->snapshot();
  return {Reason::injected_fault, gate_->name(), s.in_flight, s.max_concurrent, s.waiting, s.max_queue};
}

// ---- a coroutine that waits ----

// Shared with the driver of the clock: the coroutine may be destroyed while it waits, also when the clock is about to
// resume it.
struct Delay::Wake final : Alarm, std::enable_shared_from_this<Wake> {
  std::coroutine_handle<> waiter;
  std::shared_ptr<Wake> firing;
  std::atomic<bool> taken{false};

  bool expire() noexcept override {
    firing = shared_from_this();
    return true;
  }
  void expired() noexcept override {
    const auto self = std::move(firing);
    if (!taken.exchange(true)) waiter.resume();
  }
};

Delay::Delay(Clock& clock, TimePoint until) : clock_(clock), wake_(std::make_shared<Wake>()) {
  wake_->at = until;
}

Delay::~Delay() {
  if (!wake_->taken.exchange(true)) clock_.deadlines().disarm(*wake_);
}

bool Delay::await_ready() const noexcept { return clock_.now() >= wake_->at; }

void Delay::await_suspend(std::coroutine_handle<> waiter) noexcept {
  wake_->waiter = waiter;
  clock_.deadlines().arm(*wake_);  // it may resume at once: nothing of this is used afterwards
}

}  // namespace bulkhead::detail
