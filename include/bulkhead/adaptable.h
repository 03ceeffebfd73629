// adaptable.h - a limit that an AdaptiveLimiter can move: that of a gate, or the total of a group of gates.
//
//   class Replicas final : public bulkhead::Adaptable { ... };   // bulkhead::Group is one, see group.h
//
// Threads: every member is called from any thread, without a lock of the limiter except clock() and rejected().
#pragma once

#include <cstdint>
#include <string>

#include "bulkhead/clock.h"

namespace bulkhead {

class Gate;

class Adaptable {
 public:
  virtual std::string label() const = 0;  // for error messages: group "db"
  virtual Clock& clock() const noexcept = 0;
  virtual std::uint32_t limit() const noexcept = 0;  // in force
  virtual std::uint64_t rejected()
      const noexcept = 0;  // calls that a higher limit would have admitted, so far
  // The units in flight when `gate` has just admitted a call. At least limit() if that call took the last unit that the
  // limit leaves to it.
  virtual std::uint32_t in_flight(const Gate& gate) const noexcept = 0;
  // Takes effect at once and never blocks, like Gate::resize. False: there is no memory, and nothing has changed.
  virtual bool adapt(std::uint32_t limit) noexcept = 0;

 protected:
  Adaptable() = default;
  Adaptable(const Adaptable&) = default;
  Adaptable& operator=(const Adaptable&) = default;
  ~Adaptable() = default;
};

}  // namespace bulkhead
