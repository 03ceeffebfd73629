// plan.h - what a call has worked out by the time it has to join the line.
#pragma once

#include "bulkhead/gate.h"

namespace bulkhead {

struct Gate::Plan {
  std::int64_t now = 0;   // ns; 0 where nobody needs the time
  std::int64_t seen = 0;  // ns; a glance at the clock that somebody took just before; 0: nobody
  std::int64_t until = Turnstile::forever;  // ns; when to give up waiting
  Turnstile::Terms terms{};
};

}  // namespace bulkhead
