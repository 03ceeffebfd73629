#include "adapters/workers/board.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "bulkhead/registry.h"
#include "tests/support/temp_directory.h"

namespace bulkhead::workers {
namespace {

using namespace std::chrono_literals;

// Runs fn in a child process, which ends with its result as exit code.
template <class Fn>
pid_t child(Fn fn) {
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(fn() ? 0 : 1);
  return pid;
}

int end_of(pid_t pid) {
  int status = 0;
  ::waitpid(pid, &status, 0);
  return status;
}

struct Pipe {
  Pipe() { EXPECT_EQ(::pipe(ends), 0); }
  ~Pipe() { ::close(ends[0]), ::close(ends[1]); }
  void say() const { EXPECT_EQ(::write(ends[1], "x", 1), 1); }
  void wait() const {
    char c = 0;
    EXPECT_EQ(::read(ends[0], &c, 1), 1);
  }
  int ends[2]{};
};

RegistrySnapshot completed(Registry& registry, Board& board) {
  RegistrySnapshot s = registry.snapshot();
  board.add_up(s);
  return s;
}

struct Service {
  Service() {
    api = registry.add({.options = {.name = "api", .max_concurrent = 4, .max_queue = 2, .histograms = true}});
  }
  bool call(int times) {
    for (int i = 0; i < times; ++i)
      if (!api->execute([] {})) return false;
    return true;
  }
  Registry registry;
  std::shared_ptr<Bulkhead> api;
};

TEST(Board, TheSumHasTheCallsOfAllWorkersPastAndPresent) {
  const auto board = Board::anonymous();
  for (const int calls : {3, 5}) {
    const pid_t pid = child([&] {
      Service s;
      if (!board->join() || !s.call(calls)) return false;
      board->leave(s.registry.snapshot());
      return true;
    });
    EXPECT_EQ(end_of(pid), 0);
  }
  Service own;
  ASSERT_TRUE(board->join());
  own.call(2);
  board->publish(own.registry.snapshot());
  const RegistrySnapshot all = completed(own.registry, *board);
  ASSERT_EQ(all.bulkheads.size(), 1u);
  EXPECT_EQ(all.bulkheads[0].now.gate.admitted, 10u);
  EXPECT_EQ(all.bulkheads[0].now.gate.max_concurrent, 4u);
  EXPECT_EQ(all.bulkheads[0].now.service.count(), 10u);
  EXPECT_EQ(completed(own.registry, *board).bulkheads[0].now.gate.admitted, 10u) << "added once only";
}

TEST(Board, AKilledWorkerKeepsItsCountersAndLosesItsCallsInFlight) {
  const auto board = Board::anonymous();
  const Pipe ready;
  const pid_t pid = child([&] {
    Service s;
    if (!board->join() || !s.call(7)) return false;
    const auto held = s.api->acquire();
    board->publish(s.registry.snapshot());
    ready.say();
    for (;;) ::pause();
  });
  ready.wait();
  Service own;
  EXPECT_EQ(completed(own.registry, *board).bulkheads[0].now.gate.in_flight, 1u);
  EXPECT_EQ(board->workers(), 1u);
  ::kill(pid, SIGKILL);
  end_of(pid);
  const Snapshot gate = completed(own.registry, *board).bulkheads[0].now.gate;
  EXPECT_EQ(gate.in_flight, 0u);
  EXPECT_EQ(gate.admitted, 8u);
  EXPECT_EQ(gate.admitted, gate.released + gate.permits);
  EXPECT_EQ(board->workers(), 0u);
}

TEST(Board, TenantsOfWorkersAreListedAndThoseOfPastOnesAreAddedToTheSet) {
  const auto board = Board::anonymous();
  const auto define = [](Registry& registry) {
    registry.define_tenants({.name = "orders", .each = {.max_concurrent = 2}});
  };
  const auto calls = [](Registry& registry, const char* tenant) {
    return (*registry.tenant("orders", tenant))->execute([] {}).has_value();
  };
  EXPECT_EQ(end_of(child([&] {
              Registry registry;
              define(registry);
              if (!board->join() || !calls(registry, "old")) return false;
              board->leave(registry.snapshot());
              return true;
            })),
            0);
  Registry worker, supervisor;
  define(worker);
  define(supervisor);
  ASSERT_TRUE(board->join());
  ASSERT_TRUE(calls(worker, "acme"));
  board->publish(worker.snapshot());
  const RegistrySnapshot all = completed(supervisor, *board);
  ASSERT_NE(all.find("orders/acme"), nullptr);
  EXPECT_EQ(all.find("orders/acme")->now.gate.admitted, 1u);
  EXPECT_EQ(all.find("orders/acme")->tenant_id, "acme");
  ASSERT_EQ(all.tenants.size(), 1u);
  EXPECT_EQ(all.tenants[0].live, 1u);
  ASSERT_TRUE(all.tenants[0].other);
  EXPECT_EQ(all.tenants[0].other->gate.admitted, 1u);
}

TEST(Board, OrdersReachEveryWorkerOnce) {
  const auto board = Board::anonymous();
  std::uint64_t first = 0, second = 0;
  EXPECT_FALSE(board->take(first));
  const Orders orders{.overrides = {{.bulkhead = "api",
                                     .setting = "max_concurrent",
                                     .value = "3",
                                     .reason = "sale",
                                     .actor = "ann",
                                     .expires = TimePoint(5s)}},
                      .forced = {{.bulkhead = "api", .draining = true, .breaker = BreakerMode::forced_open}}};
  board->give(orders);
  EXPECT_EQ(board->take(first), orders);
  EXPECT_FALSE(board->take(first));
  EXPECT_EQ(board->take(second), orders) << "also a worker that began later";
  board->give({});
  EXPECT_EQ(board->take(first), Orders{});
}

TEST(Board, AFileIsSharedByNameAndOneOfAnotherVersionIsRejected) {
  const std::string file = ::testing::TempDir() + "board_test_" + std::to_string(::getpid());
  {
    const auto one = Board::open(file), other = Board::open(file);
    one->give({.forced = {{.bulkhead = "api", .draining = true}}});
    std::uint64_t seen = 0;
    EXPECT_TRUE(other->take(seen));
  }
  {
    std::fstream text(file, std::ios::in | std::ios::out | std::ios::binary);
    text.seekp(8);
    text.write("xxxxxxxx", 8);
  }
  EXPECT_THROW(Board::open(file), std::runtime_error);
  std::filesystem::resize_file(file, 100);
  EXPECT_THROW(Board::open(file), std::runtime_error);
  std::filesystem::remove(file);
}

TEST(Board, AProcessThatDiesWithTheLockBlocksNone) {
  const auto board = Board::anonymous();
  // Workers that are killed at any moment of a publish().
  for (int round = 0; round < 20; ++round) {
    const Pipe ready;
    const pid_t pid = child([&] {
      Service s;
      if (!board->join()) return false;
      ready.say();
      for (;;) board->publish(s.registry.snapshot());
    });
    ready.wait();
    ::usleep(static_cast<useconds_t>(100 * round));
    ::kill(pid, SIGKILL);
    end_of(pid);
  }
  Service own;
  ASSERT_TRUE(board->join());
  own.call(1);
  EXPECT_TRUE(board->publish(own.registry.snapshot()));
  EXPECT_EQ(completed(own.registry, *board).bulkheads[0].now.gate.admitted, 1u);
}

// Runs fn(path of a board) in a child process, on a file system of that size.
int on_a_file_system_of(const char* size, bool (*fn)(const std::string&)) {
  constexpr int kNotPermitted = 77;
  const tests::TempDirectory directory;
  const pid_t pid = ::fork();
  if (pid == 0) {
    const bool ours = ::unshare(CLONE_NEWNS) == 0 || ::unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0;
    const char* const at = directory.path().c_str();
    if (!ours || ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("tmpfs", at, "tmpfs", 0, size) != 0)
      ::_exit(kNotPermitted);
    ::_exit(fn((directory.path() / "board").string()) ? 0 : 1);
  }
  const int status = end_of(pid);
  return WIFEXITED(status) && WEXITSTATUS(status) == kNotPermitted ? -1 : status;
}

TEST(Board, AFullFileSystemIsAnErrorAndNotASignal) {
  const int end = on_a_file_system_of("size=64k", [](const std::string& file) {
    try {
      const auto board = Board::open(file);
      return board->join() && board->workers() == 1;
    } catch (const std::runtime_error& e) {
      return std::string_view(e.what()).find("No space left on device") != std::string_view::npos;
    }
  });
  if (end < 0) GTEST_SKIP() << "may not mount a file system";
  EXPECT_EQ(end, 0);
}

TEST(Board, AWorkerForWhichTheFileSystemHasNoRoomIsNotCounted) {
  const int end = on_a_file_system_of("size=6m", [](const std::string& file) {
    const auto first = Board::open(file), second = Board::open(file);
    Service service;
    RegistrySnapshot sum = service.registry.snapshot();
    const bool ok = first->join() && !second->join() && !second->publish(sum) && first->publish(sum);
    second->add_up(sum);
    first->leave(sum);
    return ok && second->workers() == 0 && second->join();  // in the slot that is free again
  });
  if (end < 0) GTEST_SKIP() << "may not mount a file system";
  EXPECT_EQ(end, 0);
}

}  // namespace
}  // namespace bulkhead::workers
