// gate.h - lets at most `max_concurrent` calls run at once; a bounded line waits for the rest.
//
//   bulkhead::Gate db{{.name = "db", .max_concurrent = 32, .max_queue = 64}};
//   if (auto permit = db.acquire({.timeout = 50ms})) query();      // the slot returns when `permit` dies
//   else reply(503, to_string(permit.error().reason));             // queue_limit, timeout, evicted ...
//
// Threads, handlers and coroutines wait in one and the same line:
//
//   auto permit = co_await db.co_acquire({.priority = bulkhead::Priority::critical});
//   db.async_acquire({.timeout = 50ms}, [](bulkhead::Result<bulkhead::Permit> permit) { ... });
//   auto rows = db.run([&] { return query(); });                   // Result<Rows>; released also on a throw
//
// Threads: every member may be called from any thread, and from hooks and handlers.
// Order: FIFO within a priority; a call never overtakes a waiting one of its own or a higher priority
//   (with Fairness::fifo). When the line is full, an arrival evicts the newest waiter of the lowest tier
//   below its own. With GateOptions::flow_queues a tier's line is fair between flows, and FIFO within each.
//   Every kind of acquire decides in this order: shutdown; cancelled (stop already
//   requested); deadline (past); admitted; concurrency_limit (no line, or try_acquire); deadline (the
//   predicted wait is too long); queue_limit (line full, nobody to evict); timeout (willing to wait 0); wait.
// Promises: the cap holds at every instant, also across resize. Every call gets exactly one answer. A
//   waiter that times out or is cancelled leaves at once; if it was admitted first, it keeps the permit.
// Not promised: fairness between gates; with barging or adaptive, order.
// Cost: an acquire that need not wait is one compare-exchange, a release one atomic add, a rejection
//   writes nothing that admissions read; waiting allocates nothing.
// The destructor closes the gate and waits for its permits.
#pragma once

#include <atomic>
#include <chrono>
#include <concepts>
#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <source_location>
#include <stop_token>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "bulkhead/clock.h"
#include "bulkhead/detail/platform.h"
#include "bulkhead/detail/turnstile.h"
#include "bulkhead/permit.h"
#include "bulkhead/rejection.h"
#include "bulkhead/snapshot.h"

namespace bulkhead {

inline constexpr std::chrono::nanoseconds wait_forever = std::chrono::nanoseconds::max();
inline constexpr std::chrono::nanoseconds gate_default = std::chrono::nanoseconds::min();

struct GateOptions {
  std::string name{};
  std::uint32_t max_concurrent = 1;                  // units in flight at most: 1 to 268'435'455
  std::uint32_t max_queue = 0;                       // calls in line at most: 0 (fail fast) to 2'097'151
  std::chrono::nanoseconds max_wait = wait_forever;  // for calls that do not say
  // Share of max_concurrent that only Priority::critical may use, 0 to below 1; rounded up to whole units.
  double critical_reserve = 0;
  Fairness fairness = Fairness::fifo;
  Hooks hooks{};

