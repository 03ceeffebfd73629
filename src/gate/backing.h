// backing.h - where a gate gets more units from when it has run out: the group it is a member of. An ordinary
// gate has none. It is consulted on the slow path only, and never under the lock of a gate.
#pragma once

#include <cstdint>
#include <stop_token>

#include "bulkhead/detail/platform.h"
#include "bulkhead/detail/turnstile.h"

namespace bulkhead::detail {

class Backing {
 public:
  // There is no room for `w`, which is about to be refused or, if it `waits`, to join the line. True: more
  // units were found, and it has them.
  virtual bool admit(const Waiter<StdPlatform>& w, bool waits) noexcept = 0;
  // The gate's line has changed, or a release came by the slow path: somebody may need units, or have some.
  virtual void settle() noexcept = 0;

  // The stop_token of a permit of this gate; `id` names it from the first call (0) on.
  virtual std::stop_token lease(std::uint32_t& id, std::uint32_t cost) noexcept = 0;
  virtual void end_lease(std::uint32_t id) noexcept = 0;

 protected:
  ~Backing() = default;
};

struct Membership {
  Backing* backing;
  std::uint32_t allotted, guaranteed,
      ceiling;  // see Turnstile; the critical reserve is a share of `guaranteed`
};

}  // namespace bulkhead::detail
