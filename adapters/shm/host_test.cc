// Bulkheads with Scope::host: the same bulkhead in several processes.
#include "adapters/shm/host.h"

#include <gmock/gmock.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <latch>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "adapters/shm/layout.h"
#include "adapters/shm/process_test.h"
#include "adapters/shm/region.h"
#include "bulkhead/bulkhead.h"
#include "bulkhead/registry.h"
#include "shared/scoped_gate.h"
#include "tests/support/no_threads.h"

namespace bulkhead::shm {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

class HostTest : public testing::Test {
 protected:
  BulkheadOptions options(std::uint32_t max_concurrent, std::uint32_t max_queue = 100) {
    return {.name = "gpu",
            .max_concurrent = max_concurrent,
            .max_queue = max_queue,
            .max_wait = 20s,
            .scope = Scope::host,
            .sources = &host_};
  }
  static std::uint32_t held(const std::string& path) {
    const auto region = Region::look(path);
    std::uint32_t sum = 0;
    for (const auto& word : region->limit("gpu").permits) sum += word.load() != 0;
    return sum;
  }
  // A process that does not look in time loses its turn, which happens on a busy machine. Not in this region.
  void keep_every_turn() { Region::open(path_)->image().header.grace.store(std::int64_t{600'000'000'000}); }
  // A process with a bulkhead of its own.
  std::unique_ptr<Process> process(std::uint32_t max_concurrent,
                                   const std::function<void(Bulkhead&, Pipe&)>& body) {
    return std::make_unique<Process>([=, this](Pipe& pipe) {
      Host host({.region = path_});
      BulkheadOptions o = options(max_concurrent);
      o.sources = &host;
      Bulkhead bulkhead(o);
      body(bulkhead, pipe);
    });
  }
  // Holds `units` until it is told to go on, and again.
  std::unique_ptr<Process> holder(std::uint32_t max_concurrent, std::uint32_t units) {
    return process(max_concurrent, [=](Bulkhead& bulkhead, Pipe& pipe) {
      std::vector<Call> calls;
      for (std::uint32_t i = 0; i < units; ++i) {
        auto call = bulkhead.acquire();
        if (!call) _exit(4);
        calls.push_back(*std::move(call));
      }
      pipe.tell();
      for (;;) {
        pipe.wait_go();
        if (!calls.empty()) calls.pop_back();
        pipe.tell();
      }
    });
  }

  TempDir dir_;
  std::string path_ = dir_ / "region";
  Host host_{{.region = path_}};
};

TEST_F(HostTest, TheLimitCountsTheCallsOfAllProcesses) {
  const auto other = holder(3, 2);
  other->wait_told();
  Bulkhead bulkhead(options(3));
  auto call = bulkhead.try_acquire();
  ASSERT_TRUE(call);
  const auto second = bulkhead.try_acquire();
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().reason, Reason::concurrency_limit);
  EXPECT_EQ(second.error().max_concurrent, 3u);
  EXPECT_EQ(bulkhead.snapshot().gate.in_flight, 1u);  // of this process
  EXPECT_EQ(bulkhead.snapshot().gate.max_concurrent, 3u);
  EXPECT_EQ(held(path_), 3u);
  call->finish(Outcome::success);
  EXPECT_EQ(held(path_), 2u);
  EXPECT_TRUE(bulkhead.try_acquire());
}

// Releases in this process serve its line without the thread; for those of another process the next call that joins starts it.
TEST_F(HostTest, WithoutAThreadTheLineIsServedByReleasesAndTheNextCallTriesAgain) {
  keep_every_turn();
  const auto other = holder(2, 1);
  other->wait_told();
  Bulkhead bulkhead(options(2));
  std::atomic<int> served{0};
  const auto wait = [&] {
    bulkhead.async_acquire({}, [&](Result<Call> call) {
      EXPECT_TRUE(call);
      ++served;
    });
  };
  {
    const bulkhead::tests::NoThreads none;
    auto mine = bulkhead.try_acquire();
    ASSERT_TRUE(mine);
    wait();
    EXPECT_GT(bulkhead::tests::NoThreads::failed(), 0);
    EXPECT_EQ(served, 0);
    mine->finish(Outcome::success);
    EXPECT_EQ(served, 1);
    mine = bulkhead.try_acquire();
    ASSERT_TRUE(mine);
    wait();
    other->go();
    other->wait_told();  // a unit is free, and its process has told this one
    mine->finish(Outcome::success);
    EXPECT_EQ(served, 2);
  }
  const auto taken = holder(2, 2);
  taken->wait_told();
  wait();
  taken->go();
  taken->wait_told();
  while (served < 3) std::this_thread::yield();
}

// As the child of a fork does, which has read a number that another process may have changed since.
TEST_F(HostTest, AHostThatJoinsDoesNotStateItsNumber) {
  const auto region = Region::open(path_);
  Host host({.shared = region}), child({.shared = Region::open(path_), .joins = true});
  shared::ScopedGate first({.name = "db", .max_concurrent = 5}, Scope::host, host);
  shared::ScopedGate second({.name = "db", .max_concurrent = 2}, Scope::host, child);
  EXPECT_EQ(first.gate().snapshot().max_concurrent, 5u);
  EXPECT_EQ(second.gate().snapshot().max_concurrent, 5u);
  shared::ScopedGate fresh({.name = "other", .max_concurrent = 2}, Scope::host, child);
  EXPECT_EQ(fresh.gate().snapshot().max_concurrent, 2u);
}

TEST_F(HostTest, AReleaseInAnotherProcessWakesTheFirstInLine) {
  const auto other = holder(1, 1);
  other->wait_told();
  Bulkhead bulkhead(options(1));
  auto waiter = std::async(std::launch::async, [&] { return bulkhead.execute([] { return 1; }); });
  while (bulkhead.snapshot().gate.waiting == 0) std::this_thread::yield();
  other->go();
  EXPECT_TRUE(waiter.get());
  EXPECT_EQ(held(path_), 0u);
}

TEST_F(HostTest, TheEndOfAHolderWakesTheFirstInLine) {
  auto other = holder(2, 2);
  other->wait_told();
  Bulkhead bulkhead(options(2));
  auto waiter = std::async(std::launch::async, [&] { return bulkhead.execute([] { return 1; }); });
  while (bulkhead.snapshot().gate.waiting == 0) std::this_thread::yield();
  other->kill(SIGKILL);
  EXPECT_TRUE(waiter.get());
}

TEST_F(HostTest, AHandlerIsCalledAndMayDestroyItsBulkhead) {
  const auto other = holder(1, 1);
  other->wait_told();
  auto bulkhead = std::make_unique<Bulkhead>(options(1));
  std::latch called(1);
  bulkhead->async_acquire({}, [&](Result<Call> call) {
    EXPECT_TRUE(call);
    if (call) call->finish(Outcome::success);
    bulkhead.reset();
    called.count_down();
  });
  other->go();
  called.wait();
  EXPECT_EQ(bulkhead, nullptr);
}

TEST_F(HostTest, ACallThatWaitsTimesOutAndLeavesNothingBehind) {
  const auto other = holder(1, 1);
  other->wait_told();
  Bulkhead bulkhead(options(1));
  const auto result = bulkhead.acquire({.timeout = 5ms});
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().reason, Reason::timeout);
  const auto region = Region::look(path_);
  for (const auto& word : region->limit("gpu").waiting) EXPECT_EQ(word.load(), 0u);
  other->go();
  other->wait_told();
  EXPECT_TRUE(bulkhead.try_acquire());
}

// The process that came first has the older line, and gets the first unit. Nobody else can take it before.
TEST_F(HostTest, TheOldestLineGoesFirst) {
  keep_every_turn();
  auto* const turns = static_cast<std::atomic<int>*>(
      mmap(nullptr, sizeof(std::atomic<int>), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(turns, MAP_FAILED);
  const auto other = holder(1, 1);
  other->wait_told();
  const auto region = Region::open(path_);
  const auto lines_known = [&limit = region->limit("gpu")] {
    return std::ranges::count_if(limit.lines, [](const auto& line) { return line.head.load() != 0; });
  };
  std::vector<std::unique_ptr<Process>> lines;
  for (int i = 0; i < 4; ++i) {
    lines.push_back(process(1, [turns](Bulkhead& bulkhead, Pipe& pipe) {
      auto call = bulkhead.acquire({.timeout = 100s});
      const int turn = call ? turns->fetch_add(1) : 9;
      if (call) call->finish(Outcome::success);
      pipe.tell(static_cast<char>('0' + turn));
      pause();
    }));
    while (lines_known() != i + 1) std::this_thread::yield();
  }
  other->go();
  char next = '0';
  for (const auto& line : lines) EXPECT_EQ(line->wait_told(), next++);
  munmap(turns, sizeof *turns);
}

TEST_F(HostTest, AHigherPriorityOfAnotherProcessGoesBeforeAnOlderLine) {
  keep_every_turn();
  const auto other = holder(1, 1);
  other->wait_told();
  Bulkhead bulkhead(options(1));
  auto normal = std::async(std::launch::async, [&] {
    auto call = bulkhead.acquire({.timeout = 100s});
    return call ? held(path_) : 99;
  });
  const auto region = Region::open(path_);
  const auto lines_known = [&limit = region->limit("gpu")] {
    return std::ranges::count_if(limit.lines, [](const auto& line) { return line.head.load() != 0; });
  };
  while (lines_known() != 1) std::this_thread::yield();
  const auto critical = process(1, [](Bulkhead& own, Pipe& pipe) {
    auto call = own.acquire({.priority = Priority::critical, .timeout = 100s});
    pipe.tell(call ? 'y' : 'n');
    pipe.wait_go();
    call->finish(Outcome::success);
    pause();
  });
  while (lines_known() != 2) std::this_thread::yield();
  other->go();
  EXPECT_EQ(critical->wait_told(), 'y');
  EXPECT_EQ(bulkhead.snapshot().gate.waiting, 1u);
  critical->go();
  EXPECT_EQ(normal.get(), 1u);
}

TEST_F(HostTest, AStoppedProcessAtTheHeadOfTheOrderDoesNotStallTheOthers) {
  const auto other = holder(1, 1);
  other->wait_told();
  const auto stopped = process(1, [](Bulkhead& own, Pipe& pipe) {
    std::thread look([&] {
      while (own.snapshot().gate.waiting == 0) std::this_thread::yield();
      pipe.tell('w');
    });
    auto call = own.acquire();
    look.join();
    pipe.tell(call ? 'y' : 'n');
    call->finish(Outcome::success);
    pause();
  });
  stopped->wait_told();
  stopped->kill(SIGSTOP);
  stopped->wait_stopped();
  Bulkhead bulkhead(options(1));
  auto waiter = std::async(std::launch::async, [&] { return bulkhead.execute([] { return 1; }); });
  while (bulkhead.snapshot().gate.waiting == 0) std::this_thread::yield();
  other->go();
  EXPECT_TRUE(waiter.get());
  EXPECT_TRUE(bulkhead.execute([] {}));
  stopped->kill(SIGCONT);
  EXPECT_EQ(stopped->wait_told(), 'y');
}

TEST_F(HostTest, TheLimitIsRaisedAndLoweredForAllProcesses) {
  const auto other = holder(2, 2);
  other->wait_told();
  Bulkhead bulkhead(options(2));
  auto waiter = std::async(std::launch::async, [&] { return bulkhead.acquire(); });
  while (bulkhead.snapshot().gate.waiting == 0) std::this_thread::yield();
  bulkhead.resize(3);
  auto call = waiter.get();
  ASSERT_TRUE(call);
  EXPECT_FALSE(bulkhead.try_acquire());
  bulkhead.resize(1);
  EXPECT_EQ(bulkhead.snapshot().gate.max_concurrent, 1u);
  call->finish(Outcome::success);
  EXPECT_FALSE(bulkhead.try_acquire());  // two calls of the other run to their end
  other->go();
  other->wait_told();
  EXPECT_FALSE(bulkhead.try_acquire());
  other->go();
  other->wait_told();
  EXPECT_TRUE(bulkhead.try_acquire());
}

TEST_F(HostTest, AWaiterThatCanNoLongerFitIsRejected) {
  const auto other = holder(4, 4);
  other->wait_told();
  Bulkhead bulkhead(options(4));
  auto waiter = std::async(std::launch::async, [&] { return bulkhead.acquire({.cost = 3}); });
  while (bulkhead.snapshot().gate.waiting == 0) std::this_thread::yield();
  const auto resizer = process(2, [](Bulkhead&, Pipe& pipe) {
    pipe.tell();
    pause();
  });
  resizer->wait_told();
  const auto result = waiter.get();
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().reason, Reason::concurrency_limit);
}

TEST_F(HostTest, AHeavyCallIsNotOvertakenByLightOnesOfOtherProcesses) {
  keep_every_turn();
  const auto other = holder(3, 3);
  other->wait_told();
  Bulkhead bulkhead(options(3));
  auto heavy = std::async(std::launch::async, [&] { return bulkhead.acquire({.cost = 2}); });
  while (bulkhead.snapshot().gate.waiting == 0) std::this_thread::yield();
  const auto light = process(3, [](Bulkhead& own, Pipe& pipe) {
    pipe.wait_go();
    pipe.tell(own.try_acquire() ? 'y' : 'n');
    pause();
  });
  other->go();
  other->wait_told();  // one unit is free, two are needed
  light->go();
  EXPECT_EQ(light->wait_told(), 'n');
  other->go();
  auto call = heavy.get();
  ASSERT_TRUE(call);
  EXPECT_EQ(held(path_), 3u);
}

TEST_F(HostTest, TheCriticalReserveIsKeptForAllProcesses) {
  BulkheadOptions o = options(4);
  o.critical_reserve = 0.5;
  Bulkhead bulkhead(o);
  const auto a = bulkhead.try_acquire(), b = bulkhead.try_acquire();
  EXPECT_TRUE(a && b);
  EXPECT_FALSE(bulkhead.try_acquire());
  const auto c = bulkhead.try_acquire({.priority = Priority::critical});
  EXPECT_TRUE(c);
}

TEST_F(HostTest, ABulkheadOfAForkedChildCountsOnItsOwn) {
  Host host({.shared = Region::make_private()});
  BulkheadOptions o = options(2);
  o.sources = &host;
  Bulkhead bulkhead(o);
  auto mine = bulkhead.try_acquire();
  ASSERT_TRUE(mine);
  Process child([&](Pipe& pipe) {
    auto own = bulkhead.try_acquire();
    const bool only_one = own && !bulkhead.try_acquire();
    mine->finish(Outcome::success);  // the parent's: it frees nothing
    const bool still_full = !bulkhead.try_acquire();
    pipe.tell(only_one && still_full ? 'y' : 'n');
    pipe.wait_go();
    own->finish(Outcome::success);
    auto line = bulkhead.acquire();  // its own line works, and its own thread
    pipe.tell(line ? 'y' : 'n');
    pause();
  });
  EXPECT_EQ(child.wait_told(), 'y');
  EXPECT_FALSE(bulkhead.try_acquire());
  child.go();
  EXPECT_EQ(child.wait_told(), 'y');
  child.kill_and_leave_a_zombie();
  auto second = bulkhead.acquire();
  EXPECT_TRUE(second);
}

TEST_F(HostTest, EveryProcessGetsItsTurn) {
  keep_every_turn();
  struct Counts {
    std::atomic<std::uint64_t> calls[4];
    std::atomic<bool> stop;
  };
  auto* const counts = static_cast<Counts*>(
      mmap(nullptr, sizeof(Counts), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  std::vector<std::unique_ptr<Process>> all;
  for (std::size_t i = 0; i < 4; ++i)
    all.push_back(process(2, [=](Bulkhead& bulkhead, Pipe& pipe) {
      pipe.wait_go();
      std::vector<std::thread> threads;
      for (int t = 0; t < 3; ++t)
        threads.emplace_back([&] {
          while (!counts->stop.load()) {
            const auto done = bulkhead.execute([] { std::this_thread::sleep_for(200us); });
            if (done) ++counts->calls[i];
          }
        });
      for (auto& t : threads) t.join();
    }));
  for (auto& p : all) p->go();
  const auto total = [&] {
    std::uint64_t sum = 0;
    for (const auto& n : counts->calls) sum += n.load();
    return sum;
  };
  for (int i = 0; i < 10'000 && total() < 2000; ++i) std::this_thread::sleep_for(1ms);
  counts->stop = true;
  for (auto& p : all) EXPECT_EQ(p->wait_exit(), 0);
  const double fair = static_cast<double>(total()) / 4;
  for (const auto& n : counts->calls) {
    RecordProperty("calls", std::to_string(n.load()));
    EXPECT_GT(static_cast<double>(n.load()), 0.5 * fair);
    EXPECT_LT(static_cast<double>(n.load()), 2.0 * fair);
  }
  munmap(counts, sizeof(Counts));
}

TEST_F(HostTest, WrongSettingsAreErrorsThatNameTheBulkheadAndTheFix) {
  const auto error = [](const BulkheadOptions& o) -> std::string {
    try {
      Bulkhead bulkhead(o);
    } catch (const std::invalid_argument& e) {
      return e.what();
    }
    return "no error";
  };
  BulkheadOptions o = options(5000);
  EXPECT_THAT(error(o), testing::AllOf(HasSubstr("\"gpu\""), HasSubstr("give 1 to 4096")));
  o = options(1);
  o.scope = Scope::fleet;
  EXPECT_THAT(error(o), HasSubstr("scope = fleet is not available in this build"));
  o = options(1);
  o.sources = nullptr;
  EXPECT_THAT(error(o), HasSubstr("sources"));
  o = options(1);
  o.isolation = Isolation::threads;
  EXPECT_THAT(error(o), HasSubstr("isolation: threads cannot be given with scope: host"));
  o = options(1);
  o.adaptive = LimiterOptions{};
  EXPECT_THAT(error(o), HasSubstr("adaptive cannot be given with scope: host"));
  o = options(1);
  o.fairness = Fairness::barging;
  EXPECT_THAT(error(o), HasSubstr("fairness cannot be given with scope: host"));
  Host nowhere({});
  o = options(1);
  o.sources = &nowhere;
  EXPECT_THAT(error(o), HasSubstr("give host.region"));
  EXPECT_NE(access(path_.c_str(), F_OK), 0);
}

TEST_F(HostTest, ATrialIsNotNoticedByOtherProcesses) {
  Registry registry({.sources = &host_});
  RegistryChange change;
  change.add.push_back({.options = {.name = "gpu", .max_concurrent = 2, .scope = Scope::host}});
  registry.check(change);
  EXPECT_NE(access(path_.c_str(), F_OK), 0);
  registry.apply(change);
  EXPECT_EQ(access(path_.c_str(), F_OK), 0);
  const auto region = Region::look(path_);
  EXPECT_EQ(Shape::of(region->limit("gpu").shape.load()).limit, 2u);
  RegistryChange larger;
  larger.update = change.add;
  larger.update[0].options.max_concurrent = 3;
  registry.check(larger);
  EXPECT_EQ(Shape::of(region->limit("gpu").shape.load()).limit, 2u);
  registry.apply(larger);
  EXPECT_EQ(Shape::of(region->limit("gpu").shape.load()).limit, 3u);
  EXPECT_EQ(registry.get("gpu")->snapshot().gate.max_concurrent, 3u);
  EXPECT_THROW(registry.resize("gpu", 5000), std::invalid_argument);
  EXPECT_EQ(registry.get("gpu")->snapshot().gate.max_concurrent, 3u);
}

TEST_F(HostTest, TwoBulkheadsOfOneNameInOneProcessShareTheLimitToo) {
  Bulkhead a(options(2)), b(options(2));
  auto in_a = a.try_acquire(), in_b = b.try_acquire();
  EXPECT_TRUE(in_a && in_b);
  EXPECT_FALSE(a.try_acquire());
  auto waiter = std::async(std::launch::async, [&] { return b.acquire().has_value(); });
  while (b.snapshot().gate.waiting == 0) std::this_thread::yield();
  in_a->finish(Outcome::success);
  EXPECT_TRUE(waiter.get());
}

}  // namespace
}  // namespace bulkhead::shm
