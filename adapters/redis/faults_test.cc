// A fleet of real processes, a real server, and faults. What is in flight is counted by an oracle in shared memory that the
// library does not know: one byte per process in one atomic word, so that each look at it is one instant.
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <arpa/inet.h>
#include <netinet/in.h>

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <memory>
#include <new>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "adapters/redis/fleet.h"
#include "adapters/redis/server_test.h"
#include "bulkhead/bulkhead.h"

namespace bulkhead::redis {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kMembers = 8;
constexpr std::uint32_t kLimit = 24;
#if defined(BULKHEAD_FEW_FAULTS)
constexpr auto kLease = 3000ms;
constexpr bool kFewFaults = true;
#else
constexpr auto kLease = 1500ms;
constexpr bool kFewFaults = false;
#endif

struct Oracle {
  std::atomic<std::uint64_t> inside{0};  // one byte per process
  std::atomic<std::uint32_t> most{0};
  std::atomic<std::uint64_t> admitted{0};
  std::atomic<std::uint32_t> wanted{0};  // the first process resizes to this
  std::array<std::atomic<bool>, kMembers> stop{};
  std::array<std::atomic<FleetState>, kMembers> state{};
  std::array<std::atomic<std::uint32_t>, kMembers> held{};

  static std::uint32_t sum(std::uint64_t word) {
    std::uint32_t n = 0;
    for (; word != 0; word >>= 8) n += word & 0xff;
    return n;
  }
  std::uint32_t now() const { return sum(inside.load()); }
  std::uint32_t of(std::size_t member) const { return inside.load() >> (8 * member) & 0xff; }
  void enter(std::size_t member) {
    const std::uint64_t one = std::uint64_t{1} << (8 * member);
    const std::uint32_t n = sum(inside.fetch_add(one) + one);
    for (std::uint32_t seen = most.load(); seen < n && !most.compare_exchange_weak(seen, n);) {
    }
    ++admitted;
  }
  void leave(std::size_t member) { inside.fetch_sub(std::uint64_t{1} << (8 * member)); }
};

// Passes bytes on between one port and another, in a process of its own: stopped, it is a partition, and what was under way
// arrives late.
class Proxy {
 public:
  // `late`: percent of the requests that arrive this much later, also if their connection is closed meanwhile.
  explicit Proxy(std::uint16_t to, unsigned late = 0, std::chrono::milliseconds by = 0ms)
      : late_(late), by_(by), port_(tests::free_port()), pid_(::fork()) {
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      run(to);
    }
  }
  ~Proxy() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  Proxy(const Proxy&) = delete;
  Proxy& operator=(const Proxy&) = delete;
  std::string url() const { return "redis://127.0.0.1:" + std::to_string(port_); }
  void cut() const { ::kill(pid_, SIGSTOP); }
  void heal() const { ::kill(pid_, SIGCONT); }
  void drop_replies() const { ::kill(pid_, SIGUSR1); }  // from now on, or not any more

