// permit.h - the right to run one call; it gives its units back when it dies.
//
//   Result<Permit> permit = gate.acquire();
//   if (!permit) return reply(503);
//   if (!query()) permit->fail();              // count this call as failed
//                                              // ~Permit: the units are back, whatever path led here
//
// Threads: a Permit belongs to one owner at a time, like a unique_ptr; it may be moved to, and die on, any
// thread. Promises: units come back exactly once. A second release() changes nothing and is counted
// (Snapshot::double_releases). A gate waits in its destructor for its permits, so a held permit never
// dangles; a released one must not be released again after its gate is gone. Cost: dying is one atomic
// addition when nobody waits; otherwise it hands the units to the next in line. Handlers and coroutines that
// waited for them run inside, on this thread.
#pragma once

#include <cstdint>
#include <stop_token>
#include <utility>

#include "bulkhead/rejection.h"

namespace bulkhead {

class AsyncAcquire;
class Bulkhead;
class Gate;
namespace detail {
class ResourceCore;
}

class [[nodiscard]] Permit {
  class Key {  // only a gate makes permits
    friend class Gate;
    Key() = default;
  };

 public:
  Permit(Key, Gate* gate, Priority priority) noexcept
      : plain_(gate), cost_(1), priority_(priority), state_(held) {}
  Permit() noexcept = default;
  Permit(Permit&& other) noexcept { take(other); }
  Permit& operator=(Permit&& other) noexcept {
    if (this != &other) {
      const Permit old(std::move(*this));  // dies last: who runs inside its release sees the new value
      take(other);
    }
    return *this;
  }
  [[gnu::always_inline]] ~Permit() {
    if (!give_back() && state_ != 0) [[unlikely]]  // 0: not held, as it was moved from or released
      give_back_else();
  }

  explicit operator bool() const noexcept { return state_ & held; }  // held: not moved from, not released

  // The call has failed. It is counted so when the permit is released or dies.
  void fail() noexcept {
    watch();
    state_ |= failed;
  }

  // Gives the units back now. False, and no effect, if they were given back before.
  inline bool release(Outcome outcome = Outcome::success) noexcept;

  // Fires when the units of this permit are wanted back: it was admitted with what its group has borrowed
  // for it (Lend::revocable, see group.h). Elsewhere it never fires. The first call allocates.
  inline std::stop_token stop_token() noexcept;

  Gate* gate() const noexcept { return plain_ ? plain_ : gate_; }
  std::uint32_t cost() const noexcept { return cost_; }
  Priority priority() const noexcept { return priority_; }
  bool waited() const noexcept { return waited_; }  // it had to wait in line

 private:
  friend class Gate;
  friend class AsyncAcquire;
  friend class Bulkhead;
  friend class detail::ResourceCore;
  static constexpr std::uint8_t held = 1;
  static constexpr std::uint8_t observed = 2;  // there is more to do on release than to add to the word
  static constexpr std::uint8_t failed = 4;

  void hold(Gate* gate, Priority priority) noexcept {  // of an empty permit: one unit, just taken
    plain_ = gate;
    cost_ = 1;
    priority_ = priority;
    state_ = held;
  }
  void watch() noexcept {  // no longer plain
    if (plain_) gate_ = std::exchange(plain_, nullptr);
  }
  void observe() noexcept {
    watch();
    state_ |= observed;
    holder_ = lease_ = 0;
    sampled_at_ = 0;
  }
  void clear() noexcept {  // no longer held
    watch();
    state_ = 0;
  }
  // True: the permit was plain, and all is done. Else give_back_else() is to do the rest, if there is any. One
  // call for all of it, so that compilers find a destructor small enough to inline.
  inline bool give_back() noexcept;
  void give_back_else(std::int64_t now = 0) noexcept;  // ns; 0: look yourself, if you need it
  inline void drop(std::int64_t now = 0) noexcept;     // and lives on, no longer held
  void drop_observed(std::int64_t now) noexcept;
  // What a release needs to know, by value: see Gate::pass_or().
  struct Parts {
    std::uint32_t cost, holder = 0, lease = 0;
    std::int64_t sampled_at = 0;
    Priority priority = Priority::normal;
    bool failed = false;
  };
  Parts parts() const noexcept {
    const bool watched = state_ & observed;
    return {cost_,     watched ? holder_ : 0, watched ? lease_ : 0, watched ? sampled_at_ : 0,
            priority_, (state_ & failed) != 0};
  }
  void take(Permit& other) noexcept {
    plain_ = std::exchange(other.plain_, nullptr);
    gate_ = std::exchange(other.gate_, nullptr);
    cost_ = other.cost_;
    priority_ = other.priority_;
    state_ = std::exchange(other.state_, std::uint8_t{0});
    waited_ = other.waited_;
    if (state_ & observed) {
      holder_ = other.holder_;
      lease_ = other.lease_;
      sampled_at_ = other.sampled_at_;
    }
  }

  // A plain permit is one for one unit, with nothing to do on release but to add to the word. So that this needs
  // no more than one look, its gate stands in a field of its own.
  Gate* plain_ = nullptr;  // null if it is not plain
  Gate* gate_ = nullptr;   // of one that is not

  std::uint32_t cost_ = 0;
  Priority priority_ = Priority::normal;
  std::uint8_t state_ = 0;
  bool waited_ = false;

  // Written only for permits that are observed.
  std::int64_t sampled_at_;  // ns; 0: not sampled
  std::uint32_t holder_;     // the entry among the holders + 1; 0: not tracked
  std::uint32_t lease_;      // what the group knows it by, once it has a stop_token; 0: nothing
};

}  // namespace bulkhead

#include "bulkhead/gate.h"  // release() is defined there
