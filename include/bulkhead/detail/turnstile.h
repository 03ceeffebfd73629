// turnstile.h - the algorithm of a gate: one atomic word that admits, and the line of waiting calls. Not for direct use.
//
// It is a template over its atomics, lock and futex (the Platform), so that the model check in tests/model runs the code
// that ships. The hot path is here, the rest in src/gate/slow_path.h. docs/design/gate.md explains the algorithm.
//
// Invariants
//  W1  The word alone decides about capacity. Units are taken by subtracting from `room` only if room stays >= 0
//      (>= -reserve for critical calls), and come back by adding. Nothing else admits.
//  W2  `room` = limit - reserve - units in flight. A resize adds the difference to the word, so a new limit holds from
//      that addition on. It may leave room negative; later releases make up for it.
//  W3  Quiet is set if and only if no call needs the slow path: then admissions and releases are one atomic operation
//      each. It is changed under the lock only, and the thread that clears it reads `room` again afterwards.
//  L1  While a waiter is in line and quiet is clear, every release takes the lock and serves the line, so no unit is
//      missed: the thread that cleared quiet sees earlier releases when it reads `room` again, later ones serve. A
//      thread in line that wakes up undecided serves too, because a release may have woken it before it took the lock
//      (not if releases are observed). A line too long for one hold of the lock is served in batches by one thread
//      (go_on); in between quiet stays clear, and other threads do not serve (serving_).
//  L2  A waiter is decided exactly once, under the lock, by the thread that takes it out of the line. The waiter's owner
//      is told afterwards without the lock ("published"), and waits for that.
//  L3  Barging only: quiet may be set while one waiter is poked, that is, woken to try for itself. A poked waiter that
//      fails, leaves or succeeds clears quiet again or pokes the next one.
//  Q1  The inbox has places or holds calls only while quiet is clear and units are in flight: a later release takes the
//      lock and looks there before it finds the line empty. It holds only calls of normal priority, so a thread that
//      serves a critical or normal call need not look there.
//  D1  slow_releases_ counts the releases that saw quiet clear and have not yet taken the lock. The gate may be
//      destroyed only if it is 0 and no units are in flight: then no thread is going to access the gate.
//  E1  empty_ counts the permits that hold no units. It increases before their last units come back, so that a thread
//      that sees these units free sees it too, and decreases under the lock only. While it is not 0 the turnstile is not
//      idle.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "bulkhead/detail/annotations.h"
#include "bulkhead/fairness.h"
#include "bulkhead/rejection.h"

namespace bulkhead {

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
inline constexpr std::uint64_t kReleasedOne = std::uint64_t{1} << 32;
inline constexpr std::uint64_t kQuiet = std::uint64_t{1} << 30;
inline constexpr std::uint64_t kBias = std::uint64_t{1} << 28;
inline constexpr std::uint32_t kMaxLimit = (std::uint32_t{1} << 28) - 1;

constexpr std::uint32_t released(std::uint64_t w) { return static_cast<std::uint32_t>(w >> 32); }
constexpr std::int64_t room(std::uint64_t w) {
  return static_cast<std::int64_t>(w & (kQuiet - 1)) - static_cast<std::int64_t>(kBias);
}
// How a change of the word affects "no unit is available": 1 if that begins, -1 if it ends, 0 if nothing changes. The
// reserve does not count as available, because it is for critical calls only.
constexpr int turned_full(std::uint64_t before, std::uint64_t after) {
  return int{room(after) <= 0} - int{room(before) <= 0};
}
}  // namespace word

// Calls in line by tier (priority), in one word, so that one load tells whether the line is full and has no call to evict.
namespace line {
inline constexpr unsigned kBits = 21;
inline constexpr std::uint32_t kMaxQueue = (std::uint32_t{1} << kBits) - 1;

constexpr std::uint64_t one(Priority tier) {
  return std::uint64_t{1} << (kBits * static_cast<unsigned>(tier));
}
constexpr std::uint32_t count(std::uint64_t l, std::size_t tier) {
  return static_cast<std::uint32_t>(l >> (kBits * tier)) & kMaxQueue;
}
constexpr std::uint32_t total(std::uint64_t l) { return count(l, 0) + count(l, 1) + count(l, 2); }
constexpr std::uint32_t below(std::uint64_t l, Priority tier) {
  std::uint32_t sum = 0;
  for (std::size_t t = static_cast<std::size_t>(tier) + 1; t < kPriorities; ++t) sum += count(l, t);
  return sum;
}
}  // namespace line

