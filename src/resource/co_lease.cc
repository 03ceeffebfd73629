#include <new>
#include <utility>

#include "bulkhead/resource_pool.h"

namespace bulkhead::detail {

class CoLease::Operation final : public LeaseOperation {
 public:
  Operation(CoLease& lease, std::coroutine_handle<> coroutine) : lease_(lease), coroutine_(coroutine) {}

 private:
  // The coroutine is resumed here only if it is suspended; else await_suspend() finds the answer.
  void deliver(RawResult answer) noexcept override {
    lease_.result = std::move(answer);
    if (lease_.stage_.exchange(Stage::answered, std::memory_order_acq_rel) == Stage::suspended)
      coroutine_.resume();
  }
  void drop() noexcept override {}

  CoLease& lease_;
  const std::coroutine_handle<> coroutine_;
};

CoLease::~CoLease() {
  if (!operation_) return;
  operation_->abandon();
  operation_->let_go();
}

bool CoLease::await_suspend(std::coroutine_handle<> coroutine) noexcept {
  LeaseAdmission admission;
  if (auto answer = pool_.at_once(options_.options, false, admission)) {
    result = *std::move(answer);
    return false;
  }
  operation_ = new (std::nothrow) Operation(*this, coroutine);
  if (!operation_) {
    result = RawResult(unexpect, pool_.out_of_memory());
    return false;
  }
  pool_.start(std::move(options_.options), false, std::move(admission), *operation_);
  return stage_.exchange(Stage::suspended, std::memory_order_acq_rel) != Stage::answered;
}

}  // namespace bulkhead::detail
