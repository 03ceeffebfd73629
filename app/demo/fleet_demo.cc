#include "app/demo/fleet_demo.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "adapters/redis/connection.h"
#include "adapters/redis/fleet.h"
#include "adapters/redis/store.h"
#include "app/cli/command_line.h"
#include "app/cli/terminal.h"
#include "bulkhead/bulkhead.h"

namespace bulkhead::demo {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr std::uint32_t kLimit = 20;
constexpr auto kLease = 1500ms;
constexpr auto kGrace = 500ms;  // calls that outlive their lease by less are counted
constexpr auto kCall = 10ms;
constexpr int kThreads = 8;  // of each shop: more than its share, so that the limit is always wanted

// The dependency, in memory that all processes share. It counts the calls that are in it, one byte per shop in one word, so
// that each look is one instant. The library does not use it.
struct Dependency {
  std::atomic<std::uint64_t> inside{0};
  std::atomic<std::uint32_t> most{0};
  std::atomic<std::uint64_t> calls{0};
  std::atomic<bool> stop{false};
  std::array<std::atomic<FleetState>, kMaxShops> state{};

  static std::uint32_t sum(std::uint64_t word) {
    std::uint32_t n = 0;
    for (; word != 0; word >>= 8) n += word & 0xff;
    return n;
  }
  void enter(std::uint32_t shop) {
    const std::uint64_t one = std::uint64_t{1} << (8 * shop);
    const std::uint32_t n = sum(inside.fetch_add(one) + one);
    for (std::uint32_t seen = most.load(); seen < n && !most.compare_exchange_weak(seen, n);) {
    }
    ++calls;
  }
  void leave(std::uint32_t shop) { inside.fetch_sub(std::uint64_t{1} << (8 * shop)); }
  void forget(std::uint32_t shop) { inside.fetch_and(~(std::uint64_t{0xff} << (8 * shop))); }
};

// What ends with the demo: processes and a directory. SIGKILL of this process ends the others, too.
class Stage {
 public:
  explicit Stage(std::uint32_t shops) : pids_(shops, -1) {
    std::string pattern = (std::filesystem::temp_directory_path() / "bulkhead-demo-XXXXXX").string();
    if (!::mkdtemp(pattern.data())) throw std::runtime_error("no temporary directory");
    dir_ = pattern;
    void* const memory =
        ::mmap(nullptr, sizeof(Dependency), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::runtime_error("no memory that processes can share");
    dependency_ = new (memory) Dependency;
  }
  ~Stage() {
    dependency_->stop = true;
    for (std::uint32_t i = 0; i < pids_.size(); ++i) end(pids_[i], 0);
    end(redis_, SIGKILL);
    ::munmap(dependency_, sizeof(Dependency));
    std::error_code ignored;
    std::filesystem::remove_all(dir_, ignored);
  }
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;

  Dependency& dependency() const { return *dependency_; }

  // False: there is no redis-server.
  bool start_redis() {
    redis_ = fork_child();
    if (redis_ == 0) {
      const int null = ::open("/dev/null", O_RDWR);
      ::dup2(null, 1);
      ::dup2(null, 2);
      for (const char* server : {"redis-server", "valkey-server"})
        ::execlp(server, server, "--port", "0", "--unixsocket", socket().c_str(), "--dir", dir_.c_str(),
                 "--save", "", nullptr);
      ::_exit(127);
    }
    for (int i = 0; i < 500; ++i) {
      int status = 0;
      if (::waitpid(redis_, &status, WNOHANG) == redis_) {
        redis_ = -1;
        return false;
      }
      try {
        ask_redis({"PING"});
        return true;
      } catch (const std::runtime_error&) {
        std::this_thread::sleep_for(10ms);
      }
    }
    return false;
  }
  void kill_redis() { end(redis_, SIGKILL); }
  void ask_redis(const redis::Command& words) const {
    const auto until = Clock::now() + 2s;
    const redis::Address address{.path = socket()};
    redis::Connection connection({address}, until);
    redis::call(connection, address, words, until);
  }

  // Each shop reaches the server by a link of its own, so that one of them can be cut off.
  void connect(std::uint32_t shop) const { std::filesystem::create_symlink(socket(), link(shop)); }
  void cut_off(std::uint32_t shop) const {
    std::filesystem::remove(link(shop));
    ask_redis({"CLIENT", "KILL", "TYPE", "normal"});  // the others connect again at once
  }

  void start_shop(std::uint32_t shop) {
    connect(shop);
    dependency_->state[shop] = FleetState::joining;
    pids_[shop] = fork_child();
    if (pids_[shop] != 0) return;
    try {
      run_shop(shop);
    } catch (const std::exception& error) {
      cli::write_all(STDERR_FILENO, fmt::format("bulkhead demo: shop {}: {}\n", shop + 1, error.what()));
      ::_exit(1);
    }
    ::_exit(0);
  }
  void kill_shop(std::uint32_t shop) {
    end(pids_[shop], SIGKILL);
    dependency_->forget(shop);  // its calls ended with it
  }
  std::uint32_t shops() const { return static_cast<std::uint32_t>(pids_.size()); }
  std::uint32_t living() const {
    return static_cast<std::uint32_t>(std::ranges::count_if(pids_, [](pid_t pid) { return pid > 0; }));
  }
  // With a valid lease; while the store learns, it stays as it is.
  std::uint32_t leased() const { return count(FleetState::leased) + count(FleetState::learning); }
  std::uint32_t count(FleetState state) const {
    std::uint32_t n = 0;
    for (std::uint32_t i = 0; i < shops(); ++i) n += pids_[i] > 0 && dependency_->state[i] == state;
    return n;
  }

 private:
  static pid_t fork_child() {
    const pid_t parent = ::getpid(), pid = ::fork();
    if (pid < 0) throw std::runtime_error("no more processes");
    if (pid == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::getppid() != parent) ::_exit(0);
      ::signal(SIGINT, SIG_IGN);  // of the terminal: the demo ends its processes itself
    }
    return pid;
  }
  static void end(pid_t& pid, int signal) {
    if (pid <= 0) return;
    if (signal != 0) ::kill(pid, signal);
    ::waitpid(pid, nullptr, 0);
    pid = -1;
  }
  std::string socket() const { return dir_ + "/redis.sock"; }
  std::string link(std::uint32_t shop) const { return fmt::format("{}/shop{}.sock", dir_, shop + 1); }

