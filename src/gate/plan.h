// plan.h - the times and terms with which a call joins the line.
#pragma once

#include "bulkhead/gate.h"

namespace bulkhead {

struct detail::GateCore::WaitPlan {
  std::int64_t now = 0;                      // ns; 0 if no time is needed
  std::int64_t seen = 0;                     // ns; the time that the caller has just read; 0: none
  std::int64_t until = Turnstile::kForever;  // ns; when the wait times out
  Turnstile::Terms terms{};
};

}  // namespace bulkhead