// The decision about a call. Values below `pending` are Reasons.
enum class Verdict : std::uint8_t { pending = 254, admitted = 255 };
constexpr Verdict rejected(Reason reason) { return static_cast<Verdict>(reason); }
constexpr Reason reason_of(Verdict verdict) { return static_cast<Reason>(verdict); }

// One call in line. It is stored by the caller: on a stack, in a coroutine frame, in an operation object. It is one cache
// line if it is aligned, so that a hand-off fetches one line from the waiter's core.
template <class P>
struct Waiter {
  // The values of `signal`, on which a thread parks.
  static constexpr std::uint32_t kSleeping = 0, kPoked = 1, kDone = 2;

  Waiter() = default;
  Waiter(const Waiter&) = delete;
  Waiter& operator=(const Waiter&) = delete;

  std::uint32_t cost = 1;
  Priority tier = Priority::normal;
  bool is_thread = true;  // a parked thread; false: `complete` is called when the waiter is decided
  // Guarded by the turnstile's lock until published, used by the owner afterwards.
  typename P::template Var<Verdict> verdict{Verdict::pending};
  typename P::template Var<bool> queued{false};
  void (*complete)(Waiter&) noexcept = nullptr;
  std::uint64_t flow = 0;  // see FlowQueues
  std::int64_t since = 0;  // ns, when it joined the line

  // Guarded as above. The numbers at the decision. limit() and max_queue() reuse `since`, which is not needed any more.
  // Before the decision, `waiting` is the ticket of FlowQueues.
  std::uint32_t in_flight = 0, waiting = 0;
  void set_shape(std::uint32_t limit, std::uint32_t max_queue) {
    since = static_cast<std::int64_t>(std::uint64_t{limit} << 32 | max_queue);
  }
  std::uint32_t limit() const { return static_cast<std::uint32_t>(static_cast<std::uint64_t>(since) >> 32); }
  std::uint32_t max_queue() const { return static_cast<std::uint32_t>(since); }
  Waiter* next = nullptr;
  Waiter* prev = nullptr;

  typename P::template Atomic<std::uint32_t> signal{kSleeping};
  std::uint16_t queue = 0;  // in FlowQueues
  typename P::template Var<Verdict> early{
      Verdict::pending};  // set if it was withdrawn before it joined the line
};

// Waiters that were decided under the lock and have to be published, in order; and the waiter to poke. The functions are
// in src/gate/wakes.h.
template <class P>
struct Wakes {
  Waiter<P>* first = nullptr;
  Waiter<P>* last = nullptr;
  typename P::template Atomic<std::uint32_t>* poke = nullptr;
  void* idle = nullptr;  // a list of Turnstile::Drain that are over
  bool more = false;     // go_on() has to serve the rest of the line

  void push_front(Waiter<P>& w);
  void push(Waiter<P>& w);
  bool remove(Waiter<P>& w);
  Waiter<P>* pop();  // null: empty
};

template <class P>
class Turnstile {
 public:
  using Waiter = detail::Waiter<P>;
  using Wakes = detail::Wakes<P>;

  static constexpr std::int64_t kForever = std::numeric_limits<std::int64_t>::max();

  struct Setup {
    std::uint32_t limit, reserve, max_queue;
    std::uint32_t queue_reserve = 0;  // places in line for critical calls only
    Fairness fairness = Fairness::fifo;
    std::int64_t max_barge_ns = 500'000;
    bool observed = false;
    std::uint32_t ceiling = 0;  // see below
  };
  explicit Turnstile(const Setup& setup) noexcept;
  Turnstile(const Turnstile&) = delete;
  Turnstile& operator=(const Turnstile&) = delete;

