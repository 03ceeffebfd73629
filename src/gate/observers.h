// observers.h - the hooks and holders of a gate; made only if the options need them.
#pragma once

#include <optional>

#include "bulkhead/gate.h"
#include "gate/holders.h"

namespace bulkhead {

struct detail::GateCore::Observers {
  Hooks hooks;
  std::optional<Holders> holders;
};

template <class F>
void detail::GateCore::call_hook(const F& hook) noexcept {
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
