// slow_path.h - the turnstile beyond its two atomic operations: the line, hand-off, resize, close, drain.
//
// Every function that changes the line runs under the turnstile's lock and calls no other code: it collects decided
// waiters in a Wakes, which the caller tells after unlocking. No hold of the lock visits more than two batches of waiters
// (P::kBatch); work on more waiters unlocks in between, so that a line of two million does not block other callers. The
// invariants are in bulkhead/detail/turnstile.h.
#pragma once

#include "bulkhead/detail/mutex.h"
#include "bulkhead/detail/turnstile.h"
#include "gate/flow_queues.h"
#include "gate/wakes.h"

namespace bulkhead::detail {

// For work that unlocks after each batch and locks again: a thread that waits for the lock gets it in between.
template <class Mutex>
class BULKHEAD_SCOPED_CAPABILITY HoldForABatch {
 public:
  explicit HoldForABatch(Mutex& mutex) BULKHEAD_ACQUIRE(mutex) : mutex_(mutex) { mutex_.lock(); }
  ~HoldForABatch() BULKHEAD_RELEASE() {
    if constexpr (requires { mutex_.unlock_fairly(); })
      mutex_.unlock_fairly();
    else
      mutex_.unlock();
  }
  HoldForABatch(const HoldForABatch&) = delete;
  HoldForABatch& operator=(const HoldForABatch&) = delete;

