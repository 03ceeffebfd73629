// shop.cc - a service with bulkheads under load and a control plane of its own: what of the dashboard needs traffic is tested on it.
//
//   bulkhead_web_shop [--listen 127.0.0.1:0] [--tokens FILE]
//
// The registry, its bulkheads, group, tenants and pool, and the control plane are the real ones; what is behind the
// bulkheads is time: a call holds its place for as long as its dependency takes. Prints its address and runs until it is
// told to stop.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "bulkhead/registry.h"
#include "bulkhead/resource_pool.h"
#include "control/server.h"

namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

struct Dependency {
  bulkhead::Registration what;
  double rate = 0;                           // calls a second
  std::chrono::milliseconds takes{20};       // on average
  std::chrono::milliseconds slow_takes{20};  // while it is slow
  double slow_fails = 0;                     // share of calls that fail then
  bool connection = false;                   // it also needs one of the pool
  std::shared_ptr<bulkhead::Bulkhead> bulkhead{};
};

class Shop {
 public:
  Shop() {
    using enum bulkhead::Priority;
    registry_.add_group({.name = "db", .total = 60});
    member("checkout", 50, 50, critical, 400, 55ms, 60ms);
    member("search", 30, 30, normal, 160, 60ms, 60ms);
    member("analytics", 10, 8, best_effort, 60, 90ms, 2500ms);
    const auto breaker = bulkhead::BreakerOptions{.window_calls = 50};
    add({.name = "payments", .max_concurrent = 24, .max_queue = 20, .breaker = breaker}, critical, 180, 70ms,
        70ms);
    add({.name = "fraud-check", .max_concurrent = 12, .max_queue = 10, .breaker = breaker}, normal, 90, 60ms,
        400ms)
        .slow_fails = 0.7;
    add({.name = "recommendations", .max_concurrent = 16, .max_queue = 20, .breaker = breaker}, best_effort,
        140, 80ms, 150ms);
    add({.name = "inventory", .max_concurrent = 24, .max_queue = 12}, normal, 200, 45ms, 45ms).connection =
        true;
    add({.name = "email", .max_concurrent = 8, .max_queue = 100, .track_holders = true}, best_effort, 30,
        120ms, 120ms);
    add({.name = "geo", .max_concurrent = 10, .breaker = breaker}, normal, 0, 1ms, 1ms);
    add({.name = "auth", .max_concurrent = 20}, critical, 220, 12ms, 12ms);
    add({.name = "images", .max_concurrent = 16, .max_queue = 16, .adaptive = bulkhead::LimiterOptions{}},
        normal, 90, 40ms, 40ms);
    registry_.define_tenants(
        {.name = "partners", .each = {.max_concurrent = 3, .max_queue = 2}, .max_tenants = 3});
    for (const char* const first : {"acme", "globex", "initech"})
      static_cast<void>(registry_.tenant("partners", first));  // the others find no room
  }

  bulkhead::Registry& registry() { return registry_; }
  bool slow() const { return slow_; }
  void set_slow(bool on) { slow_ = on; }

  // Arrivals at random, as customers come, until told to stop.
  void run(const std::stop_token& stop) {
    std::mt19937_64 random(7);
    std::vector<Clock::time_point> next(all_.size() + 1, Clock::now());
    const auto arrivals = [&](std::size_t i, double rate, auto&& arrive) {
      if (rate <= 0) return;
      for (const auto now = Clock::now(); next[i] <= now;) {
        arrive();
        next[i] += std::chrono::duration_cast<Clock::duration>(
            std::chrono::duration<double>(std::exponential_distribution<>(rate)(random)));
      }
    };
    while (!stop.stop_requested()) {
      finish(Clock::now());
      for (std::size_t i = 0; i < all_.size(); ++i)
        arrivals(i, all_[i].rate, [&] { arrive(all_[i], random); });
      arrivals(all_.size(), 80, [&] { arrive_tenant(random); });
      std::this_thread::sleep_for(2ms);
    }
    for (const std::string& name : registry_.names()) registry_.find(name)->close();
    finish(Clock::time_point::max());
  }

 private:
  struct Running {
    Clock::time_point until;
    bulkhead::Call call;
    bulkhead::Outcome verdict;
    bulkhead::Lease<int> connection;
    bool operator<(const Running& other) const { return until > other.until; }
  };