  std::chrono::nanoseconds max_barge = std::chrono::microseconds(500);  // see Fairness::adaptive
  double critical_queue_reserve = 0;                                    // the same for the places in line
  // Fair between flows: within a tier the waiters stand in so many queues, which are served in turn by
  // cost; each flow (AcquireOptions::flow) is dealt flow_hand of them and joins the shortest. So a noisy
  // flow waits behind itself. When the line is full, and holds nobody of a lower tier, an arrival evicts
  // the newest waiter of the longest queue of its own tier, if its flow then has no more in line than
  // that one's.
  std::uint32_t flow_queues = 0;   // 0: off; 1 to 1024, 64 is a good number
  std::uint32_t flow_hand = 4;     // 1 to 16, and at most flow_queues
  std::uint64_t flow_seed = 0;     // deals other hands; keep it to yourself if callers choose their own keys
  bool measure_service = false;    // sample how long permits are held; lets Reason::deadline predict the wait
  bool track_holders = false;      // remember who holds the permits, for Gate::holders()
  bool measure_occupancy = false;  // Snapshot::occupancy and saturated; looks at the clock twice per call
  Clock* clock = nullptr;          // default: Clock::steady()
  // Who fires the timeouts of asynchronous waiters; default: the clock's own.
  DeadlineDriver* deadlines = nullptr;
};

struct AcquireOptions {
  Priority priority = Priority::normal;
  std::uint32_t cost = 1;  // units this call takes; 0 counts as 1. Above the limit it is refused at once.
  std::chrono::nanoseconds timeout = gate_default;  // how long to wait in line; 0 or less: do not wait
  TimePoint deadline = no_deadline;
  std::stop_token stop{};
  std::uint64_t flow = 0;    // whose call it is, see flow_of(); 0: all that do not say are one flow
  std::string_view label{};  // what Gate::holders() shows, beside the place of the call
  std::source_location where = std::source_location::current();
};

// The flow of a tenant, a user, a route; never 0. Any other number that tells them apart will do as well.
constexpr std::uint64_t flow_of(std::string_view name) noexcept {
  std::uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash != 0 ? hash : 1;
}

class AsyncAcquire;
class Bulkhead;
struct PoolCore;

namespace detail {
class Frame;
class Completions;
class Backing;
class MemberGate;
class Meter;
class ResourceCore;
struct Membership;
}  // namespace detail

class Gate {
 public:
  explicit Gate(GateOptions options);  // std::invalid_argument naming the setting
  ~Gate();                             // close(), then waits for the permits to come back
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  // Never waits, never queues.
  Result<Permit> try_acquire(const AcquireOptions& options) noexcept {
    return pass_or(options.priority, plain(options), [&](auto& blank) { try_acquire_else(blank, options); });
  }
  // (A template only so that `try_acquire({})` means the one above.)
  template <std::same_as<void> T = void>
  [[gnu::always_inline]] Result<Permit> try_acquire(
      std::source_location where = std::source_location::current()) noexcept {
    return pass_or(Priority::normal, true, [&](auto& blank) { try_acquire_else(blank, where); });
  }

  // May block this thread, for as long as options.timeout and the deadline allow.
  Result<Permit> acquire(const AcquireOptions& options) noexcept {
    return pass_or(options.priority, plain(options), [&](auto& blank) { acquire_else(blank, options); });
  }
  template <std::same_as<void> T = void>
  [[gnu::always_inline]] Result<Permit> acquire(
      std::source_location where = std::source_location::current()) noexcept {
    return pass_or(Priority::normal, true, [&](auto& blank) { acquire_else(blank, where); });
  }

  // co_await -> Result<Permit>. A coroutine that had to wait resumes on the thread that released its units,
  // or that cancelled it, or that of the timer.
  auto co_acquire(AcquireOptions options = {});

  // Calls handler(Result<Permit>) exactly once: inside this call if it need not wait, else like co_acquire.
  // What it throws is swallowed and counted. It must not block for long: others may be waiting behind it.
  template <class H>
  void async_acquire(AcquireOptions options, H handler);

  // Acquires, calls fn() or fn(std::stop_token) or fn(Permit&), releases; a throw counts as failure and
  // travels on. Gives Result<what fn returns>. The stop_token is options.stop, passed through; in a member
  // of a group that lends revocably it also fires when the units are wanted back.
  template <class F>
  auto run(F&& fn, const AcquireOptions& options = {});

  // At once and never blocking. Growing admits exactly the waiters that now fit. Shrinking cuts nobody:
  // the calls above the new limit run to their end, and none is admitted until they have. Waiters whose
  // cost can no longer fit are refused; waiters above a smaller max_queue stay. std::invalid_argument
  // as in the constructor, and if the gate is a member of a group, which alone moves its limit.
  void resize(std::uint32_t max_concurrent);
  void resize_queue(std::uint32_t max_queue);

