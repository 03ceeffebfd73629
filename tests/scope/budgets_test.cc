// Budgets of a bulkhead that processes share: real processes, shared memory and a real server.
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "adapters/redis/fleet.h"
#include "adapters/redis/server_test.h"
#include "adapters/shm/host.h"
#include "adapters/shm/process_test.h"
#include "bulkhead/bulkhead.h"

namespace bulkhead {
namespace {

using namespace std::chrono_literals;
using shm::Pipe;
using shm::Process;

class SharedBudget : public testing::TestWithParam<Scope> {
 protected:
  // Each process has 100 places of its own and a part of 1000 tokens. Commands: + a call of 400 tokens that waits, t one that
  // hardly waits, s settles the oldest for 100, - ends it, f starts a call without tokens, q ends the process.
  std::unique_ptr<Process> process() {
    return std::make_unique<Process>([this, scope = GetParam()](Pipe& pipe) {
      shm::Host host({.region = dir_ / "region"});
      redis::Fleet fleet({.store = server_.url(),
                          .lease = 1s,
                          .when_cut_off = WhenCutOff::closed,
                          .mode = FleetMode::direct});
      SourcesByScope sources(&host, &fleet);
      Bulkhead model({.name = "model",
                      .max_concurrent = 100,
                      .max_queue = 50,
                      .budgets = {{.name = "tokens", .max = 1000, .scope = scope}},
                      .sources = &sources});
      std::vector<Call> calls;
      const auto begin = [&](std::chrono::seconds patience) {
        auto call = model.acquire({.timeout = patience, .costs = {{"tokens", 400}}});
        if (call) calls.push_back(*std::move(call));
        const bool right = call || call.error().reason == Reason::budget_limit;
        pipe.tell(call ? 'y' : right ? 'n' : '?');
      };
      pipe.tell();
      for (;;) switch (pipe.wait_go()) {
          case '+':
            begin(60s);
            break;
          case 't':
            begin(0s);
            break;
          case 's':
            pipe.tell(calls.front().settle("tokens", 100) ? 'y' : 'n');
            break;
          case '-':
            calls.erase(calls.begin());
            pipe.tell();
            break;
          case 'f':
            pipe.tell(model.try_acquire() ? 'y' : 'n');
            break;
          default:
            return;
        }
    });
  }
  static char ask(const std::unique_ptr<Process>& p, char command) {
    p->go(command);
    return static_cast<char>(p->wait_told());
  }

  redis::tests::Server server_;
  shm::TempDir dir_;
};

TEST_P(SharedBudget, CountsTheUnitsOfAllProcesses) {
  const auto a = process(), b = process();
  ASSERT_TRUE(a->wait_told() == 'y' && b->wait_told() == 'y');
  ASSERT_EQ(ask(a, '+'), 'y');
  ASSERT_EQ(ask(b, '+'), 'y');
  EXPECT_EQ(ask(a, 't'), 'n') << "800 of 1000 are in use";
  EXPECT_EQ(ask(a, 'f'), 'y') << "a call without tokens does not need any";
  // What one process settles, another one uses.
  EXPECT_EQ(ask(a, 's'), 'y');
  EXPECT_EQ(ask(b, '+'), 'y');
  EXPECT_EQ(ask(a, 't'), 'n') << "900 of 1000 are in use";
  // What a process held that was killed comes back: at once on a host, after its lease in a fleet.
  b->kill(SIGKILL);
  EXPECT_EQ(ask(a, '+'), 'y');
  EXPECT_EQ(ask(a, '+'), 'y');
  EXPECT_EQ(ask(a, 't'), 'n');
}

TEST_P(SharedBudget, ACallThatWaitsForItIsWokenByAnotherProcess) {
  const auto a = process(), b = process();
  ASSERT_TRUE(a->wait_told() == 'y' && b->wait_told() == 'y');
  ASSERT_EQ(ask(a, '+'), 'y');
  ASSERT_EQ(ask(a, '+'), 'y');
  b->go('+');
  EXPECT_EQ(ask(a, '-'), 'y');
  EXPECT_EQ(b->wait_told(), 'y');
}

INSTANTIATE_TEST_SUITE_P(Scopes, SharedBudget, testing::Values(Scope::host, Scope::fleet),
                         [](const auto& scope) { return scope.param == Scope::host ? "Host" : "Fleet"; });

}  // namespace
}  // namespace bulkhead
