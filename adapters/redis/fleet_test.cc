// Bulkheads of several members of a fleet in one process, each with a Fleet of its own, and a real server.
#include "adapters/redis/fleet.h"

#include <gmock/gmock.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "adapters/redis/fleet_report.h"
#include "adapters/redis/limit_script.h"
#include "adapters/redis/server_test.h"
#include "bulkhead/bulkhead.h"
#include "tests/support/descriptor_limit.h"
#include "tests/support/no_threads.h"

namespace bulkhead::redis {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

FleetSettings settings(const tests::Server& server, FleetMode mode = FleetMode::block,
                       WhenCutOff when_cut_off = WhenCutOff::closed) {
  return {.store = server.url(), .lease = 1s, .when_cut_off = when_cut_off, .mode = mode};
}

struct Member {
  Member(const FleetSettings& s, std::uint32_t max_concurrent, std::uint32_t max_queue = 50)
      : fleet(s),
        bulkhead({.name = "db",
                  .max_concurrent = max_concurrent,
                  .max_queue = max_queue,
                  .scope = Scope::fleet,
                  .sources = &fleet}) {}
  Fleet fleet;
  Bulkhead bulkhead;
  FleetSnapshot now() const { return *bulkhead.snapshot().fleet; }
  Gate& gate() { return bulkhead.gate(); }
};

template <class F>
[[nodiscard]] bool until(F&& done, std::chrono::seconds most = 30s) {
  for (const auto end = std::chrono::steady_clock::now() + most; std::chrono::steady_clock::now() < end;) {
    if (done()) return true;
    std::this_thread::sleep_for(1ms);
  }
  return false;
}

bool leased(Member& m) {
  return until([&] { return m.now().state == FleetState::leased; });
}

TEST(FleetExhaustion, WithoutAThreadThereIsNoBulkheadAndTheNextOneTriesAgain) {
  tests::Server server;
  Fleet fleet(settings(server));
  const BulkheadOptions db{.name = "db", .max_concurrent = 2, .scope = Scope::fleet, .sources = &fleet};
  for (const int left : {0, 1}) {
    const bulkhead::tests::NoThreads after(left);
    EXPECT_THROW(Bulkhead{db}, std::system_error) << left;
  }
  Bulkhead bulkhead(db);
  EXPECT_TRUE(until([&] { return bulkhead.try_acquire().has_value(); }));
}

TEST(FleetExhaustion, WithoutFileDescriptorsItSaysSoAndJoinsOnceThereAreSome) {
  BULKHEAD_SKIP_WITHOUT_DESCRIPTORS();
  tests::Server server;
  std::optional<bulkhead::tests::NoDescriptors> none(std::in_place);
  EXPECT_THROW(Fleet{settings(server)}, std::runtime_error);
  none.reset();
  Fleet fleet(settings(server));
  none.emplace();
  Bulkhead bulkhead({.name = "db", .max_concurrent = 2, .scope = Scope::fleet, .sources = &fleet});
  EXPECT_TRUE(until([&] { return !bulkhead.snapshot().fleet->problem.empty(); }));
  EXPECT_THAT(bulkhead.snapshot().fleet->problem, HasSubstr("open files"));
  EXPECT_FALSE(bulkhead.try_acquire());
  none.reset();
  EXPECT_TRUE(until([&] { return bulkhead.try_acquire().has_value(); }));
}

class Modes : public testing::TestWithParam<FleetMode> {};

// Calls run until all units were in use at once and each member has had its part.
TEST_P(Modes, AllMembersTogetherStayWithinTheLimit) {
  tests::Server server;
  std::vector<std::unique_ptr<Member>> members;
  for (int i = 0; i < 3; ++i) members.push_back(std::make_unique<Member>(settings(server, GetParam()), 5));
  for (auto& m : members) ASSERT_TRUE(leased(*m));
  std::atomic<std::uint32_t> inside{0}, most{0};
  std::atomic<std::uint32_t> count[3] = {};
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < 12; ++i)
    threads.emplace_back([&, i] {
      Gate& gate = members[i % 3]->gate();
      while (!stop) {
        auto permit = gate.acquire({.timeout = 100ms});
        if (!permit) continue;
        const std::uint32_t now = inside.fetch_add(1) + 1;
        for (std::uint32_t seen = most.load(); seen < now && !most.compare_exchange_weak(seen, now);) {
        }
        ++count[i % 3];
        std::this_thread::sleep_for(2ms);
        inside.fetch_sub(1);
      }
    });
  EXPECT_TRUE(until(
      [&] { return most >= 5 && std::ranges::all_of(count, [](const auto& calls) { return calls >= 50; }); },
      60s));
  stop = true;
  for (auto& t : threads) t.join();
  EXPECT_EQ(most, 5u);
  for (auto& m : members) EXPECT_EQ(m->now().members, 3u);
}

