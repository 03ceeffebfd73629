#include "bulkhead/acquire_all.h"

#include <algorithm>

#include "gate/completions.h"

namespace bulkhead {

void AllPermits::release(Outcome outcome) noexcept {
  const detail::Completions::Together all;
  for (Permit& permit : permits_)
    if (permit) permit.release(outcome);
}

}  // namespace bulkhead

namespace bulkhead::detail {

AcquireAll::AcquireAll(const GateCosts& costs, const AcquireAllOptions& options) noexcept
    : options_(options) {
  for (const GateCost& cost : costs.costs_)
    if (cost.gate) gates_[count_++] = {*cost.gate, std::max(cost.cost, 1u)};
  count_ = put_in_order(gates_.data(), count_);
  label_length_ = static_cast<std::uint8_t>(options.label.copy(label_, sizeof label_));
  auto& timeout = options_.timeout;
  if (timeout == gate_default) {
    timeout = wait_forever;
    for (std::size_t i = 0; i < count_; ++i) timeout = std::min(timeout, gates_[i].gate->max_wait_);
  }
  if (count_ > 0 && timeout > std::chrono::nanoseconds(0) && timeout != wait_forever)
    until_ = saturating_add(gates_[0].gate->clock().now(), timeout);
}

AcquireOptions AcquireAll::options() const noexcept {
  const auto left = next_ > 0 && until_ != no_deadline ? until_ - gate().clock().now() : options_.timeout;
  return {.priority = options_.priority,
          .cost = gates_[next_].cost,
          .timeout = std::max(left, std::chrono::nanoseconds(0)),
          .deadline = options_.deadline,
          .stop = options_.stop,
          .flow = options_.flow,
          .label = {label_, label_length_},
          .where = options_.where};
}

Result<AllPermits> acquire_all(AcquireAll request, bool may_wait) noexcept {
  while (!request.over()) {
    const AcquireOptions options = request.options();
    Rejection why;
    if (!request.accept(may_wait ? request.gate().acquire(options) : request.gate().try_acquire(options),
                        why))
      return Result<AllPermits>(unexpect, why);
  }
  return Result<AllPermits>(request.permits());
}

}  // namespace bulkhead::detail
