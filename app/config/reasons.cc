#include "app/config/reasons.h"

#include <iterator>

namespace bulkhead::config {
namespace {

constexpr ReasonText kTexts[] = {
    {Reason::concurrency_limit, "max_concurrent calls are in flight, and this call may not wait.",
     "Check whether the dependency is slow (service times) or the load has grown. If neither is the case, "
     "raise max_concurrent, or set max_queue."},
    {Reason::queue_limit, "max_concurrent calls are in flight, and max_queue calls wait.",
     "As concurrency_limit: a slow dependency, more load, or max_concurrent is too low. A longer queue helps "
     "only in short bursts."},
    {Reason::timeout, "The call waited max_wait in the queue.",
     "max_concurrent is too low for the load: see queue_limit."},
    {Reason::cancelled, "The caller cancelled the call while it waited.",
     "Nothing to do here. Check the timeout of the caller: it may be shorter than max_wait."},
    {Reason::shutdown, "The bulkhead is closed: the process is stopping, or the bulkhead was removed.",
     "Expected during a deployment. Otherwise find out what closed it."},
    {Reason::evicted, "The queue was full, and a call of a higher priority took the place of this one.",
     "This is how priorities work during an overload. See queue_limit."},
    {Reason::deadline, "The deadline of the call had passed, or would have passed before its turn.",
     "The deadline is too short, or the queue is too long for it: lower max_queue or raise max_concurrent."},
    {Reason::breaker_open, "The breaker is open: too many recent calls failed or were slow.",
     "Repair the dependency. The breaker probes by itself every open_for and closes when probes succeed."},
    {Reason::rate_limit, "More calls began than rate_limit allows.",
     "If the dependency allows more, raise rate or burst. Otherwise the caller should try again after "
     "retry_after."},
    {Reason::tenant_limit, "There are already max_tenants tenants, and at_bound is reject.",
     "Raise max_tenants, or choose at_bound: overflow. Many unknown ids can be an attack: find out where "
     "they come from."},
    {Reason::draining, "An operator drains the bulkhead for maintenance.",
     "bulkhead events and GET /v1/audit show the operator and the reason. bulkhead drain NAME --resume "
     "admits calls again."},
    {Reason::budget_limit,
     "A budget of the bulkhead has too few units left, and the call may not wait or has waited max_wait; or "
     "the call "
     "names a budget that does not exist, or more units than per_call_max.",
     "The message names the budget and the numbers. Check whether calls settle what they do not use, and "
     "whether their "
     "estimates are too high; else raise max of the budget, if the dependency allows it."},
    {Reason::holdback,
     "Saturation is high, and a share of the calls of this priority is held back before higher priorities "
     "are hurt.",
     "This is what holdback is for. If it begins too early, raise holdback.best_effort_from or normal_from; "
     "else the load "
     "needs more capacity: see concurrency_limit. The detail on the dashboard shows the saturation and its "
     "gauges."},
    {Reason::execution_timeout,
     "The call was admitted and ran longer than execution_timeout, or past its deadline.",
     "The dependency is slow, or execution_timeout is below its p99.9."},
    {Reason::injected_fault,
     "An operator injects errors into the calls of the bulkhead, to rehearse a failure.",
     "bulkhead events shows the operator and the reason. bulkhead fault NAME --end ends it; it also ends by "
     "itself."},
};
static_assert(std::size(kTexts) == bulkhead::kReasons);

}  // namespace

std::span<const ReasonText> reasons() { return kTexts; }

}  // namespace bulkhead::config
