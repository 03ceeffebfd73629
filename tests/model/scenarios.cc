// scenarios.cc - a few threads each, around one gate. What is wrong in none of their executions is
// listed in README.md.
#include "bulkhead/detail/in_order.h"
#include "tests/model/model_gate.h"

namespace bulkhead::model {
namespace {

constexpr Verdict admitted = Verdict::admitted;
constexpr Verdict shutdown = detail::rejected(Reason::shutdown);
constexpr Verdict timeout = detail::rejected(Reason::timeout);
constexpr Verdict cancelled = detail::rejected(Reason::cancelled);
constexpr Verdict evicted = detail::rejected(Reason::evicted);
constexpr Verdict full = detail::rejected(Reason::concurrency_limit);
constexpr Verdict line_full = detail::rejected(Reason::queue_limit);

struct Base : Scenario {
  ModelGate gate;

  template <class... Args>
  explicit Base(Mode mode, Args... args) : gate(mode, args...) {}
  void after() override { gate.check_at_rest(); }

  bool fifo() const { return gate.mode() == Mode::fifo; }
  void must_visit(const Ask& ask = {}) { check(gate.visit(ask) == admitted, "everybody gets in"); }
};

// Two calls each, one unit, a line with a place for everybody.
struct AdmitRelease : Base {
  explicit AdmitRelease(Mode mode) : Base(mode, 1u, 2u) {}
  void thread(unsigned) override {
    must_visit();
    must_visit();
  }
};

// Nobody may queue: a rejection is right only if somebody had the unit during the call.
struct TryOnly : Base {
  Atomic<std::uint32_t> visits{
      0};  // begun << 16 | under way; who finds nobody here knows that the unit is back
  explicit TryOnly(Mode mode) : Base(mode, 1u, 0u) {}
  void thread(unsigned) override {
    for (int i = 0; i < 2; ++i) {
      const std::uint32_t before = visits.fetch_add((1u << 16) + 1, std::memory_order_acq_rel);
      const Verdict v = gate.visit({.queues = i == 0});
      const std::uint32_t now = visits.fetch_sub(1, std::memory_order_acq_rel);
      const bool alone = now == before + (1u << 16) + 1 && (before & 0xffff) == 0;
      check(v == admitted || (v == full && !alone), "rejected only if another was there");
    }
  }
};

// One holds, one waits, with or without a time limit: small enough to see every execution with few switches.
template <bool timed>
struct Pair : Base {
  explicit Pair(Mode mode) : Base(mode, 1u, 1u) { gate.hold(); }
  void thread(unsigned index) override {
    if (index == 0) return gate.release();
    const Verdict v = gate.visit({.timed = timed});
    check(v == admitted || (timed && v == timeout), "admitted, or its time was up");
  }
};

struct PairClose : Base {
  explicit PairClose(Mode mode) : Base(mode, 1u, 1u) { gate.hold(); }
  void thread(unsigned index) override {
    if (index == 0) {
      gate.close();
      gate.release();
      return;
    }
    const Verdict v = gate.visit();
    check(v == admitted || v == shutdown, "admitted or shutdown");
  }
};

struct PairDestroy : Base {
  explicit PairDestroy(Mode mode) : Base(mode, 1u, 1u) { gate.hold(); }
  void thread(unsigned index) override {
    if (index == 0)
      gate.release();
    else
      gate.destroy();
  }
  void after() override { check(gate.inside() == 0, "nobody is inside"); }
};

// The unit is held; two wait for it. In fifo nobody overtakes one who is known to be in line.
struct HandOff : Base {
  explicit HandOff(Mode mode) : Base(mode, 1u, 2u) {
    gate.hold();
    gate.one_unit_one_tier = true;
  }
  void thread(unsigned index) override {
    if (index == 0) return gate.release();
    if (index == 1) return must_visit();
    const bool behind = gate.in_line() > 0;
    check(gate.acquire() == admitted, "everybody gets in");
    if (fifo() && behind) check(gate.admissions() == 3, "the one ahead has been inside");
    gate.release();
  }
};

// One waiter's time may be up just when the unit comes its way; the other must get it in any case.
struct TimeoutVsRelease : Base {
  explicit TimeoutVsRelease(Mode mode) : Base(mode, 1u, 2u) { gate.hold(); }
  void thread(unsigned index) override {
    if (index == 0) return gate.release();
    if (index == 2) return must_visit();
    const Verdict v = gate.visit({.timed = true});
    check(v == admitted || v == timeout, "admitted or timeout");
  }
};

// As before, with a newcomer that barges in and out.
struct PokePassedOn : Base {
  explicit PokePassedOn(Mode mode) : Base(mode, 1u, 3u) { gate.hold(); }
  void thread(unsigned index) override {
    if (index == 0) return gate.release();
    if (index == 1) {
      const Verdict v = gate.visit({.timed = true});
      check(v == admitted || v == timeout, "admitted or timeout");
    } else {
      must_visit();
    }
  }
};

// Whoever cancels looks the waiter up, and its owner waits for a cancellation under way, as
// std::stop_callback has it.
struct Cancel : Base {
  Mutex mutex;
  Call* registered = nullptr;
  bool left = false;
  explicit Cancel(Mode mode) : Base(mode, 1u, 3u) { gate.hold(); }
  void enrol(Call* w) {
    mutex.lock();
    registered = w;
    mutex.unlock();
  }
  void thread(unsigned index) override {
    if (index == 0) return gate.release();
    if (index == 1) {
      mutex.lock();
      if (registered) left = gate.withdraw(*registered);
      mutex.unlock();
      return;
    }
    if (index == 3) return must_visit();
    Call w;
    enrol(&w);
    const Verdict v = gate.acquire(w, {});
    enrol(nullptr);
    check(v == admitted || v == cancelled, "admitted or cancelled");
    check(!left || v == cancelled, "whoever was taken out of the line is cancelled");
    if (v == admitted) gate.release();
  }
};

// The unit stays out: only the cancellation can end the wait, also if it comes before the waiter has
// joined the line.
struct CancelOnly : Base {
  Call w;
  explicit CancelOnly(Mode mode) : Base(mode, 1u, 3u) { gate.hold(); }
  void thread(unsigned index) override {
    if (index == 0) {
      gate.withdraw(w);
      return;
    }
    check(gate.acquire(w, {}) == cancelled, "cancelled");
  }
  void after() override {
    gate.release();
    gate.check_at_rest();
  }
};

// A release comes during the close, which rejects the line in batches: whoever is behind one that was rejected is rejected too.
struct Close : Base {
  Call first, second;
  bool behind = false;
  explicit Close(Mode mode) : Base(mode, 1u, 3u) { gate.hold(); }
  void visit(Call& w) {
    const Verdict v = gate.acquire(w, {});
    check(v == admitted || v == shutdown, "admitted or shutdown");
    if (v == admitted) gate.release();
  }
  void thread(unsigned index) override {
    if (index == 0) return gate.release();
    if (index == 1) return gate.close();
    if (index == 2) return visit(first);
    behind = gate.in_line() > 0;  // the first
    visit(second);
  }
  void after() override {
    if (behind && second.lined && first.verdict == shutdown)
      check(second.verdict == shutdown, "a closed line is not served");
    gate.check_at_rest();
  }
};

// The unit that is held does not come back: the waiters depend on the growth.
struct Grow : Base {
  explicit Grow(Mode mode) : Base(mode, 1u, 2u) { gate.hold(); }
  void thread(unsigned index) override {
    if (index == 0) return gate.resize(3);
    must_visit();
  }
  void after() override {
    gate.release();
    gate.check_at_rest();
  }
};

// The growth must let both in, because neither leaves.
struct GrowForAll : Base {
  explicit GrowForAll(Mode mode) : Base(mode, 1u, 2u) { gate.hold(); }
  void thread(unsigned index) override {
    if (index == 0) return gate.resize(3);
    check(gate.acquire() == admitted, "everybody gets in");
  }
  void after() override {
    for (int i = 0; i < 3; ++i) gate.release();
    gate.check_at_rest();
  }
};

// Two units out, one remains after the shrink; who asks after it must find one at most inside.
struct Shrink : Base {
  explicit Shrink(Mode mode) : Base(mode, 2u, 2u) {
    gate.hold();
    gate.hold();
  }
  void thread(unsigned index) override {
    if (index < 2) {
      gate.release();
      if (index == 0) must_visit();
      return;
    }
    gate.resize(1);
    must_visit();
  }
};

// Down and up again, with somebody in line all the while; and a cost that no longer fits is
// rejected, not forgotten.
struct ShrinkGrow : Base {
  explicit ShrinkGrow(Mode mode) : Base(mode, 2u, 2u) {
    gate.hold();
    gate.hold();
  }
  void thread(unsigned index) override {
    if (index == 0) return gate.release();
    if (index == 1) {
      gate.resize(1);
      gate.resize(3);
      return;
    }
    const Verdict v = gate.visit({.cost = 2});
    check(v == admitted || v == full, "admitted or beyond the limit");
  }
  void after() override {
    gate.release();
    gate.check_at_rest();
  }
};

// A waiter whose cost the shrunken limit cannot hold is rejected at once.
struct Hopeless : Base {
  explicit Hopeless(Mode mode) : Base(mode, 2u, 2u) { gate.hold(); }
  void thread(unsigned index) override {
    if (index == 0) return gate.resize(1);
    check(gate.visit({.cost = 2}) == full, "rejected");
  }
  void after() override {
    gate.release();
    gate.check_at_rest();
  }
};

// While a shrink looks through the line, batch by batch, a waiter may leave it just where the look has stopped. The one
// behind it must be seen all the same.
struct LeaveDuringScan : Base {
  explicit LeaveDuringScan(Mode mode) : Base(mode, 2u, 2u) { gate.hold(); }
  void thread(unsigned index) override {
    if (index == 0) return gate.resize(1);
    if (index == 2) return check(gate.visit({.cost = 2}) == full, "rejected");
    const Verdict v = gate.visit({.cost = 2, .timed = true});
    check(v == full || v == timeout, "rejected, or its time was up");
  }
  void after() override {
    gate.release();
    gate.check_at_rest();
  }
};

// One place in line. The critical call always gets in; the other may have to make room for it.
struct Evict : Base {
  explicit Evict(Mode mode) : Base(mode, 1u, 1u) { gate.hold(); }
  void thread(unsigned index) override {
    if (index == 0) return gate.release();
    if (index == 1) return must_visit({.tier = Priority::critical});
    const Verdict v = gate.visit({.tier = Priority::best_effort});
    check(v == admitted || v == evicted || v == line_full, "admitted, evicted or no place");
  }
};

// Three tiers and two places: only the lowest can lose its place.
struct EvictLowest : Base {
  explicit EvictLowest(Mode mode) : Base(mode, 1u, 2u) { gate.hold(); }
  void thread(unsigned index) override {
    if (index == 0) return gate.release();
    if (index == 1) return must_visit({.tier = Priority::critical});
    if (index == 2) return must_visit({.tier = Priority::normal});
    const Verdict v = gate.visit({.tier = Priority::best_effort});
    check(v == admitted || v == evicted || v == line_full, "admitted, evicted or no place");
  }
};

// One of two units is kept for critical calls. The normal unit stays out until the critical call has been in.
struct Reserve : Base {
  explicit Reserve(Mode mode) : Base(mode, 2u, 2u, 1u) { gate.hold(); }
  void thread(unsigned index) override {
    if (index == 0) {
      must_visit({.tier = Priority::critical});
      gate.release();
      return;
    }
    must_visit({.tier = index == 1 ? Priority::normal : Priority::critical});
  }
};

// Two units wanted at once, by one who waits at the head while single units come and go.
struct Heavy : Base {
  explicit Heavy(Mode mode) : Base(mode, 2u, 2u) { gate.hold(); }
  void thread(unsigned index) override {
    if (index == 0) return gate.release();
    must_visit({.cost = index == 1 ? 2u : 1u});
  }
};

// Two wait for what one permit gives back step by step; it is released only when both have been inside.
struct Settle : Base {
  Atomic<std::uint32_t> been{0};
  explicit Settle(Mode mode) : Base(mode, 2u, 2u) { gate.hold(2); }
  void thread(unsigned index) override {
    if (index > 0) {
      must_visit();
      been.fetch_add(1, std::memory_order_acq_rel);
      return;
    }
    Ask mine{.cost = 2};
    gate.settle(mine, 1);
    gate.settle(mine, 0);
    while (been.load(std::memory_order_acquire) != 2) rl::ctx().yield(1, Where());
    gate.release(mine);
  }
};

// A heavy call waits; what one settles and another gives back lets it in.
struct SettleForHeavy : Base {
  explicit SettleForHeavy(Mode mode) : Base(mode, 3u, 2u) {
    gate.hold(2);
    gate.hold();
  }
  void thread(unsigned index) override {
    if (index == 0) {
      Ask mine{.cost = 2};
      gate.settle(mine, 1);
      return gate.release(mine);
    }
    if (index == 1) return gate.release();
    must_visit({.cost = 2});
  }
};

// A permit grows while others come, wait and go. Whoever waits is not passed, and nobody is forgotten.
struct GrowPermit : Base {
  explicit GrowPermit(Mode mode) : Base(mode, 3u, 2u) { gate.hold(); }
  void thread(unsigned index) override {
    if (index > 0) return must_visit({.cost = index});
    Ask mine;
    const bool grown = gate.grow(mine, 2);
    if (grown) gate.settle(mine, 1);
    gate.settle(mine, 0);
    static_cast<void>(gate.grow(mine, 1));
    gate.release(mine);
  }
};

// The unit stays out and somebody waits for it: a permit of the same tier gets nothing. (The second gate thread gives
// back one of two units, which is for the waiter.)
struct GrowBehind : Base {
  explicit GrowBehind(Mode mode) : Base(mode, 2u, 1u) {
    gate.hold();
    gate.hold();
  }
  void thread(unsigned index) override {
    if (index == 0) return gate.release();
    if (index == 2) return must_visit({.cost = 2});
    Ask mine;
    const bool behind = gate.in_line() > 0 && gate.inside() > 0;
    const bool grown = gate.grow(mine, 1);
    check(!(behind && grown), "nobody in line is passed");
    gate.release(mine);
  }
};

// A permit that holds nothing keeps the gate from being idle until it is released, and nobody touches it afterwards.
struct SettleDestroy : Base {
  explicit SettleDestroy(Mode mode) : Base(mode, 2u, 2u) { gate.hold(2); }
  void thread(unsigned index) override {
    if (index == 1) return gate.destroy();
    Ask mine{.cost = 2};
    gate.settle(mine, 0);
    check(gate.grow(mine, 1), "nobody else takes units");
    gate.settle(mine, 0);
    gate.release(mine);
    released = true;
  }
  void after() override { check(gate.inside() == 0 && released, "released, and nobody is inside"); }
  bool released = false;
};

struct SettleDrain : Base {
  explicit SettleDrain(Mode mode) : Base(mode, 1u, 2u) { gate.hold(); }
  void thread(unsigned index) override {
    if (index == 1) {
      check(gate.drain(), "drained");
      check(releasing, "not before the permit is released");
      return;
    }
    Ask mine;
    gate.settle(mine, 0);
    releasing = true;
    gate.release(mine);
  }
  bool releasing = false;
};

// One permit moves between none, one and two units: a snapshot always shows one call, and its units.
struct SnapshotSettle : Base {
  explicit SnapshotSettle(Mode mode) : Base(mode, 2u, 2u) { gate.hold(2); }
  void thread(unsigned index) override {
    Ask mine{.cost = 2};
    if (index == 1) {
      gate.settle(mine, 1);
      gate.settle(mine, 0);
      check(gate.grow(mine, 2), "nobody else takes units");
      return;
    }
    for (int i = 0; i < 2; ++i) {
      const Turnstile::Numbers n = gate.t().read();
      check(n.permits == 1, "one call");
      check(n.in_flight <= 2 && n.released == 0, "its units, and none released");
      check(!n.underflow, "no underflow");
    }
  }
  void after() override {
    gate.release({.cost = 2});
    gate.check_at_rest();
  }
};

struct DrainVsRelease : Base {
  explicit DrainVsRelease(Mode mode) : Base(mode, 1u, 2u) { gate.hold(); }
  void thread(unsigned index) override {
    if (index == 0) return gate.release();
    if (index == 1) {
      check(gate.drain(), "drained");
      return;
    }
    if (gate.drain(true)) check(gate.inside() == 0, "drained means idle");
  }
};

struct DrainVsVisit : Base {
  explicit DrainVsVisit(Mode mode) : Base(mode, 1u, 2u) {}
  void thread(unsigned index) override {
    if (index == 0)
      gate.drain();
    else
      must_visit();
  }
};

// Whoever destroys the gate waits for those who hold or wait, and for nobody else; none of them
// touches it afterwards.
struct Destroy : Base {
  explicit Destroy(Mode mode) : Base(mode, 2u, 2u) {
    gate.hold();
    gate.hold();
  }
  void thread(unsigned index) override {
    if (index < 2)
      gate.release();
    else
      gate.destroy();
  }
  void after() override { check(gate.inside() == 0, "nobody is inside"); }
};

struct DestroyWithWaiter : Base {
  Atomic<std::uint32_t> arrived{0};
  explicit DestroyWithWaiter(Mode mode) : Base(mode, 1u, 2u) { gate.hold(); }
  void thread(unsigned index) override {
    if (index == 0) return gate.release();
    if (index == 1) {
      gate.pin();  // a caller may not meet a destroyed gate at its door; once in line, the gate sees to it
      arrived.store(1, std::memory_order_release);
      const Verdict v = gate.visit({.pinned = true});
      check(v == admitted || v == shutdown, "admitted or shutdown");
      return;
    }
    while (arrived.load(std::memory_order_acquire) == 0) rl::ctx().yield(1, Where());
    gate.destroy();
  }
  void after() override { check(gate.inside() == 0, "nobody is inside"); }
};

// Every call costs two and fails, so every instant shows it: units are twice the permits,
// failed equals released.
struct SnapshotHeavy : Base {
  explicit SnapshotHeavy(Mode mode) : Base(mode, 2u, 2u) {}
  void thread(unsigned index) override {
    if (index == 0) {
      for (int i = 0; i < 2; ++i) {
        const Turnstile::Numbers n = gate.t().read();
        check(n.in_flight == 2 * n.permits, "units are twice the permits");
        check(n.in_flight <= n.limit, "in flight <= limit");
        check(n.failed == n.released, "every release was a failure");
        check(!n.underflow, "no underflow");
      }
      return;
    }
    const Ask ask{.cost = 2};
    check(gate.acquire(ask) == admitted, "everybody gets in");
    gate.release(ask, true);
  }
};

// While the limit moves between one and two, one unit is out: never more in flight than the
// limit, never none.
struct SnapshotResize : Base {
  explicit SnapshotResize(Mode mode) : Base(mode, 2u, 2u, 1u) { gate.hold(); }
  void thread(unsigned index) override {
    if (index == 0) {
      for (int i = 0; i < 2; ++i) {
        const Turnstile::Numbers n = gate.t().read();
        check(n.in_flight == 1 && n.permits == 1, "one unit is out");
        check(n.released == 0 && n.failed == 0, "none came back");
        const Turnstile::Look look = gate.t().look(Priority::normal, 9, false);
        check(look.in_flight == 1 && (look.limit == 2 || look.limit == 4), "a rejection says so too");
        check(gate.t().in_flight() == 1, "and who only asks");
      }
      return;
    }
    gate.resize(4, 1);
    gate.resize(2, 0);
  }
  void after() override {
    gate.release();
    gate.check_at_rest();
  }
};

// A callback waits beside a thread: it needs no waking, so in every mode it gets the units directly.
struct Callback : Base {
  struct Op : Call {
    Callback* scenario = nullptr;
  };
  Op op;
  explicit Callback(Mode mode) : Base(mode, 1u, 2u) { gate.hold(); }
  static void decided(Turnstile::Waiter& w) noexcept {
    Op& self = static_cast<Op&>(w);
    check(self.told == 1 && self.verdict == admitted, "told once, and admitted");
    self.scenario->gate.enter_section({}, 0);
    self.scenario->gate.release();
  }
  void thread(unsigned index) override {
    if (index == 0) return gate.release();
    if (index == 1) return must_visit();
    op.scenario = this;
    op.is_thread = false;
    op.complete = decided;
    Wakes wakes;
    const Verdict v = gate.t().enter(op, {.may_queue = true, .may_wait = true}, gate.slow_now(), wakes);
    gate.tell(wakes);
    if (v == Verdict::pending) return;
    gate.announce(op);
    decided(op);
  }
};

// A pool: work is posted or goes the usual way, and whoever has a unit goes on with what is next.
enum class Beside { nothing, no_place, cancel, close, shrink, drain };
template <Beside beside>
struct Posted : Base {
  struct Work : Call {
    Posted* pool = nullptr;
    unsigned turn = 0;
  };
  detail::Inbox<RelacyPlatform> inbox;
  Work work[3];
  unsigned turns = 0;

