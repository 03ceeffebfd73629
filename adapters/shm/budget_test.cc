// Budgets with Scope::host: one maximum of units for several processes.
#include <gmock/gmock.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <new>
#include <random>
#include <thread>
#include <vector>

#include "adapters/shm/host.h"
#include "adapters/shm/process_test.h"
#include "adapters/shm/region.h"
#include "adapters/shm/report.h"
#include "bulkhead/bulkhead.h"

namespace bulkhead::shm {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

// More than a region has words: units of a budget are counted, and not words of their own.
constexpr std::uint32_t k = 200, kTokens = 1000 * k;

class HostBudgets : public testing::Test {
 protected:
  static BulkheadOptions options(Host& host) {
    return {.name = "model",
            .max_concurrent = 16,
            .max_queue = 100,
            .max_wait = 20s,
            .budgets = {{.name = "tokens", .max = kTokens, .per_call_max = 900 * k, .scope = Scope::host}},
            .sources = &host};
  }
  std::unique_ptr<Process> process(const std::function<void(Bulkhead&, Pipe&)>& body) const {
    return std::make_unique<Process>([=, this](Pipe& pipe) {
      Host host({.region = path_});
      Bulkhead model(options(host));
      body(model, pipe);
    });
  }
  // Holds `units`, settles at `then` when it is told to go on, and keeps these.
  std::unique_ptr<Process> holder(std::uint32_t units, std::uint32_t then) const {
    return process([=](Bulkhead& model, Pipe& pipe) {
      auto call = model.acquire({.costs = {{"tokens", units}}});
      if (!call) _exit(4);
      pipe.tell();
      pipe.wait_go();
      if (!call->settle("tokens", then)) _exit(5);
      pipe.tell();
      pipe.wait_go();
    });
  }