INSTANTIATE_TEST_SUITE_P(Fleet, Modes, testing::Values(FleetMode::block, FleetMode::direct),
                         [](const auto& mode) {
                           return mode.param == FleetMode::block ? "Block" : "Direct";
                         });

TEST(Fleet, ASnapshotListsAllMembers) {
  tests::Server server;
  Member a(settings(server), 10), b(settings(server), 10);
  ASSERT_TRUE(leased(a) && leased(b));
  std::vector<Permit> permits;
  ASSERT_TRUE(until([&] {
    if (auto permit = a.gate().try_acquire()) permits.push_back(std::move(*permit));
    return permits.size() == 3;
  }));
  FleetSnapshot now;
  EXPECT_TRUE(until([&] {
    now = a.now();
    return now.list && now.list->members.size() == 2 && now.list->members[0].held >= 3;
  }));
  ASSERT_TRUE(now.list);
  ASSERT_EQ(now.list->members.size(), 2u);
  const FleetMember &first = now.list->members[0], &second = now.list->members[1];
  char host[64] = {};
  ::gethostname(host, sizeof host - 1);
  EXPECT_EQ(first.name, std::string(host) + "-" + std::to_string(::getpid()));
  EXPECT_TRUE(first.own && !second.own);
  EXPECT_FALSE(first.lapsed || second.lapsed);
  EXPECT_EQ(now.list->held, first.held + second.held);
  EXPECT_EQ(now.list->leased, 2u);
  EXPECT_LT(first.lease_age, 1s);
  // The other one has it from the same list in the store, and there it is the second that is its own.
  EXPECT_TRUE(until(
      [&] { return b.now().list && b.now().list->members.size() == 2 && b.now().list->members[1].own; }));
}

TEST(Fleet, WhoLooksAtSnapshotsAllTheTimeAsksForAListOncePerLease) {
  tests::Server server;
  Member a(settings(server), 10);
  ASSERT_TRUE(leased(a));
  ASSERT_TRUE(until([&] { return a.now().list != nullptr; }));
  const auto lists = [&] {
    std::set<std::shared_ptr<const FleetList>> seen;
    const auto end = std::chrono::steady_clock::now() + 3s;
    while (std::chrono::steady_clock::now() < end) seen.insert(a.now().list);
    return seen.size();
  };
  EXPECT_LE(lists(), 5u);
}

TEST(FleetReport, ReadsFromTheStoreWhoSharesALimit) {
  tests::Server server;
  Member a(settings(server), 10), b(settings(server), 10);
  ASSERT_TRUE(leased(a) && leased(b));
  // A member of another client, whose name does not end in a number, and that has lapsed.
  server.call({"HSET", limit_key("bulkhead", "db", 'm'), "other", "4 9 0 1 0 1000 7"});
  const FleetReport all = report(settings(server), {"db", "unknown"}, 1000);
  ASSERT_EQ(all.limits.size(), 2u);
  EXPECT_FALSE(all.limits[1].known);
  const FleetReport::Limit& db = all.limits[0];
  EXPECT_TRUE(db.known);
  EXPECT_EQ(db.limit, 10u);
  EXPECT_EQ(db.list.leased, 2u);
  EXPECT_EQ(db.list.lapsed, 1u);
  EXPECT_EQ(db.list.lapsed_held, 4u);
  ASSERT_EQ(db.list.members.size(), 3u);
  EXPECT_EQ(db.list.members[0].name, "other");
  EXPECT_TRUE(db.list.members[0].lapsed);
  EXPECT_EQ(report(settings(server), {"db"}, 1000).limits[0].list.members.size(), 3u);
  EXPECT_THROW(report({.store = "redis://127.0.0.1:1"}, {"db"}, 100), std::runtime_error);
}

