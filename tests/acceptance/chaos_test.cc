// Four bulkheads of one service, with real threads: what happens to one does not happen to the others.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "bulkhead/bulkhead.h"
#include "bulkhead/histogram.h"

namespace bulkhead {
namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;

constexpr std::size_t kRoutes = 4;

// One of the four, its callers, and the dependency behind it, which answers after `latency`.
class Route {
 public:
  Route(std::string name, std::uint32_t cap, std::uint32_t usual_callers)
      : cap_(cap), usual_(usual_callers), bulkhead_({.name = std::move(name), .max_concurrent = cap}) {}
  ~Route() { stop(); }

  std::uint32_t cap() const { return cap_; }
  const Bulkhead& bulkhead() const { return bulkhead_; }
  void set_latency(std::chrono::nanoseconds latency) { latency_ = latency; }

  void start(bool overloaded) {
    stopping_ = false;
    const std::uint32_t n = overloaded ? 2 * cap_ : usual_;
    for (std::uint32_t i = 0; i < n; ++i) threads_.emplace_back([this] { caller(); });
  }
  void stop() {
    stopping_ = true;
    threads_.clear();
  }

  // From here on; reset by every call.
  struct Measured {
    double p99_ms = 0, machine_ms = 0;  // of the calls here; of the bystander's, meanwhile
    std::uint64_t admitted = 0, rejected = 0;
  };
  void begin() { bulkhead_.reset_statistics(); }
  Measured measured() const {
    const BulkheadSnapshot s = bulkhead_.snapshot();
    return {static_cast<double>(s.service.quantile(0.99)) / 1e6, 0, s.gate.released, s.gate.rejected()};
  }
  std::uint32_t peak() const { return peak_; }

  void expect_drained() {
    stop();
    const BulkheadSnapshot s = bulkhead_.snapshot();
    EXPECT_EQ(s.gate.in_flight, 0u);
    EXPECT_EQ(s.gate.waiting, 0u);
    EXPECT_EQ(s.gate.admitted, s.gate.released);
    EXPECT_EQ(s.gate.underflows, 0u);
    EXPECT_EQ(inside_, 0u);
    EXPECT_LE(peak_, cap_);
  }

 private:
  void caller() {
    while (!stopping_) {
      const auto done = bulkhead_.execute([this] {
        const std::uint32_t n = ++inside_;
        for (std::uint32_t seen = peak_; seen < n && !peak_.compare_exchange_weak(seen, n);) {
        }
        std::this_thread::sleep_for(latency_.load());
        --inside_;
      });
      if (!done) std::this_thread::sleep_for(1ms);  // a client that comes again
    }
  }

  const std::uint32_t cap_, usual_;
  Bulkhead bulkhead_;
  std::atomic<std::chrono::nanoseconds> latency_{std::chrono::nanoseconds(2ms)};
  std::atomic<std::uint32_t> inside_ = 0, peak_ = 0;
  std::atomic<bool> stopping_ = false;
  std::vector<std::jthread> threads_;
};

// What the machine itself does just now to a call of 2 ms that no bulkhead guards.
class Bystander {
 public:
  Bystander() {
    for (int i = 0; i < 3; ++i)
      threads_.emplace_back([this](const std::stop_token& stop) {
        while (!stop.stop_requested()) {
          const auto start = steady_clock::now();
          std::this_thread::sleep_for(2ms);
          taken_.record(static_cast<std::uint64_t>((steady_clock::now() - start).count()));
        }
      });
  }
  void begin() { taken_.reset(); }
  double p99_ms() const { return static_cast<double>(taken_.quantile(0.99)) / 1e6; }