  Dependency& add(const bulkhead::BulkheadOptions& options, bulkhead::Priority criticality, double rate,
                  std::chrono::milliseconds takes, std::chrono::milliseconds slow) {
    return add({.options = options, .criticality = criticality}, rate, takes, slow);
  }
  void member(const std::string& name, double percent, std::uint32_t queue, bulkhead::Priority criticality,
              double rate, std::chrono::milliseconds takes, std::chrono::milliseconds slow) {
    add({.options = {.name = name, .max_queue = queue},
         .type = "sql",
         .group = "db",
         .guaranteed = {.percent = percent},
         .criticality = criticality},
        rate, takes, slow);
  }
  Dependency& add(const bulkhead::Registration& what, double rate, std::chrono::milliseconds takes,
                  std::chrono::milliseconds slow) {
    all_.push_back(
        {.what = what, .rate = rate, .takes = takes, .slow_takes = slow, .bulkhead = registry_.add(what)});
    return all_.back();
  }

  void arrive(const Dependency& d, std::mt19937_64& random) {
    const std::chrono::duration<double> mean = slow_ ? d.slow_takes : d.takes;
    const auto takes =
        std::chrono::duration_cast<Clock::duration>(mean * std::gamma_distribution<>(4, 0.25)(random));
    const bool fails = slow_ && std::bernoulli_distribution(d.slow_fails)(random);
    enter(*d.bulkhead, takes, fails, d.connection);
  }

  // Two large partners, a small one, and strangers, for whom there is no room: they share the overflow.
  void arrive_tenant(std::mt19937_64& random) {
    constexpr const char* kIds[] = {"acme",   "acme",    "acme",  "globex",
                                    "globex", "initech", "hooli", "umbrella"};
    const char* const id = kIds[std::uniform_int_distribution<std::size_t>(0, std::size(kIds) - 1)(random)];
    if (const auto tenant = registry_.tenant("partners", id)) enter(**tenant, 90ms, false, false);
  }

  void enter(bulkhead::Bulkhead& bulkhead, Clock::duration takes, bool fails, bool connection) {
    const auto verdict = fails ? bulkhead::Outcome::failure : bulkhead::Outcome::success;
    bulkhead.async_acquire({.timeout = 500ms}, [=, this](bulkhead::Result<bulkhead::Call> call) {
      if (!call) return;
      Running running{Clock::now() + takes, *std::move(call), verdict, {}};
      if (connection)
        if (auto lease = stock_.try_acquire()) running.connection = *std::move(lease);
      std::lock_guard lock(mutex_);
      running_.push_back(std::move(running));
      std::push_heap(running_.begin(), running_.end());
    });
  }

  void finish(Clock::time_point now) {
    for (;;) {
      Running done;
      {
        std::lock_guard lock(mutex_);
        if (running_.empty() || running_.front().until > now) return;
        std::pop_heap(running_.begin(), running_.end());
        done = std::move(running_.back());
        running_.pop_back();
      }
      done.call.finish(done.verdict);  // outside the lock: the place goes to a waiter, whose handler takes it
    }
  }

  bulkhead::Registry registry_;
  bulkhead::ResourcePool<int> stock_{
      {.name = "stock",
       .max = 12,
       .min_idle = 4,
       .open = [](const bulkhead::Opening&) { return bulkhead::Result<int, std::string>(1); },
       .histograms = true}};
  bulkhead::Attached attached_ = registry_.attach(stock_);
  std::vector<Dependency> all_;
  std::atomic<bool> slow_ = false;
  std::mutex mutex_;
  std::vector<Running> running_;  // a heap: who is done first is in front
};

}  // namespace

int main(int argc, char** argv) {
  std::map<std::string, std::string> args;
  for (int i = 1; i + 1 < argc; i += 2) args[argv[i]] = argv[i + 1];

  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);

  Shop shop;
  bulkhead::control::Server server(shop.registry(),
                                   {.listen = args.contains("--listen") ? args["--listen"] : "127.0.0.1:0",
                                    .tokens_file = args["--tokens"],
                                    .instance = "shop-1",
                                    .version = "0.2.0",
                                    .switches = {{.name = "slow",
                                                  .title = "Slow analytics",
                                                  .is_on = [&] { return shop.slow(); },
                                                  .set = [&](bool on) { shop.set_slow(on); }}}});
  std::printf("%s/ui/\n", server.url().c_str());
  std::fflush(stdout);
  std::jthread load([&](const std::stop_token& stop) { shop.run(stop); });
  int signal = 0;
  sigwait(&signals, &signal);
}
