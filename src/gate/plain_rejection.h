// plain_rejection.h - a rejection by a gate, built without clearing its memory first.
//
// Where some members of a Rejection are constants, GCC clears all of it with `rep stos` before it sets the others. That
// instruction takes longer to start than all the rest to write. So the members that a gate leaves alone are copied from an object
// whose values the compiler does not see.
#pragma once

#include "bulkhead/rejection.h"

namespace bulkhead::detail {

extern const Rejection kPlainRejection;  // in rejection.cc

struct GateNumbers {
  std::uint32_t in_flight, max_concurrent, waiting, max_queue;
};

inline Rejection plain_rejection(Reason reason, const Name& name, const GateNumbers& n) noexcept {
  const Rejection& rest = kPlainRejection;
  return {reason,      name,        n.in_flight,      n.max_concurrent,
          n.waiting,   n.max_queue, rest.retry_after, rest.deadline_passed,
          rest.budget, rest.asked,  rest.per_call_max};
}

}  // namespace bulkhead::detail
