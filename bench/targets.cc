#include <algorithm>
#include <cmath>

#include "bench/report.h"
#include "bench/rival_group.h"
#include "bench/workload.h"

namespace bench {
namespace {

class Checklist {
 public:
  explicit Checklist(const Results& results) : results_(results) {}

  void at_most(double bound, std::string_view title, std::string_view ours, std::string_view theirs,
               std::string what) {
    const Table* t = find(results_, title);
    if (!t) return;
    add(*t, ours, std::move(what), bound, false, t->ratios(ours, theirs));
  }
  // How much more `ours` costs than `theirs`, round by round.
  void over(double bound, std::string_view title, std::string_view ours, std::string_view theirs,
            std::string what) {
    const Table* t = find(results_, title);
    const Row* a = t ? t->find(ours) : nullptr;
    const Row* b = t ? t->find(theirs) : nullptr;
    if (!a || !b) return;
    std::vector<double> differences;
    for (std::size_t i = 0; i < std::min(a->rounds.size(), b->rounds.size()); ++i)
      differences.push_back(a->rounds[i] - b->rounds[i]);
    add(*t, ours, std::move(what), bound, false, std::move(differences));
  }
  void throughput(double bound, const Table& t, std::string_view ours, std::string what) {
    add(t, ours, std::move(what), bound, true, t.of_fastest(ours));
  }
  void value(double bound, std::string_view title, std::string_view design, std::string what) {
    const Table* t = find(results_, title);
    const Row* row = t ? t->find(design) : nullptr;
    if (row) add(*t, design, std::move(what), bound, false, row->rounds);
  }
  void figure(double bound, std::string what, double measured) {
    targets_.push_back({std::move(what), bound, false, {measured}, false});
  }
  std::vector<Target> done() { return std::move(targets_); }

 private:
  void add(const Table& t, std::string_view ours, std::string what, double bound, bool at_least,
           std::vector<double> measured) {
    if (measured.empty()) return;
    targets_.push_back({std::move(what), bound, at_least, std::move(measured), t.find(ours)->noisy});
  }

  const Results& results_;
  std::vector<Target> targets_;
};

constexpr std::string_view kMutexGate = "mutex gate, same guarantees";

}  // namespace

std::string_view Target::verdict() const {
  // Judged as it is printed: no figure here is good for more than two decimals.
  const auto reached = [&](double v) {
    const double printed = std::round(v * 100) / 100;
    return at_least ? printed >= bound : printed <= bound;
  };
  if (reached(median(measured))) return "PASS";
  return std::any_of(measured.begin(), measured.end(), reached) ? "marginal" : "FAIL";
}

std::vector<Target> check_targets(const Results& results) {
  Checklist list(results);
  const std::string one = "admit + release, 1 thread, limit 1000",
                    limit_1 = "admit + release, 1 thread, limit 1";
  const std::string two = "admit + release, 2 threads, limit 1000",
                    eight = "admit + release, 8 threads, limit 1000";
  list.over(10, one, kGate, kFloor, "admit + release, 1 thread: ns over the bare pair");
  list.at_most(1.1, one, kGate, kSemaphore, "admit + release, 1 thread: against std::counting_semaphore");
  list.over(10, limit_1, kGate, kFloor, "the same at limit 1: ns over the bare pair");
  list.at_most(1.1, limit_1, kGate, kSemaphore, "the same at limit 1: against std::counting_semaphore");
  for (const char* threads : {"1 thread", "2 threads"})
    list.at_most(1.5, std::string("admit + release within the guarantee, ") + threads, kMember, kGate,
                 std::string("a group's member within its guarantee, ") + threads + ": against a plain gate");
  list.value(30, "composition, an empty call, 1 thread", kPlainBulkhead, "a plain call: ns");
  list.value(120, "composition, an empty call, 1 thread", kFullBulkhead,
             "full composition (breaker, rate limit, histograms): ns");
  list.value(60, "lease + return, 1 thread", kResourcePool, "lease + return of a resource, 1 thread: ns");
  for (const char* names :
       {"1 thread, 128 names", "1 thread, one name", "2 threads, 128 names", "2 threads, one name"}) {
    const std::string title = std::string("look-up by name, ") + names;
    list.at_most(0.5, title, kRegistryUse, kMutexMap, title + ": use() against a map behind a mutex");
    list.at_most(0.8, title, kRegistryFind, kMutexMap, title + ": find() against a map behind a mutex");
  }
  list.value(15, "rejection when full, 1 thread", kGate, "rejection when full: ns");
  list.value(3, "reject storm: holder's cost while another core hammers, over its cost in peace", kGate,
             "reject storm: the holder's cost over its cost in peace");
  list.at_most(1.2, two, kGate, kSemaphore, "2 threads: against std::counting_semaphore");
  list.at_most(1.5, eight, kGate, kSemaphore, "8 threads: against std::counting_semaphore");
  for (const std::string& title : {one, two, eight})
    list.at_most(1, title, kGate, kMutexGate, title + ": against the mutex gate");
  for (const std::string_view mode : {kGate, kGateAdaptive, kGateBarging})
    list.at_most(1, "hand-off to a parked thread", mode, kPosix,
                 "hand-off, " + std::string(mode) + ": against sem_t");

  for (const Table& t : results) {
    if (t.workload != "saturation") continue;
    if (t.section.ends_with("sleep")) list.throughput(0.85, t, kGate, t.title + ": fifo / fastest rival");
  }
  for (const Table& t : results)
    if (t.workload == "saturation")
      list.throughput(0.95, t, kGateBarging, t.title + ": barging / fastest rival");
  for (const Table& t : results) {
    if (t.workload != "saturation" || !t.section.starts_with("20 us")) continue;
    list.throughput(0.9, t, kGateAdaptive, t.title + ": adaptive / fastest rival");
    const Row* best = nullptr;
    for (const Row& r : t.rows)
      if (!is_ours(r.design) && (!best || r.value() < best->value())) best = &r;
    if (const Row* ours = t.find(kGateAdaptive); ours && best)
      list.figure(0.5, t.title + ": its worst wait / that rival's",
                  ours->get("worst ms") / best->get("worst ms"));
  }
  list.value(1024, "memory", "bytes of a gate", "memory: bytes of a gate without waiters");
  for (const char* call : {"admitted call", "rejected call", "call that waits"})
    list.value(0, "memory", std::string("allocations per ") + call,
               std::string("memory: allocations per ") + call);
  return list.done();
}

}  // namespace bench
