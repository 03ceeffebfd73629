#include "time_limit.h"

#include <utility>

namespace bulkhead::grpc {

// Shared with the driver of the clock, which may still be firing it when the RPC is over; so it keeps the call alive.
struct TimeLimit::Timer final : Alarm, std::enable_shared_from_this<Timer> {
  Timer(grpc_call* c, ::grpc::Status s) : call(c), status(std::move(s)) { ::grpc_call_ref(call); }
  ~Timer() { ::grpc_call_unref(call); }
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

  bool expire() noexcept override {
    firing = shared_from_this();
    return true;
  }
  void expired() noexcept override {
    const auto self = std::move(firing);
    passed.store(true, std::memory_order_relaxed);
    ::grpc_call_cancel_with_status(call, static_cast<grpc_status_code>(status.error_code()),
                                   status.error_message().c_str(), nullptr);
  }

  grpc_call* const call;
  const ::grpc::Status status;
  std::atomic<bool> passed{false};
  std::shared_ptr<Timer> firing;
};

TimeLimit::TimeLimit() noexcept = default;
TimeLimit::~TimeLimit() { stop(); }

void TimeLimit::start(grpc_call* call, std::chrono::nanoseconds limit, ::grpc::Status with) {
  timer_ = std::make_shared<Timer>(call, std::move(with));
  timer_->at = saturating_add(Clock::steady().now(), limit);
  Clock::steady().deadlines().arm(*timer_);
}

void TimeLimit::stop() noexcept {
  if (timer_) Clock::steady().deadlines().disarm(*timer_);
}

bool TimeLimit::passed() const noexcept { return timer_ && timer_->passed.load(std::memory_order_relaxed); }

}  // namespace bulkhead::grpc