  // Takes one unit if there is room, quiet is set and note_pass() is not due. Never waits; writes nothing if it fails.
  [[gnu::always_inline]] bool pass() noexcept {
    std::uint64_t w = guess(1);
    // Loaded before the exchange: a load after it would delay the addition of the release.
    const std::uint64_t quarter = quarter_.load(std::memory_order_relaxed);
    while (open_for(1, w) && w >> 62 == quarter) {
      if (take_units(1, w)) return true;
    }
    return false;
  }
  // Takes `cost` units, also if note_pass() is due.
  // noted: taken, call note_pass(). filled: as noted, and no unit is available any more.
  enum class Pass : std::uint8_t { no, yes, noted, filled };
  [[gnu::always_inline]] Pass try_pass(std::uint32_t cost) noexcept {
    std::uint64_t w = guess(cost);
    while (open_for(cost, w)) {
      if (!take_units(cost, w)) continue;
      return (w >> 62) == quarter_.load(std::memory_order_relaxed) ? Pass::yes
             : open_for(1, w - cost)                               ? Pass::noted
                                                                   : Pass::filled;
    }
    return Pass::no;
  }
  // Maintains the 64-bit count of releases; has to run at least once in 2^30 releases.
  void note_pass() noexcept;
  bool needs_note(std::uint64_t seen) const noexcept {
    return seen >> 62 != (anchor_.load(std::memory_order_relaxed) >> 30 & 3);
  }
  // Hooks, holders or sampling need every admission and release: every pass is noted.
  bool observed() const noexcept { return observed_; }
  // A word in the cache line of the hot one, for an owner that changes it after each admission and before each release
  // (ResourcePool: its stack of idle resources). In another line it would cost two more transfers between cores per call.
  std::atomic<std::uint64_t>& companion_word() noexcept { return companion_word_; }
  // The functions below report to the meter what they take and give back. Callers of try_pass() report it themselves.
  // Call this before the first call, and only if `observed`.
  void measure_with(Meter& meter) noexcept { meter_ = &meter; }
  void be_fair_with(FlowQueues<P>& flows) noexcept { flows_ = &flows; }  // before the first call

  // Gives `cost` units back. False: a call may wait for them, call after_release().
  [[nodiscard]] bool give_back(std::uint32_t cost) noexcept { return put_back(cost) & word::kQuiet; }
  // Also reports `units` of them to the meter; the others were reported before.
  [[nodiscard]] bool give_back(std::uint32_t cost, std::uint32_t units, std::int64_t now) noexcept;
  // Gives them back only if no call waits and units were available before. Does not access the turnstile afterwards.
  [[nodiscard, gnu::always_inline]] bool give_back_quietly(std::uint32_t cost) noexcept {
    std::uint64_t w = word_.load(std::memory_order_relaxed);
    while (open_for(1, w)) {
      const std::uint64_t after = w + word::kReleasedOne + cost;
      // release: as in give_back()
      if (!word_.compare_exchange_weak(w, after, std::memory_order_release, std::memory_order_relaxed))
        continue;
      P::remember(this, after);
      return true;
    }
    return false;
  }
  void after_release(std::int64_t now, Wakes& wakes) noexcept;
  // Call it just before after_release(), unless observed(). It wakes the thread at the head of the line: waking takes a
  // hundred times longer than the hand-off, which finishes while the thread wakes up.
  void rouse() const noexcept;

  // For a permit that changes what it holds; defined in src/gate/settling.h.
  // Gives back `from` - `to` units, above 0. False: a call may be waiting for them, call after_lower().
  [[nodiscard]] bool lower(std::uint32_t from, std::uint32_t to, std::int64_t now) noexcept;
  void after_lower(std::int64_t now, Wakes& wakes) noexcept;
  // Takes `units` more for a permit that holds `held`, if there is room and no call of `tier` or above is in line.
  enum class Raise : std::uint8_t { done, no_room, behind };
  Raise raise(Priority tier, std::uint32_t held, std::uint32_t units, std::int64_t now) noexcept;
  void fill_empty() noexcept;  // a permit that held nothing has got units by another way than raise()
  // The release of a permit that holds nothing; as give_back(). The caller keeps the turnstile until it returns.
  [[nodiscard]] bool give_back_empty() noexcept;