  explicit Posted(Mode mode)
      : Base(mode, beside == Beside::shrink ? 2u : 1u, beside == Beside::no_place ? 2u : 3u) {
    gate.t().post_to(inbox);
    gate.hold();
    if (beside == Beside::shrink) gate.hold();
  }
  static void decided(Turnstile::Waiter& w) noexcept {
    auto& mine = static_cast<Work&>(w);
    check(mine.told == 1, "told once");
    if (mine.verdict != admitted) return;
    mine.pool->gate.enter_section({}, any_epoch);
    mine.pool->go_on(&mine);
  }
  void go_on(Work* mine) {
    do {
      if (mine) mine->turn = ++turns;
      mine = static_cast<Work*>(gate.hand_on(decided));
    } while (mine);
  }
  void submit(Work& mine) {
    mine.pool = this;
    mine.is_thread = false;
    mine.complete = decided;
    if (gate.t().post(mine)) return;
    if (gate.pass(1)) {
      mine.verdict = admitted;
    } else {
      Wakes wakes;
      const Verdict v = gate.t().enter(mine, {.may_queue = true, .may_wait = true}, 0, wakes);
      gate.tell(wakes);
      if (v == Verdict::pending) return;
    }
    gate.announce(mine);
    decided(mine);
  }
  void thread(unsigned index) override {
    if (index == 0) return go_on(nullptr);
    if (index == 1) {
      submit(work[0]);
      submit(work[1]);
      submitted.store(2, std::memory_order_release);
      submit(work[2]);
      return;
    }
    if (beside == Beside::cancel && submitted.load(std::memory_order_acquire) == 2) gate.withdraw(work[1]);
    if (beside == Beside::close) {
      gate.close();
      check(gate.t().read().line == 0, "nobody is left in line");
    }
    if (beside == Beside::drain) gate.drain();
    if (beside == Beside::shrink) {
      gate.resize(1);
      go_on(nullptr);
    }
  }
  void after() override {
    unsigned last = 0;
    for (Work& mine : work) {
      check(mine.told == 1 && !mine.queued, "everybody is told");
      if (mine.verdict != admitted) {
        check(beside == Beside::cancel || beside == Beside::close || beside == Beside::no_place,
              "everybody gets in");
        continue;
      }
      if (beside != Beside::shrink) check(mine.turn > last, "first come, first served");
      last = mine.turn;
    }
    gate.check_at_rest();
  }
  // It may be told after a shrink of what was decided before.
  static constexpr std::uint32_t any_epoch = beside == Beside::shrink ? ~0u : 0;
  Atomic<std::uint32_t> submitted{0};  // a Task is not there to be cancelled earlier
};

// Several gates at once, as acquire_all.h takes them: each thread names them in an order of its own.
template <std::size_t gates>
struct AcquireAll : Scenario {
  struct Wanted {
    ModelGate* gate;
    std::uint32_t cost;
  };
  alignas(ModelGate) std::byte place[gates][sizeof(ModelGate)];
  explicit AcquireAll(Mode mode) {
    for (auto& p : place) new (p) ModelGate(mode, 2u, 3u);
  }
  ~AcquireAll() override {
    for (std::size_t i = 0; i < gates; ++i) gate(i).~ModelGate();
  }
  ModelGate& gate(std::size_t i) { return *std::launder(reinterpret_cast<ModelGate*>(place[i])); }

