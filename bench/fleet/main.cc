// What a call costs that is admitted from the lease of a fleet, without a store: the lease by itself, with and without the look
// at the clock that its deadline needs, and a gate on top of it.
//
//   bulkhead_fleet_bench [--quick]
//   bulkhead_fleet_bench --store [--quick]      requests and processor time of a real redis-server, see store.h
//
// A pair is one acquire and one release, on one thread. The best of several runs counts, in turn.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <limits>
#include <memory>
#include <string_view>
#include <vector>

#include "adapters/redis/fleet_limit.h"
#include "bench/fleet/store.h"
#include "bulkhead/gate.h"
#include "shared/scoped_gate.h"

namespace {

using namespace bulkhead;

constexpr std::uint32_t kLimit = 50;

shared::LeaseOptions options() {
  return {.member = "bench", .times = shared::LeaseTimes::from(600'000'000'000, 0), .limit = kLimit};
}

template <class L>
void grant(L& lease) {
  const auto request = lease.next({.need = kLimit}, "run", redis::boot_now());
  lease.on_reply(request->seq, {.ver = 1, .granted = kLimit, .target = kLimit, .members = 1, .limit = kLimit},
                 redis::boot_now());
}

// As the source of the fleet, without its thread.
class Source final : public UnitSource {
 public:
  explicit Source(UnitUser& user) : limit_("bench", options(), FleetMode::block, true, user, [] {}) {
    const auto request = limit_.next("run", redis::boot_now());
    const shared::StoreReply reply{
        .ver = 1, .granted = kLimit, .target = kLimit, .members = 1, .limit = kLimit};
    limit_.on_reply(request->seq, &reply, 0);
  }
  bool take(const Head& head) noexcept override { return limit_.take(head); }
  void give_back(std::uint32_t units) noexcept override { limit_.give_back(units); }
  std::uint32_t in_use() const noexcept override { return limit_.in_use(); }
  void set_head(const Head* head) noexcept override { limit_.set_head(head); }
  std::uint32_t limit() const noexcept override { return limit_.limit(); }
  bool resize(std::uint32_t) noexcept override { return false; }
  void mute() noexcept override { limit_.mute(); }

 private:
  redis::FleetLimit limit_;
};

class Sources final : public UnitSources {
 public:
  std::unique_ptr<UnitSource> open(const Request&, UnitUser& user) override {
    return std::make_unique<Source>(user);
  }
  void check(const Request&) const override {}
};

}  // namespace

int main(int count, char** words) {
  const bool quick = std::string_view(words[count - 1]) == "--quick";
  if (count > 1 && std::string_view(words[1]) == "--store") return bench::measure_store(quick) ? 0 : 1;
  shared::Lease lease(options());
  grant(lease);
  Sources sources;
  shared::ScopedGate scoped({.name = "bench", .max_concurrent = kLimit}, Scope::fleet, sources);
  Gate plain({.name = "plain", .max_concurrent = kLimit});
  const std::int64_t fixed = redis::boot_now();
  long failed = 0;
  struct Row {
    const char* name;
    std::function<void(long)> pairs;
    double best = std::numeric_limits<double>::max();
  };
  std::vector<Row> rows;
  rows.push_back({"lease, deadline checked (CLOCK_BOOTTIME)", [&](long n) {
                    for (; n > 0; --n)
                      if (lease.take(1, redis::boot_now()))
                        lease.give_back(1);
                      else
                        ++failed;
                  }});
  rows.push_back({"lease, without the look at the clock", [&](long n) {
                    for (; n > 0; --n)
                      if (lease.take(1, fixed))
                        lease.give_back(1);
                      else
                        ++failed;
                  }});
  rows.push_back({"gate with scope: fleet, block", [&](long n) {
                    for (; n > 0; --n)
                      if (!scoped.gate().try_acquire()) ++failed;
                  }});
  rows.push_back({"gate of one process", [&](long n) {
                    for (; n > 0; --n)
                      if (!plain.try_acquire()) ++failed;
                  }});
  const long pairs = quick ? 1'000 : 20'000;
  for (int run = 0; run < (quick ? 5 : 200); ++run)
    for (Row& row : rows) {
      const auto begin = std::chrono::steady_clock::now();
      row.pairs(pairs);
      const double took =
          std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - begin).count();
      row.best = std::min(row.best, took / static_cast<double>(pairs));
    }
  std::printf("| a pair of acquire and release, one thread | ns |\n|---|---|\n");
  for (const Row& row : rows) std::printf("| %s | %.1f |\n", row.name, row.best);
  const double best = rows[2].best;
  constexpr double kMost = 40;
  std::printf("%s, at most %.0f ns: %s %.1f\n", rows[2].name, kMost, best <= kMost ? "PASS" : "FAIL", best);
  if (failed != 0) std::printf("%ld calls were not admitted\n", failed);
  return failed == 0 && (quick || best <= kMost) ? 0 : 1;  // a short run on a busy machine says nothing
}
