// reasons.h - what each reason of a rejection means to the person who sees it, and what to do.
#pragma once

#include <span>
#include <string_view>

#include "bulkhead/rejection.h"

namespace bulkhead::config {

struct ReasonText {
  Reason reason;
  std::string_view means, what_to_do;
};
std::span<const ReasonText> reasons();

}  // namespace bulkhead::config
