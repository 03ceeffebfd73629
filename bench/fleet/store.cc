#include "bench/fleet/store.h"

#include <chrono>
#include <cstdio>
#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "adapters/redis/fleet.h"
#include "adapters/redis/server_test.h"
#include "bulkhead/bulkhead.h"

namespace bulkhead::bench {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kMembers = 40;
constexpr std::uint32_t kLimit = 1000;
constexpr auto kHold = 5ms;

struct Member {
  explicit Member(const std::string& store)
      : fleet({.store = store, .when_cut_off = WhenCutOff::closed, .mode = FleetMode::block}),
        bulkhead({.name = "db", .max_concurrent = kLimit, .scope = Scope::fleet, .sources = &fleet}) {}
  redis::Fleet fleet;
  Bulkhead bulkhead;
  std::deque<std::pair<Clock::time_point, Permit>> calls;
  double due = 0;
};

// A number of INFO, such as used_cpu_user.
double info(redis::tests::Server& server, const std::string& field) {
  const std::string text = server.call({"INFO"}).text;
  const std::size_t at = text.find("\n" + field + ":");
  return at == text.npos ? 0 : std::stod(text.substr(at + field.size() + 2));
}

// One thread makes the calls of all members, in steps of a millisecond.
void call(std::vector<std::unique_ptr<Member>>& members, double per_second, std::chrono::milliseconds time,
          std::uint64_t& calls, std::uint64_t& rejected) {
  const auto end = Clock::now() + time;
  for (auto last = Clock::now(); last < end;) {
    std::this_thread::sleep_for(1ms);
    const auto now = Clock::now();
    const double passed = std::chrono::duration<double>(now - last).count();
    last = now;
    for (auto& m : members) {
      while (!m->calls.empty() && m->calls.front().first <= now) m->calls.pop_front();
      for (m->due += passed * per_second; m->due >= 1; m->due -= 1) {
        ++calls;
        if (auto permit = m->bulkhead.gate().try_acquire())
          m->calls.emplace_back(now + kHold, *std::move(permit));
        else
          ++rejected;
      }
    }
  }
  for (auto& m : members) m->calls.clear();
}

}  // namespace

bool measure_store(bool quick) {
  bool good = true;
  std::printf(
      "| 40 members, limit %u, calls of 5 ms | calls/s | rejected | requests/s | processor of Redis |\n"
      "|---|---|---|---|---|\n",
      kLimit);
  redis::tests::Server server;
  std::vector<std::unique_ptr<Member>> members;
  for (std::size_t i = 0; i < kMembers; ++i) members.push_back(std::make_unique<Member>(server.url()));
  for (bool leased = false; !leased; std::this_thread::sleep_for(10ms)) {
    leased = true;
    for (auto& m : members) leased = leased && m->bulkhead.snapshot().fleet->state == FleetState::leased;
  }
  const auto measured = quick ? 500ms : 5000ms;
  for (const double per_second : {0.0, 3000.0, 5000.0}) {
    std::uint64_t calls = 0, rejected = 0;
    call(members, per_second, quick ? 200ms : 2000ms, calls, rejected);
    calls = rejected = 0;
    const auto begin = Clock::now();
    const double cpu = info(server, "used_cpu_user") + info(server, "used_cpu_sys");
    std::uint64_t before = 0, after = 0;
    for (auto& m : members) before += m->bulkhead.snapshot().fleet->requests;
    call(members, per_second, measured, calls, rejected);
    for (auto& m : members) after += m->bulkhead.snapshot().fleet->requests;
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    const double used = info(server, "used_cpu_user") + info(server, "used_cpu_sys") - cpu;
    const double requests = static_cast<double>(after - before) / seconds;
    std::printf("| %.0f calls/s each | %.0f | %.1f %% | %.0f | %.1f %% |\n", per_second,
                static_cast<double>(calls) / seconds,
                calls == 0 ? 0 : 100.0 * static_cast<double>(rejected) / static_cast<double>(calls), requests,
                100 * used / seconds);
    std::fflush(stdout);
    good = good && requests <= 2000;
  }
  return good;
}

}  // namespace bulkhead::bench
