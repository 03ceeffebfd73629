// backing.h - the source of more units for a gate that has none left: its group, or a limit that several processes share.
// An ordinary gate has no backing. It is used on the slow path only, and never under the lock of a gate.
#pragma once

#include <cstdint>
#include <stop_token>

#include "bulkhead/detail/platform.h"
#include "bulkhead/detail/turnstile.h"

namespace bulkhead {
class UnitSource;
}

namespace bulkhead::detail {

class Backing {
 public:
  // The gate has no room for `w`, which will be rejected or, if it `waits`, join the line. True: it got units from the
  // backing and is admitted.
  virtual bool admit(const Waiter<StdPlatform>& w, bool waits) noexcept = 0;
  // The line has changed, or a release took the slow path: units may be needed or available.
  virtual void settle() noexcept = 0;

  // The stop_token of a permit of this gate. The first call (id 0) assigns the id.
  virtual std::stop_token lease(std::uint32_t& id, std::uint32_t cost) noexcept = 0;
  virtual void end_lease(std::uint32_t id) noexcept = 0;
  virtual void change_lease(std::uint32_t, std::uint32_t) noexcept {}  // id, what the permit holds now

  // Gate::resize(). False: this gate cannot be resized.
  virtual bool resize(std::uint32_t) noexcept { return false; }
  // The limit that callers see of a gate with this many allotted units.
  virtual std::uint32_t limit(std::uint32_t allotted) const noexcept { return allotted; }
  // The units in flight that callers see of a gate whose word counts this many.
  virtual std::uint32_t in_flight(std::uint32_t counted) const noexcept { return counted; }
  // The gate is full because the limit of its backing leaves it no more.
  virtual bool at_its_share() const noexcept { return false; }
  // False: a full gate does not mean that the backing is full.
  virtual bool full_means_saturated() const noexcept { return true; }

 protected:
  ~Backing() = default;
};

struct Membership {
  Backing* backing;
  std::uint32_t allotted, guaranteed,
      ceiling;  // see Turnstile; the critical reserve is a share of `guaranteed`
  UnitSource* source =
      nullptr;  // each call takes its units from here and gives them back; `allotted` is 0 then
};

}  // namespace bulkhead::detail