  TempDir dir_;
  std::string path_ = dir_ / "region";
};

TEST_F(HostBudgets, UnitsOfAllProcessesCount) {
  const auto other = holder(700 * k, 200 * k);
  ASSERT_EQ(other->wait_told(), 'y');
  Host host({.region = path_});
  Bulkhead model(options(host));
  const auto rejected = model.try_acquire({.costs = {{"tokens", 300 * k + 1}}});
  ASSERT_FALSE(rejected);
  EXPECT_EQ(rejected.error().reason, Reason::budget_limit);
  EXPECT_THAT(rejected.error().message(), HasSubstr("tokens"));
  auto call = model.try_acquire({.costs = {{"tokens", 300 * k}}});
  ASSERT_TRUE(call);
  EXPECT_FALSE(call->try_grow("tokens", 1));
  other->go();
  ASSERT_EQ(other->wait_told(), 'y');
  EXPECT_TRUE(call->try_grow("tokens", 500 * k));
  EXPECT_FALSE(call->try_grow("tokens", 1));
  EXPECT_TRUE(model.try_acquire()) << "a call without a cost is not concerned";
}

TEST_F(HostBudgets, WhatAProcessSettlesIsForTheFirstInLineOfAnother) {
  const auto other = holder(900 * k, 100 * k);
  ASSERT_EQ(other->wait_told(), 'y');
  Host host({.region = path_});
  Bulkhead model(options(host));
  auto waiter = std::async(std::launch::async, [&] {
    return model.execute([](RunningCall& call) { return call.held("tokens"); },
                         {.costs = {{"tokens", 900 * k}}});
  });
  while (model.snapshot().budgets[0].waiting == 0) std::this_thread::yield();
  other->go();
  const Result<std::uint32_t> held = waiter.get();
  ASSERT_TRUE(held);
  EXPECT_EQ(*held, 900 * k);
}

TEST_F(HostBudgets, UnitsOfAKilledProcessComeBack) {
  const auto other = holder(900 * k, 0);
  ASSERT_EQ(other->wait_told(), 'y');
  Host host({.region = path_});
  Bulkhead model(options(host));
  auto waiter = std::async(std::launch::async,
                           [&] { return model.execute([] { return 1; }, {.costs = {{"tokens", 800 * k}}}); });
  while (model.snapshot().budgets[0].waiting == 0) std::this_thread::yield();
  other->kill(SIGKILL);
  EXPECT_TRUE(waiter.get());
}

// The process that lowers the maximum, one that holds more than it, and one that comes later.
TEST_F(HostBudgets, ALoweredMaximumHoldsInAllProcesses) {
  const auto other = holder(700 * k, 100 * k);
  ASSERT_EQ(other->wait_told(), 'y');
  Host host({.region = path_});
  Bulkhead model(options(host));
  BulkheadOptions less = options(host);
  less.budgets[0].max = 500 * k;
  less.budgets[0].per_call_max = 0;
  model.update(less);
  EXPECT_FALSE(model.try_acquire({.costs = {{"tokens", 1}}})) << "700 of 500 are in use";
  EXPECT_FALSE(model.try_acquire({.costs = {{"tokens", 500 * k + 1}}}));
  other->go();
  ASSERT_EQ(other->wait_told(), 'y');
  Call call = *model.try_acquire({.costs = {{"tokens", 400 * k}}});
  EXPECT_FALSE(call.try_grow("tokens", 1));
  EXPECT_EQ(model.snapshot().budgets[0].max, 500 * k);
  EXPECT_TRUE(call.settle("tokens", 0));
  model.update(options(host));
  EXPECT_TRUE(call.try_grow("tokens", 900 * k)) << "and a raised one, too";
}

// A child has units of its own: what it does with its copy of the parent's call changes nothing for the parent.
TEST_F(HostBudgets, AChildOfAForkHasUnitsOfItsOwn) {
  Host host({.region = path_});
  Bulkhead model(options(host));
  Call call = *model.acquire({.costs = {{"tokens", 600 * k}}});
  Process child([&](Pipe& pipe) {
    auto own = model.try_acquire({.costs = {{"tokens", 300 * k}}});
    const bool right = own && !model.try_acquire({.costs = {{"tokens", 101 * k}}});
    call.finish(Outcome::success);
    pipe.tell(right ? 'y' : 'n');
    pipe.wait_go();
    _exit(0);
  });
  EXPECT_EQ(child.wait_told(), 'y');
  EXPECT_FALSE(model.try_acquire({.costs = {{"tokens", 101 * k}}}));
  child.go();
  EXPECT_EQ(child.wait_exit(), 0);
  EXPECT_TRUE(model.acquire({.costs = {{"tokens", 400 * k}}})) << "those of a dead child are free";
  call.settle("tokens", 0);
  EXPECT_TRUE(model.try_acquire({.costs = {{"tokens", 900 * k}}}));
}

TEST_F(HostBudgets, TheReportOfTheRegionHasTheUnitsOfEachProcess) {
  const auto other = holder(700 * k, 200 * k);
  ASSERT_EQ(other->wait_told(), 'y');
  const RegionReport r = report(*Region::look(path_));
  const auto tokens = std::ranges::find(r.limits, "/model/tokens", &RegionReport::Limit::name);
  ASSERT_NE(tokens, r.limits.end());
  EXPECT_EQ(tokens->max_concurrent, kTokens);
  EXPECT_EQ(tokens->in_flight, 700 * k);
  ASSERT_EQ(tokens->holders.size(), 1u);
  EXPECT_EQ(tokens->holders[0].units, 700 * k);
  EXPECT_TRUE(tokens->holders[0].process.alive);
}

// Two processes may list the same budgets in two orders: one that is added while a process runs is the last of its list.
class HostBudgetsInTwoOrders : public HostBudgets, public testing::WithParamInterface<bool> {
 protected:
  static BulkheadOptions two(Host& host, bool tokens_first) {
    BulkheadOptions o = options(host);
    o.budgets.push_back({.name = "bytes", .max = 10, .scope = Scope::host});
    if (!tokens_first) std::ranges::reverse(o.budgets);
    return o;
  }
};

// A process that held tokens while it waits for bytes, and one that does the reverse, would wait for each other.
TEST_P(HostBudgetsInTwoOrders, TheProcessesTakeThemInOneOrder) {
  const auto waits = [&](bool tokens_first) {
    return std::make_unique<Process>([=, this](Pipe& pipe) {
      Host host({.region = path_});
      Bulkhead model(two(host, tokens_first));
      auto waiter = std::async(std::launch::async, [&] {
        return model.execute([] { return 1; },
                             {.timeout = 20s, .costs = {{"tokens", 600 * k}, {"bytes", 10}}});
      });
      const auto waiting = [&](std::string_view name) {
        const auto all = model.snapshot().budgets;
        return std::ranges::find(all, name, &BudgetSnapshot::name)->waiting == 1;
      };
      while (!waiting("tokens") && !waiting("bytes")) std::this_thread::yield();
      pipe.tell(waiting("tokens") ? 't' : 'b');
      if (!waiter.get()) _exit(4);
    });
  };
  Host host({.region = path_});
  Bulkhead model(two(host, true));
  Call bytes = *model.acquire({.costs = {{"bytes", 10}}});
  const auto other = waits(GetParam());
  EXPECT_EQ(other->wait_told(), 'b') << "it holds no tokens while it waits for bytes";
  EXPECT_TRUE(model.try_acquire({.costs = {{"tokens", 900 * k}}}));
  bytes.finish(Outcome::success);
  EXPECT_EQ(other->wait_exit(), 0);
}

INSTANTIATE_TEST_SUITE_P(Lists, HostBudgetsInTwoOrders, testing::Bool(),
                         [](const auto& list) { return list.param ? "TokensFirst" : "BytesFirst"; });

// What is in use is counted by an oracle that the library does not know, in one atomic word, so that each look is one instant.
TEST_F(HostBudgets, UnitsInUseAreNeverAboveTheMaximum) {
  constexpr int kProcesses = 4, kCalls = 300;
  struct Oracle {
    std::atomic<std::uint32_t> in_use{0}, most{0}, admitted{0};
    void add(std::uint32_t units) {
      const std::uint32_t now = in_use.fetch_add(units) + units;
      for (std::uint32_t seen = most.load(); seen < now && !most.compare_exchange_weak(seen, now);) {
      }
    }
  };
  auto* const oracle =
      new (::mmap(nullptr, sizeof(Oracle), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) Oracle;
  std::vector<std::unique_ptr<Process>> processes;
  for (unsigned p = 0; p < kProcesses; ++p)
    processes.push_back(process([=](Bulkhead& model, Pipe&) {
      std::vector<std::thread> threads;
      for (unsigned t = 0; t < 3; ++t)
        threads.emplace_back([=, &model] {
          std::minstd_rand random(3 * p + t + 1);
          for (int i = 0; i < kCalls; ++i) {
            std::uint32_t held = 1 + static_cast<std::uint32_t>(random()) % (600 * k);
            auto call = model.acquire({.costs = {{"tokens", held}}});
            if (!call) _exit(4);  // nobody keeps units for long
            oracle->add(held);
            ++oracle->admitted;
            if (random() % 2 == 0) {
              const std::uint32_t to = static_cast<std::uint32_t>(random()) % (held + 1);
              oracle->in_use.fetch_sub(held - to);  // before the units are back
              if (!call->settle("tokens", held = to)) _exit(5);
            }
            if (random() % 2 == 0 && call->try_grow("tokens", 50 * k)) {
              oracle->add(50 * k);
              held += 50 * k;
            }
            if (random() % 4 == 0) std::this_thread::yield();
            oracle->in_use.fetch_sub(held);
            call->finish(Outcome::success);
          }
        });
      for (auto& t : threads) t.join();
    }));
  for (auto& p : processes) EXPECT_EQ(p->wait_exit(), 0);
  EXPECT_LE(oracle->most.load(), kTokens);
  EXPECT_GT(oracle->most.load(), 600 * k) << "two calls at once at least";
  EXPECT_EQ(oracle->admitted.load(), 3u * kProcesses * kCalls);
  EXPECT_EQ(oracle->in_use.load(), 0u);
  Host host({.region = path_});
  Bulkhead model(options(host));
  auto all = model.try_acquire({.costs = {{"tokens", 900 * k}}});
  ASSERT_TRUE(all);
  EXPECT_TRUE(model.try_acquire({.costs = {{"tokens", 100}}})) << "exactly everything is back";
  ::munmap(oracle, sizeof(Oracle));
}

}  // namespace
}  // namespace bulkhead::shm
