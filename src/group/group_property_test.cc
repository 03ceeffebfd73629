// Random command sequences on a group, beside a model that only counts. After every command: nothing was
// admitted above the total; who is within its guarantee while nobody borrows was admitted at once, and so was
// who is within the headroom; no unit is idle while somebody waits who may have it; nothing is lost.
//
// A failure prints the shortest sequence found that still fails, and RC_PARAMS to run it again.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <map>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "bulkhead/group.h"
#include "bulkhead/manual_clock.h"
#include "gate/property_test.h"

namespace bulkhead {
namespace {

using namespace std::chrono_literals;

enum class Kind : std::uint8_t {
  try_acquire,
  acquire,
  release,
  settle,
  grow,
  stop,
  resize,
  update,
  add,
  remove,
  adapt,
  advance
};

struct Command {
  Kind kind;
  std::uint32_t member, pick, cost;
};

std::ostream& operator<<(std::ostream& out, const Command& c) {
  constexpr std::array<std::string_view, 12> names{"try_acquire", "acquire", "release", "settle",
                                                   "grow",        "stop",    "resize",  "update",
                                                   "add",         "remove",  "adapt",   "advance"};
  return out << names[static_cast<std::size_t>(c.kind)] << "(member " << c.member << ", pick " << c.pick
             << ", cost " << c.cost << ")";
}

struct Rules {
  Lend lend;
  std::uint32_t max_cost = 1;
  bool reshapes = true;
  bool adapts = false;  // a limiter moves the total
};

rc::Gen<Command> command(const Rules& rules) {
  using rc::gen::inRange;
  auto kinds = rc::gen::weightedElement<Kind>({{6, Kind::try_acquire},
                                               {6, Kind::acquire},
                                               {8, Kind::release},
                                               {2, Kind::settle},
                                               {rules.max_cost > 1 ? 2u : 0u, Kind::grow},
                                               {1, Kind::stop},
                                               {rules.reshapes ? 1u : 0u, Kind::resize},
                                               {rules.reshapes ? 1u : 0u, Kind::update},
                                               {rules.reshapes ? 1u : 0u, Kind::add},
                                               {rules.reshapes ? 1u : 0u, Kind::remove},
                                               {rules.adapts ? 4u : 0u, Kind::adapt},
                                               {1, Kind::advance}});
  return rc::gen::construct<Command>(std::move(kinds), inRange(0u, 4u), inRange(0u, 1000u),
                                     inRange(1u, rules.max_cost + 1));
}

class World {
 public:
  explicit World(const Rules& rules) : rules_(rules) {
    GroupOptions options{.name = "g", .total = 8, .lend = rules.lend, .keep = 10ms, .clock = &clock_};
    options.members.push_back(member(0, {.percent = 50}, {.percent = 100}, 4));
    options.members.push_back(member(1, {.percent = 25}, {.percent = 75}, 3));
    options.members.push_back(member(2, {}, {.percent = 100}, 2));
    group_ = std::make_unique<Group>(std::move(options));
  }
  ~World() { release_all(); }

  void run(const Command& c) {
    switch (c.kind) {
      case Kind::try_acquire:
      case Kind::acquire:
        acquire(c);
        break;
      case Kind::release:
        release(c.pick);
        break;
      case Kind::settle:
        if (Call* call = held(c.pick)) {
          const std::uint32_t to = c.cost % (call->cost + 1);
          call->cost = to;
          RC_ASSERT(call->permit.settle(to));
        }
        break;
      case Kind::grow:
        if (Call* call = held(c.pick))
          if (call->permit.try_grow(c.cost)) call->cost += c.cost;
        break;
      case Kind::stop:
        if (!calls_.empty()) calls_[c.pick % calls_.size()]->stop.request_stop();
        break;
      case Kind::resize:
        try_to([&] { group_->resize(4 + c.pick % 9); });
        break;
      case Kind::update:
        try_to([&] { group_->update(name(c.member), {.units = c.pick % 5}, {.units = 1 + c.pick / 5 % 9}); });
        updated_ = true;
        break;
      case Kind::add:
        try_to([&] { group_->add(member(c.member, {.units = c.pick % 3}, {.units = 4}, 2)); });
        updated_ = true;
        break;
      case Kind::remove:
        group_->remove(name(c.member), TimePoint::min());
        break;
      case Kind::adapt:
        RC_ASSERT(group_->adapt(1 + c.pick % 12));
        check_guarantees();
        break;
      case Kind::advance:
        clock_.advance(std::chrono::milliseconds(c.pick % 20));
        break;
    }
    check();
  }

