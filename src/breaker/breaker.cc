#include "bulkhead/breaker.h"

#include "base/text.h"
#include "breaker/breaker_core.h"

namespace bulkhead {
namespace {

// Each message names the setting and what to give instead.
BreakerOptions checked(BreakerOptions o) {
  const auto reject = [&](std::string_view setting, std::string_view problem) {
    base::throw_invalid(base::join({"bulkhead \"", o.name, "\": breaker ", setting, " ", problem}));
  };
  const auto range = [&](std::string_view setting, std::uint64_t value, std::uint64_t most) {
    if (value < 1 || value > most)
      reject(setting,
             base::join({"= ", std::to_string(value), " is out of range: give 1 to ", std::to_string(most)}));
  };
  const auto positive = [&](std::string_view setting, std::chrono::nanoseconds value) {
    if (value <= std::chrono::nanoseconds(0))
      reject(setting,
             base::join({"= ", std::to_string(value.count()), " ns is not positive: give more than 0"}));
  };
  const auto share = [&](std::string_view setting, double value) {
    if (!(value > 0 && value <= 1))
      reject(setting, base::join({"= ", std::to_string(value),
                                  " is out of range: give a share above 0, up to 1, such as 0.5 for half"}));
  };
  range("window_calls", o.window_calls, breaker::CallWindow::kMost);
  range("minimum_calls", o.minimum_calls, UINT32_MAX);
  range("half_open_calls", o.half_open_calls, 1000);
  if (o.window_time < std::chrono::milliseconds(10))
    reject("window_time",
           base::join({"= ", std::to_string(o.window_time.count()), " ns is too short: give 10 ms or more"}));
  positive("slow_call", o.slow_call);
  positive("open_for", o.open_for);
  positive("max_open", o.max_open);
  positive("probe_lease", o.probe_lease);
  share("failure_rate", o.failure_rate);
  share("slow_call_rate", o.slow_call_rate);
  if (o.half_open_failure_rate != 0) share("half_open_failure_rate", o.half_open_failure_rate);
  if (!(o.backoff >= 1 && o.backoff <= 1000))
    reject("backoff",
           base::join({"= ", std::to_string(o.backoff), " is out of range: give 1 (none) to 1000"}));
  if (!(o.jitter >= 0 && o.jitter <= 1))
    reject("jitter",
           base::join({"= ", std::to_string(o.jitter), " is out of range: give a share from 0 to 1"}));
  return o;
}

// A different seed for every breaker, so that breakers that opened together do not probe together.
BreakerOptions seeded(BreakerOptions o) {
  static constinit std::atomic<std::uint64_t> made{0};
  if (o.seed == 0) o.seed = made.fetch_add(1, std::memory_order_relaxed) + 1;
  return o;
}

}  // namespace

Breaker::Breaker(BreakerOptions options)
    : clock_(options.clock ? *options.clock : Clock::steady()),
      core_(std::make_unique<BreakerCore>(seeded(checked(std::move(options))), *this)) {}
Breaker::~Breaker() = default;

Breaker::Admission Breaker::ask(TimePoint now) noexcept { return core_->ask(now); }

void Breaker::complete(BreakerPass pass, Outcome outcome, std::chrono::nanoseconds took) noexcept {
  core_->complete(pass, outcome, took, [this] { return clock_.now(); });
}
void Breaker::complete(BreakerPass pass, Outcome outcome, std::chrono::nanoseconds took,
                       TimePoint now) noexcept {
  core_->complete(pass, outcome, took, [now] { return now; });
}

void Breaker::update(const BreakerOptions& options) {
  BreakerOptions next = options;
  next.name = name();
  core_->update(checked(std::move(next)));
}
void Breaker::set_mode(BreakerMode mode) noexcept { core_->set_mode(mode); }
void Breaker::reset() noexcept { core_->reset(); }
void Breaker::force_open(std::chrono::nanoseconds how_long) noexcept { core_->force_open(how_long); }
void Breaker::force_half_open() noexcept { core_->force_half_open(); }
BreakerSnapshot Breaker::snapshot() const noexcept { return core_->snapshot(); }
std::string_view Breaker::name() const noexcept { return core_->name(); }

Rejection Breaker::rejection(const BreakerRejection& why) const noexcept {
  return {.reason = Reason::breaker_open, .name = core_->name(), .retry_after = why.retry_after};
}

}  // namespace bulkhead
