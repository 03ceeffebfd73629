// The races between calls that enter and leave a gate with a scope without its lock, calls that join the line, and the end of
// the lease. The units come from a Lease on virtual time.
#include "shared/scoped_gate.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <thread>

#include "shared/lease.h"
#include "tests/support/sync_points.h"

namespace bulkhead::shared {
namespace {

using namespace std::chrono_literals;
using bulkhead::tests::named;
using bulkhead::tests::SyncPoints;

// One member whose requests a test answers.
class Member final : public UnitSources {
 public:
  explicit Member(std::uint32_t limit)
      : lease_({.member = "m", .when_cut_off = WhenCutOff::closed, .limit = limit}),
        scoped_({.name = "db", .max_concurrent = limit, .max_queue = 5}, Scope::fleet, *this) {}

  Gate& gate() { return scoped_.gate(); }
  std::uint32_t in_use() const { return lease_.in_use(); }
  void advance(std::chrono::nanoseconds time) { now_ += time.count(); }
  // Sends what is due, and gets `units` as the reply; returns what the member said that it holds.
  std::uint32_t renew(std::uint32_t units) {
    const auto request = lease_.next({.need = units}, "run", now_);
    if (!request) return ~0u;
    lease_.on_reply(request->seq,
                    {.ver = ++ver_, .granted = units, .target = units, .members = 1, .limit = lease_.limit()},
                    now_);
    user_->units_may_be_free();
    return request->have;
  }

 private:
  class Source final : public UnitSource {
   public:
    explicit Source(Member& member) : m_(member) {}
    bool take(const Head& head) noexcept override { return m_.lease_.take(head.cost, m_.now_); }
    void give_back(std::uint32_t units) noexcept override { m_.lease_.give_back(units); }
    std::uint32_t in_use() const noexcept override { return m_.lease_.in_use(); }
    void set_head(const Head*) noexcept override {}
    std::uint32_t limit() const noexcept override { return m_.lease_.limit(); }
    bool resize(std::uint32_t) noexcept override { return false; }
    void mute() noexcept override {}

   private:
    Member& m_;
  };
  std::unique_ptr<UnitSource> open(const Request&, UnitUser& user) override {
    user_ = &user;
    return std::make_unique<Source>(*this);
  }
  void check(const Request&) const override {}

  std::atomic<std::int64_t> now_{1};
  std::uint64_t ver_ = 0;
  Lease lease_;
  UnitUser* user_ = nullptr;
  ScopedGate scoped_;
};

void until_waiting(Gate& gate) {
  while (gate.snapshot().waiting == 0) std::this_thread::yield();
}

TEST(ScopedGateRaces, ACallThatWaitsGoesBeforeANewcomerThatHasAUnitButIsNotIn) {
  Member m(1);
  m.renew(1);
  SyncPoints points;
  points.hold("newcomer", "scoped.before_let_in");
  std::optional<Reason> newcomer;
  std::jthread first = named("newcomer", [&] {
    if (auto permit = m.gate().try_acquire(); !permit) newcomer = permit.error().reason;
  });
  points.until_held("newcomer");
  std::atomic<bool> end{false};
  std::jthread waiter([&] {
    const auto permit = m.gate().acquire({.timeout = 20s});
    EXPECT_TRUE(permit);
    end.wait(false);  // it is still in when the newcomer asks again
  });
  until_waiting(m.gate());
  points.let_go("newcomer");
  first.join();
  end = true;
  end.notify_all();
  waiter.join();
  EXPECT_EQ(newcomer, Reason::concurrency_limit);
  EXPECT_EQ(m.in_use(), 0u);
  EXPECT_EQ(m.gate().snapshot().in_flight, 0u);
}

TEST(ScopedGateRaces, AUnitThatIsOnItsWayBackIsNotCountedTwice) {
  Member m(1);
  m.renew(1);
  SyncPoints points;
  points.hold("leaver", "scoped.before_put_back");
  std::jthread leaver = named("leaver", [&] { EXPECT_TRUE(m.gate().try_acquire()); });
  points.until_held("leaver");
  const auto next = m.gate().try_acquire();
  EXPECT_TRUE(next);
  EXPECT_EQ(m.gate().snapshot().in_flight, 1u);
  EXPECT_EQ(m.gate().snapshot().max_concurrent, 1u);
  points.let_go("leaver");
  leaver.join();
  EXPECT_EQ(m.gate().snapshot().in_flight, 1u);
}

TEST(ScopedGateRaces, ACallThatJoinsTheLineDuringAReleaseIsServedByIt) {
  for (int i = 0; i < 200; ++i) {
    Member m(1);
    m.renew(1);
    auto held = m.gate().try_acquire();
    ASSERT_TRUE(held);
    std::jthread waiter([&] { EXPECT_TRUE(m.gate().acquire({.timeout = 20s})); });
    if (i % 2 == 0) until_waiting(m.gate());
    held->release();  // no message of the source follows: the release or the waiter itself finds the unit
  }
}

TEST(ScopedGateRaces, TheLeaseEndsWhileACallEnters) {
  Member m(2);
  m.renew(2);
  SyncPoints points;
  points.hold("caller", "scoped.before_let_in");
  std::atomic<bool> end{false};
  std::jthread caller = named("caller", [&] {
    const auto permit = m.gate().try_acquire();
    EXPECT_TRUE(permit);  // the lease was valid when it took its unit
    end.wait(false);
  });
  points.until_held("caller");
  m.advance(10s);
  EXPECT_FALSE(m.gate().try_acquire());
  points.let_go("caller");
  while (m.gate().snapshot().in_flight == 0) std::this_thread::yield();
  EXPECT_FALSE(m.gate().try_acquire());
  // A lapsed member claims nothing, and its call is a debt: of one unit that it gets anew, none is left.
  EXPECT_EQ(m.renew(1), 0u);
  EXPECT_FALSE(m.gate().try_acquire());
  end = true;
  end.notify_all();
  caller.join();
  EXPECT_TRUE(m.gate().try_acquire());
}

TEST(ScopedGateRaces, ACallThatWaitsAcrossTheEndOfTheLeaseIsAdmittedByTheNextOne) {
  Member m(1);
  m.renew(1);
  auto held = m.gate().try_acquire();
  ASSERT_TRUE(held);
  std::atomic<bool> admitted{false};
  std::jthread waiter([&] {
    const auto permit = m.gate().acquire({.timeout = 20s});
    EXPECT_TRUE(permit);
    admitted = true;
  });
  until_waiting(m.gate());
  m.advance(10s);
  held->release();
  EXPECT_FALSE(admitted);
  EXPECT_EQ(m.gate().snapshot().waiting, 1u);
  EXPECT_EQ(m.renew(1), 0u);
  waiter.join();
}

TEST(ScopedGateRaces, APriorityOvertakesTheLineButNotTheLimit) {
  Member m(2);
  m.renew(1);
  auto held = m.gate().try_acquire();
  ASSERT_TRUE(held);
  std::jthread waiter(
      [&] { EXPECT_TRUE(m.gate().acquire({.priority = Priority::best_effort, .timeout = 20s})); });
  until_waiting(m.gate());
  EXPECT_FALSE(m.gate().try_acquire({.priority = Priority::critical}));
  EXPECT_EQ(m.in_use(), 1u);
  held->release();
}

}  // namespace
}  // namespace bulkhead::shared
