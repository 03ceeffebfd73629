// model_gate.h - drives the admission code of src/gate (slow_path.h, posting.h, sequence.h) without names, hooks and
// permits, and checks the properties that hold in every execution.
#pragma once

#include <new>

#include "tests/model/relacy_platform.h"
#include "tests/model/scenario.h"

// The very files that ship, or copies of them with one seeded error.
#include "bulkhead/detail/turnstile.h"
#include "gate/posting.h"
#include "gate/sequence.h"
#include "gate/settling.h"
#include "gate/slow_path.h"

namespace bulkhead::model {

using detail::Verdict;
using Turnstile = detail::Turnstile<RelacyPlatform>;
using Wakes = Turnstile::Wakes;
using Drain = Turnstile::Drain;

inline constexpr std::int64_t max_barge = 10;
inline constexpr std::int64_t patience = 100;  // of a timed waiter

// A waiter that knows how often its owner was told.
struct Call : Turnstile::Waiter {
  Var<int> told{0};
  bool lined = false;  // it was in line; not a Var, because no step of a thread comes between
};

// Virtual time. In the adaptive mode it may leap at every look, so that heads are starved or not; a park that
// times out takes it to the deadline.
class Time {
 public:
  explicit Time(Mode mode) : leaps_(mode == Mode::adaptive) {}
  std::int64_t now() {
    if (leaps_ && choose(2) == 0) now_ += max_barge + 1;
    return now_;
  }
  std::int64_t still() const { return now_; }
  void reach(std::int64_t t) {
    if (now_ < t) now_ = t;
  }

 private:
  const bool leaps_;
  std::int64_t now_ = 1000;
};

struct Ask {
  Priority tier = Priority::normal;
  std::uint32_t cost = 1;
  bool queues = true;
  bool timed = false;
  bool pinned = false;  // the caller's pin stands in until the call has its own, or units
};

class ModelGate {
 public:
  ModelGate(Mode mode, std::uint32_t limit, std::uint32_t max_queue, std::uint32_t reserve = 0)
      : mode_(mode), time_(mode), limit_(limit), reserve_(reserve), max_queue_(max_queue) {
    new (place_) Turnstile({.limit = limit,
                            .reserve = reserve,
                            .max_queue = max_queue,
                            .fairness = static_cast<Fairness>(mode),
                            .max_barge_ns = max_barge});
  }
  ~ModelGate() {
    if (alive_) t().~Turnstile();
  }
  ModelGate(const ModelGate&) = delete;
  ModelGate& operator=(const ModelGate&) = delete;

  Turnstile& t() { return *std::launder(reinterpret_cast<Turnstile*>(place_)); }
  Mode mode() const { return mode_; }
  std::int64_t now() { return time_.now(); }

  // ---- as Gate::acquire does ----

  Verdict acquire(const Ask& ask = {}) {
    Call w;
    return acquire(w, ask);
  }

  Verdict acquire(Call& w, const Ask& ask) {
    const std::uint32_t epoch = shrinks_;
    const bool was_closed = closed_;
    const Verdict verdict = ask_for(w, ask);
    check(!was_closed || verdict != Verdict::admitted, "nobody is admitted who asks after the close");
    if (verdict == Verdict::admitted) enter_section(ask, epoch);
    return verdict;
  }

  // A holder from the start, before there are threads.
  void hold(std::uint32_t cost = 1) {
    check(pass(cost), "room at the start");
    inside_ += cost;
    ordinary_ += cost;
    ++admissions_;
  }

  void release(const Ask& ask = {}, bool failed = false) {
    leave_section(ask);
    give_back(ask.cost, failed);
  }

  // As Permit::settle and GateCore::lower. The permit holds `ask.cost`, and less from now on.
  void settle(Ask& ask, std::uint32_t to) {
    if (limit_ == ask.cost && shrinks_ == 0) section_ = section_ + 1;
    inside_ -= ask.cost - to;
    if (ask.tier != Priority::critical) ordinary_ -= ask.cost - to;
    const std::uint32_t from = ask.cost;
    ask.cost = to;
    if (t().lower(from, to, 0)) return;
    pin();
    Wakes wakes;
    t().after_lower(slow_now(), wakes);
    unpin();
    tell(wakes);
  }

