// The region itself: units, owners, the dead, forks, versions.
#include "adapters/shm/region.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sched.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "adapters/shm/process_test.h"
#include "adapters/shm/table.h"

namespace bulkhead::shm {
namespace {

using testing::HasSubstr;

std::uint32_t held(const Limit& limit) {
  std::uint32_t sum = 0;
  for (const auto& word : limit.permits) sum += word.load() != 0;
  return sum;
}

class RegionTest : public testing::Test {
 protected:
  TempDir dir_;
  std::string path_ = dir_ / "region";
};

std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const std::invalid_argument& e) {
    return e.what();
  }
  return "no error";
}

TEST_F(RegionTest, UnitsAreHandedOutUpToTheLimit) {
  const auto region = Region::open(path_);
  Limit& limit = region->limit("db");
  Region::resize(limit, 3);
  Table table(limit, region->token());
  std::set<std::uint32_t> units;
  for (int i = 0; i < 3; ++i) units.insert(table.take());
  EXPECT_THAT(units, testing::ElementsAre(0, 1, 2));
  EXPECT_EQ(table.take(), Table::kNone);
  EXPECT_TRUE(table.give_back(1));
  EXPECT_EQ(table.take(), 1u);
}

TEST_F(RegionTest, AUnitIsGivenBackOnceAndOnlyByItsOwner) {
  const auto a = Region::open(path_), b = Region::open(path_);
  Limit& limit = a->limit("db");
  Region::resize(limit, 2);
  Table mine(limit, a->token()), other(b->limit("db"), b->token());
  const std::uint32_t unit = mine.take();
  EXPECT_FALSE(other.give_back(unit));
  EXPECT_FALSE(mine.give_back(kUnits));
  EXPECT_TRUE(mine.give_back(unit));
  EXPECT_FALSE(mine.give_back(unit));
}

TEST_F(RegionTest, ACallOfSeveralUnitsGetsAllOrNone) {
  const auto region = Region::open(path_);
  Limit& limit = region->limit("db");
  Region::resize(limit, 5);
  Table table(limit, region->token());
  ASSERT_TRUE(table.take_all(3, 0, 1));
  EXPECT_FALSE(table.take_all(3, 0, 1));
  EXPECT_EQ(held(limit), 3u);
  EXPECT_TRUE(table.take_all(2, 0, 1));
  table.give_back_any(3);
  EXPECT_EQ(held(limit), 2u);
}

TEST_F(RegionTest, TheReserveIsForThoseWhoMayUseIt) {
  const auto region = Region::open(path_);
  Limit& limit = region->limit("db");
  Region::resize(limit, 3);
  Table table(limit, region->token());
  EXPECT_NE(table.take(1), Table::kNone);
  EXPECT_NE(table.take(1), Table::kNone);
  EXPECT_EQ(table.take(1), Table::kNone);
  EXPECT_NE(table.take(0), Table::kNone);
}

TEST_F(RegionTest, AfterALowerLimitNobodyIsAdmittedUntilEnoughHasComeBack) {
  const auto region = Region::open(path_);
  Limit& limit = region->limit("db");
  Region::resize(limit, 6);
  Table table(limit, region->token());
  for (int i = 0; i < 6; ++i) table.take();
  for (std::uint32_t unit : {0u, 1u, 2u}) table.give_back(unit);  // 3, 4 and 5 are held, above the next limit
  Region::resize(limit, 3);
  EXPECT_EQ(table.take(), Table::kNone);
  EXPECT_EQ(held(limit), 3u);
  table.give_back(5);
  EXPECT_NE(table.take(), Table::kNone);
  EXPECT_EQ(table.take(), Table::kNone);
  table.give_back(3);
  table.give_back(4);
  EXPECT_NE(table.take(), Table::kNone);
  EXPECT_NE(table.take(), Table::kNone);
  EXPECT_FALSE(Shape::of(limit.shape.load()).draining());
  EXPECT_EQ(table.take(), Table::kNone);
  Region::resize(limit, 4);
  EXPECT_NE(table.take(), Table::kNone);
}

// Threads stand for processes: the table knows tokens only. The most ever held at once is counted by an oracle.
TEST_F(RegionTest, TheCapHoldsWhileTheLimitMovesUnderThreads) {
  const auto region = Region::open(path_);
  Limit& limit = region->limit("db");
  constexpr std::uint32_t most = 8;
  Region::resize(limit, most);
  std::atomic<bool> stop{false};
  std::atomic<std::uint32_t> owner[kUnits] = {}, inside{0};
  std::atomic<int> violations{0};
  std::vector<std::shared_ptr<Region>> regions;
  std::vector<std::thread> threads;
  for (std::uint32_t t = 1; t <= 4; ++t) {
    regions.push_back(Region::open(path_));
    threads.emplace_back([&, t, token = regions.back()->token()] {
      Table table(limit, token);
      for (int i = 0; i < 20'000; ++i) {
        const std::uint32_t cost = 1 + static_cast<std::uint32_t>(i) % 3;
        const std::uint32_t unit = cost == 1 ? table.take() : Table::kNone;
        if (cost == 1 ? unit == Table::kNone : !table.take_all(cost, 0, 1)) continue;
        violations += inside.fetch_add(cost) + cost > most;
        if (cost == 1) violations += unit >= most || owner[unit].exchange(t) != 0;
        if (cost == 1) owner[unit].store(0);
        inside.fetch_sub(cost);
        table.give_back_any(cost);
      }
    });
  }
  std::thread resizer([&] {
    for (std::uint32_t i = 0; !stop.load(); ++i) Region::resize(limit, 1 + i % most);
  });
  for (auto& t : threads) t.join();
  stop = true;
  resizer.join();
  EXPECT_EQ(violations.load(), 0);
  EXPECT_EQ(held(limit), 0u);
}

