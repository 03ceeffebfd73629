#include "bulkhead/result.h"

#include <cstdio>
#include <cstdlib>

#include "base/text.h"
#include "gate/plain_rejection.h"

namespace bulkhead {

constinit const Rejection detail::kPlainRejection;

namespace {

std::string join_budget(const Rejection& r, std::string_view which) {
  const std::string begin =
      base::join({"bulkhead \"", r.name, "\" rejected (", to_string(r.reason), "): ", which});
  if (r.max_concurrent == 0)
    return base::join(
        {begin, "it has no budget \"", r.budget.view(), "\", ", std::to_string(r.asked), " asked"});
  const std::string asked =
      base::join({begin, "budget \"", r.budget.view(), "\": ", std::to_string(r.in_flight), "/",
                  std::to_string(r.max_concurrent), " in use, ", std::to_string(r.asked), " asked, "});
  if (r.asked > r.per_call_max)
    return base::join({asked, "at most ", std::to_string(r.per_call_max), " per call"});
  return base::join({asked, std::to_string(r.waiting), "/", std::to_string(r.max_queue), " waiting"});
}

}  // namespace

// One line for logs: who, why, and the numbers at the decision. docs and tests quote these texts.
std::string Rejection::message() const {
  if (reason == Reason::tenant_limit)
    return base::join({"tenants \"", name, "\" rejected (", to_string(reason),
                       "): ", std::to_string(in_flight), "/", std::to_string(max_concurrent), " tenants"});
  const std::string_view what = reason == Reason::execution_timeout ? "timed out" : "rejected";
  const std::string_view which = reason != Reason::deadline ? ""
                                 : deadline_passed          ? "the deadline has passed, "
                                                            : "the deadline would pass before its turn, ";
  if (!budget.empty() || asked > 0) return join_budget(*this, which);
  std::string text = base::join({"bulkhead \"", name, "\" ", what, " (", to_string(reason), "): ", which,
                                 std::to_string(in_flight), "/", std::to_string(max_concurrent), " running, ",
                                 std::to_string(waiting), "/", std::to_string(max_queue), " waiting"});
  if (retry_after.count() <= 0) return text;
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(retry_after).count();
  return base::join({text, ", retry after ", std::to_string(ms), " ms"});
}

namespace detail {

#if defined(__cpp_exceptions)
void throw_bad_result(const Rejection& rejection) { throw BadResult(rejection); }
void throw_bad_result(std::string_view what) { throw BadResult(std::string(what)); }
#else
void throw_bad_result(const Rejection& rejection) { throw_bad_result(rejection.message()); }
void throw_bad_result(std::string_view what) {
  std::fprintf(stderr, "bulkhead: value() of a Result without a value: %.*s\n", static_cast<int>(what.size()),
               what.data());
  std::abort();
}
#endif

}  // namespace detail

}  // namespace bulkhead