TEST(Fleet, DirectHandsAUnitFromOneProcessToAnother) {
  tests::Server server;
  Member a(settings(server, FleetMode::direct), 1), b(settings(server, FleetMode::direct), 1);
  ASSERT_TRUE(leased(a) && leased(b));
  for (int i = 0; i < 20; ++i) {
    auto held = a.gate().acquire({.timeout = 20s});
    ASSERT_TRUE(held);
    std::thread other([&] { EXPECT_TRUE(b.gate().acquire({.timeout = 20s})); });
    while (b.gate().snapshot().waiting == 0) std::this_thread::yield();
    held->release();
    other.join();
  }
}

// Handlers of calls that have waited are not run by the thread that renews the leases.
TEST(Fleet, ALongHandlerEndsNoLease) {
  tests::Server server;
  std::atomic<bool> running{false}, go_on{false};  // outlive the member
  Member m(settings(server), 2);
  m.gate().async_acquire({}, [&](Result<Permit> permit) {
    EXPECT_TRUE(permit);
    running = true;
    EXPECT_TRUE(until([&] { return go_on.load(); }));
  });
  EXPECT_TRUE(until([&] { return running.load(); }));
  const std::uint64_t before = m.now().requests;
  EXPECT_TRUE(until([&] { return m.now().requests >= before + 8; }, 10s));  // more than a lease
  EXPECT_EQ(m.now().state, FleetState::leased);
  EXPECT_TRUE(m.gate().acquire({.timeout = 10s}));  // it still has its lease
  go_on = true;
}

TEST(Fleet, UnitsOfAMemberThatEndsAreFreeAtOnce) {
  tests::Server server;
  Member a(settings(server), 4);
  ASSERT_TRUE(leased(a));
  {
    Member b(settings(server), 4);
    ASSERT_TRUE(leased(b));
    ASSERT_TRUE(until([&] { return b.gate().acquire({.timeout = 1s}).has_value(); }));
  }
  EXPECT_EQ(server.call({"HLEN", "{bulkhead}:db:m"}).integer, 1);
}

TEST(Fleet, WhenTheStoreIsSilentEachModeAdmitsWhatItSays) {
  tests::Server server;
  Member closed(settings(server, FleetMode::block, WhenCutOff::closed), 12);
  Member safe(settings(server, FleetMode::block, WhenCutOff::safe_share), 12);
  Member local(settings(server, FleetMode::block, WhenCutOff::local), 12);
  ASSERT_TRUE(leased(closed) && leased(safe) && leased(local));
  ASSERT_TRUE(until([&] {
    return closed.gate().try_acquire().has_value() && safe.gate().try_acquire().has_value() &&
           safe.now().members == 3;
  }));
  server.signal(SIGSTOP);
  ASSERT_TRUE(until([&] {
    return closed.now().state == FleetState::degraded && safe.now().state == FleetState::degraded &&
           local.now().state == FleetState::degraded;
  }));
  EXPECT_FALSE(closed.gate().try_acquire());
  EXPECT_EQ(closed.now().held, 0u);
  EXPECT_GT(safe.now().held, 0u);
  EXPECT_LE(safe.now().held, 4u);
  EXPECT_EQ(local.now().held, 12u);
  EXPECT_GT(safe.now().degraded_for, 0ns);
  EXPECT_TRUE(until([&] { return !safe.now().problem.empty(); }));
  EXPECT_THAT(safe.now().problem, HasSubstr("no answer in time"));
  server.signal(SIGCONT);
  EXPECT_TRUE(leased(closed) && leased(safe) && leased(local));
  EXPECT_TRUE(until([&] { return closed.gate().try_acquire().has_value(); }));
  EXPECT_EQ(closed.now().problem, "");
}

TEST(Fleet, AStoreThatForgetsIsTaughtAgain) {
  tests::Server server;
  Member a(settings(server), 6), b(settings(server), 6);
  ASSERT_TRUE(leased(a) && leased(b));
  std::vector<Permit> held;
  ASSERT_TRUE(until([&] {
    if (auto permit = a.gate().try_acquire()) held.push_back(std::move(*permit));
    return held.size() == 5;
  }));
  server.call({"FLUSHALL"});
  ASSERT_TRUE(until([&] { return b.now().state == FleetState::learning; }));
  ASSERT_TRUE(leased(a) && leased(b));
  // What is in use is known again: the other process gets the one unit that is left.
  auto one = b.gate().acquire({.timeout = 20s});
  ASSERT_TRUE(one);
  EXPECT_FALSE(b.gate().acquire({.timeout = 200ms}));
}