  // Irreversible. Waiters are rejected with Reason::shutdown before it returns; permits in flight stay valid.
  void close() noexcept;
  // Waits until nothing is in flight and nobody waits; false if `until` came first. Stops
  // nobody from entering.
  bool drain(TimePoint until = no_deadline);

  Snapshot snapshot() const noexcept;
  std::uint32_t in_flight() const noexcept { return turnstile_.in_flight(); }
  // Counts and announces a refusal that something in front of this gate has decided: a breaker, a rate limit.
  Rejection refuse(Priority priority, Reason reason) noexcept;
  std::vector<Holder> holders() const;  // oldest first; empty unless GateOptions::track_holders
  std::string_view name() const noexcept { return name_; }
  Clock& clock() const noexcept { return clock_; }

 private:
  friend class Permit;
  friend class AsyncAcquire;
  friend class AcquireWatch;
  friend class Bulkhead;
  friend struct PoolCore;
  friend class detail::Frame;
  friend class detail::Completions;
  friend class detail::MemberGate;
  friend class detail::ResourceCore;
  using Turnstile = detail::Turnstile<detail::StdPlatform>;
  using Waiter = Turnstile::Waiter;
  using Wakes = Turnstile::Wakes;
  struct Observers;  // hooks, holders: made only when asked for

  Gate(GateOptions options, const detail::Membership* membership);

  static bool plain(const AcquireOptions& o) noexcept {
    return o.cost == 1 && o.deadline == no_deadline && !o.stop.stop_possible();
  }
  // The permit is written before the units are taken: written after, its stores would delay the release. It
  // counts once pass() says yes; else otherwise(blank) puts the answer in its place.
  template <class Otherwise>
  [[gnu::always_inline]] Result<Permit> pass_or(Priority priority, bool plain,
                                                Otherwise&& otherwise) noexcept {
    Result<Permit> result(std::in_place, Permit::Key(), this, priority);
    if (!(plain && turnstile_.pass())) [[unlikely]]
      otherwise(result);
    else if (!result)
      std::unreachable();  // which the compiler cannot know behind an exchange, and would have to look
    return result;
  }
  void try_acquire_else(Result<Permit>& blank, std::source_location where) noexcept;
  void try_acquire_else(Result<Permit>& blank, const AcquireOptions& options) noexcept;
  void acquire_else(Result<Permit>& blank, std::source_location where) noexcept;
  void acquire_else(Result<Permit>& blank, const AcquireOptions& options) noexcept;
  template <class Answer>
  static void fill(Result<Permit>& blank, Answer&& answer) noexcept;
  bool refuse_at_sight(Result<Permit>& blank, Priority priority, bool may_queue) noexcept;
  Result<Permit> noted(const AcquireOptions& options) noexcept;
  Result<Permit> try_acquire_slow(const AcquireOptions& options, std::int64_t seen = 0) noexcept;
  Result<Permit> acquire_slow(const AcquireOptions& options) noexcept;
  void release_slow() noexcept;
  void release_lent() noexcept;
  std::stop_token lease(Permit& permit) noexcept;
  void release_measured(std::int64_t now) noexcept;
  void release_stepped(std::int64_t now) noexcept;
  void release_observed(const Permit::Parts& permit, std::uint32_t unmeasured, std::int64_t now) noexcept;
  void count_double_release() noexcept;

