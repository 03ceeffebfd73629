// What a bulkhead costs an HTTP server, and what a storm of rejections costs its neighbours.
//
// Every server is a process of its own, with one thread. Short rounds, in turn, and the medians of what is compared within
// a round, because the machine's own speed changes from second to second. The processor time per request is the steadier
// figure: it does not depend on what else runs on the machine.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "bench/http/bare.h"
#include "bench/http/httplib.h"
#include "bench/http/load.h"
#include "bench/http/process.h"

namespace bulkhead::bench {
namespace {

namespace asio = boost::asio;
namespace wire = boost::beast::http;
using namespace std::chrono_literals;

constexpr const char* kUsage = R"(bulkhead_http_bench [--quick] [--only throughput|storm] [--rounds N]

throughput  requests per second under wrk, and the server's processor time per request: a bare Beast server, this
            library's server without a bulkhead, and with one. Rounds of one second, in turn.
storm       latency of /fast while 450 clients ask for /slow, which has 50 places held for a second each, and come back
            at once after every 503; with the measures of http_guard.h and without, on Beast and on cpp-httplib. Quiet and
            storm in turn; rounds in which others used more than a third of a core are repeated.
)";

asio::awaitable<beast::Response> answer(const beast::Request& request, beast::Context&) {
  if (request.target() == "/slow") {
    asio::steady_timer pause(co_await asio::this_coro::executor, 1s);
    co_await pause.async_wait(asio::use_awaitable);
  }
  beast::Response response(wire::status::ok, 11);
  response.set(wire::field::content_type, "text/plain");
  response.body().assign(100, 'x');
  response.prepare_payload();
  co_return response;
}

using Tell = std::function<void(std::uint16_t)>;

void serve_bare(const Tell& tell) {
  BareServer server(answer);
  tell(server.port());
  server.run();
}

struct Measures {
  http::StormOptions storm{};
  std::uint32_t rejected_per_round = beast::SessionOptions{}.rejected_per_round;
};

void serve(bool guarded, const Measures& measures, const Tell& tell) {
  Registry registry;
  registry.add({.options = {.name = "slow", .max_concurrent = 50, .max_queue = 0}});
  registry.add({.options = {.name = "fast", .max_concurrent = 256, .max_queue = 256}});
  std::vector<http::Route> routes;
  if (guarded) routes = {{.path = "/slow", .bulkhead = "slow"}, {.path = "/", .bulkhead = "fast"}};
  http::Guard guard(registry, {.routes = routes, .storm = measures.storm});
  beast::Server server(guard, {.session = {.rejected_per_round = measures.rejected_per_round}},
                       beast::Handler(answer));
  tell(server.port());
  server.run();
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

// ---- throughput ----

struct Speed {
  double per_second = 0, cpu_us = 0;  // requests; of the server, for each
};

Speed wrk(const Process& server, int seconds) {
  const std::string command = "wrk -t1 -c64 -d" + std::to_string(seconds) +
                              "s http://127.0.0.1:" + std::to_string(server.port) + "/fast 2>&1";
  const double before = server.cpu_seconds();
  FILE* out = ::popen(command.c_str(), "r");
  char line[256];
  double rate = 0, requests = 0;
  while (out && std::fgets(line, sizeof line, out)) {
    std::sscanf(line, "Requests/sec: %lf", &rate);
    std::sscanf(line, " %lf requests in", &requests);
  }
  if (!out || ::pclose(out) != 0 || requests == 0) {
    std::fprintf(stderr, "bulkhead_http_bench: cannot run \"%s\": install wrk\n", command.c_str());
    std::exit(1);
  }
  return {rate, (server.cpu_seconds() - before) / requests * 1e6};
}

void throughput(int rounds) {
  struct Row {
    const char* name;
    Process server;
    std::vector<double> rates{}, costs{}, ratios{}, cost_ratios{};
  };
  Row rows[] = {{"bare Beast server", Process(serve_bare)},
                {"this server, no bulkhead", Process([](const Tell& tell) { serve(false, {}, tell); })},
                {"this server, bulkheads", Process([](const Tell& tell) { serve(true, {}, tell); })}};
  for (Row& row : rows) wrk(row.server, 1);
  for (int i = 0; i < rounds; ++i) {
    for (int j = 0; j < 3; ++j) {  // another one first each time, so that none has the better place
      Row& row = rows[(i + j) % 3];
      const Speed speed = wrk(row.server, 1);
      row.rates.push_back(speed.per_second);
      row.costs.push_back(speed.cpu_us);
    }
    for (Row& row : rows) {
      row.ratios.push_back(row.rates.back() / rows[0].rates.back());
      row.cost_ratios.push_back(row.costs.back() / rows[0].costs.back());
    }
  }
  std::printf("GET of 100 bytes, wrk -t1 -c64, medians of %d rounds of 1 s; in brackets the quarters\n",
              rounds);
  std::printf("  %-28s %10s %24s %12s %14s\n", "", "requests/s", "over bare", "us CPU each", "over bare");
  for (Row& row : rows) {
    std::ranges::sort(row.ratios);
    const auto quarter = static_cast<std::size_t>(rounds / 4);
    std::printf("  %-28s %10.0f %10.2f [%5.2f %5.2f] %12.2f %14.2f\n", row.name, median(row.rates),
                median(row.ratios), row.ratios[quarter], row.ratios[row.ratios.size() - 1 - quarter],
                median(row.costs), median(row.cost_ratios));
  }
  const double ratio = median(rows[2].ratios);
  std::printf("  promised: with bulkheads at least 0.95 of the bare server: %s %.2f\n\n",
              ratio >= 0.95 ? "PASS" : "FAIL", ratio);
}

// ---- the storm ----

struct Shared {
  std::atomic<std::uint64_t> rejected{0};
};

using Serve = std::function<void(const Measures&, const Tell&)>;

// What one phase, quiet or storm, showed. `others` is how much of a core neither the server nor its clients used.
struct Phase {
  Latency ms;
  double rejected = 0, server = 0, clients = 0, others = 0;  // per second; of a core
};

Phase look(const Process& server, const Process& clients, const Shared& shared,
           std::chrono::milliseconds time) {
  const double busy = busy_seconds(), own = own_cpu_seconds();
  const double server_cpu = server.cpu_seconds(), clients_cpu = clients.cpu_seconds();
  const std::uint64_t rejected = shared.rejected.load();
  const auto began = std::chrono::steady_clock::now();
  Phase phase{.ms = measure(server.port, time)};
  const double s = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  phase.server = (server.cpu_seconds() - server_cpu) / s;
  phase.clients = (clients.cpu_seconds() - clients_cpu) / s;
  phase.rejected = static_cast<double>(shared.rejected.load() - rejected) / s;
  phase.others = (busy_seconds() - busy - (own_cpu_seconds() - own)) / s - phase.server - phase.clients;
  return phase;
}

struct Round {
  Phase quiet, storm;
  bool disturbed() const { return std::max(quiet.others, storm.others) > 0.35; }
};

// Quiet and storm in turn, on one server. Rounds in which others took more than a third of a core are repeated, as
// many again as were asked for; if they do not leave enough, they have to do.
std::vector<Round> alternate(const Serve& serve, const Measures& measures, int rounds,
                             std::chrono::milliseconds time) {
  void* const page =
      ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) std::abort();
  auto& shared = *new (page) Shared;
  std::vector<Round> clean, disturbed;
  {
    const Process server([&](const Tell& tell) { serve(measures, tell); });
    const Process clients([&](const Tell& tell) {
      if (::nice(5) == -1) std::abort();  // these are others' machines, and should not take the server's core
      tell(1);
      flood(server.port, 450, shared.rejected);
    });
    const auto settle = [&](bool pause) {
      clients.pause(pause);
      measure(server.port, time / 2);  // what is still on its way
    };
    const auto enough = static_cast<std::size_t>(rounds);
    while (clean.size() < enough && clean.size() + disturbed.size() < 2 * enough) {
      Round round;
      settle(true);
      round.quiet = look(server, clients, shared, time);
      settle(false);
      round.storm = look(server, clients, shared, time);
      (round.disturbed() ? disturbed : clean).push_back(round);
    }
  }
  ::munmap(page, sizeof(Shared));
  while (clean.size() < static_cast<std::size_t>(rounds) && !disturbed.empty()) {
    clean.push_back(disturbed.back());
    disturbed.pop_back();
  }
  return clean;
}

struct Spread {
  double low = 0, middle = 0, high = 0;  // the quarters
};

template <class Of>
Spread spread(const std::vector<Round>& rounds, Of of) {
  std::vector<double> values;
  for (const Round& round : rounds) values.push_back(of(round));
  std::ranges::sort(values);
  const std::size_t quarter = values.size() / 4;
  return {values[quarter], values[values.size() / 2], values[values.size() - 1 - quarter]};
}

struct Ratios {
  Spread p50, p90;
};

// The ratios, storm over quiet, within each round.
Ratios storm(const char* name, const Serve& serve, const Measures& measures, int rounds,
             std::chrono::milliseconds time) {
  const std::vector<Round> seen = alternate(serve, measures, rounds, time);
  const auto middle = [&](auto of) { return spread(seen, of).middle; };
  const Ratios over{spread(seen, [](const Round& r) { return r.storm.ms.p50 / r.quiet.ms.p50; }),
                    spread(seen, [](const Round& r) { return r.storm.ms.p90 / r.quiet.ms.p90; })};
  std::printf(
      "  %-28s %6.2f %6.2f   %6.2f %6.2f %6.2f   %5.2f [%5.2f %5.2f] %5.2f [%5.2f %5.2f]   %7.0f %6.0f %6.0f",
      name, middle([](const Round& r) { return r.quiet.ms.p50; }),
      middle([](const Round& r) { return r.quiet.ms.p90; }),
      middle([](const Round& r) { return r.storm.ms.p50; }),
      middle([](const Round& r) { return r.storm.ms.p90; }),
      middle([](const Round& r) { return r.storm.ms.p99; }), over.p50.middle, over.p50.low, over.p50.high,
      over.p90.middle, over.p90.low, over.p90.high, middle([](const Round& r) { return r.storm.rejected; }),
      middle([](const Round& r) { return r.storm.server; }) * 100,
      middle([](const Round& r) { return r.storm.clients; }) * 100);
  if (const auto disturbed = std::ranges::count_if(seen, &Round::disturbed))
    std::printf("   %td of %zu rounds disturbed by others", disturbed, seen.size());
  std::printf("\n");
  return over;
}

void promise(const char* server, const Ratios& over) {
  std::printf("  promised: %s as by default, at most 1.5 of quiet: p50 %s %.2f, p90 %s %.2f\n", server,
              over.p50.middle <= 1.5 ? "PASS" : "FAIL", over.p50.middle,
              over.p90.middle <= 1.5 ? "PASS" : "FAIL", over.p90.middle);
}

void storms(int rounds, std::chrono::milliseconds time) {
  std::printf(
      "/fast at 500 requests/s beside 450 clients who come back at once, ms, medians of %d rounds of %.1f "
      "s quiet and %.1f s storm; in brackets the quarters\n",
      rounds, static_cast<double>(time.count()) / 1000, static_cast<double>(time.count()) / 1000);
  std::printf("  %-28s %13s   %20s   %39s   %7s %13s\n", "", "quiet", "storm", "over quiet", "rejected",
              "% of a core");
  std::printf("  %-28s %6s %6s   %6s %6s %6s   %19s %19s   %7s %6s %6s\n", "", "p50", "p90", "p50", "p90",
              "p99", "p50", "p90", "per s", "server", "storm");
  const http::StormOptions none{.per_second = 0};
  const Serve beast = [](const Measures& measures, const Tell& tell) { serve(true, measures, tell); };
  storm("Beast: no measures", beast, {.storm = none, .rejected_per_round = 0}, rounds, time);
  storm("Beast: rejected come last", beast, {.storm = none}, rounds, time);
  storm("Beast: held", beast, {.rejected_per_round = 0}, rounds, time);
  const Ratios both = storm("Beast: held, rejected last", beast, {}, rounds, time);
#ifdef BULKHEAD_BENCH_HTTPLIB
  const Serve httplib = [](const Measures& measures, const Tell& tell) {
    serve_httplib(measures.storm, tell);
  };
  storm("cpp-httplib: no measures", httplib, {.storm = none}, rounds, time);
  const Ratios held = storm("cpp-httplib: held", httplib, {}, rounds, time);
#endif
  promise("Beast", both);
#ifdef BULKHEAD_BENCH_HTTPLIB
  promise("cpp-httplib", held);
#endif
}

}  // namespace
}  // namespace bulkhead::bench

int main(int argc, char** argv) {
  using namespace bulkhead::bench;
  using namespace std::chrono_literals;
  bool quick = false;
  int rounds = 15;
  std::string_view only;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--quick") {
      quick = true;
    } else if (argument == "--only" && i + 1 < argc) {
      only = argv[++i];
    } else if (argument == "--rounds" && i + 1 < argc) {
      rounds = std::max(1, std::atoi(argv[++i]));
    } else {
      const bool asked = argument == "--help" || argument == "-h";
      std::fputs(kUsage, asked ? stdout : stderr);
      return asked ? 0 : 2;
    }
  }
  if (!only.empty() && only != "throughput" && only != "storm") {
    std::fputs(kUsage, stderr);
    return 2;
  }
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  std::signal(SIGPIPE, SIG_IGN);
  if (only != "storm") throughput(quick ? 1 : rounds);
  if (only != "throughput") storms(quick ? 1 : rounds, quick ? 300ms : 800ms);
}