TEST(Fleet, ALimitThatOneProcessChangesHoldsForAll) {
  tests::Server server;
  Member a(settings(server), 4), b(settings(server), 4);
  ASSERT_TRUE(leased(a) && leased(b));
  a.bulkhead.resize(9);
  EXPECT_TRUE(until([&] { return b.gate().snapshot().max_concurrent == 9; }));
  // A change of something else does not bring the old number back.
  BulkheadOptions o = b.bulkhead.options();
  o.max_queue = 7;
  b.bulkhead.update(o);
  Member c(settings(server), 4);
  ASSERT_TRUE(leased(c));
  EXPECT_EQ(c.gate().snapshot().max_concurrent, 9u);
  EXPECT_TRUE(until([&] { return a.now().members == 3; }));
  EXPECT_EQ(a.gate().snapshot().max_concurrent, 9u);
  // A configuration of a higher version does.
  FleetSettings newer = settings(server);
  newer.version = 1;
  Member d(newer, 3);
  EXPECT_TRUE(until([&] { return a.gate().snapshot().max_concurrent == 3; }));
}

// As somebody would bring another client of Redis.
class CountingTransport final : public Transport {
 public:
  CountingTransport(const Endpoint& to, Until until, std::atomic<int>& commands)
      : connection_(to, until), commands_(commands) {}
  std::vector<Value> exchange(const std::vector<Command>& commands, Until until) override {
    commands_ += static_cast<int>(commands.size());
    return connection_.exchange(commands, until);
  }

 private:
  Connection connection_;
  std::atomic<int>& commands_;
};

TEST(Fleet, AnotherClientMayCarryTheCommands) {
  tests::Server server;
  std::atomic<int> opened{0}, commands{0};
  {
    Fleet fleet(settings(server), {}, nullptr,
                [&](const Endpoint& to, Transport::Until until) -> std::unique_ptr<Transport> {
                  if (opened++ == 0) throw std::runtime_error("not yet");
                  return std::make_unique<CountingTransport>(to, until, commands);
                });
    Bulkhead bulkhead({.name = "db", .max_concurrent = 3, .scope = Scope::fleet, .sources = &fleet});
    EXPECT_TRUE(until([&] { return bulkhead.snapshot().fleet->state == FleetState::leased; }));
    EXPECT_TRUE(until([&] { return static_cast<bool>(bulkhead.acquire()); }));
    Member other(settings(server), 3);  // with the client of the adapter
    EXPECT_TRUE(until([&] { return bulkhead.snapshot().fleet->members == 2; }));
  }
  EXPECT_GE(opened, 2);
  EXPECT_GT(commands, 3);
}

TEST(Fleet, OneProcessTakesNoMoreThanItsShare) {
  tests::Server server;
  FleetSettings s = settings(server);
  s.max_share = 0.5;
  Member a(s, 8);
  ASSERT_TRUE(leased(a));
  std::vector<Permit> held;
  ASSERT_TRUE(until([&] {
    if (auto permit = a.gate().try_acquire()) held.push_back(std::move(*permit));
    return held.size() == 4;
  }));
  EXPECT_FALSE(a.gate().acquire({.timeout = 300ms}));
}

TEST(Fleet, AProcessThatStartsBeforeTheStoreJoinsLater) {
  const std::uint16_t port = tests::free_port();
  Member a({.store = "redis://127.0.0.1:" + std::to_string(port), .lease = 1s, .mode = FleetMode::block}, 2);
  EXPECT_FALSE(a.gate().try_acquire());
  EXPECT_EQ(a.now().state, FleetState::joining);
  EXPECT_TRUE(until([&] { return a.now().problem.find("refused") != std::string::npos; }));
  tests::Server server({}, port);
  EXPECT_TRUE(until([&] { return a.gate().try_acquire().has_value(); }));
}

TEST(Fleet, AutoChoosesBlockForShortCallsOfALargeLimit) {
  tests::Server server;
  std::atomic<int> reports{0};
  Fleet fleet(settings(server, FleetMode::automatic), [&](const std::string&) { ++reports; });
  Bulkhead bulkhead(
      {.name = "db", .max_concurrent = 500, .max_queue = 10, .scope = Scope::fleet, .sources = &fleet});
  EXPECT_TRUE(bulkhead.snapshot().fleet->direct);
  EXPECT_TRUE(until([&] {
    if (auto permit = bulkhead.gate().acquire({.timeout = 1s})) std::this_thread::sleep_for(1ms);
    return !bulkhead.snapshot().fleet->direct;
  }));
  EXPECT_TRUE(until([&] { return reports >= 1; }));  // on another thread
}

