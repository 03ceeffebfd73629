// turnstile.h - the algorithm under a gate: one word that admits, and the line behind it. Not for direct use.
//
// It is a template over its atomics, its lock and its futex (the Platform) so that the model checker in
// tests/model explores the very code that ships. The two functions of the hot path are here; the rest is in
// src/gate/slow_path.h. docs/design/gate.md explains it from the ground up.
//
// Invariants
//  W1  The word is the truth about capacity. Units are taken by subtracting from `room` only where
//      room stays >= 0 (>= -reserve for critical calls), and come back by adding. Nothing else
//      admits.
//  W2  `room` = limit - reserve - units in flight. A resize adds the difference in the same word, so
//      a cap holds from the instant of that addition. It may leave room negative: the debt is paid by
//      the releases to come.
//  W3  Quiet set means that nobody needs the slow path: then, and only then, admissions and releases
//      are one atomic operation each. It is changed under the lock only, and whoever clears it looks
//      at `room` again afterwards.
//  L1  While a waiter is in line and quiet is clear, every release takes the lock and serves the
//      line. So no unit comes back unseen: a release before quiet was cleared is found by the look
//      that follows, a later one serves. So does a thread in line that wakes up without having been
//      told anything: a release may have woken it before it took the lock. (Not where releases are
//      observed.)
//  L2  A waiter is decided exactly once, under the lock, by whoever takes it out of the line. Its
//      owner is told afterwards, outside the lock ("published"); a waiter that is decided but not yet
//      published waits for it.
//  L3  Barging only: quiet may be set while one waiter is poked, that is, woken to try for itself. A
//      poked waiter that fails, leaves or succeeds clears quiet again (or pokes the next) before it
//      goes.
//  Q1  The inbox has places or holds somebody only while quiet is clear and units are in flight: a
//      release to come takes the lock, and looks there before it finds the line empty. It holds
//      calls of the normal tier only, so whoever serves a critical or a normal one need not look.
//  D1  slow_releases_ counts the releases that saw quiet clear and have not yet been through the
//      lock. The gate may be destroyed only when it is 0 and nothing is in flight: nobody is then on
//      the way to touch it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "bulkhead/rejection.h"

namespace bulkhead {

enum class Fairness : std::uint8_t {
  fifo,      // a released unit goes straight to the head of the line; nobody overtakes within a tier
  barging,   // a released unit is free for all; fastest for very short calls, with long worst waits
  adaptive,  // barging until the head of the line has waited GateOptions::max_barge, then straight to the
             // head; and a thread looks for some 40 us before it lines up
};

namespace detail {

class Meter;
template <class P>
class FlowQueues;
template <class P>
struct Inbox;

//  63..32  released: permits given back, mod 2^32
//  31      always 0
//  30      quiet
//  29..0   room + 2^28
namespace word {
inline constexpr std::uint64_t released_one = std::uint64_t{1} << 32;
inline constexpr std::uint64_t quiet = std::uint64_t{1} << 30;
inline constexpr std::uint64_t bias = std::uint64_t{1} << 28;
inline constexpr std::uint32_t max_limit = (std::uint32_t{1} << 28) - 1;

constexpr std::uint32_t released(std::uint64_t w) { return static_cast<std::uint32_t>(w >> 32); }
constexpr std::int64_t room(std::uint64_t w) {
  return static_cast<std::int64_t>(w & (quiet - 1)) - static_cast<std::int64_t>(bias);
}
// What a change of the word means for "no unit is available": 1, it begins; -1, it ends; 0, it is as it
// was. The reserve is not counted as available: it is for critical calls only.
constexpr int turned_full(std::uint64_t before, std::uint64_t after) {
  return int{room(after) <= 0} - int{room(before) <= 0};
}
}  // namespace word

// Calls in line by tier, in one word, so that "the line is full and holds nobody I may evict" is one load.
namespace line {
inline constexpr unsigned bits = 21;
inline constexpr std::uint32_t max_queue = (std::uint32_t{1} << bits) - 1;

constexpr std::uint64_t one(Priority tier) {
  return std::uint64_t{1} << (bits * static_cast<unsigned>(tier));
}
constexpr std::uint32_t count(std::uint64_t l, std::size_t tier) {
  return static_cast<std::uint32_t>(l >> (bits * tier)) & max_queue;
}
constexpr std::uint32_t total(std::uint64_t l) { return count(l, 0) + count(l, 1) + count(l, 2); }
constexpr std::uint32_t below(std::uint64_t l, Priority tier) {
  std::uint32_t sum = 0;
  for (std::size_t t = static_cast<std::size_t>(tier) + 1; t < kPriorities; ++t) sum += count(l, t);
  return sum;
}
}  // namespace line

// What became of a call. The reasons keep their numbers.
enum class Verdict : std::uint8_t { pending = 254, admitted = 255 };
constexpr Verdict rejected(Reason reason) { return static_cast<Verdict>(reason); }
constexpr Reason reason_of(Verdict verdict) { return static_cast<Reason>(verdict); }

// One call in line. It lives in the caller's frame: a stack, a coroutine frame, an operation object. Exactly one
// cache line, for those who can align it: whoever hands a unit over fetches it from the waiter's core.
template <class P>
struct Waiter {
  // What a thread parks on.
  static constexpr std::uint32_t sleeping = 0, poked = 1, done = 2;