  void end() {
    release_all();
    clock_.advance(1s);
    const GroupSnapshot s = group_->snapshot();
    RC_ASSERT(s.in_flight == 0u);
    std::uint64_t sum = s.free;
    for (const auto& m : s.members) {
      RC_ASSERT(m.waiting == 0u);
      RC_ASSERT(m.called_back == 0u);
      sum += m.allotted;
    }
    RC_ASSERT(sum == s.total);
  }

 private:
  struct Call {
    std::string member;
    std::uint32_t cost = 1;
    std::stop_source stop;
    Permit permit;
    int answers = 0;
  };

  static std::string name(std::uint32_t i) { return std::string(1, static_cast<char>('a' + i)); }
  static MemberOptions member(std::uint32_t i, Share guaranteed, Share max, std::uint32_t queue) {
    return {.name = name(i), .guaranteed = guaranteed, .max = max, .gate = {.max_queue = queue}};
  }
  template <class F>
  static void try_to(const F& change) {
    try {
      change();
    } catch (const std::invalid_argument&) {
    }
  }

  void release_all() {
    for (auto& call : calls_) call->stop.request_stop();
    while (held(0)) release(0);
  }
  std::uint32_t running() const { return in_flight({}); }
  std::uint32_t in_flight(const std::string& member) const {
    std::uint32_t sum = 0;
    for (const auto& c : calls_)
      if (c->permit && (member.empty() || c->member == member)) sum += c->cost;
    return sum;
  }

  // The instant of an admission: the total holds at that very moment.
  void answer(Call& call, Result<Permit> result) {
    ++call.answers;
    if (!result) return;
    call.permit = *std::move(result);
    RC_ASSERT(running() <= group_total_);
  }

  void acquire(const Command& c) {
    Gate* gate = group_->find(name(c.member));
    if (!gate) return;
    const GroupSnapshot before = group_->snapshot();
    group_total_ = before.total;
    const auto& m = *before.find(name(c.member));
    bool nobody_borrows = !m.closed, nobody_waits = true;
    for (const auto& other : before.members) {
      if (other.name != m.name && other.in_flight > other.guaranteed) nobody_borrows = false;
      if (other.waiting > 0) nobody_waits = false;
    }
    const bool guaranteed = m.in_flight + c.cost <= m.guaranteed;
    const bool headroom =
        !rules_.reshapes && m.in_flight + c.cost <= std::min(m.guaranteed, rules_.lend.units);
    const bool never_lent = headroom || (!rules_.reshapes && rules_.lend.mode == Lend::Mode::none);
    const bool first = guaranteed && m.waiting == 0 && ((nobody_borrows && nobody_waits) || never_lent);

    auto& call = calls_.emplace_back(std::make_unique<Call>());
    Call* const it = call.get();
    it->member = m.name;
    it->cost = c.cost;
    const AcquireOptions options{.cost = c.cost, .stop = it->stop.get_token()};
    if (c.kind == Kind::try_acquire)
      answer(*it, gate->try_acquire(options));
    else
      gate->async_acquire(options, [this, it](Result<Permit> r) { answer(*it, std::move(r)); });
    if (first) RC_ASSERT(static_cast<bool>(it->permit));
    // A borrower that can be told to stop does so.
    if (it->permit) static_cast<void>(it->permit.stop_token());
  }

  Call* held(std::uint32_t pick) {
    std::vector<Call*> held;
    for (auto& c : calls_)
      if (c->permit) held.push_back(c.get());
    return held.empty() ? nullptr : held[pick % held.size()];
  }
  void release(std::uint32_t pick) {
    if (Call* call = held(pick)) call->permit.release();
  }

