// How long one hold of a lock lasts at the bounds that the headers promise: a gate with two million waiters, a group with
// 268 435 455 units and a thousand members; and of the timer that all gates share, with an alarm for each of those waiters.
//
// bulkhead_bounds [waiters]
// prints a table: the operation, the size, how long the call took, and the longest time for which another thread was
// kept from a short operation on the same lock meanwhile. That thread does nothing but such operations, one after the
// other, so what it waits is the longest hold, plus what the machine takes from it. The first row is that alone: two
// threads that read the clock, without a lock. A figure below it says nothing.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "bulkhead/async_acquire.h"
#include "bulkhead/clock.h"
#include "bulkhead/gate.h"
#include "bulkhead/group.h"

namespace bulkhead::bench {
namespace {

using std::chrono::steady_clock;
using Ms = std::chrono::duration<double, std::milli>;

class Waiting final : public AsyncAcquire {
 public:
  Waiting(Gate& gate, AcquireOptions options) : AsyncAcquire(gate, &watch_), watch_(std::move(options)) {}
  ~Waiting() override = default;
  bool go() { return start(watch_.options()); }

 private:
  void on_decided() noexcept override { (void)result(); }  // and gives it back
  AcquireWatch watch_;
};

// Runs `operation` here and `probe` over and over on another thread; its longest run.
void measure(const char* name, std::uint64_t size, const std::function<void()>& operation,
             const std::function<void()>& probe) {
  std::atomic<bool> over{false}, begun{false};
  Ms longest{};
  std::thread other([&] {
    while (!over.load(std::memory_order_relaxed)) {
      const auto before = steady_clock::now();
      probe();
      longest = std::max(longest, Ms(steady_clock::now() - before));
      begun.store(true, std::memory_order_relaxed);
    }
  });
  while (!begun.load(std::memory_order_relaxed)) std::this_thread::yield();
  const auto before = steady_clock::now();
  operation();
  const Ms took = steady_clock::now() - before;
  over = true;
  other.join();
  std::printf("%-44s %12llu %12.1f %14.2f\n", name, static_cast<unsigned long long>(size), took.count(),
              longest.count());
}

struct Crowd {
  Crowd(std::uint32_t waiters, GateOptions o, std::uint32_t costs = 1,
        std::chrono::nanoseconds timeout = wait_forever)
      : gate((o.max_queue = waiters + 10, std::move(o))) {
    held = gate.try_acquire({.priority = Priority::critical, .cost = limit}).value();
    for (std::uint32_t i = 0; i < waiters; ++i)
      line.emplace_back(gate, AcquireOptions{.cost = 1 + i % costs, .timeout = timeout, .flow = i % 100'000})
          .go();
  }
  static constexpr std::uint32_t limit = 100'000'000;
  // Takes the gate's lock: a call that may not wait, and finds the gate full or closed.
  std::function<void()> probe() {
    return [this] { (void)gate.try_acquire({.priority = Priority::critical, .cost = 2}); };
  }
  Gate gate;
  Permit held;
  std::deque<Waiting> line;
};

GateOptions options(std::uint32_t queues = 0) {
  return {.max_concurrent = Crowd::limit, .critical_reserve = 1e-6, .flow_queues = queues};
}

void machine() {
  const auto until = steady_clock::now() + std::chrono::seconds(2);
  measure(
      "no lock at all: the machine", 0,
      [&] {
        while (steady_clock::now() < until) {
        }
      },
      [] {});
}

void gates(std::uint32_t n) {
  for (const std::uint32_t queues : {0u, 64u, 1024u}) {
    const std::string with = queues == 0 ? "" : ", " + std::to_string(queues) + " flow queues";
    {
      Crowd crowd(n, options(queues));
      measure(("snapshot" + with).c_str(), n, [&] { (void)crowd.gate.snapshot(); }, crowd.probe());
      measure(("cancel 1000" + with).c_str(), n,
              [&] {
                for (std::size_t i = 0; i < 1000; ++i) crowd.line[i * (n / 1000)].cancel();
              },
              crowd.probe());
      measure(("close" + with).c_str(), n, [&] { crowd.gate.close(); }, crowd.probe());
      crowd.held.release();
    }
    {
      Crowd crowd(n, options(queues));
      measure(("release that admits all" + with).c_str(), n, [&] { crowd.held.release(); }, crowd.probe());
    }
    {
      Crowd crowd(n, options(queues), 4);
      measure(("resize that rejects most" + with).c_str(), n, [&] { crowd.gate.resize(1); }, crowd.probe());
      measure(("resize to more" + with).c_str(), n, [&] { crowd.gate.resize(2); }, crowd.probe());
      crowd.gate.close();
      crowd.held.release();
    }
  }
  {
    Crowd crowd(n, options(), 1, std::chrono::hours(1));
    measure(
        "join and cancel with a timeout, 1000", n,
        [&] {
          for (std::size_t i = 0; i < 1000; ++i) crowd.line[i * (n / 1000)].cancel();
        },
        crowd.probe());
    crowd.gate.close();
    crowd.held.release();
  }
  std::printf("memory of a waiter: %zu bytes\n", sizeof(Waiting));
}

void groups() {
  constexpr std::uint32_t total = 268'435'455;
  for (const std::uint32_t members : {2u, 1000u}) {
    GroupOptions o{.total = total, .lend = Lend::headroom(0)};
    for (std::uint32_t i = 0; i < members; ++i)
      o.members.push_back({.name = std::to_string(i),
                           .guaranteed = {.units = total / members - 1000},
                           .gate = {.max_queue = 10}});
    Group group(std::move(o));
    Gate& borrower = group.member("0");
    std::vector<Permit> held;
    for (std::uint32_t i = 0; i < 64; ++i)
      if (auto permit = borrower.try_acquire({.cost = total / 64})) held.push_back(*std::move(permit));
    Gate& other = group.member("1");
    const auto probe = [&] { (void)other.try_acquire({.cost = 1000}); };
    const std::string of = ", " + std::to_string(members) + " members";
    measure(("call back half of a guarantee" + of).c_str(), total,
            [&] { other.async_acquire({.cost = total / members / 2}, [](const Result<Permit>&) {}); }, probe);
    measure(("release what was called back" + of).c_str(), total, [&] { held.clear(); }, probe);
    measure(("resize" + of).c_str(), total, [&] { group.resize(total - 1000); }, probe);
    measure(("update" + of).c_str(), total, [&] { group.update("1", {.units = 1000}); }, probe);
    measure(("snapshot" + of).c_str(), total, [&] { (void)group.snapshot(); }, probe);
  }
}

// As that of a call that waits. It counts; `ends`: it still waits when its time comes.
class Due final : public Alarm {
 public:
  Due(TimePoint when, bool ends, std::atomic<std::uint32_t>& count) : ends_(ends), count_(count) {
    at = when;
  }
  bool expire() noexcept override {
    if (!ends_) ++count_;
    return ends_;
  }
  void expired() noexcept override { ++count_; }

 private:
  const bool ends_;
  std::atomic<std::uint32_t>& count_;
};

// All alarms come due in one instant, and a call with a timeout comes and goes meanwhile.
void timer(std::uint32_t n) {
  DeadlineDriver& alarms = Clock::steady().deadlines();
  for (const bool ends : {true, false}) {
    std::atomic<std::uint32_t> fired{0};
    const TimePoint when = steady_clock::now() + std::chrono::microseconds(2) * n;
    std::deque<Due> line;
    for (std::uint32_t i = 0; i < n; ++i) alarms.arm(line.emplace_back(when, ends, fired));
    std::this_thread::sleep_until(when - std::chrono::milliseconds(1));
    Due other(no_deadline, false, fired);
    measure(
        ends ? "alarms of calls that time out" : "alarms of calls that have their answer", n,
        [&] {
          while (fired != n) std::this_thread::yield();
        },
        [&] {
          alarms.arm(other);
          alarms.disarm(other);
        });
  }
}

}  // namespace
}  // namespace bulkhead::bench

int main(int argc, char** argv) {
  const bool quick = argc > 1 && std::string(argv[1]) == "--quick";
  const auto waiters = static_cast<std::uint32_t>(quick ? 20'000 : argc > 1 ? std::atoi(argv[1]) : 2'000'000);
  std::printf("%-44s %12s %12s %14s\n", "operation", "size", "call, ms", "longest, ms");
  bulkhead::bench::machine();
  bulkhead::bench::gates(waiters);
  bulkhead::bench::groups();
  bulkhead::bench::timer(waiters);
}