TEST_F(RegionTest, WhatAKilledProcessHeldIsFreeAfterASweep) {
  const auto region = Region::open(path_);
  Limit& limit = region->limit("db");
  Region::resize(limit, 4);
  Process child([&](Pipe& pipe) {
    const auto own = Region::open(path_);
    Table table(own->limit("db"), own->token());
    for (int i = 0; i < 4; ++i) table.take();
    pipe.tell();
    pause();
  });
  child.wait_told();
  Table table(limit, region->token());
  EXPECT_EQ(table.take(), Table::kNone);
  EXPECT_EQ(region->sweep(limit), 0u);  // it lives
  child.kill(SIGSTOP);
  child.wait_stopped();
  EXPECT_EQ(region->sweep(limit), 0u);  // its calls are in flight, however slow
  child.kill_and_leave_a_zombie();
  EXPECT_EQ(region->sweep(limit), 4u);
  EXPECT_NE(table.take(), Table::kNone);
}

TEST_F(RegionTest, AForkedChildIsAProcessOfItsOwn) {
  const auto region = Region::open(path_);
  Limit& limit = region->limit("db");
  Region::resize(limit, 2);
  Table table(limit, region->token());
  const std::uint32_t unit = table.take();
  const std::uint64_t parent = region->token();
  Process child([&](Pipe& pipe) {
    Table own(limit, region->token());
    const bool good = region->token() != parent && !own.give_back(unit) && own.take() != Table::kNone;
    pipe.tell(good ? 'y' : 'n');
    pause();
  });
  EXPECT_EQ(child.wait_told(), 'y');
  EXPECT_EQ(held(limit), 2u);
  child.kill_and_leave_a_zombie();
  EXPECT_EQ(region->sweep(limit), 1u);
  EXPECT_TRUE(table.give_back(unit));
}

// Without the handler of fork() the child would keep the lock of its parent.
TEST_F(RegionTest, AChildDoesNotKeepADeadParentAlive) {
  const auto region = Region::open(path_);
  Limit& limit = region->limit("db");
  Region::resize(limit, 2);
  Process parent([&](Pipe& pipe) {
    const auto own = Region::open(path_);
    Table table(own->limit("db"), own->token());
    table.take();
    if (fork() == 0) {
      pipe.tell();
      pause();
      _exit(0);
    }
    pause();
  });
  parent.wait_told();
  EXPECT_EQ(region->sweep(limit), 0u);
  parent.kill_and_leave_a_zombie();
  EXPECT_EQ(region->sweep(limit), 1u);
  parent.end_orphans();
}

TEST_F(RegionTest, ExecEndsTheRegistration) {
  const auto region = Region::open(path_);
  Limit& limit = region->limit("db");
  Region::resize(limit, 1);
  Process child([&](Pipe& pipe) {
    const auto own = Region::open(path_);
    Table table(own->limit("db"), own->token());
    table.take();
    pipe.close_on_exec();
    execl("/bin/sleep", "sleep", "60", static_cast<char*>(nullptr));
    _exit(1);
  });
  EXPECT_EQ(child.wait_told(), 0);                     // the end of the pipe: it runs the other program
  for (int i = 0; i < 5000 && held(limit) > 0; ++i) {  // exec closes one file after the other
    region->sweep(limit);
    usleep(1000);
  }
  EXPECT_EQ(held(limit), 0u);
}

TEST_F(RegionTest, AProcessOfAnotherPidNamespaceCountsAsAliveUntilItEnds) {
  const auto region = Region::open(path_);
  Limit& limit = region->limit("db");
  Region::resize(limit, 1);
  Process child([&](Pipe& pipe) {
    if (unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0) {
      pipe.tell('s');
      pause();
    }
    const pid_t inner = fork();
    if (inner == 0) {
      const auto own = Region::open(path_);
      Table table(own->limit("db"), own->token());
      table.take();
      pipe.tell(getpid() == 1 ? 'y' : 'n');
      pause();
      _exit(0);
    }
    pause();
  });
  const int told = child.wait_told();
  if (told == 's') GTEST_SKIP() << "this system allows no namespaces to this user";
  EXPECT_EQ(told, 'y');
  EXPECT_EQ(region->sweep(limit), 0u);
  child.end_orphans();
  child.kill_and_leave_a_zombie();
  for (int i = 0; i < 5000 && held(limit) > 0; ++i) {  // the kernel ends the namespace in its own time
    region->sweep(limit);
    usleep(1000);
  }
  EXPECT_EQ(held(limit), 0u);
}