  // As Permit::try_grow and GateCore::raise.
  bool grow(Ask& ask, std::uint32_t units) {
    const std::uint32_t epoch = shrinks_;
    if (t().raise(ask.tier, ask.cost, units, slow_now()) != Turnstile::Raise::done) return false;
    inside_ += units;
    if (ask.tier != Priority::critical) ordinary_ += units;
    ask.cost += units;
    if (epoch == shrinks_) {
      check(inside_ <= limit_, "in flight <= limit, also after growth");
      check(ordinary_ <= limit_ - reserve_, "growth leaves the reserve to critical calls");
    }
    return true;
  }

  // As AsyncAcquire::hand_on: what a worker does at the end of its work. Null: the unit is given back.
  Call* hand_on(void (*complete)(Turnstile::Waiter&) noexcept) {
    leave_section({});
    const std::uint32_t epoch = shrinks_;
    auto* heir = static_cast<Call*>(t().hand_on(complete));
    if (!heir) {
      give_back(1, false);
      return nullptr;
    }
    ++releases_;
    announce(*heir);
    enter_section({}, epoch);
    return heir;
  }

  // Acquires, and if admitted releases; what a call does.
  Verdict visit(const Ask& ask = {}) {
    const Verdict verdict = acquire(ask);
    if (verdict == Verdict::admitted) release(ask);
    return verdict;
  }

  bool withdraw(Call& w) {
    return detail::withdraw_and_tell<RelacyPlatform>(t(), *this, w, Reason::cancelled);
  }

  // ---- as Gate::resize, close, drain, ~Gate do ----

  void resize(std::uint32_t limit, std::uint32_t reserve = 0) {
    const bool shrinks = limit - reserve < limit_ - reserve_ || limit < limit_;
    if (!shrinks) limit_ = limit, reserve_ = reserve;
    Wakes wakes;
    t().resize(limit, reserve, slow_now(), wakes);
    if (shrinks) limit_ = limit, reserve_ = reserve, ++shrinks_;
    tell(wakes);
  }

  void close() {
    Wakes wakes;
    if (!t().close(wakes)) return;
    closed_ = true;
    tell(wakes);
  }

  bool drain(bool timed = false) {
    bool expired = false;
    const auto park = [&](Atomic<std::uint32_t>& signal, bool late) {
      if (late) timed = false;  // it could not leave: the drain is over and about to be published
      expired = Futex::park(signal, Call::kSleeping, timed) && timed;
    };
    return detail::wait_idle(t(), *this, [&] { return expired; }, park);
  }

  void destroy() {
    close();
    drain();
    while (pins_.load(std::memory_order_acquire) != 0) rl::ctx().yield(1, Where());
    alive_ = false;
    t().~Turnstile();
  }

  // ---- what must hold in the end ----

  void check_at_rest() {
    check(inside_ == 0, "nobody is inside");
    const Turnstile::Numbers n = t().read();
    check(n.in_flight == 0 && n.permits == 0, "nothing is in flight");
    check(!n.underflow, "no underflow");
    check(n.line == 0, "nobody is in line");
    check(n.limit == limit_, "the limit is the one last set");
    check(n.released == releases_ && releases_ == admissions_, "as many releases as admissions");
    check(n.failed == failures_, "every failure is counted");
    check(n.closed == closed_, "closed if it was closed");
    check(t().open_sections() == 0, "no open section");
    if (closed_) {
      check(!pass(1), "closed");
      Drain drain;
      Wakes wakes;
      check(!t().join_drain(drain, 0, wakes), "idle");
      return;
    }
    for (std::uint32_t i = 0; i < limit_ - reserve_; ++i)
      check(pass(1), "all units can be taken again, by the fast path");
    check(!pass(1), "and no more than these");
    for (std::uint32_t i = 0; i < limit_ - reserve_; ++i)
      check(t().give_back(1), "nobody needs the slow path");
  }

  std::uint32_t inside() const { return inside_; }
  // The scenario has one unit and waiters who stay to the end: then a newcomer that gets in
  // has overtaken them.
  bool one_unit_one_tier = false;

  std::uint32_t in_line() const { return in_line_; }
  std::uint64_t admissions() const { return admissions_; }
  void pin() { pins_.fetch_add(1, std::memory_order_relaxed); }
  void unpin() { pins_.fetch_sub(1, std::memory_order_release); }

  void tell(Wakes& wakes) {
    detail::announce_each(wakes, *this);
    Turnstile::finish(wakes);
    detail::publish_each(wakes);
  }

