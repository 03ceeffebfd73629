// slow_path.h - the turnstile beyond its two atomic operations: the line, hand-off, resize, close, drain.
//
// Every function that changes something runs under the turnstile's lock, is short, and calls nobody:
// those it decides are collected in a Wakes and told by the caller after the lock is gone. The
// invariants are in bulkhead/detail/turnstile.h.
#pragma once

#include "bulkhead/detail/turnstile.h"
#include "gate/flow_queues.h"

namespace bulkhead::detail {

template <class Mutex>
class Hold {
 public:
  explicit Hold(Mutex& mutex) : mutex_(mutex) { mutex_.lock(); }
  ~Hold() { mutex_.unlock(); }
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;

 private:
  Mutex& mutex_;
};

template <class P>
Turnstile<P>::Turnstile(const Setup& setup) noexcept
    : word_(word::quiet + word::bias + setup.limit - setup.reserve),
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
  line_.store(line_.load(std::memory_order_relaxed) + line::one(w.tier), std::memory_order_release);
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
}

template <class P>
void Turnstile<P>::leave(Waiter& w) noexcept {
  line_.store(line_.load(std::memory_order_relaxed) - line::one(w.tier), std::memory_order_release);
  unlink(w, false);
}

// Tier by tier; it may leave the line. False: enough.
template <class P>
template <class F>
void Turnstile<P>::each_waiter(F&& f) const noexcept {
  const auto in_list = [&f](Waiter* w) {
    for (Waiter* next = nullptr; w; w = next) {
      next = w->next;
      if (!f(*w)) return false;
    }
    return true;
  };
  for (std::size_t tier = 0; tier < kPriorities; ++tier) {
    if (!in_list(tiers_[tier].first)) return;
    for (std::uint32_t q = 0; flows_ && q < flows_->size(); ++q)
      if (!in_list(flows_->first(tier, q))) return;
  }
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

// Takes the units of `w` whatever quiet says. The lock keeps limit and reserve still; the word
// may still move.
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

// Gives `w`, who is in line, its units, if there is room. The line is counted down first: whoever sees the
// units gone must not see it as long as before, or look() would refuse a call that has a place.
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

// Gives what is free to those who are next. In the loose modes a thread is only woken to try for
// itself, one at a time, so that the units stay usable by others while it wakes; whoever needs no
// waking gets them directly.
template <class P>
void Turnstile<P>::serve(std::int64_t now, Wakes& wakes) noexcept {
  while (Waiter* w = next()) {
    if (loose() && w->is_thread && !starved(w, now)) {
      if (!poked_ && fits(*w)) {
        poked_ = w;
        w->signal.store(Waiter::poked, std::memory_order_release);
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
    slow_releases_ += word::released(word_.fetch_add(word::quiet, std::memory_order_acq_rel));
  else
    slow_releases_ -= word::released(word_.fetch_sub(word::quiet, std::memory_order_acq_rel));
}

// Brings the quiet bit in line with the state. True: it was cleared just now, so look at `room` again (L1).
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
  note(word_.load(std::memory_order_relaxed));  // while there is a line, nobody passes who would
  allow_posts();
  check_idle(wakes);
}

template <class P>
bool Turnstile<P>::idle() const noexcept {
  const std::uint64_t w = word_.load(std::memory_order_acquire);
  const std::uint32_t on_the_way = slow_releases_ + (quiet_ ? 0 : word::released(w));
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
  settle_quiet(0);  // the line is empty: the time does not matter
}

template <class P>
void Turnstile<P>::keep_drains(Wakes& told, std::int64_t now, Wakes& wakes) noexcept {
  if (!told.idle) return;
  Hold hold(mutex_);
  if (idle()) return;
  auto* last = static_cast<Drain*>(told.idle);
  while (last->next) last = last->next;
  last->next = drains_;
  drains_ = static_cast<Drain*>(told.idle);
  told.idle = nullptr;
  attend(now, wakes);
}

template <class P>
bool Turnstile<P>::give_back(std::uint32_t cost, std::uint32_t units, std::int64_t now) noexcept {
  const std::uint64_t w = put_back(cost);
  P::measure(*meter_, -std::int64_t{units}, word::turned_full(w, w + cost), now);
  return w & word::quiet;
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
  Hold hold(mutex_);
  --slow_releases_;
  attend(now, wakes);
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
  if (!(w & word::quiet) && closed()) {
    look.verdict = rejected(Reason::shutdown);
  } else if (!may_queue || max == 0) {
    if (full) look.verdict = rejected(Reason::concurrency_limit);
  } else if (line_is_full(l, max, tier) && line::below(l, tier) == 0 && cost == 1 && !flows_) {
    // In line are only those this call may neither overtake nor evict, and as many as are allowed. Without
    // fifo it could barge, so it must have been full at the same instant: the word did not change in between.
    // (A cost above 1 might exceed the limit, which is another reason; and between flows it might evict.)
    if (!loose() || (full && word_.load(std::memory_order_acquire) == w))
      look.verdict = rejected(Reason::queue_limit);
  }
  return look;
}

template <class P>
Verdict Turnstile<P>::enter(Waiter& w, const Terms& terms, std::int64_t now, Wakes& wakes) noexcept {
  P::point("enter.before_lock");
  Hold hold(mutex_);
  const auto reject = [&](Reason reason) {
    decide(w, rejected(reason));
    return rejected(reason);
  };
  if (closed_.load(std::memory_order_relaxed)) return reject(Reason::shutdown);
  take_posts();  // they came before
  // A stop that came first refuses it. A timeout that came first only means that it will not wait.
  const bool too_late = w.early == rejected(Reason::timeout);
  if (const Verdict early = w.early; early != Verdict::pending && !too_late) return reject(reason_of(early));

  const std::uint64_t l = line_.load(std::memory_order_relaxed);
  const std::uint32_t ahead = line::total(l) - line::below(l, w.tier);
  if ((ahead == 0 || (loose() && !starved(head(), now))) && take(w, now)) {
    decide(w, Verdict::admitted);
    return Verdict::admitted;
  }
  if (hopeless(w)) return reject(Reason::concurrency_limit);
  if (terms.may_queue && terms.mean_hold > 0) {
    const std::uint32_t now_allowed = limit_.load(std::memory_order_relaxed);
    const std::uint32_t limit = now_allowed > 0 ? now_allowed : 1;  // 0: a member whose units are all lent
    const std::uint32_t before =
        flows_ ? ahead - line::count(l, static_cast<std::size_t>(w.tier)) + flows_->ahead(w) : ahead;
    if (static_cast<double>(before) * static_cast<double>(terms.mean_hold) / static_cast<double>(limit) >
        static_cast<double>(terms.time_left))
      return reject(Reason::deadline);
  }
  const std::uint32_t max = max_queue_.load(std::memory_order_relaxed);
  if (!terms.may_queue || max == 0) return reject(Reason::concurrency_limit);
  const bool full = line_is_full(l, max, w.tier);
  if (full && line::below(l, w.tier) == 0 && !(flows_ && flows_->may_evict(w)))
    return reject(Reason::queue_limit);
  if (!terms.may_wait || too_late) return reject(Reason::timeout);

  if (full) {  // the newest of the lowest tier makes room; with flows, the newest of its longest queue
    std::size_t lowest = kPriorities - 1;
    while (line::count(l, lowest) == 0) --lowest;
    Waiter& victim = flows_ ? *flows_->last_of_longest(lowest) : *tiers_[lowest].last;
    leave(victim);
    decide(victim, rejected(Reason::evicted));
    wakes.push(victim);
  }
  w.since = now;
  // Before it can be seen in line: who has seen it must not overtake it by the fast path.
  if (!loose() && quiet_) set_quiet(false);
  push(w);
  P::point("enter.before_recheck");
  attend(now, wakes);
  wakes.remove(w);  // if it was its turn already, its owner learns so from the return value
  return w.verdict;
}

template <class P>
bool Turnstile<P>::withdraw(Waiter& w, Reason reason, std::int64_t now, Wakes& wakes) noexcept {
  P::point("withdraw.before_lock");
  Hold hold(mutex_);
  take_posts();
  if (!w.queued) {
    if (w.verdict == Verdict::pending && (w.early == Verdict::pending || reason != Reason::timeout))
      w.early = rejected(reason);
    return false;
  }
  leave(w);
  decide(w, rejected(reason));
  attend(now, wakes);
  return true;
}

// A thread just woken to try mostly comes too late: those who were running have taken the units again, and it
// may even have pushed one of them off its core. Rather than going back to sleep and being woken by the next
// release, it lets them run a few times first; until it has tried, releases need not wake anybody. Not for
// adaptive, where it would also put off the moment in which it notices that it is starved.
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
    if (s == Waiter::done) return false;
    if (s == Waiter::poked || woken) {
      woken = false;
      if (try_again(w, s, now, tell)) return true;
      continue;
    }
    const std::int64_t t = until == forever ? 0 : now();
    if (t < until) {
      park(w.signal, s, until);
      woken = !observed_;  // else its release tells of the admission before it tells of itself, at one time
      continue;
    }
    Wakes wakes;
    const bool left = withdraw(w, Reason::timeout, t, wakes);
    tell(wakes);
    if (left) return true;
    until = forever;  // decided already: it keeps what it was given, and the word is on its way
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
  if (signal == Waiter::poked) {
    w.signal.compare_exchange_strong(signal, Waiter::sleeping, std::memory_order_acquire,
                                     std::memory_order_acquire);
    linger(w);
  }
  const std::int64_t t = fairness_ == Fairness::adaptive || meter_ ? now() : 0;
  Wakes wakes;
  bool admitted = false;
  {
    Hold hold(mutex_);
    if (w.verdict == Verdict::pending) {
      if (poked_ == &w) poked_ = nullptr;
      admitted = head() == &w && admit(w, t);
      attend(t, wakes);
      // attend may have decided w itself: then it is in `wakes` and told like any other
    }
  }
  tell(wakes);
  return admitted;
}

template <class P>
void Turnstile<P>::publish(Waiter& w) noexcept {
  if (!w.is_thread) return w.complete(w);
  auto* signal = &w.signal;
  signal->store(Waiter::done, std::memory_order_release);
  P::wake(signal);  // an address only: the waiter may be gone
}

template <class P>
void Turnstile<P>::finish(Wakes& wakes) noexcept {
  if (wakes.poke) P::wake(wakes.poke);
  for (auto* drain = static_cast<Drain*>(wakes.idle); drain;) {
    Drain* next = drain->next;
    auto* signal = &drain->signal;
    signal->store(Waiter::done, std::memory_order_release);
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
  Hold hold(mutex_);
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
  each_waiter([&](Waiter& w) {
    if (hopeless(w)) {
      leave(w);
      decide(w, rejected(Reason::concurrency_limit));
      wakes.push(w);
    }
    return true;
  });
  attend(now, wakes);
}

template <class P>
void Turnstile<P>::resize_queue(std::uint32_t max_queue, std::uint32_t reserve) noexcept {
  Hold hold(mutex_);
  take_posts();
  max_queue_.store(max_queue, std::memory_order_release);
  queue_reserve_.store(reserve, std::memory_order_release);
  allow_posts();
}

template <class P>
bool Turnstile<P>::close(Wakes& wakes) noexcept {
  Hold hold(mutex_);
  if (closed_.load(std::memory_order_relaxed)) return false;
  closed_.store(true, std::memory_order_release);
  take_posts();
  while (Waiter* w = head()) {
    leave(*w);
    decide(*w, rejected(Reason::shutdown));
    wakes.push(*w);
  }
  attend(0, wakes);
  return true;
}

template <class P>
bool Turnstile<P>::join_drain(Drain& drain, std::int64_t now, Wakes& wakes) noexcept {
  Hold hold(mutex_);
  drain.next = drains_;
  drains_ = &drain;
  attend(now, wakes);  // clears quiet, so that the last release comes by; finds it idle if it is
  return drains_ != nullptr;
}

template <class P>
bool Turnstile<P>::leave_drain(Drain& drain, std::int64_t now, Wakes& wakes) noexcept {
  Hold hold(mutex_);
  for (Drain** d = &drains_; *d; d = &(*d)->next) {
    if (*d != &drain) continue;
    *d = drain.next;
    attend(now, wakes);
    return true;
  }
  return false;
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
  return shape_in_the_end();
}

// Somebody is between begin() and end(): mostly a call that fails or costs more, and gone by now.
template <class P>
[[gnu::noinline]] typename Turnstile<P>::Shape Turnstile<P>::shape_in_the_end() const noexcept {
  for (int i = 0; i < P::looks; ++i) {
    const std::uint32_t ended = ended_.load(std::memory_order_acquire);
    const Shape seen = shape_under_lock();
    if (begun_.load(std::memory_order_acquire) == ended) return seen;
  }
  P::point("look.torn");
  Hold hold(mutex_);
  return shape_under_lock();
}

template <class P>
std::uint32_t Turnstile<P>::in_flight() const noexcept {
  return shape().in_flight();
}

template <class P>
typename Turnstile<P>::Numbers Turnstile<P>::read() const noexcept {
  Numbers n{};
  // Bounded, so that a storm of failing calls cannot hold a reader: the last try is then at most a few calls
  // off, and says so.
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
    // signed: a reader may hold a word older than the anchor
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
  Hold hold(mutex_);
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