TEST_F(RegionTest, APrivateRegionIsSharedWithChildren) {
  const auto region = Region::make_private();
  Limit& limit = region->limit("db");
  Region::resize(limit, 3);
  Process child([&](Pipe& pipe) {
    Table table(limit, region->token());
    table.take();
    table.take();
    pipe.tell();
    pause();
  });
  child.wait_told();
  EXPECT_EQ(held(limit), 2u);
  const auto second = Region::adopt(region->fd());
  Table table(second->limit("db"), second->token());
  EXPECT_NE(table.take(), Table::kNone);
  EXPECT_EQ(table.take(), Table::kNone);
  child.kill_and_leave_a_zombie();
  EXPECT_EQ(region->sweep(limit), 2u);
}

TEST_F(RegionTest, ManyProcessesMayCreateItAtOnce) {
  std::vector<std::unique_ptr<Process>> children;
  for (int i = 0; i < 8; ++i)
    children.push_back(std::make_unique<Process>([&](Pipe& pipe) {
      pipe.wait_go();
      const auto own = Region::open(path_);
      Region::resize(own->limit("db"), 8);
      Table table(own->limit("db"), own->token());
      pipe.tell(table.take() != Table::kNone ? 'y' : 'n');
      pause();
    }));
  for (auto& c : children) c->go();
  for (auto& c : children) EXPECT_EQ(c->wait_told(), 'y');
  EXPECT_EQ(held(Region::look(path_)->limit("db")), 8u);
}

TEST_F(RegionTest, AnotherLayoutIsAnErrorWhileSomebodyUsesItAndIsReplacedWhenNobodyDoes) {
  auto region = Region::open(path_);
  region->image().header.layout = kLayout + 1;
  const std::string error = error_of([&] { (void)Region::open(path_); });
  EXPECT_THAT(error, HasSubstr(path_));
  EXPECT_THAT(error, HasSubstr("it has layout " + std::to_string(kLayout + 1)));
  EXPECT_THAT(error, HasSubstr("this library needs layout " + std::to_string(kLayout)));
  region.reset();
  EXPECT_NO_THROW((void)Region::open(path_));
}

TEST_F(RegionTest, AFileThatIsNoRegionStaysAsItIs) {
  const int fd = ::open(path_.c_str(), O_CREAT | O_WRONLY, 0600);
  ASSERT_EQ(write(fd, "precious", 8), 8);
  close(fd);
  EXPECT_THAT(error_of([&] { (void)Region::open(path_); }), HasSubstr("is not a region of bulkhead"));
  struct stat s{};
  ASSERT_EQ(stat(path_.c_str(), &s), 0);
  EXPECT_EQ(s.st_size, 8);
}

TEST_F(RegionTest, ErrorsNameThePathAndTheReason) {
  EXPECT_THAT(error_of([] { (void)Region::open(""); }), HasSubstr("its path is empty"));
  EXPECT_THAT(error_of([] { (void)Region::open("/nowhere/at/all"); }),
              testing::AllOf(HasSubstr("\"/nowhere/at/all\""), HasSubstr("No such file or directory")));
  const auto region = Region::open(path_);
  EXPECT_THAT(error_of([&] { (void)region->limit(std::string(129, 'x')); }), HasSubstr("has 129"));
  for (std::uint32_t i = 0; i < kLimits; ++i) region->limit("limit " + std::to_string(i));
  EXPECT_THAT(error_of([&] { (void)region->limit("one more"); }), HasSubstr("use a second region"));
  EXPECT_NO_THROW((void)region->limit("limit 0"));
}

TEST_F(RegionTest, ItsPlacesAreCounted) {
  std::vector<std::shared_ptr<Region>> all;
  for (std::uint32_t i = 0; i < kSlots; ++i) all.push_back(Region::open(path_));
  EXPECT_THAT(error_of([&] { (void)Region::open(path_); }),
              HasSubstr("all 256 places for processes are taken"));
  all.pop_back();
  EXPECT_NO_THROW((void)Region::open(path_));
}

TEST_F(RegionTest, AFullFileSystemIsAnErrorAndNotASignal) {
  Process child([&](Pipe& pipe) {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit small{64 * 1024, 64 * 1024};  // stands for a file system with 64 KiB left
    setrlimit(RLIMIT_FSIZE, &small);
    const std::string error = error_of([&] { (void)Region::open(path_); });
    pipe.tell(error.find("cannot reserve") != std::string::npos && access(path_.c_str(), F_OK) != 0 ? 'y'
                                                                                                    : 'n');
    pause();
  });
  EXPECT_EQ(child.wait_told(), 'y');
}

}  // namespace
}  // namespace bulkhead::shm