  void run_shop(std::uint32_t shop) const {
    redis::Fleet fleet({.store = "unix://" + link(shop),
                        .lease = kLease,
                        .grace = kGrace,
                        .when_cut_off = WhenCutOff::closed,
                        .mode = FleetMode::block});
    Bulkhead payments({.name = "payments",
                       .max_concurrent = kLimit,
                       .max_queue = kThreads,
                       .scope = Scope::fleet,
                       .sources = &fleet});
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t)
      threads.emplace_back([&] {
        while (!dependency_->stop) {
          const auto permit = payments.gate().acquire({.timeout = 50ms});
          if (!permit) continue;
          dependency_->enter(shop);
          std::this_thread::sleep_for(kCall);
          dependency_->leave(shop);
        }
      });
    while (!dependency_->stop) {
      dependency_->state[shop] = payments.snapshot().fleet->state;
      std::this_thread::sleep_for(20ms);
    }
    for (auto& t : threads) t.join();
  }

  std::string dir_;
  Dependency* dependency_ = nullptr;
  std::vector<pid_t> pids_;
  pid_t redis_ = -1;
};

struct Row {
  std::string phase;
  std::uint32_t leased, cut_off, most;
  std::uint64_t calls;
};

bool pause(std::chrono::nanoseconds time) {
  for (const auto end = Clock::now() + time; Clock::now() < end; std::this_thread::sleep_for(20ms))
    if (cli::CatchSignals::caught() != 0) return false;
  return true;
}

std::string table_of(const std::vector<Row>& rows, std::uint32_t shops) {
  std::string out = fmt::format(
      "\n {} shops, one limit of {} calls at once to a dependency:\n\n"
      " {:<44} {:>6} {:>7} {:>7} {:>8}\n",
      shops, kLimit, "what happens", "leased", "cut off", "calls", "at once");
  for (const Row& r : rows)
    out += fmt::format(" {:<44} {:>6} {:>7} {:>7} {:>8}\n", r.phase, r.leased, r.cut_off, r.calls, r.most);
  return out;
}