  Waiter() = default;
  Waiter(const Waiter&) = delete;
  Waiter& operator=(const Waiter&) = delete;

  std::uint32_t cost = 1;
  Priority tier = Priority::normal;
  bool is_thread = true;  // parks; else `complete` is called when it is decided
  // Guarded by the turnstile's lock until published, the owner's afterwards.
  typename P::template Var<Verdict> verdict{Verdict::pending};
  typename P::template Var<bool> queued{false};
  void (*complete)(Waiter&) noexcept = nullptr;
  std::uint64_t flow = 0;  // see FlowQueues
  std::int64_t since = 0;  // ns, when it joined the line; used by Fairness::adaptive

  // Guarded as above. The numbers when it was decided; `limit` and `max_queue` take the place of `since`, which nobody
  // needs by then.
  std::uint32_t in_flight = 0, waiting = 0;
  void set_shape(std::uint32_t limit, std::uint32_t max_queue) {
    since = static_cast<std::int64_t>(std::uint64_t{limit} << 32 | max_queue);
  }
  std::uint32_t limit() const { return static_cast<std::uint32_t>(static_cast<std::uint64_t>(since) >> 32); }
  std::uint32_t max_queue() const { return static_cast<std::uint32_t>(since); }
  Waiter* next = nullptr;
  Waiter* prev = nullptr;

  typename P::template Atomic<std::uint32_t> signal{sleeping};
  std::uint16_t queue = 0;                                    // of FlowQueues
  typename P::template Var<Verdict> early{Verdict::pending};  // withdrawn before it had joined the line
};

// Waiters decided under the lock and still to be told, in order; and the one to be woken for a try.
template <class P>
struct Wakes {
  Waiter<P>* first = nullptr;
  Waiter<P>* last = nullptr;
  typename P::template Atomic<std::uint32_t>* poke = nullptr;
  void* idle = nullptr;  // drains that are over, see Turnstile::Drain

  void push_front(Waiter<P>& w) {
    w.next = first;
    first = &w;
    if (!last) last = &w;
  }
  void push(Waiter<P>& w) {
    w.next = nullptr;
    (last ? last->next : first) = &w;
    last = &w;
  }
  bool remove(Waiter<P>& w) {
    Waiter<P>* before = nullptr;
    for (Waiter<P>* i = first; i; before = i, i = i->next) {
      if (i != &w) continue;
      (before ? before->next : first) = w.next;
      if (last == &w) last = before;
      return true;
    }
    return false;
  }
  Waiter<P>* pop() {
    Waiter<P>* w = first;
    if (w) {
      first = w->next;
      if (!first) last = nullptr;
    }
    return w;
  }
};

template <class P>
class Turnstile {
 public:
  using Waiter = detail::Waiter<P>;
  using Wakes = detail::Wakes<P>;

  static constexpr std::int64_t forever = std::numeric_limits<std::int64_t>::max();

  struct Setup {
    std::uint32_t limit, reserve, max_queue;
    std::uint32_t queue_reserve = 0;  // places in line only critical calls may take
    Fairness fairness = Fairness::fifo;
    std::int64_t max_barge_ns = 500'000;
    bool observed = false;
    std::uint32_t ceiling = 0;  // see below
  };
  explicit Turnstile(const Setup& setup) noexcept;
  Turnstile(const Turnstile&) = delete;
  Turnstile& operator=(const Turnstile&) = delete;

