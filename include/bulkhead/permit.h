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

class [[nodiscard]] Permit {
 public:
  Permit() noexcept = default;
  Permit(Permit&& other) noexcept { take(other); }
  Permit& operator=(Permit&& other) noexcept {
    if (this != &other) {
      const Permit old(std::move(*this));  // dies last: who runs inside its release sees the new value
      take(other);
    }
    return *this;
  }
  [[gnu::always_inline]] ~Permit() { drop(); }

  explicit operator bool() const noexcept { return state_ & held; }  // held: not moved from, not released

  // The call has failed. It is counted so when the permit is released or dies.
  void fail() noexcept { state_ |= failed; }

  // Gives the units back now. False, and no effect, if they were given back before.
  inline bool release(Outcome outcome = Outcome::success) noexcept;

  // Fires when the units of this permit are wanted back: it was admitted with what its group has borrowed
  // for it (Lend::revocable, see group.h). Elsewhere it never fires. The first call allocates.
  inline std::stop_token stop_token() noexcept;

  Gate* gate() const noexcept { return gate_; }
  std::uint32_t cost() const noexcept { return cost_; }
  Priority priority() const noexcept { return priority_; }
  bool waited() const noexcept { return waited_; }  // it had to wait in line

 private:
  friend class Gate;
  friend class AsyncAcquire;
  friend class Bulkhead;
  static constexpr std::uint8_t held = 1;
  static constexpr std::uint8_t observed = 2;  // there is more to do on release than to add to the word
  static constexpr std::uint8_t failed = 4;

  Permit(Gate* gate, std::uint32_t cost, Priority priority, std::uint8_t state) noexcept
      : gate_(gate), cost_(cost), priority_(priority), state_(state) {}

  void hold(Gate* gate, Priority priority) noexcept {  // of an empty permit: one unit, just taken
    gate_ = gate;
    cost_ = 1;
    priority_ = priority;
    state_ = held;
  }
  void observe() noexcept {
    state_ |= observed;
    holder_ = lease_ = 0;
    sampled_at_ = 0;
  }
  inline void drop() noexcept;
  inline void drop_at(std::int64_t now) noexcept;
  void drop_observed(std::int64_t now = 0) noexcept;  // ns; 0: look yourself, if you need it
  // What a release needs to know, by value: see Gate::blank().
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

  // Few stores, because the next atomic operation waits for them: the middle row is one word, and the last
  // one is written only for permits that are observed.
  Gate* gate_ = nullptr;

  std::uint32_t cost_ = 0;
  Priority priority_ = Priority::normal;
  std::uint8_t state_ = 0;
  bool waited_ = false;
  [[maybe_unused]] std::uint8_t spare_ = 0;

  std::int64_t sampled_at_;  // ns; 0: not sampled
  std::uint32_t holder_;     // the entry among the holders + 1; 0: not tracked
  std::uint32_t lease_;      // what the group knows it by, once it has a stop_token; 0: nothing
};

}  // namespace bulkhead

#include "bulkhead/gate.h"  // release() is defined there
