// bulkhead_postgres_bench - short queries through a pool, beside one raw libpq connection per thread, in one run.
//
//   bulkhead_postgres_bench [--quick] [<conninfo>]     without a server to use it starts one of its own
//
// The designs take turns, window by window, each time in another order; what counts is the median of the ratios of
// neighbouring windows, so that what the machine does meanwhile hits both.
#include <libpq-fe.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
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

// Queries in a window, all threads together.
template <class One>
double queries(std::chrono::nanoseconds window, One one) {
  std::atomic<std::uint64_t> done{0};
  const auto end = steady_clock::now() + window;
  std::vector<std::jthread> threads;
  for (unsigned t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      std::uint64_t mine = 0;
      while (steady_clock::now() < end) {
        one(t);
        ++mine;
      }
      done += mine;
    });
  threads.clear();
  return static_cast<double>(done.load());
}

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
  std::printf("  %-4s %-46s %.3f of raw libpq (half of the windows: %.3f to %.3f; at least 0.95)\n",
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
    const auto window = quick ? 30ms : 100ms;
    const int windows = quick ? 4 : 60;
    std::vector<double> plain, timed, rate;
    for (int i = 0; i < windows; ++i) {
      // Each beside its own raw window, before and after it in turn.
      const auto ratio = [&](auto design, bool first) {
        const double before = first ? queries(window, design) : 0;
        const double base = queries(window, by_hand);
        rate.push_back(base / std::chrono::duration<double>(window).count());
        return (first ? before : queries(window, design)) / base;
      };
      plain.push_back(ratio(by_pool, i % 2 == 0));
      timed.push_back(ratio(with_deadline, i % 2 == 0));
    }
    std::printf("short queries, %u threads, raw libpq: %.0f a second\n", kThreads, median(rate));
    report("through the pool:", plain);
    report("the same, each with a deadline of its own:", timed);
  }
  for (PGconn* c : raw) PQfinish(c);
  if (failed) std::fprintf(stderr, "bulkhead_postgres_bench: a query failed\n");
  return failed ? 1 : 0;
}