  // For a call that try_pass() did not admit: admits it, rejects it, or (verdict `pending`) leaves it in line.
  struct Terms {
    bool may_queue = false;      // false: reject with concurrency_limit instead
    bool may_wait = false;       // false: reject with timeout instead
    std::int64_t time_left = 0;  // ns to the deadline; used if mean_hold is set
    std::int64_t mean_hold = 0;  // ns; 0: do not predict
  };
  Verdict enter(Waiter& w, const Terms& terms, std::int64_t now, Wakes& wakes) noexcept;
  // Serves the rest of the line in batches. Call it after the functions for groups below, without their lock; all other
  // functions call it themselves.
  void go_on(std::int64_t now, Wakes& wakes) noexcept;
  // The verdict of enter() without the lock, in simple cases: the gate is full and the call may not queue, or the line is
  // full.
  struct Look {
    Verdict verdict;  // `pending`: not a simple case, call enter()
    std::uint32_t in_flight, limit, waiting, max_queue;
  };
  Look look(Priority tier, std::uint32_t cost, bool may_queue) const noexcept;

  // Parks the calling thread until `w` is decided; at `until` (ns) it leaves the line with `timeout`.
  // park(signal, value, until) parks while signal == value; tell(wakes) publishes. True: this thread decided `w` (it left,
  // or was woken and took the units); false: another thread did.
  template <class Now, class Park, class Tell>
  bool wait(Waiter& w, std::int64_t until, Now&& now, Park&& park, Tell&& tell) noexcept;

  // Takes `w` out of the line with `reason`. False: it is decided already, or has not joined the line yet (enter() will
  // reject it with `reason`).
  bool withdraw(Waiter& w, Reason reason, std::int64_t now, Wakes& wakes) noexcept;

  // Tells the owner of a decided waiter. The waiter may be destroyed when this returns.
  static void publish(Waiter& w) noexcept;
  static void finish(Wakes& wakes) noexcept;  // tells the poked waiter and the drains

  void resize(std::uint32_t limit, std::uint32_t reserve, std::int64_t now, Wakes& wakes) noexcept;
  void resize_queue(std::uint32_t max_queue, std::uint32_t reserve) noexcept;
  bool close(Wakes& wakes) noexcept;  // true: this call closed it

  // In a full line, an arrival evicts the oldest waiter of the lowest tier, its own included, instead of the newest one of
  // a lower tier. Call it before the first call.
  void discard_oldest() noexcept { discards_oldest_ = true; }
  // For the queue of a pool; defined in src/gate/posting.h. Arrivals and servers have a lock each; a server takes both
  // only when the line is empty.
  void post_to(Inbox<P>& inbox) noexcept {
    inbox_ = &inbox;
  }  // before the first call; fifo, no flows, no group
  // Puts `w`, of normal priority and cost 1, into the inbox. False: the inbox is closed or full, call enter().
  bool post(Waiter& w) noexcept;
  // Gives one unit of the caller to the next waiter in line, if its `complete` is this one; the caller tells it. Null:
  // there is none, and the caller keeps the unit.
  Waiter* hand_on(void (*complete)(Waiter&) noexcept) noexcept;

