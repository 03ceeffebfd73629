// Random kill -9 of processes that use one limit: nothing leaks, and the cap holds, seen from outside.
#include <gmock/gmock.h>
#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "adapters/shm/host.h"
#include "adapters/shm/process_test.h"
#include "adapters/shm/region.h"
#include "adapters/shm/table.h"
#include "bulkhead/bulkhead.h"

namespace bulkhead::shm {
namespace {

using namespace std::chrono_literals;

constexpr std::uint32_t kWorkers = 6, kThreads = 2, kMost = 8;

// What the workers are inside of right now. A number is raised after an admission and lowered before the release, so
// it is never more than what is really held.
struct Oracle {
  std::atomic<std::uint32_t> inside[kWorkers][kThreads];
  std::atomic<std::uint64_t> calls;
};

void work(Bulkhead& bulkhead, Oracle& oracle, std::uint32_t worker, std::uint32_t thread, unsigned seed) {
  std::minstd_rand random(seed);
  for (;;) {
    const std::uint32_t cost = 1 + random() % 3;
    const auto wait = random() % 4 == 0 ? 0ms : 3ms;
    auto call =
        bulkhead.acquire({.priority = static_cast<Priority>(random() % 3), .cost = cost, .timeout = wait});
    if (!call) continue;
    oracle.inside[worker][thread].store(cost);
    // Some run on when they are killed, some sleep.
    if (random() % 2 == 0)
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 1000));
    else
      for (unsigned spin = random() % 50'000; spin > 0; --spin)
        std::atomic_signal_fence(std::memory_order_seq_cst);
    ++oracle.calls;
    oracle.inside[worker][thread].store(0);
  }
}

TEST(KillStorm, LeaksNothingAndNeverExceedsTheLimit) {
  const TempDir dir;
  const std::string path = dir / "region";
  auto* const oracle = static_cast<Oracle*>(
      mmap(nullptr, sizeof(Oracle), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  std::minstd_rand random(std::random_device{}());
  const auto worker = [&](std::uint32_t i) {
    for (auto& n : oracle->inside[i]) n.store(0);
    return std::make_unique<Process>([&, i, seed = random()](Pipe&) {
      Host host({.region = path});
      Bulkhead bulkhead({.name = "db",
                         .max_concurrent = kMost,
                         .max_queue = 50,
                         .max_wait = 3ms,
                         .scope = Scope::host,
                         .sources = &host});
      std::thread second([&] { work(bulkhead, *oracle, i, 1, static_cast<unsigned>(seed)); });
      work(bulkhead, *oracle, i, 0, static_cast<unsigned>(seed) + 1);
    });
  };
  std::vector<std::unique_ptr<Process>> workers;
  for (std::uint32_t i = 0; i < kWorkers; ++i) workers.push_back(worker(i));

  // All workers stand still at any instruction, so that what they are inside of is of one instant.
  const auto stop_all = [&] {
    for (auto& w : workers) w->kill(SIGSTOP);
    for (auto& w : workers) w->wait_stopped();
  };
  const auto inside_of = [&](std::uint32_t i) {
    return oracle->inside[i][0].load() + oracle->inside[i][1].load();
  };

  int kills = 0, looks = 0, holders_killed = 0;
  const auto enough = [&] { return kills >= 600 && holders_killed > 50 && oracle->calls.load() > 1000; };
  const auto end = std::chrono::steady_clock::now() + 90s;  // on a very busy machine
  while (!enough() && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 8000));
    stop_all();
    std::uint32_t inside = 0;
    for (std::uint32_t i = 0; i < kWorkers; ++i) inside += inside_of(i);
    ASSERT_LE(inside, kMost);
    ++looks;
    for (std::uint32_t n = 1 + random() % 2; n > 0; --n) {
      const std::uint32_t victim = random() % kWorkers;
      holders_killed += inside_of(victim) > 0;
      workers[victim]->kill_and_leave_a_zombie();
      workers[victim] = worker(victim);
      ++kills;
    }
    for (auto& w : workers) w->kill(SIGCONT);
  }
  EXPECT_GE(kills, 500);
  EXPECT_GT(oracle->calls.load(), 1000u);
  EXPECT_GT(holders_killed, 50);
  // All of them die at once, the last two while they hold units that only a sweep can free.
  for (int tries = 0; tries < 10'000; ++tries) {
    stop_all();
    if (inside_of(kWorkers - 1) > 0 && inside_of(kWorkers - 2) > 0) break;
    for (auto& w : workers) w->kill(SIGCONT);
    std::this_thread::sleep_for(100us);
  }
  RecordProperty("kills", kills);
  RecordProperty("holders_killed", holders_killed);
  RecordProperty("looks", looks);
  RecordProperty("calls", std::to_string(oracle->calls.load()));
  workers.clear();

  const auto region = Region::open(path);
  Limit& limit = region->limit("db");
  EXPECT_GE(region->sweep(limit), 2u);
  Table table(limit, region->token());
  EXPECT_EQ(table.held(kUnits), 0u);
  for (const auto& word : limit.waiting) EXPECT_EQ(word.load(), 0u);
  EXPECT_TRUE(table.take_all(kMost, 0, 1));
  munmap(oracle, sizeof(Oracle));
}

}  // namespace
}  // namespace bulkhead::shm