  // Takes one unit if that is all there is to it: there is room, nobody needs the slow path, nothing is to be
  // noted. Never waits, never writes when it fails.
  [[gnu::always_inline]] bool pass() noexcept {
    std::uint64_t w = guess(1);
    // Here, and not behind the exchange: what stands between it and the release's addition delays that.
    const std::uint64_t quarter = quarter_.load(std::memory_order_relaxed);
    while (open_for(1, w) && w >> 62 == quarter) {
      if (take_units(1, w)) return true;
    }
    return false;
  }
  // The same for `cost` units and whatever is to be noted.
  // noted: yes, and call note_pass(). filled: that too, and no unit is available any more.
  enum class Pass : std::uint8_t { no, yes, noted, filled };
  [[gnu::always_inline]] Pass try_pass(std::uint32_t cost) noexcept {
    std::uint64_t seen = 0;
    return try_pass(cost, seen);
  }
  // `seen`: the word as it was.
  [[gnu::always_inline]] Pass try_pass(std::uint32_t cost, std::uint64_t& seen) noexcept {
    std::uint64_t w = guess(cost);
    while (open_for(cost, w)) {
      if (!take_units(cost, w)) continue;
      seen = w;
      return (w >> 62) == quarter_.load(std::memory_order_relaxed) ? Pass::yes
             : open_for(1, w - cost)                               ? Pass::noted
                                                                   : Pass::filled;
    }
    return Pass::no;
  }
  // Keeps the 64-bit count of releases: at least once in 2^30 of them somebody passes by here.
  void note_pass() noexcept;
  bool needs_note(std::uint64_t seen) const noexcept {
    return seen >> 62 != (anchor_.load(std::memory_order_relaxed) >> 30 & 3);
  }
  // Something wants to know of every admission and release (hooks, holders, sampling): every pass is noted.
  bool observed() const noexcept { return observed_; }
  // A word in the line of the hot one, for somebody who changes it right after each admission and right before each
  // release (ResourcePool: its idle things). Anywhere else it would be two more transfers between cores per call.
  std::atomic<std::uint64_t>& beside() noexcept { return beside_; }
  // What is taken and given back by the functions below is measured here, at the time that they are
  // given. What try_pass() takes is for its caller to measure. Before the first call, and only if
  // `observed`.
  void measure_with(Meter& meter) noexcept { meter_ = &meter; }
  void be_fair_with(FlowQueues<P>& flows) noexcept { flows_ = &flows; }  // before the first call

  // Gives `cost` units back. False: somebody may be waiting for them, call after_release().
  [[nodiscard]] bool give_back(std::uint32_t cost) noexcept { return put_back(cost) & word::quiet; }
  // The same, and at `now` for the meter; of `units` of them it does not know yet.
  [[nodiscard]] bool give_back(std::uint32_t cost, std::uint32_t units, std::int64_t now) noexcept;
  // Only if there is no more to it than the addition: nobody waits, and units were available before.
  // Nothing of the turnstile is touched afterwards.
  [[nodiscard, gnu::always_inline]] bool give_back_quietly(std::uint32_t cost) noexcept {
    std::uint64_t w = word_.load(std::memory_order_relaxed);
    while (open_for(1, w)) {
      const std::uint64_t after = w + word::released_one + cost;
      // release: as in give_back()
      if (!word_.compare_exchange_weak(w, after, std::memory_order_release, std::memory_order_relaxed))
        continue;
      P::remember(this, after);
      return true;
    }
    return false;
  }
  void after_release(std::int64_t now, Wakes& wakes) noexcept;
  // To be called just before it: the thread at the head of the line will probably be given these units, and to wake
  // it takes a hundred times longer than to do so. It is woken first, and comes when that is done. Not if observed().
  void rouse() const noexcept;

