#include "base/membarrier.h"

#include <gtest/gtest.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <string>
#include <thread>
#include <vector>

namespace bulkhead::base {
namespace {

// From now on these system calls fail in this process with EPERM.
bool forbid(const std::vector<unsigned>& calls) {
  std::vector<sock_filter> program{BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr))};
  for (const unsigned call : calls) {
    program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1));
    program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM));
  }
  program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  const sock_fprog filter{static_cast<unsigned short>(program.size()), program.data()};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

// "Store, then load" on both sides; the rounds in which neither saw the other's store. `begin` runs once the other
// thread exists: without mprotect() none could be made. Ends early where a round takes long: on a busy machine, or where
// a barrier is a pause.
template <class Begin>
int missed(int rounds, Begin begin) {
  constexpr int kOver = 1 << 30;
  std::atomic<int> x{0}, y{0}, seen{0}, turn{0};
  int both_missed = 0;
  std::thread often([&] {
    for (int round = 1; round <= rounds; ++round) {
      int now = turn.load(std::memory_order_acquire);
      while (now != round && now != kOver) now = turn.load(std::memory_order_acquire);
      if (now == kOver) return;
      x.store(1, std::memory_order_relaxed);
      std::atomic_signal_fence(std::memory_order_seq_cst);
      seen.store(y.load(std::memory_order_relaxed), std::memory_order_relaxed);
      turn.store(-round, std::memory_order_release);
    }
  });
  begin();
  const auto enough = std::chrono::steady_clock::now() + std::chrono::seconds(2);
  for (int round = 1; round <= rounds && (round <= 10 || std::chrono::steady_clock::now() < enough);
       ++round) {
    x = y = 0;
    turn.store(round, std::memory_order_release);
    y.store(1, std::memory_order_relaxed);
    membarrier();
    const int saw = x.load(std::memory_order_relaxed);
    while (turn.load(std::memory_order_acquire) != -round) std::this_thread::yield();
    both_missed += saw == 0 && seen.load(std::memory_order_relaxed) == 0;
  }
  turn.store(kOver, std::memory_order_release);
  often.join();
  return both_missed;
}

struct Report {
  int status;
  std::string text;  // on stderr
};

// In a process of its own, which has lost these calls after it had found membarrier() to work.
Report without(const std::vector<unsigned>& calls, int rounds) {
  int ends[2];
  if (pipe(ends) != 0) return {-1, "no pipe"};
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    alarm(60);  // ends a process that spins
    if (!membarrier_works()) _exit(2);
    membarrier();
    const auto lose_them = [&] {
      if (!forbid(calls)) _exit(3);
    };
    _exit(missed(rounds, lose_them) == 0 ? 0 : 4);
  }
  close(ends[1]);
  Report report{};
  char text[256];
  for (ssize_t n = 0; (n = read(ends[0], text, sizeof text)) > 0;)
    report.text.append(text, static_cast<std::size_t>(n));
  close(ends[0]);
  waitpid(child, &report.status, 0);
  return report;
}

void expect_slower_but_right(const Report& report) {
  ASSERT_TRUE(WIFEXITED(report.status)) << "signal " << WTERMSIG(report.status);
  if (WEXITSTATUS(report.status) == 2 || WEXITSTATUS(report.status) == 3)
    GTEST_SKIP() << "no membarrier or no seccomp here";
  EXPECT_EQ(WEXITSTATUS(report.status), 0);
  EXPECT_EQ(std::count(report.text.begin(), report.text.end(), '\n'), 1) << report.text;
  EXPECT_NE(report.text.find("membarrier"), std::string::npos) << report.text;
}

TEST(Membarrier, ThatIsForbiddenLaterIsReplacedByASlowerOneAndSaysSoOnce) {
  expect_slower_but_right(without({SYS_membarrier}, 2000));
}

TEST(Membarrier, EvenWhereThePagesMayNotChangeEither) {
  expect_slower_but_right(without({SYS_membarrier, SYS_mprotect}, 10));
}

TEST(Membarrier, IsABarrierForAllThreads) {
  if (!membarrier_works()) GTEST_SKIP() << "no membarrier here";
  EXPECT_EQ(missed(2000, [] {}), 0);
}

}  // namespace
}  // namespace bulkhead::base