 private:
  Mutex& mutex_;
};

template <class P>
Turnstile<P>::Turnstile(const Setup& setup) noexcept
    : word_(word::kQuiet + word::kBias + setup.limit - setup.reserve),
      quarter_(setup.observed ? 4 : 0),
      limit_(setup.limit),
      reserve_(setup.reserve),
      max_queue_(setup.max_queue),
      queue_reserve_(setup.queue_reserve),
      ceiling_(setup.ceiling),
      fairness_(setup.fairness),
      observed_(setup.observed),
      max_barge_ns_(setup.max_barge_ns) {}

// ---- the line ----

template <class P>
Waiter<P>* Turnstile<P>::head() const noexcept {
  if (flows_) [[unlikely]] {
    for (std::size_t tier = 0; tier < kPriorities; ++tier)
      if (Waiter* w = flows_->head(tier)) return w;
    return nullptr;
  }
  for (const List& tier : tiers_)
    if (tier.first) return tier.first;
  return nullptr;
}

// The count is stored with release, because look() reads it without the lock.
template <class P>
void Turnstile<P>::push(Waiter& w) noexcept {
  if (flows_) [[unlikely]] {
    flows_->push(w);
  } else {
    List& list = tiers_[static_cast<std::size_t>(w.tier)];
    w.next = nullptr;
    w.prev = list.last;
    (list.last ? list.last->next : list.first) = &w;
    list.last = &w;
  }
  w.queued = true;
  const std::uint64_t l = line_.load(std::memory_order_relaxed);
  if (l == 0 || w.cost > heaviest_) heaviest_ = w.cost;
  line_.store(l + line::one(w.tier), std::memory_order_release);
}

template <class P>
void Turnstile<P>::unlink(Waiter& w, bool served) noexcept {
  if (flows_) [[unlikely]] {
    flows_->remove(w, served);
  } else {
    List& list = tiers_[static_cast<std::size_t>(w.tier)];
    (w.prev ? w.prev->next : list.first) = w.next;
    (w.next ? w.next->prev : list.last) = w.prev;
  }
  w.queued = false;
  if (poked_ == &w) poked_ = nullptr;
  if (scan_ == &w) scan_ = w.next;
}

template <class P>
void Turnstile<P>::leave(Waiter& w) noexcept {
  line_.store(line_.load(std::memory_order_relaxed) - line::one(w.tier), std::memory_order_release);
  unlink(w, false);
}

// The line consists of this many lists, tier by tier.
template <class P>
std::uint32_t Turnstile<P>::lists() const noexcept {
  return static_cast<std::uint32_t>(kPriorities) * (flows_ ? flows_->size() : 1);
}

template <class P>
Waiter<P>* Turnstile<P>::first_of(std::uint32_t list) const noexcept {
  return flows_ ? flows_->first(list / flows_->size(), list % flows_->size()) : tiers_[list].first;
}

template <class P>
void Turnstile<P>::decide(Waiter& w, Verdict verdict) noexcept {
  w.verdict = verdict;
  const Shape now = shape_under_lock();
  w.in_flight = now.in_flight();
  w.waiting = line::total(line_.load(std::memory_order_relaxed));
  w.set_shape(now.limit, max_queue());
}

template <class P>
bool Turnstile<P>::starved(const Waiter* w, std::int64_t now) const noexcept {
  return fairness_ == Fairness::adaptive && w && now - w->since > max_barge_ns_;
}

template <class P>
bool Turnstile<P>::fits(const Waiter& w) const noexcept {
  const std::int64_t reserve = w.tier == Priority::critical ? reserve_.load(std::memory_order_relaxed) : 0;
  return word::room(word_.load(std::memory_order_relaxed)) + reserve >= w.cost;
}

template <class P>
bool Turnstile<P>::hopeless(const Waiter& w) const noexcept {
  const std::uint32_t reserve = w.tier == Priority::critical ? 0 : reserve_.load(std::memory_order_relaxed);
  const std::uint32_t limit = limit_.load(std::memory_order_relaxed);
  const std::uint32_t ceiling = ceiling_.load(std::memory_order_relaxed);
  return std::int64_t{w.cost} > std::int64_t{ceiling > limit ? ceiling : limit} - reserve;
}

template <class P>
bool Turnstile<P>::line_is_full(std::uint64_t l, std::uint32_t max, Priority tier) const noexcept {
  const std::uint32_t reserve =
      tier == Priority::critical ? 0 : queue_reserve_.load(std::memory_order_relaxed);
  return line::total(l) + std::uint64_t{reserve} >= max;
}

// Takes the units of `w` even if quiet is clear. Limit and reserve do not change under the lock; the word may.
template <class P>
bool Turnstile<P>::take(const Waiter& w, std::int64_t now) noexcept {
  const std::int64_t reserve = w.tier == Priority::critical ? reserve_.load(std::memory_order_relaxed) : 0;
  if (w.cost > 1) begin();
  bool taken = false;
  std::uint64_t x = word_.load(std::memory_order_relaxed);
  while (word::room(x) + reserve >= w.cost && !taken)
    taken = word_.compare_exchange_weak(x, x - w.cost, std::memory_order_acq_rel, std::memory_order_relaxed);
  if (w.cost > 1) {
    if (taken) add_heavy(w.cost - 1);
    end();
  }
  if (taken && meter_) P::measure(*meter_, w.cost, word::turned_full(x, x - w.cost), now);
  return taken;
}

// Admits `w`, which is in line, if there is room. The line is counted down before the units are taken: a reader that sees
// the units taken must not see the old count, or look() would reject a call although the line has a place.
template <class P>
bool Turnstile<P>::admit(Waiter& w, std::int64_t now) noexcept {
  if (!fits(w)) return false;
  const std::uint64_t l = line_.load(std::memory_order_relaxed);
  line_.store(l - line::one(w.tier), std::memory_order_release);
  if (!take(w, now)) {
    line_.store(l, std::memory_order_release);
    return false;
  }
  unlink(w, true);
  decide(w, Verdict::admitted);
  return true;
}

// ---- serving it ----

// Gives free units to the next waiters. In the loose modes (barging, adaptive) it only wakes a thread to try for itself,
// one at a time, so that other calls can use the units while the thread wakes up; other waiters get the units directly.
// After a batch it stops and sets wakes.more: the caller has to call go_on(), and no other thread serves until then. A
// closed line is not served.
template <class P>
void Turnstile<P>::serve(std::int64_t now, Wakes& wakes) noexcept {
  if (serving_ || closed_.load(std::memory_order_relaxed)) return;
  int served = 0;
  while (Waiter* w = next()) {
    if (served++ == P::kBatch) {
      serving_ = wakes.more = true;
      return;
    }
    if (loose() && w->is_thread && !starved(w, now)) {
      if (!poked_ && fits(*w)) {
        poked_ = w;
        w->signal.store(Waiter::kPoked, std::memory_order_release);
        wakes.poke = &w->signal;
      }
      return;
    }
    if (!admit(*w, now)) return;
    wakes.push(*w);
  }
}

template <class P>
void Turnstile<P>::set_quiet(bool quiet) noexcept {
  P::point("quiet.before_change");
  quiet_ = quiet;
  if (quiet)
    slow_releases_ += word::released(word_.fetch_add(word::kQuiet, std::memory_order_acq_rel));
  else
    slow_releases_ -= word::released(word_.fetch_sub(word::kQuiet, std::memory_order_acq_rel));
}

// Updates the quiet bit. True: it was cleared now, so read `room` again (L1).
template <class P>
bool Turnstile<P>::settle_quiet(std::int64_t now) noexcept {
  Waiter* w = head();
  auto* const sleeper = w && w->is_thread && w->cost == 1 && ceiling() == 0 ? &w->signal : nullptr;
  if (sleeper_.load(std::memory_order_relaxed) != sleeper) sleeper_.store(sleeper, std::memory_order_relaxed);
  const bool nobody_waits = !w || (poked_ && !starved(w, now));
  const bool group_waits = watched_ || owed_ > 0;
  const bool quiet = !group_waits && nobody_waits && !drains_ && !closed_.load(std::memory_order_relaxed);
  if (quiet == quiet_) return false;
  set_quiet(quiet);
  return !quiet;
}

template <class P>
void Turnstile<P>::attend(std::int64_t now, Wakes& wakes) noexcept {
  do serve(now, wakes);
  while (settle_quiet(now));
  note(word_.load(std::memory_order_relaxed));  // while there is a line, no call passes that would note it
  allow_posts();
  check_idle(wakes);
}

// Continues attend() after a batch. Until it is done, `wakes` has admitted waiters that are not published, so the gate is
// not idle and cannot be destroyed. Not under the lock.
template <class P>
void Turnstile<P>::go_on(std::int64_t now, Wakes& wakes) noexcept {
  while (wakes.more) {
    P::point("go_on.before_lock");
    HoldForABatch hold(mutex_);
    serving_ = wakes.more = false;
    attend(now, wakes);
  }
}

template <class P>
bool Turnstile<P>::idle() const noexcept {
  const std::uint64_t w = word_.load(std::memory_order_acquire);
  const std::uint32_t on_the_way = slow_releases_ + (quiet_ ? 0 : word::released(w));
  if (empty_.load(std::memory_order_relaxed) != 0) return false;  // after the word: see E1
  return !head() && on_the_way == 0 &&
         word::room(w) >=
             std::int64_t{limit_.load(std::memory_order_relaxed)} - reserve_.load(std::memory_order_relaxed);
}

template <class P>
void Turnstile<P>::check_idle(Wakes& wakes) noexcept {
  if (!drains_ || !idle()) return;
  Drain* last = drains_;
  while (last->next) last = last->next;
  last->next = static_cast<Drain*>(wakes.idle);
  wakes.idle = drains_;
  drains_ = nullptr;
  settle_quiet(0);  // the line is empty, so no time is needed
}

template <class P>
void Turnstile<P>::keep_drains(Wakes& told, std::int64_t now, Wakes& wakes) noexcept {
  if (!told.idle) return;
  {
    MutexLock hold(mutex_);
    if (idle()) return;
    auto* last = static_cast<Drain*>(told.idle);
    while (last->next) last = last->next;
    last->next = drains_;
    drains_ = static_cast<Drain*>(told.idle);
    told.idle = nullptr;
    attend(now, wakes);
  }
  go_on(now, wakes);
}

template <class P>
bool Turnstile<P>::give_back(std::uint32_t cost, std::uint32_t units, std::int64_t now) noexcept {
  const std::uint64_t w = put_back(cost);
  P::measure(*meter_, -std::int64_t{units}, word::turned_full(w, w + cost), now);
  return w & word::kQuiet;
}

template <class P>
void Turnstile<P>::rouse() const noexcept {
  P::point("release.before_rouse");
  P::fetch(&mutex_);  // for after_release()
  P::fetch(&slow_releases_);
  const auto* const sleeper = sleeper_.load(std::memory_order_relaxed);
  if (sleeper && word::room(word_.load(std::memory_order_relaxed)) > 0) P::wake(sleeper);
}

template <class P>
void Turnstile<P>::after_release(std::int64_t now, Wakes& wakes) noexcept {
  P::point("release.before_lock");
  {
    MutexLock hold(mutex_);
    --slow_releases_;
    attend(now, wakes);
  }
  go_on(now, wakes);
}

// ---- joining and leaving it ----

template <class P>
inline typename Turnstile<P>::Look Turnstile<P>::look(Priority tier, std::uint32_t cost,
                                                      bool may_queue) const noexcept {
  const Shape now = shape();
  const std::uint64_t w = now.word;
  const std::uint64_t l = line_.load(std::memory_order_acquire);
  const std::uint32_t max = max_queue();
  Look look{Verdict::pending, now.in_flight(), now.limit, line::total(l), max};

  const bool full = word::room(w) < std::int64_t{cost} && (tier != Priority::critical || now.reserve == 0);
  if (!(w & word::kQuiet) && closed()) {
    look.verdict = rejected(Reason::shutdown);
  } else if (!may_queue || max == 0) {
    if (full) look.verdict = rejected(Reason::concurrency_limit);
  } else if (line_is_full(l, max, tier) && evictable(l, tier) == 0 && cost == 1 && !flows_) {
    // The line is full of calls that this call may neither overtake nor evict. Without fifo it could barge, so the gate
    // must have been full at the same instant: the word did not change in between. (A cost above 1 might exceed the
    // limit, which is a different reason; with flows the call might evict.)
    if (!loose() || (full && word_.load(std::memory_order_acquire) == w))
      look.verdict = rejected(Reason::queue_limit);
  }
  return look;
}

template <class P>
Verdict Turnstile<P>::enter(Waiter& w, const Terms& terms, std::int64_t now, Wakes& wakes) noexcept {
  P::point("enter.before_lock");
  Verdict verdict = Verdict::pending;
  {
    MutexLock hold(mutex_);
    verdict = join(w, terms, now, wakes);
  }
  go_on(now, wakes);  // if `w` is pending, it may be decided and destroyed by now
  return verdict;
}

template <class P>
Verdict Turnstile<P>::reject(Waiter& w, Reason reason) noexcept {
  decide(w, rejected(reason));
  return rejected(reason);
}

template <class P>
Verdict Turnstile<P>::join(Waiter& w, const Terms& terms, std::int64_t now, Wakes& wakes) noexcept {
  if (closed_.load(std::memory_order_relaxed)) return reject(w, Reason::shutdown);
  take_posts();  // they came before
  // An early stop rejects the call. An early timeout only means that it does not wait.
  const bool too_late = w.early == rejected(Reason::timeout);
  if (const Verdict early = w.early; early != Verdict::pending && !too_late)
    return reject(w, reason_of(early));

  const std::uint64_t l = line_.load(std::memory_order_relaxed);
  const std::uint32_t ahead = line::total(l) - line::below(l, w.tier);
  if ((ahead == 0 || (loose() && !starved(head(), now))) && take(w, now)) {
    decide(w, Verdict::admitted);
    return Verdict::admitted;
  }
  if (hopeless(w)) return reject(w, Reason::concurrency_limit);
  if (terms.may_queue && terms.mean_hold > 0) {
    const std::uint32_t now_allowed = limit_.load(std::memory_order_relaxed);
    const std::uint32_t limit =
        now_allowed > 0 ? now_allowed : 1;  // it is 0 for a member whose units are all lent
    const std::uint32_t before =
        flows_ ? ahead - line::count(l, static_cast<std::size_t>(w.tier)) + flows_->ahead(w) : ahead;
    // A call ahead is taken to need as many units as those that run do, on average. At least one: permits that have
    // settled at 0 count, and a call on the fast path may change the two numbers between our looks.
    const std::int64_t units = shape_under_lock().in_flight(),
                       permits = units - heavy_.load(std::memory_order_relaxed);
    const double each =
        permits > 0 && units > permits ? static_cast<double>(units) / static_cast<double>(permits) : 1;
    if (static_cast<double>(before) * static_cast<double>(terms.mean_hold) * each /
            static_cast<double>(limit) >
        static_cast<double>(terms.time_left))
      return reject(w, Reason::deadline);
  }
  const std::uint32_t max = max_queue_.load(std::memory_order_relaxed);
  if (!terms.may_queue || max == 0) return reject(w, Reason::concurrency_limit);
  const bool full = line_is_full(l, max, w.tier);
  if (full && evictable(l, w.tier) == 0 && !(flows_ && flows_->may_evict(w)))
    return reject(w, Reason::queue_limit);
  if (!terms.may_wait || too_late) return reject(w, Reason::timeout);

  if (full) {  // evict the newest (or oldest) waiter of the lowest tier; with flows, of its longest queue
    std::size_t lowest = kPriorities - 1;
    while (line::count(l, lowest) == 0) --lowest;
    Waiter& victim = discards_oldest_ ? *(flows_ ? flows_->first_of_longest(lowest) : tiers_[lowest].first)
                                      : *(flows_ ? flows_->last_of_longest(lowest) : tiers_[lowest].last);
    leave(victim);
    decide(victim, rejected(Reason::evicted));
    wakes.push(victim);
  }
  w.since = now;
  // Before `w` can be seen in line: a thread that has seen it must not overtake it on the fast path.
  if (!loose() && quiet_) set_quiet(false);
  push(w);
  P::point("enter.before_recheck");
  attend(now, wakes);
  // If `w` was decided already, the return value tells its owner.
  if (w.verdict != Verdict::pending) wakes.remove(w);
  return w.verdict;
}

// A waiter that has not joined yet gets a mark instead. A stop replaces the mark of a timeout, because it rejects.
template <class P>
bool Turnstile<P>::withdraw(Waiter& w, Reason reason, std::int64_t now, Wakes& wakes) noexcept {
  P::point("withdraw.before_lock");
  {
    MutexLock hold(mutex_);
    take_posts();
    if (!w.queued) {
      if (w.verdict == Verdict::pending && (w.early == Verdict::pending || reason != Reason::timeout))
        w.early = rejected(reason);
      return false;
    }
    leave(w);
    decide(w, rejected(reason));
    attend(now, wakes);
  }
  go_on(now, wakes);
  return true;
}

// A thread that was woken to try is mostly too late: running threads have taken the units again, and it may even have
// taken the core of one of them. Instead of sleeping until the next release wakes it, it yields a few times first; until
// it has tried, releases wake no other thread. Not for adaptive, where it would notice later that it is starved.
template <class P>
void Turnstile<P>::linger(const Waiter& w) const noexcept {
  if constexpr (requires { P::yield(); }) {
    if (fairness_ != Fairness::barging) return;
    for (int turns = 0; turns < 4 && !fits(w); ++turns) P::yield();
  }
}

template <class P>
template <class Now, class Park, class Tell>
bool Turnstile<P>::wait(Waiter& w, std::int64_t until, Now&& now, Park&& park, Tell&& tell) noexcept {
  for (bool woken = false;;) {
    const std::uint32_t s = w.signal.load(std::memory_order_acquire);
    if (s == Waiter::kDone) return false;
    if (s == Waiter::kPoked || woken) {
      woken = false;
      if (try_again(w, s, now, tell)) return true;
      continue;
    }
    const std::int64_t t = until == kForever ? 0 : now();
    if (t < until) {
      park(w.signal, s, until);
      woken = !observed_;  // observed: the release reports the admission before it reports itself
      continue;
    }
    Wakes wakes;
    const bool left = withdraw(w, Reason::timeout, t, wakes);
    tell(wakes);
    if (left) return true;
    until = kForever;  // decided already: it keeps its units, and the signal is about to be set
  }
}

// A thread in line was woken: to try for itself, or by a release that is about to serve it.
template <class P>
template <class Now, class Tell>
bool Turnstile<P>::try_again(Waiter& w, std::uint32_t signal, Now& now, Tell& tell) noexcept {
  P::fetch(&word_);  // all that the releasing core has written, at once
  P::fetch(&mutex_);
  P::fetch(&slow_releases_);
  P::point("wait.woken");
  if (signal == Waiter::kPoked) {
    w.signal.compare_exchange_strong(signal, Waiter::kSleeping, std::memory_order_acquire,
                                     std::memory_order_acquire);
    linger(w);
  }
  const std::int64_t t = fairness_ == Fairness::adaptive || meter_ ? now() : 0;
  Wakes wakes;
  bool admitted = false;
  {
    MutexLock hold(mutex_);
    if (w.verdict == Verdict::pending) {
      if (poked_ == &w) poked_ = nullptr;
      admitted = !closed_.load(std::memory_order_relaxed) && head() == &w && admit(w, t);
      attend(t, wakes);
      // attend() may have decided `w`: then it is in `wakes` and is published like any other waiter
    }
  }
  go_on(t, wakes);
  tell(wakes);
  return admitted;
}

template <class P>
void Turnstile<P>::publish(Waiter& w) noexcept {
  if (!w.is_thread) return w.complete(w);
  auto* signal = &w.signal;
  signal->store(Waiter::kDone, std::memory_order_release);
  P::wake(signal);  // an address only: the waiter may be gone
}

template <class P>
void Turnstile<P>::finish(Wakes& wakes) noexcept {
  if (wakes.poke) P::wake(wakes.poke);
  for (auto* drain = static_cast<Drain*>(wakes.idle); drain;) {
    Drain* next = drain->next;
    auto* signal = &drain->signal;
    signal->store(Waiter::kDone, std::memory_order_release);
    P::wake(signal);
    drain = next;
  }
  wakes.poke = nullptr;
  wakes.idle = nullptr;
}

// ---- changing the shape ----

template <class P>
void Turnstile<P>::shift(std::int64_t by, std::int64_t now) noexcept {
  const auto units = static_cast<std::uint64_t>(by);
  const std::uint64_t w = word_.fetch_add(units, std::memory_order_acq_rel);
  if (meter_) P::measure(*meter_, 0, word::turned_full(w, w + units), now);
}

template <class P>
void Turnstile<P>::resize(std::uint32_t limit, std::uint32_t reserve, std::int64_t now,
                          Wakes& wakes) noexcept {
  bool over = false;
  {
    MutexLock hold(mutex_);
    reshape(limit, reserve, now);
    over = refit(now, wakes);
  }
  while (!over) {
    P::point("resize.between_batches");
    HoldForABatch hold(mutex_);
    over = refit(now, wakes);
  }
  go_on(now, wakes);
}

template <class P>
void Turnstile<P>::reshape(std::uint32_t limit, std::uint32_t reserve, std::int64_t now) noexcept {
  take_posts();
  const std::int64_t before =
      std::int64_t{limit_.load(std::memory_order_relaxed)} - reserve_.load(std::memory_order_relaxed);
  const std::int64_t after = std::int64_t{limit} - reserve;
  begin();
  shift(after - before, now);
  P::point("resize.halfway");
  limit_.store(limit, std::memory_order_release);
  reserve_.store(reserve, std::memory_order_release);
  end();
  start_scan();
}

// Starts a scan of the whole line if a waiter may cost more than can ever be available. Waiters that join later are
// checked against the new limit when they join. A second resize restarts the scan, and both callers continue it.
template <class P>
void Turnstile<P>::start_scan() noexcept {
  const std::uint32_t limit = limit_.load(std::memory_order_relaxed);
  const std::uint32_t ceiling = ceiling_.load(std::memory_order_relaxed);
  const std::int64_t most =
      std::int64_t{ceiling > limit ? ceiling : limit} - reserve_.load(std::memory_order_relaxed);
  const bool under_way = scan_ || scan_list_ < lists();
  if (!under_way && heaviest_ <= most) return;
  scan_ = nullptr;
  scan_list_ = 0;
  heaviest_ = 0;  // the scan computes it again
}

// Rejects waiters that can never fit, then serves the line. False: a batch was visited, and there are more.
template <class P>
bool Turnstile<P>::refit(std::int64_t now, Wakes& wakes) noexcept {
  for (int looks = 0; scan_ || scan_list_ < lists(); ++looks) {
    if (looks == P::kBatch) return false;
    if (!scan_) {
      scan_ = first_of(scan_list_++);
      continue;
    }
    Waiter& w = *scan_;
    scan_ = w.next;
    if (!hopeless(w)) {
      if (w.cost > heaviest_) heaviest_ = w.cost;
      continue;
    }
    leave(w);
    decide(w, rejected(Reason::concurrency_limit));
    wakes.push(w);
  }
  attend(now, wakes);
  return true;
}

template <class P>
void Turnstile<P>::resize_queue(std::uint32_t max_queue, std::uint32_t reserve) noexcept {
  MutexLock hold(mutex_);
  take_posts();
  max_queue_.store(max_queue, std::memory_order_release);
  queue_reserve_.store(reserve, std::memory_order_release);
  allow_posts();
}

// Closed first, so that no call joins between two batches of rejected ones.
template <class P>
bool Turnstile<P>::close(Wakes& wakes) noexcept {
  bool over = false;
  {
    MutexLock hold(mutex_);
    if (closed_.load(std::memory_order_relaxed)) return false;
    closed_.store(true, std::memory_order_release);
    take_posts();
    over = reject_all(wakes);
  }
  while (!over) {
    P::point("close.between_batches");
    HoldForABatch hold(mutex_);
    over = reject_all(wakes);
  }
  return true;
}

// Empties a closed line. False: a batch was rejected, and there are more.
template <class P>
bool Turnstile<P>::reject_all(Wakes& wakes) noexcept {
  int rejects = 0;
  while (Waiter* w = head()) {
    if (rejects++ == P::kBatch) break;
    leave(*w);
    decide(*w, rejected(Reason::shutdown));
    wakes.push(*w);
  }
  attend(0, wakes);  // also between batches: it closes the fast path, which a poked waiter may have kept open
  return !head();
}

template <class P>
bool Turnstile<P>::join_drain(Drain& drain, std::int64_t now, Wakes& wakes) noexcept {
  bool waits = false;
  {
    MutexLock hold(mutex_);
    drain.next = drains_;
    drains_ = &drain;
    attend(now,
           wakes);  // clears quiet, so that the last release takes the lock; ends the drain if it is idle
    waits = drains_ != nullptr;
  }
  go_on(now, wakes);
  return waits;
}

// False: a release has decided the drain meanwhile, and is about to publish it.
template <class P>
bool Turnstile<P>::leave_drain(Drain& drain, std::int64_t now, Wakes& wakes) noexcept {
  bool left = false;
  {
    MutexLock hold(mutex_);
    Drain** d = &drains_;
    while (*d && *d != &drain) d = &(*d)->next;
    left = *d == &drain;
    if (left) {
      *d = drain.next;
      attend(now, wakes);
    }
  }
  go_on(now, wakes);
  return left;
}

// ---- reading ----

template <class P>
[[gnu::always_inline]] inline typename Turnstile<P>::Shape Turnstile<P>::shape_under_lock() const noexcept {
  return {word_.load(std::memory_order_acquire), limit_.load(std::memory_order_acquire),
          reserve_.load(std::memory_order_acquire)};
}

template <class P>
[[gnu::always_inline]] inline typename Turnstile<P>::Shape Turnstile<P>::shape() const noexcept {
  const std::uint32_t ended = ended_.load(std::memory_order_acquire);
  const Shape seen = shape_under_lock();
  if (begun_.load(std::memory_order_acquire) == ended) [[likely]]
    return seen;
  return shape_with_retries();
}

// A section is open (begin()): mostly a call that fails or costs more than 1, and is over by now.
template <class P>
[[gnu::noinline]] typename Turnstile<P>::Shape Turnstile<P>::shape_with_retries() const noexcept {
  for (int i = 0; i < P::kLooks; ++i) {
    const std::uint32_t ended = ended_.load(std::memory_order_acquire);
    const Shape seen = shape_under_lock();
    if (begun_.load(std::memory_order_acquire) == ended) return seen;
  }
  P::point("look.torn");
  MutexLock hold(mutex_);
  return shape_under_lock();
}

template <class P>
std::uint32_t Turnstile<P>::in_flight() const noexcept {
  return shape().in_flight();
}

template <class P>
typename Turnstile<P>::Numbers Turnstile<P>::read() const noexcept {
  Numbers n{};
  // Bounded, so that many failing calls cannot block a reader: the last try may be off by a few calls, and sets `torn`.
  for (int tries = 0; tries < 1000; ++tries) {
    const std::uint32_t ended = ended_.load(std::memory_order_acquire);
    const std::uint64_t w = word_.load(std::memory_order_acquire);
    const std::uint64_t anchor = anchor_.load(std::memory_order_acquire);
    n.limit = limit_.load(std::memory_order_acquire);
    const std::int64_t reserve = reserve_.load(std::memory_order_acquire);
    const std::int64_t heavy = heavy_.load(std::memory_order_acquire);
    n.failed = failed_.load(std::memory_order_acquire);
    n.line = in_line();
    const bool still = begun_.load(std::memory_order_acquire) == ended;

    const std::int64_t used = std::int64_t{n.limit} - reserve - word::room(w);
    n.underflow = still && used < 0;
    n.in_flight = used < 0 ? 0 : static_cast<std::uint32_t>(used);
    n.permits = used - heavy < 0 ? 0 : static_cast<std::uint32_t>(used - heavy);
    // signed: the word may be older than the anchor
    const auto since = static_cast<std::int32_t>(word::released(w) - static_cast<std::uint32_t>(anchor));
    n.released = anchor + static_cast<std::uint64_t>(static_cast<std::int64_t>(since));
    if (n.failed > n.released) n.failed = n.released;
    n.torn = !still;
    if (still) break;
  }
  n.max_queue = max_queue();
  n.closed = closed();
  return n;
}

template <class P>
void Turnstile<P>::note_pass() noexcept {
  if (!needs_note(word_.load(std::memory_order_relaxed))) return;
  MutexLock hold(mutex_);
  note(word_.load(std::memory_order_acquire));
}

template <class P>
void Turnstile<P>::note(std::uint64_t w) noexcept {
  const std::uint64_t anchor = anchor_.load(std::memory_order_relaxed);
  if (w >> 62 == (anchor >> 30 & 3)) return;
  anchor_.store(anchor + (word::released(w) - static_cast<std::uint32_t>(anchor)), std::memory_order_release);
  if (!observed_) quarter_.store(w >> 62, std::memory_order_relaxed);
}

}  // namespace bulkhead::detail
