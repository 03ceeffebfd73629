// bulkhead_postgres_bench - short queries through a pool, beside one raw libpq connection per thread, in one run.
//
//   bulkhead_postgres_bench [--quick] [<conninfo>]     without a server to use it starts one of its own
//
// The designs take turns, many short windows each, by the same threads. Where the system puts a thread and its backend, on one
// core or on two, decides more than everything that is measured here, and changes from window to window: so what
// counts is the sum over a block of many windows, and the median of the blocks' ratios.
#include <libpq-fe.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdio>
#include <functional>
#include <iterator>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "adapters/postgres/pool.h"
#include "adapters/postgres/server_test.h"

namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;
namespace postgres = bulkhead::postgres;

constexpr unsigned kThreads = 2;
constexpr const char* kQuery = "select $1::int + 1";

using Design = std::function<void(unsigned thread)>;

// The same threads from beginning to end: they run whatever design it is the turn of.
class Team {
 public:
  Team() {
    for (unsigned t = 0; t < kThreads; ++t) threads_.emplace_back([this, t] { work(t); });
  }
  ~Team() {
    design_ = nullptr;
    begin_.arrive_and_wait();
  }
  // Queries in a window, all threads together.
  double run(std::chrono::nanoseconds window, const Design& design) {
    done_ = 0;
    design_ = &design;
    end_at_ = steady_clock::now() + window;
    begin_.arrive_and_wait();
    end_.arrive_and_wait();
    return static_cast<double>(done_.load());
  }

 private:
  void work(unsigned t) {
    for (;;) {
      begin_.arrive_and_wait();
      if (!design_) return;
      std::uint64_t mine = 0;
      for (; steady_clock::now() < end_at_; ++mine) (*design_)(t);
      done_ += mine;
      end_.arrive_and_wait();
    }
  }

  std::barrier<> begin_{kThreads + 1}, end_{kThreads + 1};
  const Design* design_ = nullptr;
  steady_clock::time_point end_at_;
  std::atomic<std::uint64_t> done_{0};
  std::vector<std::jthread> threads_;
};

double quantile(std::vector<double> v, double q) {
  std::ranges::sort(v);
  return v[static_cast<std::size_t>(q * static_cast<double>(v.size() - 1))];
}
double median(std::vector<double> v) { return quantile(std::move(v), 0.5); }

constexpr const char* kHelp =
    "Short queries through a pool, beside one raw libpq connection per thread, in one run\n"
    "\n"
    "Usage: bulkhead_postgres_bench [--quick] [CONNINFO]\n"
    "\n"
    "  --quick     only to see that it works\n"
    "  CONNINFO    a server to use: \"host=db dbname=test\" or postgresql://...; default: one of its own, in "
    "a\n"
    "              temporary directory\n";

void report(const char* what, const std::vector<double>& ratios) {
  std::printf("  %-4s %-46s %.3f of raw libpq (half of the blocks: %.3f to %.3f; at least 0.95)\n",
              median(ratios) >= 0.95 ? "PASS" : "FAIL", what, median(ratios), quantile(ratios, 0.25),
              quantile(ratios, 0.75));
}

}  // namespace

int main(int argc, char** argv) {
  bool quick = false;
  std::string conninfo;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--help" || argument == "-h") {
      std::fputs(kHelp, stdout);
      return 0;
    }
    if (argument == "--quick") {
      quick = true;
    } else if (argument.starts_with("-") || !conninfo.empty()) {
      std::fprintf(stderr, "bulkhead_postgres_bench: \"%s\" is not understood\n\n%s", argv[i], kHelp);
      return 2;
    } else {
      conninfo = argument;
    }
  }
  if (conninfo.empty()) conninfo = postgres::tests::Server::get().conninfo();

  std::vector<PGconn*> raw;
  for (unsigned t = 0; t < kThreads; ++t) {
    raw.push_back(PQconnectdb(conninfo.c_str()));
    if (PQstatus(raw.back()) != CONNECTION_OK) {
      std::fprintf(stderr, "bulkhead_postgres_bench: %s", PQerrorMessage(raw.back()));
      return 1;
    }
    PQclear(PQprepare(raw.back(), "q", kQuery, 0, nullptr));
  }
  const auto by_hand = [&](unsigned t) {
    const char* values[] = {"41"};
    PQclear(PQexecPrepared(raw[t], "q", 1, values, nullptr, nullptr, 0));
  };
  bool failed = false;
  {
    postgres::Pool pool(
        {.name = "bench", .max = kThreads, .gate = {.max_queue = 8}, .connection = {.conninfo = conninfo}});
    const auto by_pool = [&](unsigned) {
      auto db = pool.acquire();
      if (!db || !(*db)->prepared(kQuery, {41})) failed = true;
    };
    const auto with_deadline = [&](unsigned) {
      auto db = pool.acquire({.deadline = steady_clock::now() + 1s});
      if (!db || !(*db)->prepared(kQuery, {41})) failed = true;
    };
    constexpr auto kWindow = 20ms;
    const int blocks = quick ? 1 : 12, windows = quick ? 3 : 40;
    const Design designs[] = {by_hand, by_pool, with_deadline, by_hand};  // the last one shows what is chance
    std::vector<double> ratios[std::size(designs)], rate;
    Team team;
    for (const Design& design : designs) team.run(kWindow, design);
    for (int block = 0; block < blocks; ++block) {
      double sums[std::size(designs)] = {};
      for (int i = 0; i < windows; ++i)
        for (std::size_t j = 0; j < std::size(designs); ++j) {  // another one first each time
          const std::size_t design = (j + static_cast<std::size_t>(i)) % std::size(designs);
          sums[design] += team.run(kWindow, designs[design]);
        }
      rate.push_back(sums[0] / windows / std::chrono::duration<double>(kWindow).count());
      for (std::size_t j = 0; j < std::size(designs); ++j) ratios[j].push_back(sums[j] / sums[0]);
    }
    std::printf("short queries, %u threads, raw libpq: %.0f a second; medians of %d blocks of %d windows\n",
                kThreads, median(rate), blocks, windows);
    report("through the pool:", ratios[1]);
    report("the same, each with a deadline of its own:", ratios[2]);
    std::printf("       %-46s %.3f (%.3f to %.3f)\n",
                "raw libpq once more, which should be 1:", median(ratios[3]), quantile(ratios[3], 0.25),
                quantile(ratios[3], 0.75));
  }
  for (PGconn* c : raw) PQfinish(c);
  if (failed) std::fprintf(stderr, "bulkhead_postgres_bench: a query failed\n");
  return failed ? 1 : 0;
}