  struct Plan;
  std::optional<Result<Permit>> decide_now(const AcquireOptions& options, bool may_queue,
                                           Plan& plan) noexcept;
  bool pass_after_a_look(const AcquireOptions& options, const Plan& plan) noexcept;
  std::optional<Result<Permit>> at_once(const AcquireOptions& options, std::int64_t seen = 0) noexcept;
  Result<Permit> peek(const AcquireOptions& options) noexcept;  // try_acquire, but a refusal is not counted
  bool pass(const AcquireOptions& options, std::int64_t seen = 0) noexcept;
  bool only_measured() const noexcept { return meter_ && !observers_ && !measure_ && !backing_; }
  void measure(std::uint32_t units, Turnstile::Pass pass, std::int64_t seen = 0) noexcept;
  void post_to(detail::Inbox<detail::StdPlatform>& inbox) noexcept {  // before the first call
    if (!turnstile_.observed() && !flows_) turnstile_.post_to(inbox);
  }
  bool borrow(const AcquireOptions& options, bool may_queue) noexcept;
  Result<Permit> conclude(Waiter& w, const AcquireOptions& options) noexcept;
  Rejection refused(Priority priority, const Turnstile::Look& look) noexcept;
  Turnstile::Look numbers(Priority priority) const noexcept;
  Event event(Priority priority, const Turnstile::Look& numbers) const noexcept;
  Event event(Priority priority) const noexcept;
  void announce(const Waiter& w) noexcept;
  void announce_all(const Wakes& wakes) noexcept;
  static void publish_all(Wakes& wakes) noexcept;
  void tell(Wakes& wakes) noexcept;
  void tell_lent(Wakes& wakes) noexcept;
  bool withdraw_and_tell(Waiter& w, Reason reason) noexcept;
  template <class F>
  void call_hook(const F& hook) noexcept;
  void count_rejection(Reason reason) noexcept;
  void pin() noexcept { pins_.fetch_add(1, std::memory_order_relaxed); }
  void unpin() noexcept { pins_.fetch_sub(1, std::memory_order_release); }
  void count_hook_error() noexcept { hook_errors_.fetch_add(1, std::memory_order_relaxed); }
  void sample(std::int64_t held_ns) noexcept;
  std::int64_t now_ns() const noexcept { return clock_.now().time_since_epoch().count(); }
  std::int64_t glance_ns() const noexcept { return clock_.glance().time_since_epoch().count(); }
  std::int64_t slow_now() const noexcept;
  std::uint32_t reserve_of(std::uint32_t limit) const noexcept;

  Turnstile turnstile_;

  std::string name_;
  Clock& clock_;
  DeadlineDriver& deadlines_;
  const std::chrono::nanoseconds max_wait_;
  const double critical_reserve_;
  const double critical_queue_reserve_;
  const Fairness fairness_;
  const bool measure_;
  detail::Backing* const backing_;  // where more units may come from: the group; mostly null
  std::unique_ptr<Observers> observers_;
  std::unique_ptr<detail::Meter> meter_;
  std::unique_ptr<detail::FlowQueues<detail::StdPlatform>> flows_;
  std::atomic<std::int64_t> mean_hold_{0};
  std::atomic<std::uint64_t> double_releases_{0};
  std::atomic<std::uint64_t> hook_errors_{0};
  // Calls that hold no units and yet will touch the gate: those in line, and releases that have more to do.
  std::atomic<std::uint32_t> pins_{0};

  // Rejections come in storms and from all cores at once: they are counted apart from everything else,
  // and mostly by one thread per stripe, which then needs no atomic addition. The last stripe is for
  // all the other threads.
  struct alignas(64) Stripe {
    std::atomic<std::uint64_t> by_reason[kReasons]{};
    std::atomic<std::uint32_t> owner{0};  // the only thread that writes here; 0: nobody yet
  };
  static constexpr std::uint32_t kStripes = 4;
  Stripe rejections_[kStripes];
};

inline bool Permit::release(Outcome outcome) noexcept {
  if (!(state_ & held)) {
    if (Gate* last = gate()) last->count_double_release();
    return false;
  }
  if (outcome == Outcome::failure) fail();
  drop();
  return true;
}

inline std::stop_token Permit::stop_token() noexcept {
  return (state_ & held) && gate()->backing_ ? gate()->lease(*this) : std::stop_token();
}

// Nothing of the gate is touched after the addition, unless somebody waits.
[[gnu::always_inline]] inline bool Permit::give_back() noexcept {
  return plain_ && plain_->turnstile_.give_back(1);
}

inline void Permit::drop(std::int64_t now) noexcept {
  if (give_back()) [[likely]]
    clear();  // after the addition, which would wait for these stores
  else
    give_back_else(now);
}

}  // namespace bulkhead

#include "bulkhead/async_acquire.h"
