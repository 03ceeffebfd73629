#include "status.h"

#include <algorithm>

namespace bulkhead::grpc {

::grpc::StatusCode code_of(Reason reason, const StatusFor& status_for, bool late) noexcept {
  switch (reason) {
    case Reason::concurrency_limit:
      return status_for.concurrency_limit;
    case Reason::queue_limit:
      return status_for.queue_limit;
    case Reason::timeout:
      return late ? status_for.deadline : status_for.timeout;
    case Reason::cancelled:
      return status_for.cancelled;
    case Reason::evicted:
      return status_for.evicted;
    case Reason::deadline:
      return late ? status_for.deadline : status_for.deadline_unreachable;
    case Reason::breaker_open:
      return status_for.breaker_open;
    case Reason::rate_limit:
      return status_for.rate_limit;
    case Reason::tenant_limit:
      return status_for.tenant_limit;
    case Reason::budget_limit:
      return late ? status_for.deadline : status_for.budget_limit;
    case Reason::holdback:
      return status_for.holdback;
    case Reason::execution_timeout:
      return status_for.execution_timeout;
    case Reason::draining:
      return status_for.draining;
    case Reason::injected_fault:
      return status_for.injected_fault;
    case Reason::shutdown:
      break;
  }
  return status_for.shutdown;
}

::grpc::Status status_of(const Rejection& why, const RejectionOptions& options, const Rejected& how) {
  const bool named = options.expose_names == http::ExposeNames::always ||
                     (options.expose_names == http::ExposeNames::trusted && how.trusted);
  return {code_of(why.reason, options.status_for, how.late),
          named ? why.message() : "rejected (" + std::string(to_string(why.reason)) + ")"};
}

std::chrono::milliseconds pushback_of(const Rejection& why, const RejectionOptions& options,
                                      const Rejected& how) noexcept {
  using std::chrono::milliseconds;
  const bool timed_out =
      why.reason == Reason::deadline || why.reason == Reason::timeout || why.reason == Reason::budget_limit;
  const bool never_fits = why.reason == Reason::budget_limit && why.asked > why.per_call_max;
  if (why.reason == Reason::cancelled || why.reason == Reason::execution_timeout || (timed_out && how.late) ||
      never_fits)
    return milliseconds(-1);
  if (why.retry_after.count() > 0)
    return std::max(milliseconds(1), std::chrono::ceil<milliseconds>(why.retry_after));
  const std::int64_t base = std::max<std::int64_t>(1, options.retry.count())
                            << static_cast<unsigned>(how.priority);
  const std::int64_t jitter = (base / 2 * static_cast<std::int64_t>(how.random >> 16)) >> 16;
  return milliseconds(base + jitter);
}

// The reasons are in status.h.
Outcome verdict(::grpc::StatusCode code) noexcept {
  switch (code) {
    case ::grpc::StatusCode::UNKNOWN:
    case ::grpc::StatusCode::DEADLINE_EXCEEDED:
    case ::grpc::StatusCode::UNIMPLEMENTED:
    case ::grpc::StatusCode::INTERNAL:
    case ::grpc::StatusCode::UNAVAILABLE:
    case ::grpc::StatusCode::DATA_LOSS:
      return Outcome::failure;
    case ::grpc::StatusCode::CANCELLED:
    case ::grpc::StatusCode::RESOURCE_EXHAUSTED:
      return Outcome::ignored;
    default:
      return Outcome::success;
  }
}

}  // namespace bulkhead::grpc
