#include "bulkhead/rejection.h"

#include "base/text.h"

namespace bulkhead {

std::string Rejection::message() const {
  if (reason == Reason::tenant_limit)
    return base::join({"tenants \"", name, "\" rejected (", to_string(reason),
                       "): ", std::to_string(in_flight), "/", std::to_string(max_concurrent), " tenants"});
  std::string text =
      base::join({"bulkhead \"", name, "\" rejected (", to_string(reason), "): ", std::to_string(in_flight),
                  "/", std::to_string(max_concurrent), " running, ", std::to_string(waiting), "/",
                  std::to_string(max_queue), " waiting"});
  if (retry_after.count() <= 0) return text;
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(retry_after).count();
  return base::join({text, ", come back in ", std::to_string(ms), " ms"});
}

}  // namespace bulkhead
