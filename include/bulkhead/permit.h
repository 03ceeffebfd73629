// permit.h - the right to run one call; its destructor gives the units back.
//
//   bulkhead::Result<bulkhead::Permit> permit = gate.acquire();
//   if (!permit) return reply(503);
//   if (!succeeds()) permit->fail();              // count this call as failed
//                                              // ~Permit gives the units back on every path
//
// Threads: a Permit has one owner at a time, like a unique_ptr; it may be moved to any thread and destroyed there.
// Promises: units come back exactly once. A second release() changes nothing and is counted
// (Snapshot::double_releases). The destructor of a gate waits for its permits, so a held permit never dangles; do not
// release a permit again after its gate is destroyed. Cost: the destructor is one atomic addition if no call waits;
// otherwise it gives the units to the next waiters and runs their handlers and coroutines on this thread.
//
// A call whose cost is known only later reserves an estimate and corrects it:
//
//   auto tokens = budget.acquire({.cost = 16'000});
//   if (tokens && !tokens->settle(used())) static_cast<void>(tokens->try_grow(500));
//
// settle() and try_grow() never wait. Growth that waited could deadlock: two calls that each hold half of the units and
// wait for more would wait for each other.
#pragma once

#include <cstdint>
#include <stop_token>
#include <utility>

#include "bulkhead/result.h"

namespace bulkhead {

class AsyncAcquire;
class Gate;
namespace detail {
class GateCore;
class ResourceCore;
class CallPath;
}  // namespace detail

class [[nodiscard]] Permit {
  class Key {  // only a gate makes permits
    friend class Gate;
    friend class detail::GateCore;
    Key() = default;
  };

 public:
  Permit(Key, Gate* gate, Priority priority) noexcept
      : plain_(gate), cost_(1), priority_(priority), state_(kHeld) {}
  Permit() noexcept = default;
  Permit(Permit&& other) noexcept { take(other); }
  Permit& operator=(Permit&& other) noexcept {
    if (this != &other) {
      const Permit old(
          std::move(*this));  // released last: handlers that run in its release see the new value
      take(other);
    }
    return *this;
  }
  [[gnu::always_inline]] ~Permit() {
    if (!give_back() && state_ != 0) [[unlikely]]  // 0: moved from or released
      release_held();
  }

  explicit operator bool() const noexcept { return state_ & kHeld; }  // held: not moved from, not released

  // Marks the call as failed. It is counted when the permit is released.
  void fail() noexcept {
    watch();
    state_ |= kFailed;
  }

  // Gives the units back now. Returns false and does nothing if they were given back before.
  inline bool release(Outcome outcome = Outcome::success) noexcept;

  // Lowers what the permit holds to `units` and gives the rest back now, which admits exactly the waiters that then
  // fit; as often as you like. At 0 units it still is a call in flight (Snapshot::permits) until it is released. True:
  // it holds `units`. False, and no effect: it holds less than that (see try_grow), or is not held any more.
  // Cost: about that of releasing a permit of more than one unit; like that, it may run handlers.
  bool settle(std::uint32_t units) noexcept;
  // Takes `units` more if there is room and no call of the permit's priority or above waits; in a member of a group,
  // borrowing counts as room. Never waits. False, and no effect: it did not get them, or is not held any more.
  [[nodiscard]] bool try_grow(std::uint32_t units) noexcept;

  // Fires when the group calls back the borrowed units of this permit (Lend::revocable, see group.h). Without such a
  // group it never fires. The first call allocates; without memory the token never fires, and the group does not call
  // the units back.
  inline std::stop_token stop_token() noexcept;

  Gate* gate() const noexcept { return plain_ ? plain_ : gate_; }
  std::uint32_t cost() const noexcept { return cost_; }  // units it holds; of one released, held last
  Priority priority() const noexcept { return priority_; }
  bool waited() const noexcept { return waited_; }  // the call had to wait in line

 private:
  friend class Gate;
  friend class AsyncAcquire;
  friend class detail::GateCore;
  friend class detail::CallPath;
  friend class detail::ResourceCore;
  static constexpr std::uint8_t kHeld = 1;
  static constexpr std::uint8_t kObserved = 2;  // the release does more than one addition to the word
  static constexpr std::uint8_t kFailed = 4;

  void hold(Gate* gate,
            Priority priority) noexcept {  // makes an empty permit hold one unit that was just taken
    plain_ = gate;
    cost_ = 1;
    priority_ = priority;
    state_ = kHeld;
  }
  void watch() noexcept {  // makes it not plain, see plain_
    if (plain_) gate_ = std::exchange(plain_, nullptr);
  }
  void observe() noexcept {
    watch();
    state_ |= kObserved;
    holder_ = lease_ = 0;
    sampled_at_ = 0;
  }
  void clear() noexcept {  // makes it not held
    watch();
    state_ = 0;
  }
  // True: the permit was plain and the release is complete. False: call release_held() if it is held. It is one
  // function so that compilers find the destructor small enough to inline.
  inline bool give_back() noexcept;
  void release_held(std::int64_t now = 0) noexcept;  // ns; 0: it reads the clock if it needs the time
  inline void drop(std::int64_t now = 0) noexcept;   // releases; the permit can be used again
  void drop_observed(std::int64_t now) noexcept;
  // The values that a release needs. They are copied because the permit may be destroyed before the release ends.
  struct Parts {
    std::uint32_t cost, holder = 0, lease = 0;
    std::int64_t sampled_at = 0;
    Priority priority = Priority::normal;
    bool failed = false;
  };
  Parts parts() const noexcept {
    const bool watched = state_ & kObserved;
    return {cost_,     watched ? holder_ : 0,  watched ? lease_ : 0, watched ? sampled_at_ : 0,
            priority_, (state_ & kFailed) != 0};
  }
  void take(Permit& other) noexcept {
    plain_ = std::exchange(other.plain_, nullptr);
    gate_ = std::exchange(other.gate_, nullptr);
    cost_ = other.cost_;
    priority_ = other.priority_;
    state_ = std::exchange(other.state_, std::uint8_t{0});
    waited_ = other.waited_;
    if (state_ & kObserved) {
      holder_ = other.holder_;
      lease_ = other.lease_;
      sampled_at_ = other.sampled_at_;
    }
  }

  // A plain permit holds one unit, and its release only adds to the word. Its gate has its own field, so that the
  // release needs one test.
  Gate* plain_ = nullptr;  // null if it is not plain
  Gate* gate_ = nullptr;   // of a permit that is not plain

  std::uint32_t cost_ = 0;
  Priority priority_ = Priority::normal;
  std::uint8_t state_ = 0;
  bool waited_ = false;

  // Only for permits that are observed:
  std::int64_t sampled_at_ = 0;  // ns; 0: not sampled
  std::uint32_t holder_ = 0;     // its number in Holders; 0: not tracked
  std::uint32_t lease_ = 0;      // its number in the Leases of the group; 0: no stop_token
};

}  // namespace bulkhead

#include "bulkhead/gate.h"  // release() is defined there
