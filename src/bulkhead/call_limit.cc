#include "bulkhead/bulkhead.h"

namespace bulkhead::detail {

// Shared with the driver of the clock, which may still be firing it when the call is over: the stop_callbacks
// of the call run in there, and one of them may even be what ends the call.
struct CallLimit::Timer final : Alarm, std::enable_shared_from_this<Timer> {
  std::stop_source source;
  std::shared_ptr<Timer> firing;

  bool expire() noexcept override {
    firing = shared_from_this();
    return true;
  }
  void expired() noexcept override {
    const auto self = std::move(firing);
    self->source.request_stop();
  }
};

CallLimit::~CallLimit() {
  if (timer_ && timer_->at != no_deadline) clock_->deadlines().disarm(*timer_);
}

std::stop_token CallLimit::watch(Clock& clock, TimePoint until, const std::stop_token& caller,
                                 const std::stop_token& lender) {
  if (until == no_deadline && !lender.stop_possible()) return caller;
  clock_ = &clock;
  timer_ = std::make_shared<Timer>();
  if (caller.stop_possible()) caller_.emplace(caller, Relay{timer_->source});
  if (lender.stop_possible()) lender_.emplace(lender, Relay{timer_->source});
  timer_->at = until;
  if (until != no_deadline) clock.deadlines().arm(*timer_);
  return timer_->source.get_token();
}

}  // namespace bulkhead::detail
