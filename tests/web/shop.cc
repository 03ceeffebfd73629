// shop.cc - a service with bulkheads under load and a control plane of its own: what the dashboard is tested on.
//
//   bulkhead_web_shop [--listen 127.0.0.1:0] [--tokens FILE] [--private] [--file FILE] [--bulkheads N]
//
// The bulkheads and the control plane are the real ones; what is behind the bulkheads is time: a call holds its place
// for as long as its dependency takes. Prints its address and runs until it is told to stop. `--bulkheads N`: so many
// idle ones instead of the shop, one with a name that is markup and one with a name too long for any column.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "adapters/control/server.h"
#include "app/web/assets.h"
#include "bulkhead/group.h"

namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

struct Dependency {
  bulkhead::BulkheadOptions options;
  bulkhead::Priority criticality = bulkhead::Priority::normal;
  double rate = 0;                           // calls a second
  std::chrono::milliseconds takes{20};       // on average
  std::chrono::milliseconds slow_takes{20};  // while it is slow
  double slow_fails = 0;                     // share of calls that fail then
  std::string group{}, type{};
  std::shared_ptr<bulkhead::Bulkhead> bulkhead{};
};

class Shop {
 public:
  Shop()
      : db_({.name = "db",
             .total = 60,
             .members = {{.name = "checkout", .guaranteed = {.percent = 50}, .gate = {.max_queue = 50}},
                         {.name = "search", .guaranteed = {.percent = 30}, .gate = {.max_queue = 30}},
                         {.name = "analytics", .guaranteed = {.percent = 10}, .gate = {.max_queue = 8}}}}) {}

  void stock() {
    using enum bulkhead::Priority;
    const auto breaker = bulkhead::BreakerOptions{.window_calls = 50};
    member("checkout", critical, 400, 55ms, 60ms);
    member("search", normal, 160, 60ms, 60ms);
    member("analytics", best_effort, 60, 90ms, 2500ms);
    add({{.name = "payments", .max_concurrent = 24, .max_queue = 20, .breaker = breaker},
         critical,
         180,
         70ms,
         70ms});
    add({{.name = "fraud-check", .max_concurrent = 12, .max_queue = 10, .breaker = breaker},
         normal,
         90,
         60ms,
         400ms,
         0.7});
    add({{.name = "recommendations", .max_concurrent = 16, .max_queue = 20, .breaker = breaker},
         best_effort,
         140,
         80ms,
         150ms});
    add({{.name = "inventory", .max_concurrent = 24, .max_queue = 12}, normal, 200, 45ms, 45ms});
    add({{.name = "email", .max_concurrent = 8, .max_queue = 100}, best_effort, 30, 120ms, 120ms});
    add({{.name = "geo", .max_concurrent = 10, .breaker = breaker}, normal, 0});
    add({{.name = "auth", .max_concurrent = 20}, critical, 220, 12ms, 12ms});
    add({{.name = "images", .max_concurrent = 16, .max_queue = 16, .adaptive = bulkhead::LimiterOptions{}},
         normal,
         90,
         40ms,
         40ms});
  }

  void stock(int count) {
    for (int i = 0; i < count; ++i) {
      std::string name = "service-" + std::to_string(1000 + i).substr(1);
      if (i == 1) name = "<img src=x onerror=alert(1)>";
      if (i == 2) name = std::string(120, 'n') + "-the-end";
      add({{.name = name, .max_concurrent = 10, .max_queue = 5},
           bulkhead::Priority::normal,
           i % 3 == 0 ? 5.0 : 0.0,
           40ms,
           40ms});
    }
  }

  bulkhead::control::Plant plant() {
    return {.snapshot = [this] { return snapshot(); },
            .find = [this](std::string_view name) -> std::shared_ptr<bulkhead::Bulkhead> {
              const auto found = all_.find(name);
              return found == all_.end() ? nullptr : found->second.bulkhead;
            }};
  }

  bool slow() const { return slow_; }
  void set_slow(bool on) { slow_ = on; }

  // Arrivals at random, as customers come, until told to stop.
  void run(const std::stop_token& stop) {
    std::mt19937_64 random(7);
    std::map<std::string_view, Clock::time_point> next;
    for (const auto& [name, d] : all_) next[name] = Clock::now();
    while (!stop.stop_requested()) {
      const auto now = Clock::now();
      finish(now);
      for (auto& [name, d] : all_) {
        if (d.rate <= 0) continue;
        for (auto& due = next[name]; due <= now;) {
          arrive(d, random);
          due += std::chrono::duration_cast<Clock::duration>(
              std::chrono::duration<double>(std::exponential_distribution<>(d.rate)(random)));
        }
      }
      std::this_thread::sleep_for(2ms);
    }
    for (auto& [name, d] : all_) d.bulkhead->close();
    finish(Clock::time_point::max());
  }