 private:
  Histogram taken_;
  std::vector<std::jthread> threads_;
};

class Chaos : public testing::Test {
 protected:
  Chaos() {
    routes[0] = std::make_unique<Route>("checkout", 25, 4);
    routes[1] = std::make_unique<Route>("search", 15, 4);
    routes[2] = std::make_unique<Route>("reports", 8, 3);
    routes[3] = std::make_unique<Route>("admin", 3, 2);
  }
  static double median(std::vector<double> of) {
    std::sort(of.begin(), of.end());
    return of[of.size() / 2];
  }
  // The median of several windows: one in which the machine was busy with something else decides nothing.
  std::array<Route::Measured, kRoutes> measure(int windows = 5, std::chrono::milliseconds window = 150ms) {
    std::array<std::vector<double>, kRoutes> p99;
    std::vector<double> machine;
    std::array<Route::Measured, kRoutes> result;
    for (int w = 0; w < windows; ++w) {
      for (auto& route : routes) route->begin();
      bystander.begin();
      std::this_thread::sleep_for(window);
      for (std::size_t i = 0; i < kRoutes; ++i) {
        const auto m = routes[i]->measured();
        p99[i].push_back(m.p99_ms);
        result[i].admitted += m.admitted;
        result[i].rejected += m.rejected;
      }
      machine.push_back(bystander.p99_ms());
    }
    for (std::size_t i = 0; i < kRoutes; ++i) {
      result[i].p99_ms = median(p99[i]);
      result[i].machine_ms = median(machine);
    }
    return result;
  }
  static void expect_unharmed(const Route::Measured& now, const Route::Measured& solo,
                              const std::string& what) {
    EXPECT_EQ(now.rejected, 0u) << what;
    EXPECT_GT(now.admitted, 0u) << what;
    EXPECT_LE(now.p99_ms, 3 * std::max(solo.p99_ms, now.machine_ms) + 5)
        << what << ", solo " << solo.p99_ms << " ms, unguarded calls meanwhile " << now.machine_ms << " ms";
  }
  std::array<Route::Measured, kRoutes> alone() {
    std::array<Route::Measured, kRoutes> solo;
    for (std::size_t i = 0; i < kRoutes; ++i) {
      routes[i]->start(false);
      solo[i] = measure(3)[i];
      routes[i]->stop();
      EXPECT_EQ(solo[i].rejected, 0u);
    }
    return solo;
  }
  std::array<std::unique_ptr<Route>, kRoutes> routes;
  Bystander bystander;
};

TEST_F(Chaos, LatencyInOneOfFourLeavesTheOtherThreeAlone) {
  const auto solo = alone();
  for (std::size_t i = 0; i < kRoutes; ++i) routes[i]->start(i == 0);  // more callers than it has places
  routes[0]->set_latency(300ms);
  const auto now = measure();
  for (std::size_t i = 1; i < kRoutes; ++i)
    expect_unharmed(now[i], solo[i], std::string(routes[i]->bulkhead().name()));
  EXPECT_GT(now[0].rejected, 0u);
  EXPECT_EQ(routes[0]->peak(), routes[0]->cap());
  for (auto& route : routes) route->expect_drained();
}

TEST_F(Chaos, EachOverloadedAloneHurtsOnlyItself) {
  const auto solo = alone();
  for (std::size_t bad = 0; bad < kRoutes; ++bad) {
    for (std::size_t i = 0; i < kRoutes; ++i) routes[i]->start(i == bad);
    routes[bad]->set_latency(50ms);
    const auto now = measure(3);
    for (std::size_t i = 0; i < kRoutes; ++i)
      if (i != bad)
        expect_unharmed(now[i], solo[i],
                        std::string(routes[i]->bulkhead().name()) + " beside " +
                            std::string(routes[bad]->bulkhead().name()));
    EXPECT_GT(now[bad].rejected, 0u);
    EXPECT_EQ(routes[bad]->peak(), routes[bad]->cap());
    routes[bad]->set_latency(2ms);
    for (auto& route : routes) route->stop();
  }
  for (auto& route : routes) route->expect_drained();
}

TEST_F(Chaos, AllOverloadedAtOnceEachKeepsItsCapAndAllRecover) {
  for (auto& route : routes) {
    route->set_latency(20ms);
    route->start(true);
  }
  const auto now = measure(3);
  for (std::size_t i = 0; i < kRoutes; ++i) {
    EXPECT_GT(now[i].rejected, 0u);
    EXPECT_GT(now[i].admitted, 0u);
    EXPECT_EQ(routes[i]->peak(), routes[i]->cap());
  }
  for (auto& route : routes) route->expect_drained();

  for (auto& route : routes) {
    route->set_latency(2ms);
    route->start(false);
  }
  for (const auto& after : measure(3)) EXPECT_EQ(after.rejected, 0u);
  for (auto& route : routes) route->expect_drained();
}

}  // namespace
}  // namespace bulkhead
