#include "app/config/reasons.h"

#include <iterator>

namespace bulkhead::config {
namespace {

constexpr ReasonText kTexts[] = {
    {Reason::concurrency_limit, "All places are taken, and this call does not wait in line.",
     "Look whether the dependency is slow (service times) or the load has grown. If both are as they should "
     "be, raise "
     "max_concurrent, or give a max_queue."},
    {Reason::queue_limit, "All places are taken, and the line is full.",
     "The same: slow dependency, more load, or too small. A longer line helps only against short bursts."},
    {Reason::timeout, "It waited max_wait in line, or ran longer than execution_timeout.",
     "In line: too few places for the load, see queue_limit. Running: the dependency is slow, or "
     "execution_timeout is "
     "below its p99.9."},
    {Reason::cancelled, "Its caller gave up while it waited.",
     "Nothing here: look at the caller's timeout, which may be shorter than max_wait."},
    {Reason::shutdown, "The bulkhead is closed: the process ends, or somebody has drained it.",
     "Expected during a deployment; otherwise see who closed it."},
    {Reason::evicted, "It gave its place in a full line to a call of a higher priority.",
     "Overload, and the priorities do what they are for. See queue_limit."},
    {Reason::deadline, "Its deadline had passed, or would have passed before its turn.",
     "The caller brought too little time, or the line is too long for it: shorten max_queue or raise "
     "max_concurrent."},
    {Reason::breaker_open, "The breaker is open: lately too many calls failed or were slow.",
     "Repair the dependency. The breaker probes by itself every open_for and closes when probes succeed."},
    {Reason::rate_limit, "More calls began than rate_limit allows.",
     "If the dependency allows more, raise rate or burst. Otherwise the caller should come back after "
     "retry_after."},
    {Reason::tenant_limit, "There are max_tenants tenants already, and at_bound is reject.",
     "Raise max_tenants, or choose at_bound: overflow. A storm of unknown ids is an attack: look where they "
     "come from."},
};
static_assert(std::size(kTexts) == bulkhead::kReasons);

}  // namespace

std::span<const ReasonText> reasons() { return kTexts; }

}  // namespace bulkhead::config