// It accepts each connection, so that alone says nothing: without a pause, each process would make fifty of them per second.
TEST(Fleet, AStoreThatAnswersWithErrorsIsAskedLessAndLessOften) {
  tests::Server server;
  std::atomic<int> told{0}, connections{0};
  const auto report = [&](const std::string& text) { told += text.find("OOM") != text.npos; };
  const auto connect = [&](const Endpoint& to, Transport::Until until) {
    ++connections;
    return std::make_unique<Connection>(to, until);
  };
  Fleet fleet(settings(server), report, nullptr, connect);
  Bulkhead bulkhead({.name = "db", .max_concurrent = 2, .scope = Scope::fleet, .sources = &fleet});
  const auto now = [&] { return *bulkhead.snapshot().fleet; };
  ASSERT_TRUE(until([&] { return now().state == FleetState::leased; }));
  connections = 0;
  const auto begin = std::chrono::steady_clock::now();
  server.call({"CONFIG", "SET", "maxmemory", "1"});
  ASSERT_TRUE(until([&] { return now().state == FleetState::degraded; }));
  EXPECT_THAT(now().problem, HasSubstr("OOM"));
  // After 10, 20 and 40 ms, and then every 50 ms, at the most.
  const int made = connections;
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  EXPECT_LE(made, 5 + took.count() / 0.05);
  server.call({"CONFIG", "SET", "maxmemory", "0"});
  EXPECT_TRUE(until([&] { return now().state == FleetState::leased && now().problem.empty(); }));
  EXPECT_EQ(told, 1);
}

TEST(Fleet, AForkedChildRejects) {
  tests::Server server;
  Member a(settings(server), 4);
  ASSERT_TRUE(until([&] { return a.gate().try_acquire().has_value(); }));
  const pid_t child = ::fork();
  if (child == 0) ::_exit(a.gate().try_acquire().has_value() ? 1 : 0);
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(Fleet, AFileThatCannotBeReadIsNamedWhenItIsNeeded) {
  const auto problem = [](FleetSettings settings) -> std::string {
    settings.store = "rediss://127.0.0.1:1";
    Fleet fleet(settings);
    try {
      Bulkhead({.name = "db", .scope = Scope::fleet, .sources = &fleet});
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(problem({.ca_file = "/nonexistent/ca"}), "fleet.ca_file: \"/nonexistent/ca\" cannot be read");
  EXPECT_EQ(problem({.password_file = "/nonexistent/pw"}),
            "fleet.password_file: \"/nonexistent/pw\" cannot be read, or is empty");
}

TEST(Fleet, WrongSettingsAreNamed) {
  const auto problem = [](const FleetSettings& s) -> std::string {
    try {
      Fleet::check(s);
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "";
  };
  const FleetSettings good{.store = "redis://h"};
  EXPECT_EQ(problem(good), "");
  FleetSettings s = good;
  s.store = "h:6379";
  EXPECT_THAT(problem(s), HasSubstr("fleet.store"));
  s = good;
  s.lease = 10ms;
  EXPECT_THAT(problem(s), HasSubstr("fleet.lease"));
  s = good;
  s.max_share = 0;
  EXPECT_THAT(problem(s), HasSubstr("fleet.max_share"));
  s = good;
  s.prefix = "a{b}";
  EXPECT_THAT(problem(s), HasSubstr("fleet.prefix"));

  Fleet direct({.store = "redis://h", .mode = FleetMode::direct});
  UnitSources& sources = direct;
  EXPECT_THROW(sources.check({.scope = Scope::fleet, .bulkhead = "db"}), std::invalid_argument);
  EXPECT_NO_THROW(sources.check({.scope = Scope::fleet, .bulkhead = "db", .max_queue = 1}));
  EXPECT_THROW(
      sources.check({.scope = Scope::fleet, .bulkhead = "db", .critical_reserve = 0.1, .max_queue = 1}),
      std::invalid_argument);
  EXPECT_THROW(sources.check({.scope = Scope::host, .bulkhead = "db", .max_queue = 1}),
               std::invalid_argument);
}

}  // namespace
}  // namespace bulkhead::redis
