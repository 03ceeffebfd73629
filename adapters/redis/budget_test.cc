// A budget with Scope::fleet: one maximum of units for several processes, and a real server.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <new>
#include <random>
#include <thread>
#include <vector>

#include "adapters/redis/fleet.h"
#include "adapters/redis/server_test.h"
#include "bulkhead/bulkhead.h"

namespace bulkhead::redis {
namespace {

using namespace std::chrono_literals;

constexpr std::uint32_t kTokens = 3000;
constexpr std::size_t kMembers = 3;
// No process may lose its lease on a busy machine: then its units would count twice.
constexpr auto kLease = 5s;

// What is in use, counted without the library in one atomic word, so that each look is one instant.
struct Oracle {
  std::atomic<std::uint32_t> in_use{0}, most{0};
  std::atomic<std::uint32_t> admitted[kMembers]{};
  std::atomic<bool> stop{false};
  void add(std::uint32_t units) {
    const std::uint32_t now = in_use.fetch_add(units) + units;
    for (std::uint32_t seen = most.load(); seen < now && !most.compare_exchange_weak(seen, now);) {
    }
  }
};

class FleetBudgets : public testing::TestWithParam<FleetMode> {
 protected:
  FleetBudgets()
      : oracle_(*new(::mmap(nullptr, sizeof(Oracle), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
                            0)) Oracle) {}
  ~FleetBudgets() override {
    for (const pid_t pid : pids_) {
      ::kill(pid, SIGKILL);
      ::waitpid(pid, nullptr, 0);
    }
    ::munmap(&oracle_, sizeof(Oracle));
  }
  static BulkheadOptions options(Fleet& fleet) {
    return {.name = "model",
            .max_concurrent = 16,
            .max_queue = 100,
            .max_wait = 100ms,
            .budgets = {{.name = "tokens", .max = kTokens, .per_call_max = 500, .scope = Scope::fleet}},
            .sources = &fleet};
  }
  FleetSettings settings() const { return {.store = server_.url(), .lease = kLease, .mode = GetParam()}; }

  // A process that takes units, settles, grows and gives back until it is told to stop.
  void start(std::size_t i) {
    const pid_t pid = ::fork();
    ASSERT_GE(pid, 0);
    if (pid != 0) return pids_.push_back(pid);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    {
      Fleet fleet(settings());
      Bulkhead model(options(fleet));
      std::vector<std::thread> threads;
      for (std::size_t t = 0; t < 3; ++t)
        threads.emplace_back([&, t] {
          std::minstd_rand random(static_cast<unsigned>(3 * i + t + 1));
          while (!oracle_.stop) {
            std::uint32_t held = 1 + static_cast<std::uint32_t>(random()) % 500;
            auto call = model.acquire({.costs = {{"tokens", held}}});
            if (!call) continue;
            oracle_.add(held);
            std::this_thread::sleep_for(1ms);
            const std::uint32_t to = static_cast<std::uint32_t>(random()) % (held + 1);
            oracle_.in_use.fetch_sub(held - to);  // before the units are back
            call->settle("tokens", held = to);
            if (held < 450 && call->try_grow("tokens", 50)) {
              oracle_.add(50);
              held += 50;
            }
            oracle_.in_use.fetch_sub(held);
            call->finish(Outcome::success);
            ++oracle_.admitted[i];
          }
        });
      for (auto& t : threads) t.join();
    }
    ::_exit(0);
  }

  tests::Server server_;
  Oracle& oracle_;
  std::vector<pid_t> pids_;
};

template <class F>
[[nodiscard]] bool until(F&& done) {
  for (const auto end = std::chrono::steady_clock::now() + 60s; std::chrono::steady_clock::now() < end;) {
    if (done()) return true;
    std::this_thread::sleep_for(2ms);
  }
  return false;
}

INSTANTIATE_TEST_SUITE_P(Fleet, FleetBudgets, testing::Values(FleetMode::block, FleetMode::direct),
                         [](const auto& mode) {
                           return mode.param == FleetMode::block ? "Block" : "Direct";
                         });

TEST_P(FleetBudgets, UnitsOfAllProcessesAreNeverAboveTheMaximum) {
  for (std::size_t i = 0; i < kMembers; ++i) start(i);
  EXPECT_TRUE(until([&] {
    for (const auto& n : oracle_.admitted)
      if (n < 100) return false;
    return true;
  })) << "every process gets units";
  oracle_.stop = true;
  for (const pid_t pid : pids_) {
    int status = 0;
    ::waitpid(pid, &status, 0);
    EXPECT_EQ(status, 0);
  }
  pids_.clear();
  EXPECT_LE(oracle_.most.load(), kTokens);
  EXPECT_EQ(oracle_.in_use.load(), 0u);

  // All of it is back: one process alone gets everything.
  Fleet fleet(settings());
  Bulkhead model(options(fleet));
  std::vector<Call> calls;
  EXPECT_TRUE(until([&] {
    if (auto call = model.acquire({.costs = {{"tokens", 500}}})) calls.push_back(*std::move(call));
    return calls.size() == kTokens / 500;
  }));
  const auto more = model.try_acquire({.costs = {{"tokens", 1}}});
  ASSERT_FALSE(more);
  EXPECT_EQ(more.error().reason, Reason::budget_limit);
}

}  // namespace
}  // namespace bulkhead::redis