  // All or nothing. `call` is the waiter that a cancellation finds, while it waits for `of`.
  bool take(Wanted* wanted, std::size_t count, bool timed, bool cancellable) {
    count = detail::put_in_order(wanted, count);
    for (std::size_t i = 0; i < count; ++i) {
      Call w;
      if (cancellable) enrol(wanted[i].gate, &w);
      const Verdict v = wanted[i].gate->acquire(w, {.cost = wanted[i].cost, .timed = timed});
      if (cancellable) enrol(nullptr, nullptr);
      if (v == admitted) continue;
      check((timed && v == timeout) || (cancellable && v == cancelled),
            "admitted, its time was up, or cancelled");
      give_back(wanted, i);
      return false;
    }
    return true;
  }
  static void give_back(const Wanted* wanted, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) wanted[i].gate->release({.cost = wanted[i].cost});
  }
  void enrol(ModelGate* of, Call* w) {
    mutex.lock();
    waits_for = of;
    waiter = w;
    mutex.unlock();
  }
  void thread(unsigned index) override {
    if (index == 3) {
      mutex.lock();
      if (waiter) waits_for->withdraw(*waiter);
      mutex.unlock();
      return;
    }
    Wanted wanted[gates];
    for (std::size_t i = 0; i < gates; ++i)
      wanted[i] = {&gate((i * (gates - 1) + index) % gates), index == 0 ? 1u : 2u};
    if (take(wanted, gates, index == 1, index == 2)) give_back(wanted, gates);
  }
  void after() override {
    for (std::size_t i = 0; i < gates; ++i) gate(i).check_at_rest();
  }