  // A plain permit wakes the head of the line before it takes the lock; any other one pins the gate.
  void give_back(std::uint32_t cost, bool failed) {
    Wakes wakes;
    ++releases_;
    failures_ += failed ? 1 : 0;
    const bool plain = !failed && cost == 1;
    if (!plain) pin();
    if (!detail::give_back_counted(t(), cost, failed,
                                   [&] { return cost == 0 ? t().give_back_empty() : t().give_back(cost); })) {
      if (plain) t().rouse();
      t().after_release(slow_now(), wakes);
    }
    if (!plain) unpin();
    tell(wakes);
  }

  bool pass(std::uint32_t cost) { return (cost == 1 && t().pass()) || took(detail::take_units(t(), cost)); }

  std::int64_t slow_now() { return mode_ == Mode::adaptive ? time_.now() : 0; }
  void announce(const Turnstile::Waiter& w) {  // a waiter of the model is a Call, and none is const
    auto& call = const_cast<Call&>(static_cast<const Call&>(w));
    call.told = call.told + 1;
  }

  void enter_section(const Ask& ask, std::uint32_t epoch) {
    inside_ += ask.cost;
    ++admissions_;
    if (ask.tier != Priority::critical) ordinary_ += ask.cost;
    // A call that began before a shrink may have been admitted under the limit of then.
    if (epoch == shrinks_) {
      check(inside_ <= limit_, "in flight <= limit, seen from inside");
      check(ordinary_ <= limit_ - reserve_, "the reserve is left to critical calls");
    }
    if (limit_ == ask.cost && shrinks_ == 0) section_ = section_ + 1;  // alone: a race would be seen
  }
  void leave_section(const Ask& ask) {
    if (limit_ == ask.cost && shrinks_ == 0) section_ = section_ + 1;
    inside_ -= ask.cost;
    if (ask.tier != Priority::critical) ordinary_ -= ask.cost;
  }

 private:
  Verdict ask_for(Call& w, const Ask& ask) {
    const Verdict at_once = detail::decide_at_once(
                                t(), ask.tier, ask.cost, ask.queues, [] { return Verdict::pending; },
                                [&] { return pass(ask.cost); }, [] { return true; })
                                .verdict;
    if (at_once == Verdict::pending) pin();
    if (ask.pinned) unpin();
    if (at_once != Verdict::pending) return at_once;
    w.cost = ask.cost;
    w.tier = ask.tier;
    const std::int64_t now = slow_now();
    const std::int64_t until = ask.timed ? time_.still() + patience : Turnstile::kForever;
    Wakes wakes;
    const bool behind = in_line_ > 0;
    const Verdict verdict = t().enter(w, {.may_queue = ask.queues, .may_wait = true}, now, wakes);
    if (one_unit_one_tier && behind && in_line_ > 0 && mode_ != Mode::barging && verdict == Verdict::admitted)
      check(mode_ == Mode::adaptive && now - first_since_ <= max_barge, "a starved head is not overtaken");
    const bool own_decision = detail::finish_entering<RelacyPlatform>(
        t(), *this, w, verdict, until, wakes,
        [&] {
          w.lined = true;
          if (in_line_++ == 0) first_since_ = now;
        },
        [this] { return time_.now(); },
        [this](const Atomic<std::uint32_t>& signal, std::uint32_t value, std::int64_t deadline) {
          if (Futex::park(signal, value, deadline != Turnstile::kForever)) time_.reach(deadline);
        });
    if (verdict == Verdict::pending) --in_line_;
    if (own_decision) announce(w);
    check(w.told == 1, "decided and announced exactly once");
    check(w.verdict != Verdict::pending, "decided");
    check(!w.queued, "out of the line");
    unpin();
    return w.verdict;
  }

  bool took(Turnstile::Pass pass) {
    if (pass == Turnstile::Pass::noted || pass == Turnstile::Pass::filled) t().note_pass();
    return pass != Turnstile::Pass::no;
  }

  alignas(64) std::byte place_[sizeof(Turnstile)];
  bool alive_ = true;
  const Mode mode_;
  Time time_;
  Atomic<std::uint32_t> pins_{0};
  Var<int> section_{0};

  // The truth, kept beside the model: no step of any thread can come between reading and writing these.
  std::uint32_t limit_, reserve_, max_queue_;
  std::uint32_t inside_ = 0, ordinary_ = 0, in_line_ = 0, shrinks_ = 0;
  std::uint64_t admissions_ = 0, releases_ = 0, failures_ = 0;
  std::int64_t first_since_ = 0;
  bool closed_ = false;
};

}  // namespace bulkhead::model