  void check() {
    const GroupSnapshot s = group_->snapshot();
    group_total_ = s.total;
    std::uint64_t allotted = 0, owed = 0;
    for (const auto& m : s.members) {
      allotted += m.allotted;
      owed += m.called_back;
      RC_ASSERT(m.in_flight == in_flight(m.name));
      RC_ASSERT(m.in_flight <= m.allotted + m.called_back);
      RC_ASSERT(m.called_back == 0u || m.in_flight == m.allotted + m.called_back);
    }
    RC_ASSERT(allotted <= s.total);
    RC_ASSERT(allotted + owed + s.free >= s.total);
    if (s.free > 0) RC_ASSERT(allotted + owed + s.free == s.total);
    for (const auto& c : calls_) RC_ASSERT(c->answers <= 1);
    if (rules_.max_cost == 1 && !rules_.reshapes) check_nothing_idle(s);
  }

  // They fit into every total, and each of them keeps a unit while there is one for each.
  void check_guarantees() {
    const GroupSnapshot s = group_->snapshot();
    std::uint32_t sum = 0;
    for (const auto& m : s.members) sum += m.guaranteed;
    RC_ASSERT(sum <= s.total);
    const auto* const half = s.find("a");
    const bool claims = half && !half->closed && !updated_;
    if (claims && s.total >= s.members.size()) RC_ASSERT(half->guaranteed >= 1u);
  }

  // Nothing is kept for rejected calls after a while, so time passes first.
  void check_nothing_idle(const GroupSnapshot&) {
    clock_.advance(10ms);
    const GroupSnapshot s = group_->snapshot();
    std::uint32_t floors = 0;
    const auto floor = [&](const GroupSnapshot::Member& m) {
      return rules_.lend.mode == Lend::Mode::none ? m.guaranteed : std::min(m.guaranteed, rules_.lend.units);
    };
    for (const auto& m : s.members) floors += floor(m);
    for (const auto& m : s.members) {
      if (m.waiting == 0 || m.in_flight >= std::min(m.max, s.total - (floors - floor(m)))) continue;
      RC_ASSERT(s.free == 0u);
      for (const auto& other : s.members)
        RC_ASSERT(other.in_flight >= other.allotted || other.allotted <= floor(other));
    }
  }

  const Rules rules_;
  ManualClock clock_;
  std::uint32_t group_total_ = 8;
  bool updated_ = false;
  std::vector<std::unique_ptr<Call>> calls_;
  std::unique_ptr<Group> group_;
};

void check(const Rules& rules) {
  model::check_property([&] {
    const auto script = *rc::gen::scale(2.0, rc::gen::container<std::vector<Command>>(command(rules)));
    World world(rules);
    for (const Command& c : script) world.run(c);
    world.end();
  });
}

TEST(GroupProperty, LendNone) { check({.lend = Lend::none(), .reshapes = false}); }
TEST(GroupProperty, LendHeadroom) { check({.lend = Lend::headroom(2), .reshapes = false}); }
TEST(GroupProperty, LendAll) { check({.lend = Lend::headroom(0), .reshapes = false}); }
TEST(GroupProperty, LendRevocable) { check({.lend = Lend::revocable(1), .reshapes = false}); }
TEST(GroupProperty, HeavyCalls) { check({.lend = Lend::headroom(1), .max_cost = 4, .reshapes = false}); }
TEST(GroupProperty, AnotherShapeWithLendNone) { check({.lend = Lend::none()}); }
TEST(GroupProperty, AnotherShapeWithHeadroom) { check({.lend = Lend::headroom(1), .max_cost = 3}); }
TEST(GroupProperty, AMovingTotalWithLendNone) { check({.lend = Lend::none(), .adapts = true}); }
TEST(GroupProperty, AMovingTotalWithHeadroom) {
  check({.lend = Lend::headroom(1), .max_cost = 3, .adapts = true});
}
TEST(GroupProperty, AMovingTotalRevocable) {
  check({.lend = Lend::revocable(), .max_cost = 2, .adapts = true});
}
TEST(GroupProperty, AnotherShapeRevocable) { check({.lend = Lend::revocable(), .max_cost = 2}); }

}  // namespace
}  // namespace bulkhead