 private:
  struct Running {
    Clock::time_point until;
    bulkhead::Call call;
    bulkhead::CallVerdict verdict;
    bool operator<(const Running& other) const { return until > other.until; }
  };

  void add(Dependency d) {
    d.bulkhead = std::make_shared<bulkhead::Bulkhead>(d.options);
    const std::string name(d.bulkhead->name());
    all_.emplace(name, std::move(d));
  }
  void member(const std::string& name, bulkhead::Priority criticality, double rate,
              std::chrono::milliseconds takes, std::chrono::milliseconds slow) {
    add({.options = {.name = name, .gate = &db_.member(name)},
         .criticality = criticality,
         .rate = rate,
         .takes = takes,
         .slow_takes = slow,
         .group = "db",
         .type = "sql"});
  }

  void arrive(const Dependency& d, std::mt19937_64& random) {
    const std::chrono::duration<double> mean = slow_ ? d.slow_takes : d.takes;
    const auto takes =
        std::chrono::duration_cast<Clock::duration>(mean * std::gamma_distribution<>(4, 0.25)(random));
    const bool fails = slow_ && std::bernoulli_distribution(d.slow_fails)(random);
    const auto verdict = fails ? bulkhead::CallVerdict::failure : bulkhead::CallVerdict::success;
    d.bulkhead->async_acquire({.timeout = 500ms},
                              [this, takes, verdict](bulkhead::Result<bulkhead::Call> call) {
                                if (!call) return;
                                std::lock_guard lock(mutex_);
                                running_.push_back({Clock::now() + takes, *std::move(call), verdict});
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

  bulkhead::RegistrySnapshot snapshot() const {
    bulkhead::RegistrySnapshot all;
    for (const auto& [name, d] : all_)
      all.bulkheads.push_back({.name = name,
                               .type = d.type,
                               .group = d.group,
                               .tenants = "",
                               .tenant_id = "",
                               .criticality = d.criticality,
                               .configured = d.bulkhead->options(),
                               .now = d.bulkhead->snapshot(),
                               .bulkhead = d.bulkhead});
    if (all_.contains("checkout")) all.groups.push_back(db_.snapshot());
    return all;
  }

  bulkhead::Group db_;
  std::map<std::string, Dependency, std::less<>> all_;
  std::atomic<bool> slow_ = false;
  std::mutex mutex_;
  std::vector<Running> running_;  // a heap: who is done first is in front
};

std::vector<bulkhead::control::Asset> dashboard() {
  std::vector<bulkhead::control::Asset> files;
  for (const bulkhead::web::Asset& a : bulkhead::web::assets())
    files.push_back({.path = a.path, .content_type = a.content_type, .gzip = a.gzip, .etag = a.etag});
  return files;
}

// Its "file" is valid as long as it does not say otherwise.
bulkhead::control::ConfigStatus status_of(const std::string& path) {
  std::ifstream in(path);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  const bool bad = text.find("max_concurrent: -3") != std::string::npos;
  return {.valid = !bad,
          .revision = "4f1c0d9a",
          .error = bad ? path + ":3:21: max_concurrent: -3 is below 1" : ""};
}

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
  if (args.contains("--bulkheads"))
    shop.stock(std::stoi(args["--bulkheads"]));
  else
    shop.stock();

  const auto files = dashboard();
  bulkhead::control::ServerOptions options{
      .listen = args.contains("--listen") ? args["--listen"] : "127.0.0.1:0",
      .tokens_file = args["--tokens"],
      .instance = "shop-1",
      .version = "0.1.0",
      .switches = {{.name = "slow",
                    .title = "Slow analytics",
                    .is_on = [&] { return shop.slow(); },
                    .set = [&](bool on) { shop.set_slow(on); }}},
      .assets = files};
  if (args["--anonymous"] == "none") options.anonymous = bulkhead::control::Role::none;
  if (const std::string path = args["--file"]; !path.empty()) {
    options.config.path = path;
    options.config.status = [path] { return status_of(path); };
  }
  bulkhead::control::Server server(shop.plant(), options);
  std::printf("%s/ui/\n", server.url().c_str());
  std::fflush(stdout);
  std::jthread load([&](const std::stop_token& stop) { shop.run(stop); });
  int signal = 0;
  sigwait(&signals, &signal);
}