  // A call that try_pass turned away: admits it after all, rejects it, or (verdict `pending`) leaves
  // it in line.
  struct Terms {
    bool may_queue = false;      // else concurrency_limit instead of a place in line
    bool may_wait = false;       // else timeout instead of a place in line
    std::int64_t time_left = 0;  // ns to the deadline, if mean_hold is given
    std::int64_t mean_hold = 0;  // ns; 0: do not predict
  };
  Verdict enter(Waiter& w, const Terms& terms, std::int64_t now, Wakes& wakes) noexcept;
  // The same verdict without a lock where one look suffices: full, and it may not queue; or the line is full.
  struct Look {
    Verdict verdict;  // `pending`: it takes more than a look, call enter()
    std::uint32_t in_flight, limit, waiting, max_queue;
  };
  Look look(Priority tier, std::uint32_t cost, bool may_queue) const noexcept;

  // Parks the calling thread until `w` is decided or `until` (ns) comes; then it leaves the line with
  // `timeout`. park(signal, value, until) parks while signal == value; tell(wakes) publishes. True: this
  // thread decided it itself (it left, or was woken and took the units); false: somebody else did.
  template <class Now, class Park, class Tell>
  bool wait(Waiter& w, std::int64_t until, Now&& now, Park&& park, Tell&& tell) noexcept;

  // Takes `w` out of the line with `reason`. False: it has been decided already (its owner is being told), or
  // has not joined yet (enter() will reject it with `reason`).
  bool withdraw(Waiter& w, Reason reason, std::int64_t now, Wakes& wakes) noexcept;

  // Tells the owner of a decided waiter. The waiter may be gone when this returns.
  static void publish(Waiter& w) noexcept;
  static void finish(Wakes& wakes) noexcept;  // the poke and the drains of `wakes`

  void resize(std::uint32_t limit, std::uint32_t reserve, std::int64_t now, Wakes& wakes) noexcept;
  void resize_queue(std::uint32_t max_queue, std::uint32_t reserve) noexcept;
  bool close(Wakes& wakes) noexcept;  // true: this call closed it

  // For the queue of a pool; defined in src/gate/posting.h. Those who come and those who serve have a lock
  // each, and meet only when the latter have run out.
  void post_to(Inbox<P>& inbox) noexcept {
    inbox_ = &inbox;
  }  // before the first call; fifo, no flows, no group
  // Leaves `w`, of the normal tier and with a cost of 1, in line. False: not now, go the usual way.
  bool post(Waiter& w) noexcept;
  // Gives one unit to whoever is next in line and is told by `complete`, and leaves the telling to the
  // caller. Null: nobody, and the unit is still the caller's.
  Waiter* hand_on(void (*complete)(Waiter&) noexcept) noexcept;

  // For a member of a group, whose limit is what it is allotted now; defined in src/gate/lending.h.
  //  M1  owed_ > 0 means that so many units in flight are above the limit and have been called back. Nobody
  //      is admitted then, and each release takes the lock, where collect() finds what it has repaid.
  //  M2  While watched_ is set every release takes the lock: another member waits for what becomes free here.
  // The limit can grow up to the ceiling: what costs more is hopeless, what costs less may wait.
  void set_ceiling(std::uint32_t ceiling) noexcept { ceiling_.store(ceiling, std::memory_order_relaxed); }
  struct Lack {
    bool waits = false;       // somebody is to go first, or it is closed: more units would not help
    std::uint32_t units = 0;  // so many more would let it in
  };
  Lack try_enter(const Waiter& w, std::int64_t now) noexcept;  // no units, and not waits: it has entered
  void grow(std::uint32_t units, std::int64_t now, Wakes& wakes) noexcept;
  bool grow_for(const Waiter& w, std::uint32_t units, std::int64_t now, Wakes& wakes) noexcept;
  std::uint32_t shrink_idle(std::uint32_t most,
                            std::int64_t now) noexcept;  // takes what is free now, the reserve excepted
  std::uint32_t call_back(std::uint32_t units,
                          std::int64_t now) noexcept;  // limit - units; how many were free
  std::uint32_t collect(std::int64_t now) noexcept;    // called-back units that have come back since
  void watch(bool on, std::int64_t now) noexcept;
  struct Hunger {
    std::uint32_t head = 0;  // units the first in line lacks
    std::uint32_t line = 0;  // units the whole line lacks, or nearly
  };
  Hunger hunger() const noexcept;
  std::uint32_t ceiling() const noexcept { return ceiling_.load(std::memory_order_relaxed); }

