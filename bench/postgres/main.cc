// bulkhead_postgres_bench - short queries through a pool, beside one raw libpq connection per thread, in one run.
//
//   bulkhead_postgres_bench [--quick] [<conninfo>]     without a server to use it starts one of its own
//
// The designs take turns, window by window; a round gives the median of the ratios of neighbouring windows, so that what
// the machine does meanwhile hits both.
#include <libpq-fe.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <string>
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

double median(std::vector<double> v) {
  std::ranges::sort(v);
  return v[v.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  bool quick = false;
  std::string conninfo;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--quick") == 0)
      quick = true;
    else
      conninfo = argv[i];
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
    const auto window = quick ? 30ms : 200ms;
    const int windows = quick ? 3 : 25;
    std::vector<double> plain, timed, rate;
    for (int i = 0; i < windows; ++i) {
      const double base = queries(window, by_hand);
      plain.push_back(queries(window, by_pool) / base);
      timed.push_back(queries(window, with_deadline) / base);
      rate.push_back(base / std::chrono::duration<double>(window).count());
    }
    std::printf("short queries, %u threads, raw libpq: %.0f a second\n", kThreads, median(rate));
    std::printf("  %-8s through the pool: %.3f of raw libpq (at least 0.95)\n",
                median(plain) >= 0.95 ? "PASS" : "FAIL", median(plain));
    std::printf("  %-8s the same, each with a deadline of its own: %.3f\n",
                median(timed) >= 0.95 ? "PASS" : "FAIL", median(timed));
  }
  for (PGconn* c : raw) PQfinish(c);
  if (failed) std::fprintf(stderr, "bulkhead_postgres_bench: a query failed\n");
  return failed ? 1 : 0;
}
