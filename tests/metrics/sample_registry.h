// sample_registry.h - a registry with bulkheads of every kind on a manual clock: what the tests of metrics are made
// with.
//
//   SampleRegistry sample;      // payments (every policy), reports (threads), checkout and search (a group),
//   sample.load();              // plain (no histograms), tenants of orders; load(): a known number of calls
//   metrics.render(page, sample.registry.snapshot(), format);
#pragma once

#include <array>
#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "bulkhead/manual_clock.h"
#include "bulkhead/registry.h"
#include "bulkhead/scope.h"

namespace bulkhead::tests {

// A fleet whose store has been silent for 1.5 s. It has no store here, so it tells the numbers itself.
class SampleFleet final : public UnitSources {
 public:
  std::unique_ptr<UnitSource> open(const Request& request, UnitUser&) override {
    return std::make_unique<Source>(request.max_concurrent);
  }
  void check(const Request&) const override {}

 private:
  class Source final : public UnitSource {
   public:
    explicit Source(std::uint32_t limit) noexcept : limit_(limit) {}
    bool take(const Head&) noexcept override { return false; }
    void give_back(std::uint32_t) noexcept override {}
    std::uint32_t in_use() const noexcept override { return 0; }
    void set_head(const Head*) noexcept override {}
    std::uint32_t limit() const noexcept override { return limit_; }
    bool resize(std::uint32_t) noexcept override { return false; }
    void mute() noexcept override {}
    bool describe(FleetSnapshot& now) const override {
      using namespace std::chrono_literals;
      now = {.state = FleetState::degraded,
             .held = 3,
             .needed = 7,
             .members = 40,
             .limit_version = 2,
             .lease_age = 5100ms,
             .degraded_for = 1500ms,
             .pooling_loss = 0.125,
             .requests = 99,
             .list = std::make_shared<const FleetList>(
                 FleetList{.leased = 38, .lapsed = 2, .held = 44, .needed = 61, .lapsed_held = 6}),
             .list_age = 700ms,
             .problem = "127.0.0.1:6379 does not answer"};
      return true;
    }

   private:
    const std::uint32_t limit_;
  };
};

class SampleRegistry {
 public:
  SampleRegistry() {
    using namespace std::chrono_literals;
    registry.add({.options = {.name = "payments",
                              .max_concurrent = 2,
                              .max_queue = 1,
                              .execution_timeout = 1s,
                              .breaker = BreakerOptions{.window_calls = 4, .minimum_calls = 4},
                              .rate_limit = RateLimiterOptions{.rate = 100, .burst = 20},
                              .adaptive = LimiterOptions{.floor = 1, .ceiling = 50}},
                  .type = "external-api",
                  .criticality = Priority::critical});
    registry.add({.options = {.name = "reports",
                              .isolation = Isolation::threads,
                              .max_concurrent = 4,
                              .holdback = HoldbackOptions{}}});
    registry.add_group({.name = "db", .total = 10, .clock = &clock});
    registry.add({.options = {.name = "checkout"}, .group = "db", .guaranteed = {.percent = 60}});
    registry.add(
        {.options = {.name = "search", .budgets = {{.name = "rows", .max = 1000, .per_call_max = 400}}},
         .group = "db",
         .guaranteed = {.percent = 40}});
    registry.add({.options = {.name = "plain", .track_holders = true, .histograms = false},
                  .criticality = Priority::best_effort});
    registry.add({.options = {.name = "shared", .max_concurrent = 50, .scope = Scope::fleet}});
    registry.define_tenants(
        {.name = "orders", .each = {.max_concurrent = 3}, .max_tenants = 2, .idle_after = 1min});
    for (const char* id : {"acme", R"(we"ird\)"}) static_cast<void>(registry.tenant("orders", id));
    // Of pools a registry only knows what they tell, so here they tell it themselves.
    pools[0] = registry.attach({.name = "connections", .kind = "postgres", .snapshot = [] {
                                  ResourceSnapshot now;
                                  now.max = 10, now.alive = 4;
                                  now.used = now.idle = now.opening = now.cleaning = 1;
                                  now.opened = 7, now.closed = 3, now.broken = 2, now.expired = 1;
                                  now.timeouts = 5, now.open_failures = 6;
                                  now.gate.waiting = 2, now.gate.rejected_by_reason[0] = 9;
                                  now.gate.rejected_by_reason[static_cast<std::size_t>(Reason::timeout)] = 5;
                                  now.oldest_lease = 1500ms, now.histograms = true;
                                  return now;
                                }});
    pools[1] =
        registry.attach({.name = "buffers", .kind = "", .snapshot = [] { return ResourceSnapshot{}; }});
  }

  // The figures that follow are in the golden pages.
  void load() {
    using namespace std::chrono_literals;
    Bulkhead& payments = at("payments");
    for (const std::chrono::microseconds took : {400us, 2000us, 700'000us})
      static_cast<void>(payments.execute([&] { clock.advance(took); }));
    static_cast<void>(payments.execute([&] { clock.advance(3s); }));  // beyond its time
    {
      const auto first = payments.acquire(), second = payments.acquire();
      clock.advance(250ms);
      static_cast<void>(payments.execute([] {}, {.fallback = [](const Cause&) {}, .timeout = 0ms}));
    }
    for (int i = 0; i < 4; ++i)
      static_cast<void>(payments.execute([] { return 503; },
                                         {.judge = result_if([](int status) { return status >= 500; })}));
    static_cast<void>(payments.execute([] {}));  // the breaker is open
    for (int i = 0; i < 3; ++i) static_cast<void>(at("search").execute([&] { clock.advance(30ms); }));
    borrowed = *at("search").acquire({.cost = 6, .costs = {{"rows", 400}}});
    borrowed.settle("rows", 300);
    static_cast<void>(at("search").try_acquire({.costs = {{"rows", 401}}}));  // more than per_call_max
    clock.advance(2s);
    {
      const auto held = at("plain").try_acquire();
      for (int i = 0; i < 2; ++i) static_cast<void>(at("plain").try_acquire());
    }
    for (int i = 0; i < 7; ++i)
      static_cast<void>((*registry.tenant("orders", "acme"))->execute([&] { clock.advance(10ms); }));
    static_cast<void>(registry.tenant("orders", "no/name"));
    static_cast<void>(registry.tenant("orders", "one too many"));
    for (int i = 0; i < 2; ++i) {  // seen idle once, and still idle
      clock.advance(10min);
      registry.retire_idle();
    }
    for (int i = 0; i < 5; ++i) static_cast<void>((*registry.tenant("orders", "newcomer"))->execute([] {}));
  }

  Bulkhead& at(std::string_view name) { return *registry.get(name); }

  ManualClock clock;
  SampleFleet fleet;
  Registry registry{{.clock = &clock, .seed = 1, .sources = &fleet}};
  std::array<Attached, 2> pools;
  Call borrowed;
};

}  // namespace bulkhead::tests