 private:
  static sockaddr_in at(std::uint16_t port) {
    sockaddr_in a{};
    a.sin_family = AF_INET;
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    a.sin_port = htons(port);
    return a;
  }
  [[noreturn]] void run(std::uint16_t to) const {
    ::signal(SIGCHLD, SIG_IGN);
    static volatile std::sig_atomic_t drops;
    drops = 0;
    ::signal(SIGUSR1, [](int) { drops = !drops; });
    const int listener = ::socket(AF_INET, SOCK_STREAM, 0), yes = 1;
    ::setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    sockaddr_in a = at(port_);
    if (::bind(listener, reinterpret_cast<sockaddr*>(&a), sizeof a) != 0 || ::listen(listener, 64) != 0)
      ::_exit(1);
    std::vector<pollfd> fds{{listener, POLLIN, 0}};
    std::vector<int> peer{-1};
    std::vector<bool> to_server{false};
    std::minstd_rand random(7);
    for (;;) {
      if (::poll(fds.data(), fds.size(), -1) < 0) continue;
      for (std::size_t i = fds.size(); i-- > 1;) {
        if (fds[i].revents == 0) continue;
        char buffer[4096];
        const ssize_t n = ::read(fds[i].fd, buffer, sizeof buffer);
        if (n > 0 && late_ > 0 && to_server[i] && random() % 100 < late_) {
          hold(peer[i], std::string(buffer, static_cast<std::size_t>(n)));
          continue;
        }
        if (n > 0 && drops && !to_server[i]) continue;
        if (n > 0 && ::write(peer[i], buffer, static_cast<std::size_t>(n)) == n) continue;
        const int gone[] = {fds[i].fd, peer[i]};
        for (std::size_t j = fds.size(); j-- > 1;)
          if (fds[j].fd == gone[0] || fds[j].fd == gone[1]) {
            ::close(fds[j].fd);
            fds.erase(fds.begin() + static_cast<std::ptrdiff_t>(j));
            peer.erase(peer.begin() + static_cast<std::ptrdiff_t>(j));
            to_server.erase(to_server.begin() + static_cast<std::ptrdiff_t>(j));
          }
        break;
      }
      if (fds[0].revents == 0) continue;
      const int in = ::accept(listener, nullptr, nullptr), out = ::socket(AF_INET, SOCK_STREAM, 0);
      sockaddr_in b = at(to);
      if (::connect(out, reinterpret_cast<sockaddr*>(&b), sizeof b) != 0) {
        ::close(in);
        ::close(out);
        continue;
      }
      fds.push_back({in, POLLIN, 0});
      peer.push_back(out);
      to_server.push_back(true);
      fds.push_back({out, POLLIN, 0});
      peer.push_back(in);
      to_server.push_back(false);
    }
  }
  // Another process has the connection until the bytes are sent.
  void hold(int to, const std::string& bytes) const {
    if (::fork() != 0) return;
    std::this_thread::sleep_for(by_);
    [[maybe_unused]] const auto sent = ::write(to, bytes.data(), bytes.size());
    std::this_thread::sleep_for(100ms);  // until it is read, before the connection ends
    ::_exit(0);
  }
  unsigned late_;
  std::chrono::milliseconds by_;
  std::uint16_t port_;
  pid_t pid_;
};

class FleetFaults : public testing::TestWithParam<FleetMode> {
 protected:
  FleetFaults()
      : oracle_(*new(::mmap(nullptr, sizeof(Oracle), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
                            0)) Oracle) {}
  void SetUp() override {
    const std::string name = testing::UnitTest::GetInstance()->current_test_info()->name();
    if (kFewFaults && !name.starts_with("KilledProcessesAreMissedAfterTheirLease") &&
        !name.starts_with("AServerThatLosesItsDataDoesNotDoubleTheLimit"))
      GTEST_SKIP() << "too slow with a sanitizer";
  }
  ~FleetFaults() override {
    for (std::size_t i = 0; i < kMembers; ++i)
      if (pids_[i] > 0) kill_member(i);
    ::munmap(&oracle_, sizeof(Oracle));
  }

  FleetSettings settings(const std::string& url, WhenCutOff when_cut_off = WhenCutOff::closed) const {
    return {.store = url, .lease = kLease, .when_cut_off = when_cut_off, .mode = GetParam()};
  }