  // For a member of a group, whose limit is what it is allotted now; defined in src/gate/lending.h.
  //  M1  owed_: units in flight above the limit, which have been called back. While it is not 0, no call is admitted and
  //      each release takes the lock, where collect() finds the units that came back.
  //  M2  While watched_ is set every release takes the lock, because another member waits for units of this one.
  // The limit can grow up to the ceiling: a call that costs more is rejected, a call that costs less may wait.
  void set_ceiling(std::uint32_t ceiling) noexcept { ceiling_.store(ceiling, std::memory_order_relaxed); }
  struct Lack {
    bool waits = false;       // other calls are first, or the gate is closed: more units would not help
    std::uint32_t units = 0;  // with this many more it would be admitted
  };
  void set_reserve(std::uint32_t reserve, std::int64_t now) noexcept;
  // After set_reserve() or set_ceiling(): rejects waiters that can never fit, and serves the line.
  void refit_all(std::int64_t now, Wakes& wakes) noexcept;
  Lack try_enter(const Waiter& w, std::int64_t now) noexcept;  // neither `units` nor `waits`: it is admitted
  void grow(std::uint32_t units, std::int64_t now, Wakes& wakes) noexcept;
  bool grow_for(const Waiter& w, std::uint32_t units, std::int64_t now, Wakes& wakes) noexcept;
  std::uint32_t shrink_idle(std::uint32_t most,
                            std::int64_t now) noexcept;  // takes units that are free now, except the reserve
  std::uint32_t call_back(std::uint32_t units,
                          std::int64_t now) noexcept;  // lowers the limit; returns how many were free
  std::uint32_t collect(std::int64_t now) noexcept;    // called-back units that have come back since
  void watch(bool on, std::int64_t now) noexcept;

  // For a gate with a scope: its limit is 0, so nothing above admits. Its owner takes the units of each call from a source
  // that processes share, and lets the call in with them; defined in src/gate/scoped.h.
  //  U1  Units go back to the source before they are added to the word. So a thread that clears quiet and then asks the
  //      source finds the units of every release that saw quiet set; the other releases take the lock and settle.
  bool quiet() const noexcept { return word_.load(std::memory_order_relaxed) & word::kQuiet; }
  bool let_in(std::uint32_t cost, std::int64_t now) noexcept;  // false, and no effect: quiet is clear
  void let_in_anyway(const Waiter& w, std::int64_t now) noexcept;
  // Lets in the first call in line if `units` are enough for it; returns its cost, or 0.
  std::uint32_t let_in_first(std::uint32_t units, std::int64_t now, Wakes& wakes) noexcept;

  struct Hunger {
    std::uint32_t head = 0;  // units that the first in line lacks
    std::uint32_t line = 0;  // units that the whole line lacks, approximately
    std::uint32_t cost = 0;  // of the first in line; 0: the line is empty
    Priority tier = Priority::normal;
    std::int64_t since = 0;
  };
  Hunger hunger() const noexcept;
  std::uint32_t ceiling() const noexcept { return ceiling_.load(std::memory_order_relaxed); }

  // One thread that waits until the turnstile is idle: no units in flight, no call in line.
  struct Drain {
    Drain* next = nullptr;
    typename P::template Atomic<std::uint32_t> signal{Waiter::kSleeping};
  };
  bool join_drain(Drain& drain, std::int64_t now, Wakes& wakes) noexcept;  // false: it is idle already
  bool leave_drain(Drain& drain, std::int64_t now,
                   Wakes& wakes) noexcept;  // false: the drain is over and is being published
  // Makes drains that are over but not published (told.idle) wait again if the turnstile is no longer idle: a release
  // hook may have taken units.
  void keep_drains(Wakes& told, std::int64_t now, Wakes& wakes) noexcept;

