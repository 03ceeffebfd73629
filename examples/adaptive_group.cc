// One adaptive limit for two bulkheads that share a dependency, here one of 50 slots on virtual time. The total finds the
// capacity; checkout keeps 40 % of it although reports takes every unit that it can get.
#include <bulkhead/bulkhead.h>
#include <bulkhead/group.h>
#include <bulkhead/manual_clock.h>

#include <chrono>
#include <cstdio>
#include <deque>
#include <utility>

using namespace std::chrono_literals;

int main() {
  bulkhead::ManualClock clock;
  bulkhead::Group db{{.name = "db",
                      .total = 20,  // where it begins
                      .members = {{.name = "checkout", .guaranteed = {.percent = 40}}, {.name = "reports"}},
                      .clock = &clock}};
  bulkhead::AdaptiveLimiter limiter{db, {.floor = 4, .ceiling = 300}};
  bulkhead::Bulkhead checkout{{.gate = &db.member("checkout"), .limiter = &limiter}};
  bulkhead::Bulkhead reports{{.gate = &db.member("reports"), .limiter = &limiter}};

  std::deque<bulkhead::Call> in_line;                                 // at the dependency
  std::deque<std::pair<bulkhead::TimePoint, bulkhead::Call>> served;  // each takes 40 ms
  for (const auto end = clock.now() + 60s; clock.now() < end; clock.advance(1ms)) {
    while (!served.empty() && served.front().first <= clock.now()) {
      served.front().second.finish(bulkhead::Outcome::success);
      served.pop_front();
    }
    for (bulkhead::Bulkhead* caller : {&reports, &checkout})
      while (auto call = caller->try_acquire()) in_line.push_back(*std::move(call));
    while (!in_line.empty() && served.size() < 50) {
      served.emplace_back(clock.now() + 40ms, std::move(in_line.front()));
      in_line.pop_front();
    }
  }

  const bulkhead::GroupSnapshot now = db.snapshot();
  for (const auto& m : now.members)
    std::printf("%-8s guaranteed %u of %u, in flight %u\n", m.name.c_str(), m.guaranteed, now.total,
                m.in_flight);
  std::printf("%s\n", limiter.snapshot().why.text().c_str());
  const bool found = now.total >= 40 && now.total <= 75;
  served.clear();
  in_line.clear();
  return found && now.find("checkout")->in_flight >= now.find("checkout")->guaranteed ? 0 : 1;
}
