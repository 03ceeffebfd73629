// observers.h - who watches a gate: its hooks, and the list of who holds its units. A gate without them has none of this.
#pragma once

#include <optional>

#include "bulkhead/gate.h"
#include "gate/holders.h"

namespace bulkhead {

struct Gate::Observers {
  Hooks hooks;
  std::optional<Holders> holders;
};

template <class F>
void Gate::call_hook(const F& hook) noexcept {
#if defined(__cpp_exceptions)
  try {
    hook();
  } catch (...) {
    count_hook_error();
  }
#else
  hook();
#endif
}

}  // namespace bulkhead