  Mutex mutex;
  ModelGate* waits_for = nullptr;
  Call* waiter = nullptr;
};

template <class S>
Scenario* make(void* place, Mode mode) {
  static_assert(sizeof(S) <= scenario_size);
  return new (place) S(mode);
}

const Entry list[] = {
    {"admit_release", 3, make<AdmitRelease>, {true, true, true}, {0, 0, 0}},
    {"try_only", 3, make<TryOnly>, {true, false, false}, {2, 0, 0}},
    {"pair", 2, make<Pair<false>>, {true, true, true}, {3, 3, 3}},
    {"pair_timeout", 2, make<Pair<true>>, {true, true, true}, {3, 3, 3}},
    {"pair_close", 2, make<PairClose>, {true, true, false}, {3, 3, 0}},
    {"pair_destroy", 2, make<PairDestroy>, {true, false, false}, {3, 0, 0}},
    {"hand_off", 3, make<HandOff>, {true, true, true}, {1, 1, 0}},
    {"timeout_vs_release", 3, make<TimeoutVsRelease>, {true, true, true}, {0, 0, 0}},
    {"poke_passed_on", 4, make<PokePassedOn>, {true, true, true}, {0, 0, 0}},
    {"cancel", 4, make<Cancel>, {true, true, true}, {0, 0, 0}},
    {"cancel_only", 2, make<CancelOnly>, {true, true, false}, {3, 3, 0}},
    {"close", 4, make<Close>, {true, true, true}, {0, 0, 0}},
    {"grow", 3, make<Grow>, {true, true, true}, {0, 0, 0}},
    {"grow_for_all", 3, make<GrowForAll>, {true, true, true}, {0, 0, 0}},
    {"shrink", 3, make<Shrink>, {true, true, true}, {0, 0, 0}},
    {"shrink_grow", 3, make<ShrinkGrow>, {true, true, true}, {0, 0, 0}},
    {"hopeless", 2, make<Hopeless>, {true, true, false}, {3, 3, 0}},
    {"leave_during_scan", 3, make<LeaveDuringScan>, {true, true, true}, {0, 0, 0}},
    {"evict", 3, make<Evict>, {true, true, true}, {1, 1, 0}},
    {"evict_lowest", 4, make<EvictLowest>, {true, true, true}, {0, 0, 0}},
    {"reserve", 3, make<Reserve>, {true, true, true}, {0, 0, 0}},
    {"heavy", 3, make<Heavy>, {true, true, true}, {0, 0, 0}},
    {"settle", 3, make<Settle>, {true, true, true}, {0, 0, 0}},
    {"settle_heavy", 3, make<SettleForHeavy>, {true, true, true}, {0, 0, 0}},
    {"settle_grow", 3, make<GrowPermit>, {true, true, true}, {0, 0, 0}},
    {"settle_grow_behind", 3, make<GrowBehind>, {true, true, true}, {0, 0, 0}},
    {"settle_destroy", 2, make<SettleDestroy>, {true, false, false}, {2, 0, 0}},
    {"settle_drain", 2, make<SettleDrain>, {true, true, false}, {3, 3, 0}},
    {"settle_snapshot", 2, make<SnapshotSettle>, {true, true, false}, {0, 0, 0}},
    {"all_of_two", 4, make<AcquireAll<2>>, {true, true, true}, {0, 0, 0}},
    {"all_of_three", 4, make<AcquireAll<3>>, {true, true, true}, {0, 0, 0}},
    {"drain", 3, make<DrainVsRelease>, {true, true, true}, {0, 0, 0}},
    {"drain_visit", 3, make<DrainVsVisit>, {true, true, true}, {0, 0, 0}},
    {"destroy", 3, make<Destroy>, {true, false, false}, {0, 0, 0}},
    {"destroy_waiter", 3, make<DestroyWithWaiter>, {true, true, true}, {0, 0, 0}},
    {"snapshot_heavy", 3, make<SnapshotHeavy>, {true, true, false}, {0, 0, 0}},
    {"snapshot_resize", 2, make<SnapshotResize>, {true, false, false}, {0, 0, 0}},
    {"callback", 3, make<Callback>, {true, true, true}, {0, 0, 0}},
    {"posted", 2, make<Posted<Beside::nothing>>, {true, false, false}, {3, 0, 0}},
    {"posted_full", 2, make<Posted<Beside::no_place>>, {true, false, false}, {3, 0, 0}},
    {"posted_cancel", 3, make<Posted<Beside::cancel>>, {true, false, false}, {0, 0, 0}},
    {"posted_close", 3, make<Posted<Beside::close>>, {true, false, false}, {0, 0, 0}},
    {"posted_shrink", 3, make<Posted<Beside::shrink>>, {true, false, false}, {0, 0, 0}},
    {"posted_drain", 3, make<Posted<Beside::drain>>, {true, false, false}, {0, 0, 0}},
};

}  // namespace

std::span<const Entry> scenarios() { return list; }

}  // namespace bulkhead::model
