// Processes of one host as one member of a fleet: real processes, a region for each host, and a real server.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "adapters/redis/fleet.h"
#include "adapters/redis/server_test.h"
#include "adapters/shm/host.h"
#include "adapters/shm/process_test.h"
#include "bulkhead/bulkhead.h"

namespace bulkhead::redis {
namespace {

using namespace std::chrono_literals;
using shm::Pipe;
using shm::Process;

template <class F>
[[nodiscard]] bool until(F&& done) {
  for (const auto end = std::chrono::steady_clock::now() + 60s; std::chrono::steady_clock::now() < end;) {
    if (done()) return true;
    std::this_thread::sleep_for(2ms);
  }
  return false;
}

// Seen by all processes of a test.
struct Oracle {
  std::atomic<int> inside, most;
  std::atomic<bool> stop;
  std::atomic<std::uint64_t> calls[8];
};

class HostMember : public testing::TestWithParam<FleetMode> {
 protected:
  HostMember()
      : oracle_(static_cast<Oracle*>(
            mmap(nullptr, sizeof(Oracle), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {}
  ~HostMember() override { munmap(oracle_, sizeof(Oracle)); }

  // A process of the host with that region. Commands: + acquires a unit, - gives one back, t tries one; s, m, h and n tell its
  // state, members, units held and limit; l lowers the limit to 3, x runs calls until the oracle says stop, q ends it.
  std::unique_ptr<Process> process(const std::string& region, std::size_t number = 0,
                                   WhenCutOff cut_off = WhenCutOff::closed, std::chrono::seconds lease = 1s,
                                   std::uint32_t limit = 6) {
    return std::make_unique<Process>([=, this, mode = GetParam()](Pipe& pipe) {
      shm::Host host({.region = dir_ / region});
      Fleet fleet({.store = server_.url(), .lease = lease, .when_cut_off = cut_off, .mode = mode}, {}, &host);
      Bulkhead bulkhead(
          {.name = "db", .max_concurrent = limit, .max_queue = 50, .scope = Scope::fleet, .sources = &fleet});
      std::vector<Call> held;
      pipe.tell();
      for (;;) switch (pipe.wait_go()) {
          case '+':
            if (auto call = bulkhead.acquire({.timeout = 30s})) {
              held.push_back(*std::move(call));
              pipe.tell('y');
            } else {
              pipe.tell('n');
            }
            break;
          case 't':
            pipe.tell(bulkhead.acquire({.timeout = 100ms}) ? 'y' : 'n');
            break;
          case '-':
            held.pop_back();
            pipe.tell();
            break;
          case 's':
            pipe.tell(static_cast<char>('0' + static_cast<int>(bulkhead.snapshot().fleet->state)));
            break;
          case 'm':
            pipe.tell(static_cast<char>('0' + bulkhead.snapshot().fleet->members));
            break;
          case 'h':
            pipe.tell(static_cast<char>('0' + bulkhead.snapshot().fleet->held));
            break;
          case 'n':
            pipe.tell(static_cast<char>('0' + bulkhead.snapshot().gate.max_concurrent));
            break;
          case 'l':
            bulkhead.resize(3);
            pipe.tell();
            break;
          case 'x':
            run_calls(bulkhead, number);
            pipe.tell();
            break;
          default:
            return;
        }
    });
  }
  void run_calls(Bulkhead& bulkhead, std::size_t number) {
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i)
      threads.emplace_back([&] {
        while (!oracle_->stop) {
          const auto done = bulkhead.execute(
              [&] {
                const int now = ++oracle_->inside;
                for (int seen = oracle_->most;
                     seen < now && !oracle_->most.compare_exchange_weak(seen, now);) {
                }
                std::this_thread::sleep_for(2ms);
                --oracle_->inside;
              },
              {.timeout = 100ms});
          if (done) ++oracle_->calls[number];
        }
      });
    for (auto& t : threads) t.join();
  }
  static char ask(const std::unique_ptr<Process>& p, char command) {
    p->go(command);
    return static_cast<char>(p->wait_told());
  }
  [[nodiscard]] static bool leased(const std::unique_ptr<Process>& p) {
    return until([&] { return ask(p, 's') == '0' + static_cast<int>(FleetState::leased); });
  }
  long members() { return static_cast<long>(server_.call({"HLEN", "{bulkhead}:db:m"}).integer); }

  tests::Server server_;
  shm::TempDir dir_;
  Oracle* const oracle_;
};

TEST_P(HostMember, TheProcessesOfAHostShareItsLease) {
  // A long lease, so that none ends because the machine is busy: calls that outlive their lease are not counted.
  std::vector<std::unique_ptr<Process>> all;
  for (std::size_t i = 0; i < 5; ++i)
    all.push_back(process(i < 3 ? "one" : "two", i, WhenCutOff::closed, 3s));
  for (auto& p : all) ASSERT_EQ(p->wait_told(), 'y');
  for (auto& p : all) ASSERT_TRUE(leased(p));
  EXPECT_EQ(members(), 2);
  for (auto& p : all) EXPECT_TRUE(until([&] { return ask(p, 'm') == '2'; }));
  for (auto& p : all) p->go('x');
  EXPECT_TRUE(until([&] {
    bool all_had_some = oracle_->most >= 6;
    for (std::size_t i = 0; i < 5; ++i) all_had_some = all_had_some && oracle_->calls[i] >= 30;
    return all_had_some;
  }));
  oracle_->stop = true;
  for (auto& p : all) EXPECT_EQ(p->wait_told(), 'y');
  EXPECT_EQ(oracle_->most, 6);
  EXPECT_EQ(members(), 2);
}

TEST_P(HostMember, TheLeaseOutlivesTheProcessThatSpokeForIt) {
  auto agent = process("one");
  ASSERT_EQ(agent->wait_told(), 'y');
  ASSERT_TRUE(leased(agent));
  auto other = process("one");
  ASSERT_EQ(other->wait_told(), 'y');
  for (int i = 0; i < 3; ++i) ASSERT_EQ(ask(other, '+'), 'y');
  for (int i = 0; i < 3; ++i) ASSERT_EQ(ask(agent, '+'), 'y');
  EXPECT_EQ(ask(other, 't'), 'n');
  EXPECT_EQ(members(), 1);
  agent->kill(SIGKILL);
  // Its units are free, and the next process speaks as the same member.
  for (int i = 0; i < 3; ++i) EXPECT_EQ(ask(other, '+'), 'y');
  EXPECT_EQ(ask(other, 't'), 'n');
  for (int i = 0; i < 150; ++i) {
    ASSERT_EQ(members(), 1);
    std::this_thread::sleep_for(10ms);
  }
  EXPECT_TRUE(leased(other));
  // A process that comes later gets what the other gives back.
  auto third = process("one");
  ASSERT_EQ(third->wait_told(), 'y');
  EXPECT_EQ(ask(other, '-'), 'y');
  EXPECT_EQ(ask(third, '+'), 'y');
}

TEST_P(HostMember, TheLastProcessLeaves) {
  auto a = process("one"), b = process("one");
  ASSERT_TRUE(a->wait_told() == 'y' && b->wait_told() == 'y');
  ASSERT_TRUE(leased(a) && leased(b));
  a->go('q');
  EXPECT_EQ(a->wait_exit(), 0);
  EXPECT_EQ(ask(b, '+'), 'y');
  EXPECT_EQ(members(), 1);
  EXPECT_EQ(ask(b, '-'), 'y');
  b->go('q');
  EXPECT_EQ(b->wait_exit(), 0);
  EXPECT_EQ(members(), 0);
}

TEST_P(HostMember, ALimitThatAnyProcessChangesHoldsForAllHosts) {
  auto a = process("one"), b = process("one"), c = process("two");
  for (auto* p : {&a, &b, &c}) ASSERT_EQ((*p)->wait_told(), 'y');
  for (auto* p : {&a, &b, &c}) ASSERT_TRUE(leased(*p));
  EXPECT_EQ(ask(b, 'l'), 'y');
  for (auto* p : {&a, &b, &c}) EXPECT_TRUE(until([&] { return ask(*p, 'n') == '3'; }));
}

// As with one process per member: once all of them have ended, the number of the next one counts.
TEST_P(HostMember, ANewNumberCountsWhenAllProcessesHaveEnded) {
  auto killed = process("one");
  ASSERT_EQ(killed->wait_told(), 'y');
  ASSERT_TRUE(leased(killed));
  killed->kill(SIGKILL);
  ASSERT_EQ(killed->wait_exit(), 128 + SIGKILL);
  auto next = process("one", 0, WhenCutOff::closed, 1s, 4);
  ASSERT_EQ(next->wait_told(), 'y');
  EXPECT_TRUE(until([&] { return ask(next, 'n') == '4'; }));
  next->go('q');
  EXPECT_EQ(next->wait_exit(), 0);
  auto last = process("one", 0, WhenCutOff::closed, 1s, 5);
  ASSERT_EQ(last->wait_told(), 'y');
  EXPECT_TRUE(until([&] { return ask(last, 'n') == '5'; }));
}

TEST_P(HostMember, AHostThatIsCutOffAdmitsItsSafeShare) {
  auto a = process("one", 0, WhenCutOff::safe_share), b = process("one", 1, WhenCutOff::safe_share),
       c = process("two", 2, WhenCutOff::safe_share);
  for (auto* p : {&a, &b, &c}) ASSERT_EQ((*p)->wait_told(), 'y');
  for (auto* p : {&a, &b, &c}) ASSERT_TRUE(leased(*p));
  // Demand on both hosts, so that block mode has a lease to keep.
  for (auto* p : {&a, &b, &c}) ASSERT_EQ(ask(*p, '+'), 'y');
  for (auto* p : {&a, &b, &c}) ASSERT_TRUE(until([&] { return ask(*p, 'm') == '2'; }));
  server_.signal(SIGSTOP);
  for (auto* p : {&a, &b, &c})
    ASSERT_TRUE(until([&] { return ask(*p, 's') == '0' + static_cast<int>(FleetState::degraded); }));
  EXPECT_LE(ask(a, 'h'), '3');
  EXPECT_EQ(ask(a, 'h'), ask(b, 'h'));
  int inside = 2;
  while (inside < 9 && ask(a, 't') == 'y' && ask(a, '+') == 'y') ++inside;
  EXPECT_LE(inside, 3);
  EXPECT_EQ(ask(b, 't'), 'n');
  server_.signal(SIGCONT);
  for (auto* p : {&a, &b, &c}) EXPECT_TRUE(leased(*p));
}

// Units of a budget are counted: a host may hold more of them than its region has words.
TEST_P(HostMember, TheProcessesOfAHostShareALeaseOfABudget) {
  constexpr std::uint32_t kTokens = 200'000, kMost = 32'000;
  constexpr std::size_t kProcesses = 3;
  std::vector<std::unique_ptr<Process>> all;
  for (std::size_t i = 0; i < kProcesses; ++i)
    all.push_back(std::make_unique<Process>([&, i](Pipe& pipe) {
      shm::Host host({.region = dir_ / (i < 2 ? "one" : "two")});
      Fleet fleet({.store = server_.url(), .lease = 3s, .mode = GetParam()}, {}, &host);
      Bulkhead model(
          {.name = "model",
           .max_concurrent = 64,
           .max_queue = 50,
           .budgets = {{.name = "tokens", .max = kTokens, .per_call_max = kMost, .scope = Scope::fleet}},
           .sources = &fleet});
      std::vector<std::thread> threads;
      for (unsigned t = 0; t < 4; ++t)
        threads.emplace_back([&, t] {
          std::minstd_rand random(static_cast<unsigned>(4 * i) + t + 1);
          while (!oracle_->stop) {
            const auto cost = static_cast<std::uint32_t>(kMost - random() % (kMost / 2));
            auto call = model.acquire({.timeout = 100ms, .costs = {{"tokens", cost}}});
            if (!call) continue;
            const int now = oracle_->inside += static_cast<int>(cost);
            for (int seen = oracle_->most; seen < now && !oracle_->most.compare_exchange_weak(seen, now);) {
            }
            std::this_thread::sleep_for(2ms);
            oracle_->inside -= static_cast<int>(cost - cost / 2);  // before the units are back
            call->settle("tokens", cost / 2);
            std::this_thread::sleep_for(1ms);
            oracle_->inside -= static_cast<int>(cost / 2);
            call->finish(Outcome::success);
            ++oracle_->calls[i];
          }
        });
      for (auto& t : threads) t.join();
      pipe.tell();
    }));
  EXPECT_TRUE(until([&] {
    bool all_had_some = true;
    for (std::size_t i = 0; i < kProcesses; ++i) all_had_some = all_had_some && oracle_->calls[i] >= 30;
    return all_had_some;
  }));
  EXPECT_EQ(server_.call({"HLEN", "{bulkhead}:/model/tokens:m"}).integer, 2) << "two hosts";
  oracle_->stop = true;
  for (auto& p : all) EXPECT_EQ(p->wait_told(), 'y');
  EXPECT_LE(oracle_->most, static_cast<int>(kTokens));
  EXPECT_EQ(oracle_->inside, 0);
}

INSTANTIATE_TEST_SUITE_P(Fleet, HostMember, testing::Values(FleetMode::block, FleetMode::direct),
                         [](const auto& mode) {
                           return mode.param == FleetMode::block ? "Block" : "Direct";
                         });

}  // namespace
}  // namespace bulkhead::redis