  // One process that calls as much as it can.
  void start(std::size_t i, const FleetSettings& settings, std::uint32_t limit = kLimit) {
    oracle_.stop[i] = false;
    oracle_.state[i] = FleetState::joining;
    pids_[i] = ::fork();
    ASSERT_GE(pids_[i], 0);
    if (pids_[i] != 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    {
      Fleet fleet(settings);
      Bulkhead bulkhead(
          {.name = "db", .max_concurrent = limit, .max_queue = 20, .scope = Scope::fleet, .sources = &fleet});
      std::vector<std::thread> threads;
      for (int t = 0; t < 6; ++t)
        threads.emplace_back([&] {
          while (!oracle_.stop[i]) {
            auto permit = bulkhead.gate().acquire({.timeout = 50ms});
            if (!permit) continue;
            oracle_.enter(i);
            std::this_thread::sleep_for(20ms);
            oracle_.leave(i);
          }
        });
      std::uint32_t stated = limit;
      while (!oracle_.stop[i]) {
        if (const std::uint32_t wanted = oracle_.wanted.load(); i == 0 && wanted != 0 && wanted != stated)
          bulkhead.resize(stated = wanted);
        const FleetSnapshot now = *bulkhead.snapshot().fleet;
        oracle_.state[i] = now.state;
        oracle_.held[i] = now.held;
        std::this_thread::sleep_for(10ms);
      }
      for (auto& t : threads) t.join();
    }
    ::_exit(0);
  }
  void start_all(const FleetSettings& settings) {
    for (std::size_t i = 0; i < kMembers; ++i) start(i, settings);
  }
  void kill_member(std::size_t i) {
    ::kill(pids_[i], SIGKILL);
    ::waitpid(pids_[i], nullptr, 0);
    pids_[i] = -1;
    oracle_.inside.fetch_and(~(std::uint64_t{0xff} << (8 * i)));  // its calls ended with it
  }
  void end_member(std::size_t i) {
    oracle_.stop[i] = true;
    ::waitpid(pids_[i], nullptr, 0);
    pids_[i] = -1;
  }

  template <class F>
  [[nodiscard]] static bool until(F&& done, std::chrono::seconds most = 40s) {
    for (const auto end = std::chrono::steady_clock::now() + most; std::chrono::steady_clock::now() < end;) {
      if (done()) return true;
      std::this_thread::sleep_for(1ms);
    }
    return false;
  }
  // That the limit is fully used shows that the fleet is well, and that a higher number would have been seen.
  [[nodiscard]] bool full(std::uint32_t limit = kLimit) const {
    return until([&] { return oracle_.now() >= limit; });
  }
  static void pass(std::chrono::nanoseconds time) { std::this_thread::sleep_for(time); }

  Oracle& oracle_;
  std::array<pid_t, kMembers> pids_{};
};

TEST_P(FleetFaults, KilledProcessesAreMissedAfterTheirLease) {
  tests::Server server;
  start_all(settings(server.url()));
  ASSERT_TRUE(full());
  for (std::size_t i = 0; i < 3; ++i) kill_member(i);
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_TRUE(full());
  // One lease, and one heartbeat until a member asks; the rest is for a machine that is busy.
  EXPECT_LE(std::chrono::steady_clock::now() - begin, kLease + kLease / 5 + 1s);
  EXPECT_LE(oracle_.most, kLimit);
}

TEST_P(FleetFaults, AServerThatLosesItsDataDoesNotDoubleTheLimit) {
  tests::Server server;
  start_all(settings(server.url()));
  ASSERT_TRUE(full());
  server.kill();
  pass(500ms);
  server.start();
  pass(2 * kLease);
  EXPECT_TRUE(full());
  EXPECT_LE(oracle_.most, kLimit);
}

TEST_P(FleetFaults, AServerThatRestartsWithItsDataHoldsTheLimit) {
  tests::Server server({"--appendonly", "yes", "--appendfsync", "everysec"});
  start_all(settings(server.url()));
  ASSERT_TRUE(full());
  server.kill();
  pass(500ms);
  server.start();
  pass(2 * kLease);
  EXPECT_TRUE(full());
  EXPECT_LE(oracle_.most, kLimit);
}

TEST_P(FleetFaults, FlushesHoldTheLimit) {
  tests::Server server;
  start_all(settings(server.url()));
  ASSERT_TRUE(full());
  for (int i = 0; i < 3; ++i) {
    server.call({"FLUSHALL"});
    pass(kLease * 2 / 3);
  }
  server.call({"DEL", "{bulkhead}:db:m"});
  pass(2 * kLease);
  EXPECT_TRUE(full());
  EXPECT_LE(oracle_.most, kLimit);
}

// All are cut off at once: their safe shares together are within the limit.
TEST_P(FleetFaults, AServerThatIsSilentForLongerThanALeaseHoldsTheLimit) {
  for (const WhenCutOff mode : {WhenCutOff::closed, WhenCutOff::safe_share}) {
    tests::Server server;
    start_all(settings(server.url(), mode));
    ASSERT_TRUE(full());
    server.signal(SIGSTOP);
    ASSERT_TRUE(until([&] {
      for (const auto& state : oracle_.state)
        if (state != FleetState::degraded) return false;
      return true;
    }));
    pass(kLease);
    if (mode == WhenCutOff::closed) {
      EXPECT_TRUE(until([&] { return oracle_.now() == 0; }));
    } else {
      const std::uint64_t before = oracle_.admitted;
      EXPECT_TRUE(until([&] { return oracle_.admitted > before + 20; }));
    }
    server.signal(SIGCONT);
    pass(2 * kLease);
    EXPECT_TRUE(full());
    EXPECT_LE(oracle_.most, kLimit);
    for (std::size_t i = 0; i < kMembers; ++i) end_member(i);
  }
}

TEST_P(FleetFaults, AReplicaThatIsBehindTakesOverWithoutBreakingTheLimit) {
  tests::Server master;
  tests::Server replica({"--replicaof", "127.0.0.1 " + std::to_string(master.port())});
  start_all(settings(master.url() + ",127.0.0.1:" + std::to_string(replica.port())));
  ASSERT_TRUE(full());
  replica.signal(SIGSTOP);  // what happens now it does not see
  pass(kLease);
  master.kill();
  replica.signal(SIGCONT);
  replica.call({"REPLICAOF", "NO", "ONE"});
  pass(2 * kLease);
  EXPECT_TRUE(full());
  EXPECT_LE(oracle_.most, kLimit);
}

TEST_P(FleetFaults, ASentinelFailoverHoldsTheLimit) {
  tests::Server master;
  tests::Server replica({"--replicaof", "127.0.0.1 " + std::to_string(master.port())});
  tests::Sentinel watch(master);
  tests::Server& sentinel = watch.server();
  start_all(settings(watch.url()));
  ASSERT_TRUE(full());
  ASSERT_TRUE(until([&] { return !sentinel.call({"SENTINEL", "replicas", "limits"}).list.empty(); }));
  master.kill();
  ASSERT_TRUE(until([&] {
    const Value now = sentinel.call({"SENTINEL", "get-master-addr-by-name", "limits"});
    return now.list.size() == 2 && now.list[1].text == std::to_string(replica.port());
  }));
  pass(2 * kLease);
  EXPECT_TRUE(full());
  EXPECT_LE(oracle_.most, kLimit);
}

// Calls that a stop has frozen go on afterwards, and were not counted meanwhile: that much may be on top, and no more.
TEST_P(FleetFaults, StoppedProcessesAddOnlyTheirFrozenCalls) {
  tests::Server server;
  start_all(settings(server.url()));
  ASSERT_TRUE(full());
  for (std::size_t i = 0; i < 3; ++i) ::kill(pids_[i], SIGSTOP);
  pass(50ms);
  std::uint32_t frozen = 0;
  for (std::size_t i = 0; i < 3; ++i) frozen += oracle_.of(i);
  pass(3 * kLease);
  for (std::size_t i = 0; i < 3; ++i) ::kill(pids_[i], SIGCONT);
  pass(2 * kLease);
  EXPECT_LE(oracle_.most, kLimit + frozen);
  oracle_.most = 0;
  pass(kLease);
  EXPECT_TRUE(full());
  EXPECT_LE(oracle_.most, kLimit);
}

// Some are cut off, and what they had sent arrives late: each mode keeps the bound that it states.
TEST_P(FleetFaults, ProcessesThatAreCutOffKeepTheBoundOfTheirMode) {
  constexpr std::size_t cut = 3;
  for (const WhenCutOff mode :
       {WhenCutOff::closed, WhenCutOff::safe_share, WhenCutOff::keep, WhenCutOff::local}) {
    // Each takes ten seconds, and the last two are not different in direct.
    if (GetParam() == FleetMode::direct && mode >= WhenCutOff::keep) break;
    tests::Server server;
    const Proxy proxy(server.port());
    FleetSettings s = settings(server.url(), mode), through = settings(proxy.url(), mode);
    s.max_share = through.max_share = 0.25;
    for (std::size_t i = 0; i < kMembers; ++i) start(i, i < cut ? through : s);
    // Until then `local` admits without a lease.
    ASSERT_TRUE(until([&] {
      for (const auto& state : oracle_.state)
        if (state != FleetState::leased) return false;
      return true;
    }));
    pass(kLease);
    ASSERT_TRUE(full());
    oracle_.most = 0;
    proxy.cut();
    pass(100ms);  // what they hold now is their last lease
    std::uint32_t bound = kLimit;
    if (mode == WhenCutOff::safe_share) bound += cut * (kLimit / kMembers);
    for (std::size_t i = 0; i < cut && mode == WhenCutOff::keep; ++i) bound += oracle_.held[i];
    if (mode == WhenCutOff::local) bound += cut * kLimit / 4;
    pass(3 * kLease);
    if (mode == WhenCutOff::keep) {  // they go on
      EXPECT_TRUE(until([&] { return oracle_.of(0) + oracle_.of(1) + oracle_.of(2) > 0; }));
    }
    proxy.heal();
    pass(2 * kLease);
    EXPECT_LE(oracle_.most, bound) << to_string(mode);
    EXPECT_TRUE(full()) << to_string(mode);
    for (std::size_t i = 0; i < kMembers; ++i) end_member(i);
  }
}

// They arrive after later ones of the same member, or after its lease has ended, and change nothing.
TEST_P(FleetFaults, LateRequestsHoldTheLimit) {
  tests::Server server;
  const Proxy proxy(server.port(), 5, kLease * 2 / 5);
  start_all(settings(proxy.url()));
  ASSERT_TRUE(full());
  pass(4 * kLease);
  EXPECT_TRUE(full());
  EXPECT_LE(oracle_.most, kLimit);
}

// The store hears some processes, and they do not hear the store: it counts what they claim, and they use nothing.
TEST_P(FleetFaults, APartitionOfOneDirectionHoldsTheLimit) {
  tests::Server server;
  const Proxy proxy(server.port());
  for (std::size_t i = 0; i < kMembers; ++i) start(i, settings(i < 3 ? proxy.url() : server.url()));
  ASSERT_TRUE(full());
  proxy.drop_replies();
  ASSERT_TRUE(until([&] { return oracle_.of(0) + oracle_.of(1) + oracle_.of(2) == 0; }));
  EXPECT_TRUE(full());  // the others have all of it
  proxy.drop_replies();
  EXPECT_TRUE(until([&] { return oracle_.of(0) > 0 && oracle_.of(1) > 0 && oracle_.of(2) > 0; }));
  EXPECT_TRUE(full());
  EXPECT_LE(oracle_.most, kLimit);
}

TEST_P(FleetFaults, ARollingDeploymentHoldsTheLimit) {
  tests::Server server;
  start_all(settings(server.url()));
  ASSERT_TRUE(full());
  for (std::size_t i = 0; i < 40; ++i) {
    end_member(i % kMembers);
    start(i % kMembers, settings(server.url()));
    pass(50ms);
  }
  EXPECT_TRUE(full());
  EXPECT_LE(oracle_.most, kLimit);
}

TEST_P(FleetFaults, TheLimitFollowsChangesUnderLoad) {
  tests::Server server;
  start_all(settings(server.url()));
  ASSERT_TRUE(full());
  EXPECT_LE(oracle_.most, kLimit);
  oracle_.wanted = 36;
  EXPECT_TRUE(full(36));
  EXPECT_LE(oracle_.most, 36u);
  oracle_.wanted = 10;
  EXPECT_TRUE(until([&] { return oracle_.now() <= 10; }));
  pass(2 * kLease);
  oracle_.most = 0;
  pass(kLease);
  EXPECT_TRUE(full(10));
  EXPECT_LE(oracle_.most, 10u);
}

TEST_P(FleetFaults, AnOldConfigurationDoesNotRevertANewOne) {
  tests::Server server;
  FleetSettings newer = settings(server.url());
  newer.version = 1;
  for (std::size_t i = 0; i < 4; ++i) start(i, settings(server.url()));
  ASSERT_TRUE(full());
  for (std::size_t i = 4; i < kMembers; ++i) start(i, newer, 12);
  pass(3 * kLease);
  end_member(0);
  start(0, settings(server.url()));  // one more that does not know yet
  pass(2 * kLease);
  oracle_.most = 0;
  pass(kLease);
  EXPECT_TRUE(full(12));
  EXPECT_LE(oracle_.most, 12u);
}

INSTANTIATE_TEST_SUITE_P(Fleet, FleetFaults, testing::Values(FleetMode::block, FleetMode::direct),
                         [](const auto& mode) {
                           return mode.param == FleetMode::block ? "Block" : "Direct";
                         });

}  // namespace
}  // namespace bulkhead::redis