  // Costs above 1 and failed calls change numbers beside the word, between begin() and end(). A reader that finds no open
  // section has read the numbers of one instant.
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
    bool torn;  // a section was open at every try: the numbers may not match
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
    return (w & (word::kReleasedOne - 1)) >= word::kQuiet + word::kBias + cost;
  }
  // The word is mostly as this thread left it. Guessing it saves the wait for a load; the exchange corrects a wrong guess.
  // If other threads change the word all the time, a wrong guess costs more than a load. So after a wrong guess this
  // thread loads the word until it finds it unchanged.
  [[gnu::always_inline]] std::uint64_t guess(std::uint32_t cost) const noexcept {
    std::uint64_t w = P::recall(this);
    if (!open_for(cost, w)) [[unlikely]] {
      w = word_.load(std::memory_order_relaxed);
      P::compare(this, w);
    }
    return w;
  }
  // False: the word was different; `w` is updated.
  [[gnu::always_inline]] bool take_units(std::uint32_t cost, std::uint64_t& w) noexcept {
    // acquire: this call sees what the call that gave the units back has written.
    // release: a reader of this word sees the begin() before it.
    if (word_.compare_exchange_weak(w, w - cost, std::memory_order_acq_rel, std::memory_order_relaxed))
      return true;
    P::doubt();
    return false;
  }
  bool loose() const noexcept { return fairness_ != Fairness::fifo; }
  Waiter* head() const noexcept BULKHEAD_REQUIRES(mutex_);
  bool starved(const Waiter* w, std::int64_t now) const noexcept;
  bool fits(const Waiter& w) const noexcept;
  void linger(const Waiter& w) const noexcept;
  template <class Now, class Tell>
  bool try_again(Waiter& w, std::uint32_t signal, Now& now, Tell& tell) noexcept;
  [[gnu::always_inline]] std::uint64_t put_back(
      std::uint32_t cost) noexcept {  // returns the word before the addition
    const std::uint64_t w = word_.fetch_add(word::kReleasedOne + cost, std::memory_order_release);
    P::remember(this, w + word::kReleasedOne + cost);
    return w;
  }
  bool take(const Waiter& w, std::int64_t now) noexcept BULKHEAD_REQUIRES(mutex_);
  bool raise_quietly(std::uint32_t units, std::int64_t now) noexcept;
  bool hopeless(const Waiter& w) const noexcept;
  bool line_is_full(std::uint64_t l, std::uint32_t max, Priority tier) const noexcept;
  // How many calls in line a call of this tier may evict.
  std::uint32_t evictable(std::uint64_t l, Priority tier) const noexcept {
    return line::below(l, tier) + (discards_oldest_ ? line::count(l, static_cast<std::size_t>(tier)) : 0);
  }
  void push(Waiter& w) noexcept BULKHEAD_REQUIRES(mutex_);
  void unlink(Waiter& w, bool served) noexcept BULKHEAD_REQUIRES(mutex_);
  std::uint32_t lists() const noexcept BULKHEAD_REQUIRES(mutex_);
  Waiter* first_of(std::uint32_t list) const noexcept BULKHEAD_REQUIRES(mutex_);
  Verdict join(Waiter& w, const Terms& terms, std::int64_t now, Wakes& wakes) noexcept
      BULKHEAD_REQUIRES(mutex_);
  void reshape(std::uint32_t limit, std::uint32_t reserve, std::int64_t now) noexcept
      BULKHEAD_REQUIRES(mutex_);
  void start_scan() noexcept BULKHEAD_REQUIRES(mutex_);
  bool refit(std::int64_t now, Wakes& wakes) noexcept BULKHEAD_REQUIRES(mutex_);
  bool reject_all(Wakes& wakes) noexcept BULKHEAD_REQUIRES(mutex_);
  void leave(Waiter& w) noexcept BULKHEAD_REQUIRES(mutex_);
  bool admit(Waiter& w, std::int64_t now) noexcept BULKHEAD_REQUIRES(mutex_);
  void decide(Waiter& w, Verdict verdict) noexcept BULKHEAD_REQUIRES(mutex_);
  Verdict reject(Waiter& w, Reason reason) noexcept BULKHEAD_REQUIRES(mutex_);
  void serve(std::int64_t now, Wakes& wakes) noexcept BULKHEAD_REQUIRES(mutex_);
  void set_quiet(bool quiet) noexcept BULKHEAD_REQUIRES(mutex_);
  bool settle_quiet(std::int64_t now) noexcept BULKHEAD_REQUIRES(mutex_);
  void attend(std::int64_t now, Wakes& wakes) noexcept BULKHEAD_REQUIRES(mutex_);
  void check_idle(Wakes& wakes) noexcept BULKHEAD_REQUIRES(mutex_);
  void shift(std::int64_t by, std::int64_t now) noexcept BULKHEAD_REQUIRES(mutex_);
  void move_limit(std::int64_t by, std::int64_t now) noexcept BULKHEAD_REQUIRES(mutex_);
  std::uint32_t repaid() noexcept BULKHEAD_REQUIRES(mutex_);
  bool idle() const noexcept BULKHEAD_REQUIRES(mutex_);
  Waiter* next() noexcept BULKHEAD_REQUIRES(mutex_);
  void take_posts() noexcept BULKHEAD_REQUIRES(mutex_);
  void allow_posts() noexcept BULKHEAD_REQUIRES(mutex_);
  std::uint64_t in_line() const noexcept;  // not under the lock
  // The numbers that a resize changes one after the other.
  struct Shape {
    std::uint64_t word;
    std::uint32_t limit, reserve;
    std::uint32_t in_flight() const noexcept {
      const std::int64_t used = std::int64_t{limit} - reserve - word::room(word);
      return used > 0 ? static_cast<std::uint32_t>(used) : 0;
    }
  };
  Shape shape_under_lock() const noexcept;
  Shape shape() const noexcept;  // the numbers of one instant; not under the lock
  Shape shape_with_retries() const noexcept;
  void note(std::uint64_t w) noexcept BULKHEAD_REQUIRES(mutex_);

  // The hot cache line: every admission and release writes it, so it holds nothing that other threads need.
  alignas(64) typename P::template Atomic<std::uint64_t> word_;
  std::atomic<std::uint64_t> companion_word_{0};  // see companion_word()
  // The signal of the thread at the head of the line, if it needs one unit; null for a member of a group, whose unit may
  // go to another member. It is a cache of head() and only an address: the waiter may have left.
  typename P::template Atomic<typename P::template Atomic<std::uint32_t>*> sleeper_{nullptr};

  // Read by all calls, written rarely.
  // The top two bits of `released` when it was last noted; 4, which never matches, if every pass has to be noted.
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
  typename P::template Atomic<std::int64_t> heavy_{0};  // the sum of (cost - 1) of all permits in flight
  typename P::template Atomic<std::uint64_t> failed_{0};
  typename P::template Atomic<std::uint32_t> empty_{0};  // see E1
  const std::int64_t max_barge_ns_;

  // line_ is written under mutex_. flows_, inbox_ and discards_oldest_ are set before the first call.
  alignas(64) mutable typename P::Mutex mutex_;
  std::uint32_t slow_releases_ BULKHEAD_GUARDED_BY(mutex_) =
      0;  // D1; while quiet is clear, `released` of the word has to be added
  typename P::template Atomic<std::uint64_t> line_{0};
  List tiers_[kPriorities] BULKHEAD_GUARDED_BY(mutex_);  // the line, unless flows_ is set
  FlowQueues<P>* flows_ BULKHEAD_PT_GUARDED_BY(mutex_) = nullptr;
  Waiter* poked_ BULKHEAD_GUARDED_BY(mutex_) = nullptr;
  Drain* drains_ BULKHEAD_GUARDED_BY(mutex_) = nullptr;
  bool quiet_ BULKHEAD_GUARDED_BY(mutex_) = true;       // a copy of the bit of the word
  bool watched_ BULKHEAD_GUARDED_BY(mutex_) = false;    // see M2
  std::uint32_t owed_ BULKHEAD_GUARDED_BY(mutex_) = 0;  // see M1
  // The progress of a resize that looks for waiters that can never fit: the next waiter, and the list after its list.
  // heaviest_: when the scan is over, no waiter costs more.
  Waiter* scan_ BULKHEAD_GUARDED_BY(mutex_) = nullptr;
  std::uint32_t scan_list_ BULKHEAD_GUARDED_BY(mutex_) = ~std::uint32_t{0};
  std::uint32_t heaviest_ BULKHEAD_GUARDED_BY(mutex_) = 0;
  bool discards_oldest_ = false;
  bool serving_ BULKHEAD_GUARDED_BY(mutex_) =
      false;  // a thread has unlocked between two batches and will serve the rest
  bool inbox_open_ BULKHEAD_GUARDED_BY(mutex_) = false;
  std::uint32_t granted_ BULKHEAD_GUARDED_BY(mutex_) = 0;  // the places of the inbox when it was opened
  Inbox<P>* inbox_ = nullptr;                              // of a pool
};

}  // namespace detail
}  // namespace bulkhead