std::string json_of(const std::vector<Row>& rows, std::uint32_t shops, std::uint32_t most) {
  std::string out = fmt::format(
      "{{\"schema\":\"bulkhead.demo.fleet/1\",\"shops\":{},\"max_concurrent\":{},\"most\":{},\"phases\":[",
      shops, kLimit, most);
  for (const Row& r : rows)
    out += fmt::format("{}{{\"phase\":\"{}\",\"leased\":{},\"cut_off\":{},\"calls\":{},\"most\":{}}}",
                       &r == rows.data() ? "" : ",", r.phase, r.leased, r.cut_off, r.calls, r.most);
  return out + "]}\n";
}

constexpr const char* kNoRedis =
    "bulkhead demo: --fleet needs the program redis-server or valkey-server, which is not in the PATH or "
    "does "
    "not start: install one (Debian and Ubuntu: apt install redis-server, Fedora: dnf install valkey, macOS: "
    "brew install redis)\n";

// False: a signal ended it.
bool play(Stage& stage, std::vector<Row>& rows) {
  Dependency& dependency = stage.dependency();
  const auto phase = [&](const char* name, std::chrono::nanoseconds time, const auto& event) {
    dependency.most = 0;
    const std::uint64_t before = dependency.calls;
    event();
    if (!pause(time)) return false;
    rows.push_back({name, stage.leased(), stage.count(FleetState::degraded), dependency.most,
                    dependency.calls - before});
    return true;
  };
  const auto nothing = [] {};
  // Until all shops that live have a lease, or something is wrong.
  const auto settle = [&] {
    for (const auto end = Clock::now() + 20s;
         stage.count(FleetState::leased) < stage.living() && Clock::now() < end;)
      if (!pause(20ms)) return false;
    return true;
  };
  for (std::uint32_t i = 0; i < stage.shops(); ++i) stage.start_shop(i);
  return settle() && phase("calm", 2s, nothing) &&
         phase("shop 1 is killed", kLease + kGrace + 500ms, [&] { stage.kill_shop(0); }) &&
         phase("shop 2 is cut off from Redis", kLease + kGrace + 500ms, [&] { stage.cut_off(1); }) &&
         phase("shop 2 is connected again", kLease, [&] { stage.connect(1); }) &&
         phase("Redis is killed", 500ms, [&] { stage.kill_redis(); }) &&
         phase("Redis starts again, without its data", kLease + kGrace + 500ms,
               [&] { stage.start_redis(); }) &&
         settle() && phase("calm again", 2s, nothing);
}

}  // namespace

int run_fleet_demo(const FleetDemoOptions& options) {
  std::vector<Row> rows;
  bool whole = false;
  int signal = 0;
  try {
    const cli::CatchSignals signals;
    Stage stage(options.shops);
    if (!stage.start_redis()) {
      cli::write_all(STDERR_FILENO, kNoRedis);
      return cli::kFailure;
    }
    if (!options.json) cli::write_all(STDERR_FILENO, "a Redis server and the shops run for about 20 s ...\n");
    whole = play(stage, rows);
    signal = cli::CatchSignals::caught();
  } catch (const std::exception& error) {
    cli::write_all(STDERR_FILENO, fmt::format("bulkhead demo: {}\n", error.what()));
    return cli::kFailure;
  }
  if (!whole) {
    cli::write_all(STDERR_FILENO, "bulkhead demo: ended early\n");
    return 128 + signal;
  }
  std::uint32_t most = 0;
  for (const Row& row : rows) most = std::max(most, row.most);
  const bool held = most <= kLimit;
  if (options.json) {
    cli::say(json_of(rows, options.shops, most));
  } else {
    cli::say(table_of(rows, options.shops) +
             fmt::format(
                 "\n {}\n",
                 held ? fmt::format("The dependency never saw more than {} calls at once; its limit is {}.",
                                    most, kLimit)
                      : fmt::format("The dependency saw {} calls at once; its limit is {}.", most, kLimit)));
  }
  return held ? 0 : cli::kFailure;
}

}  // namespace bulkhead::demo