  // One thread waiting for the turnstile to be idle: nothing in flight, nobody in line.
  struct Drain {
    Drain* next = nullptr;
    typename P::template Atomic<std::uint32_t> signal{Waiter::sleeping};
  };
  bool join_drain(Drain& drain, std::int64_t now, Wakes& wakes) noexcept;  // false: idle already
  bool leave_drain(Drain& drain, std::int64_t now,
                   Wakes& wakes) noexcept;  // false: it was over, and is published
  // Drains found to be over but not told yet (told.idle) wait on if it is no longer idle: a release hook may
  // take the units again.
  void keep_drains(Wakes& told, std::int64_t now, Wakes& wakes) noexcept;

  // Costs above 1 and failed calls change numbers beside the word. Those who do so stand between begin()
  // and end(), and a reader that finds nobody between them has read one consistent instant. It also holds
  // the destructor off.
  void begin() noexcept { begun_.fetch_add(1, std::memory_order_acq_rel); }
  void end() noexcept { ended_.fetch_add(1, std::memory_order_release); }
  std::uint32_t open_sections() const noexcept {
    const std::uint32_t ended = ended_.load(std::memory_order_acquire);
    return begun_.load(std::memory_order_acquire) - ended;
  }
  void add_heavy(std::int64_t units) noexcept { heavy_.fetch_add(units, std::memory_order_release); }
  void add_failed() noexcept { failed_.fetch_add(1, std::memory_order_release); }

  struct Numbers {
    std::uint32_t in_flight, permits, limit, max_queue;
    std::uint64_t line, released, failed;
    bool closed, underflow;
    bool torn;  // somebody stood between begin() and end() all the while: the numbers may not match
  };
  Numbers read() const noexcept;

  std::uint32_t limit() const noexcept { return limit_.load(std::memory_order_relaxed); }
  std::uint32_t max_queue() const noexcept { return max_queue_.load(std::memory_order_relaxed); }
  std::uint32_t waiting() const noexcept { return line::total(in_line()); }
  std::uint32_t in_flight() const noexcept;
  bool closed() const noexcept { return closed_.load(std::memory_order_acquire); }
  std::uint32_t released() const noexcept { return word::released(word_.load(std::memory_order_relaxed)); }

 private:
  struct List {
    Waiter* first = nullptr;
    Waiter* last = nullptr;
  };

  static constexpr bool open_for(std::uint32_t cost, std::uint64_t w) noexcept {
    return (w & (word::released_one - 1)) >= word::quiet + word::bias + cost;
  }
  // The word is mostly as this thread left it: to guess it, and have the exchange tell if not, saves the wait for a
  // load. Where others change it all the time a wrong guess costs more than that, so after one this thread looks,
  // until it finds the word as it left it.
  [[gnu::always_inline]] std::uint64_t guess(std::uint32_t cost) const noexcept {
    std::uint64_t w = P::recall(this);
    if (!open_for(cost, w)) [[unlikely]] {
      w = word_.load(std::memory_order_relaxed);
      P::compare(this, w);
    }
    return w;
  }
  // False: the word was another, and `w` is it now.
  [[gnu::always_inline]] bool take_units(std::uint32_t cost, std::uint64_t& w) noexcept {
    // acquire: what the call that gave these units back has written is visible to the one that takes them.
    // release: whoever reads this word sees the begin() before it.
    if (word_.compare_exchange_weak(w, w - cost, std::memory_order_acq_rel, std::memory_order_relaxed))
      return true;
    P::doubt();
    return false;
  }
  bool loose() const noexcept { return fairness_ != Fairness::fifo; }
  Waiter* head() const noexcept;
  bool starved(const Waiter* w, std::int64_t now) const noexcept;
  bool fits(const Waiter& w) const noexcept;
  void linger(const Waiter& w) const noexcept;
  template <class Now, class Tell>
  bool try_again(Waiter& w, std::uint32_t signal, Now& now, Tell& tell) noexcept;
  [[gnu::always_inline]] std::uint64_t put_back(std::uint32_t cost) noexcept {  // gives the word as it was
    const std::uint64_t w = word_.fetch_add(word::released_one + cost, std::memory_order_release);
    P::remember(this, w + word::released_one + cost);
    return w;
  }
  bool take(const Waiter& w, std::int64_t now) noexcept;
  bool hopeless(const Waiter& w) const noexcept;
  bool line_is_full(std::uint64_t l, std::uint32_t max, Priority tier) const noexcept;
  void push(Waiter& w) noexcept;
  void unlink(Waiter& w, bool served) noexcept;
  template <class F>
  void each_waiter(F&& f) const noexcept;
  void leave(Waiter& w) noexcept;
  bool admit(Waiter& w, std::int64_t now) noexcept;
  void decide(Waiter& w, Verdict verdict) noexcept;
  void serve(std::int64_t now, Wakes& wakes) noexcept;
  void set_quiet(bool quiet) noexcept;
  bool settle_quiet(std::int64_t now) noexcept;
  void attend(std::int64_t now, Wakes& wakes) noexcept;
  void check_idle(Wakes& wakes) noexcept;
  void shift(std::int64_t by, std::int64_t now) noexcept;
  void move_limit(std::int64_t by, std::int64_t now) noexcept;
  std::uint32_t repaid() noexcept;
  bool idle() const noexcept;
  Waiter* next() noexcept;
  void take_posts() noexcept;
  void allow_posts() noexcept;
  std::uint64_t in_line() const noexcept;  // not under the lock
  // What a resize changes, one after the other.
  struct Shape {
    std::uint64_t word;
    std::uint32_t limit, reserve;
    std::uint32_t in_flight() const noexcept {
      const std::int64_t used = std::int64_t{limit} - reserve - word::room(word);
      return used > 0 ? static_cast<std::uint32_t>(used) : 0;
    }
  };
  Shape shape_under_lock() const noexcept;
  Shape shape() const noexcept;  // of one instant; not under the lock
  Shape shape_in_the_end() const noexcept;
  void note(std::uint64_t w) noexcept;

