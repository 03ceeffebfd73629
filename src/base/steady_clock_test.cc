#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <deque>
#include <fstream>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "bulkhead/clock.h"

namespace bulkhead {
namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;

struct TestAlarm final : Alarm {
  explicit TestAlarm(TimePoint when) { at = when; }
  bool expire() noexcept override {
    early = steady_clock::now() < at;
    ++expires;
    return wanted;
  }
  void expired() noexcept override {
    // The owner may destroy this object as soon as it sees the count, so it is the last thing touched.
    told.fetch_add(1, std::memory_order_release);
  }

  bool wanted = true;
  bool early = false;
  int expires = 0;  // under the driver's lock
  std::atomic<int> told{0};
};

void until_told(const TestAlarm& alarm) {
  while (alarm.told.load(std::memory_order_acquire) == 0) std::this_thread::yield();
}

// Sanitizers take all address space there is, and cannot live within a limit of it.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#elif defined(__has_feature)
constexpr bool kSanitized = __has_feature(address_sanitizer) || __has_feature(thread_sanitizer);
#else
constexpr bool kSanitized = false;
#endif

// In a process of its own, and before this one has started the thread.
TEST(SteadyClock, WhereNoThreadCanBeMadeAlarmsWaitForTheNextTry) {
  if (kSanitized) GTEST_SKIP() << "needs a limit of address space";
  const pid_t child = ::fork();
  if (child == 0) {
    std::size_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    rlimit usual{};
    ::getrlimit(RLIMIT_AS, &usual);
    rlimit tight = usual;  // room for memory, but not for a stack
    tight.rlim_cur = pages * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)) + (1 << 20);
    DeadlineDriver& timer = Clock::steady().deadlines();
    TestAlarm first(steady_clock::now()), second(steady_clock::now());
    ::setrlimit(RLIMIT_AS, &tight);
    timer.arm(first);
    ::setrlimit(RLIMIT_AS, &usual);
    timer.arm(second);
    until_told(first);
    until_told(second);
    ::_exit(0);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

TEST(SteadyClock, IsTheSteadyClock) {
  const auto before = steady_clock::now();
  const auto now = Clock::steady().now();
  EXPECT_LE(before, now);
  EXPECT_LE(now, steady_clock::now());
}

TEST(SteadyClock, AnAlarmFiresOnceAndNotBeforeItsTime) {
  DeadlineDriver& timer = Clock::steady().deadlines();
  for (const auto delay : {-1000us, 0us, 1us, 50us, 1000us}) {
    TestAlarm alarm(steady_clock::now() + delay);
    timer.arm(alarm);
    until_told(alarm);
    timer.disarm(alarm);
    EXPECT_GE(steady_clock::now(), alarm.at);
    EXPECT_FALSE(alarm.early);
    EXPECT_EQ(alarm.expires, 1);
  }
}

TEST(SteadyClock, AnEarlierAlarmOvertakesOneThatIsWaitedFor) {
  DeadlineDriver& timer = Clock::steady().deadlines();
  TestAlarm late(steady_clock::now() + 1h), early(steady_clock::now() + 1ms);
  timer.arm(late);
  timer.arm(early);
  until_told(early);
  timer.disarm(late);
  EXPECT_EQ(late.expires, 0);
}

TEST(SteadyClock, ManyFireAndNoneBeforeItsTime) {
  DeadlineDriver& timer = Clock::steady().deadlines();
  std::deque<TestAlarm> alarms;
  std::minstd_rand random(1);
  for (int i = 0; i < 2000; ++i) {
    timer.arm(alarms.emplace_back(steady_clock::now() + std::chrono::microseconds(random() % 20'000)));
  }
  for (TestAlarm& alarm : alarms) {
    until_told(alarm);
    timer.disarm(alarm);
    EXPECT_FALSE(alarm.early);
    EXPECT_EQ(alarm.expires, 1);
  }
}

TEST(SteadyClock, DisarmingTwiceOrUnarmedIsHarmless) {
  DeadlineDriver& timer = Clock::steady().deadlines();
  TestAlarm alarm(steady_clock::now() + 1h);
  timer.disarm(alarm);
  timer.arm(alarm);
  timer.disarm(alarm);
  timer.disarm(alarm);
  EXPECT_EQ(alarm.expires, 0);
}

// Alarms that decline live only until disarm() returns: if expire() could still run, ASan and TSan
// would see it.
TEST(SteadyClock, AfterDisarmNobodyTouchesTheAlarm) {
  DeadlineDriver& timer = Clock::steady().deadlines();
  std::atomic<int> fired{0}, early{0};
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      std::minstd_rand random(t + 1);
      for (int i = 0; i < 5000 || (fired == 0 && i < 1'000'000); ++i) {
        auto alarm =
            std::make_unique<TestAlarm>(steady_clock::now() + std::chrono::microseconds(random() % 8));
        alarm->wanted = false;
        timer.arm(*alarm);
        for (auto spin = random() % 2000; spin > 0; --spin) asm volatile("" ::: "memory");
        timer.disarm(*alarm);
        fired += alarm->expires;  // no atomic: disarm() has put an end to it
        early += alarm->early;
        EXPECT_LE(alarm->expires, 1);
      }
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(early, 0);
  EXPECT_GT(fired, 0);
}

}  // namespace
}  // namespace bulkhead