  // The hot line: written by every admission and release, and holding nothing that others must read or write.
  alignas(64) typename P::template Atomic<std::uint64_t> word_;
  std::atomic<std::uint64_t> beside_{0};  // see beside()
  // What the thread at the head of the line parks on, if there is one and one unit would do; not for a member of a
  // group, whose unit may be wanted elsewhere. A cache of head(), and an address only: by now it may have left.
  typename P::template Atomic<typename P::template Atomic<std::uint32_t>*> sleeper_{nullptr};

  // Read by all, written seldom.
  // The top two bits of `released` when it was last noted; 4, which they never are, if every pass is
  // to be noted.
  alignas(64) typename P::template Atomic<std::uint64_t> quarter_;
  typename P::template Atomic<std::uint32_t> limit_;
  typename P::template Atomic<std::uint32_t> reserve_;
  typename P::template Atomic<std::uint32_t> max_queue_;
  typename P::template Atomic<std::uint32_t> queue_reserve_;
  typename P::template Atomic<std::uint32_t> ceiling_;  // 0 for an ordinary gate
  typename P::template Atomic<bool> closed_{false};
  const Fairness fairness_;
  const bool observed_;
  Meter* meter_ = nullptr;
  typename P::template Atomic<std::uint64_t> anchor_{0};  // `released` in 64 bits, at most 2^30 releases ago
  typename P::template Atomic<std::uint32_t> begun_{0};
  typename P::template Atomic<std::uint32_t> ended_{0};
  typename P::template Atomic<std::int64_t> heavy_{0};  // sum of (cost - 1) over permits in flight
  typename P::template Atomic<std::uint64_t> failed_{0};

  // Guarded by mutex_; line_ is also read without it.
  alignas(64) mutable typename P::Mutex mutex_;
  typename P::template Atomic<std::uint64_t> line_{0};
  List tiers_[kPriorities];  // the line, unless it is in `flows_`
  FlowQueues<P>* flows_ = nullptr;
  Waiter* poked_ = nullptr;
  Drain* drains_ = nullptr;
  bool quiet_ = true;                // mirrors the bit of the word
  bool watched_ = false;             // see M2
  std::uint32_t owed_ = 0;           // see M1
  std::uint32_t slow_releases_ = 0;  // see D1; minus `released` of the word while quiet is clear
  bool inbox_open_ = false;
  std::uint32_t granted_ = 0;  // places of the inbox when it was opened
  Inbox<P>* inbox_ = nullptr;  // of a pool
  const std::int64_t max_barge_ns_;
};

}  // namespace detail
}  // namespace bulkhead
