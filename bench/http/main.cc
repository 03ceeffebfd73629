// What a bulkhead costs an HTTP server, and what a storm of refusals costs its neighbours.
//
//   bulkhead_http_bench [--quick]
//
// First the bare Beast server and the guarded one under wrk, in turn, on one core each; then the latency of /fast while 450
// clients ask for /slow, which has 50 places held for a second each, and come back at once after every 503: with the storm
// measures of the guard and without. Latency is counted from the moment a request was due, so that a late one is
// not forgiven. Every server is a process of its own.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/connect.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "bench/http/bare.h"

namespace bulkhead::bench {
namespace {

namespace asio = boost::asio;
namespace wire = boost::beast::http;
using namespace std::chrono_literals;
using std::chrono::steady_clock;

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

// A process that serves; its port. It ends with this one.
class Process {
 public:
  template <class F>
  explicit Process(F body) {
    int ends[2];
    if (::pipe(ends) != 0) std::abort();
    child_ = ::fork();
    if (child_ == 0) {
      ::close(ends[0]);
      body([&](std::uint16_t its) { [[maybe_unused]] const auto n = ::write(ends[1], &its, sizeof its); });
      ::_exit(0);
    }
    ::close(ends[1]);
    [[maybe_unused]] const auto n = ::read(ends[0], &port, sizeof port);
    ::close(ends[0]);
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  ~Process() {
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
  }
  std::uint16_t port = 0;

 private:
  pid_t child_;
};

void serve_bare(auto tell) {
  BareServer server(answer);
  tell(server.port());
  server.run();
}

void serve_guarded(const http::StormOptions& storm, bool last, auto tell) {
  Registry registry;
  registry.add({.options = {.name = "slow", .max_concurrent = 50, .max_queue = 0}});
  registry.add({.options = {.name = "fast", .max_concurrent = 256, .max_queue = 256}});
  http::Guard guard(
      registry,
      {.routes = {{.path = "/slow", .bulkhead = "slow"}, {.path = "/", .bulkhead = "fast"}}, .storm = storm});
  beast::Server server(guard, {.session = {.refused_last = last}}, beast::Handler(answer));
  tell(server.port());
  server.run();
}

double wrk(std::uint16_t port, int seconds) {
  const std::string command = "wrk -t1 -c64 -d" + std::to_string(seconds) +
                              "s http://127.0.0.1:" + std::to_string(port) + "/fast 2>&1";
  FILE* out = ::popen(command.c_str(), "r");
  char line[256];
  double rate = 0;
  while (std::fgets(line, sizeof line, out)) std::sscanf(line, "Requests/sec: %lf", &rate);
  ::pclose(out);
  return rate;
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

void compare(int rounds, int seconds) {
  Process bare([](auto tell) { serve_bare(tell); });
  Process guarded([](auto tell) { serve_guarded({}, true, tell); });
  std::vector<double> plain, ours, ratios;
  for (int i = 0; i < rounds; ++i) {  // the order changes, so that neither has the better place
    double b = 0, g = 0;
    if (i % 2) g = wrk(guarded.port, seconds);
    b = wrk(bare.port, seconds);
    if (!(i % 2)) g = wrk(guarded.port, seconds);
    plain.push_back(b);
    ours.push_back(g);
    ratios.push_back(g / b);
  }
  std::ranges::sort(ratios);
  std::printf("requests per second, wrk -t1 -c64, medians of %d rounds of %d s\n", rounds, seconds);
  std::printf("  bare Beast server     %8.0f\n  with bulkheads        %8.0f\n", median(plain), median(ours));
  std::printf("  ratio                 %8.2f   (%.2f to %.2f; target 0.95)\n\n", median(ratios),
              ratios.front(), ratios.back());
}

// ---- the storm ----

asio::awaitable<bool> ask(boost::beast::tcp_stream& stream, boost::beast::flat_buffer& buffer,
                          const char* target) {
  wire::request<wire::empty_body> request(wire::verb::get, target, 11);
  request.set(wire::field::host, "x");
  boost::beast::error_code error;
  co_await wire::async_write(stream, request, asio::redirect_error(asio::use_awaitable, error));
  wire::response<wire::string_body> response;
  if (!error)
    co_await wire::async_read(stream, buffer, response, asio::redirect_error(asio::use_awaitable, error));
  co_return !error;
}

asio::awaitable<void> flood(std::uint16_t port) {
  boost::beast::tcp_stream stream(co_await asio::this_coro::executor);
  co_await stream.async_connect(asio::ip::tcp::endpoint(asio::ip::make_address("127.0.0.1"), port),
                                asio::use_awaitable);
  boost::beast::flat_buffer buffer;
  while (co_await ask(stream, buffer, "/slow")) {
  }
}

asio::awaitable<void> probe(std::uint16_t port, steady_clock::time_point first, steady_clock::duration every,
                            steady_clock::time_point end, std::vector<double>& ms) {
  boost::beast::tcp_stream stream(co_await asio::this_coro::executor);
  co_await stream.async_connect(asio::ip::tcp::endpoint(asio::ip::make_address("127.0.0.1"), port),
                                asio::use_awaitable);
  boost::beast::flat_buffer buffer;
  asio::steady_timer timer(co_await asio::this_coro::executor);
  for (auto due = first; due < end; due += every) {
    timer.expires_at(due);
    co_await timer.async_wait(asio::use_awaitable);
    if (!co_await ask(stream, buffer, "/fast")) co_return;
    ms.push_back(std::chrono::duration<double, std::milli>(steady_clock::now() - due).count());
  }
}

struct Latency {
  double p50, p90, p99;
};

Latency measure(std::uint16_t port, std::chrono::milliseconds time) {
  constexpr int kConnections = 16;
  constexpr auto kEvery = 32ms;  // each: 500 requests per second
  asio::io_context io{1};
  std::vector<double> ms;
  const auto begin = steady_clock::now() + 20ms;
  for (int i = 0; i < kConnections; ++i)
    asio::co_spawn(io, probe(port, begin + kEvery * i / kConnections, kEvery, begin + time, ms),
                   asio::detached);
  io.run();
  std::ranges::sort(ms);
  const auto at = [&](double q) {
    return ms.empty() ? 0 : ms[static_cast<std::size_t>(q * static_cast<double>(ms.size() - 1))];
  };
  return {at(0.5), at(0.9), at(0.99)};
}

void storm(const char* name, const http::StormOptions& options, bool last, std::chrono::milliseconds time) {
  Process server([&](auto tell) { serve_guarded(options, last, tell); });
  measure(server.port, time / 4);
  const Latency quiet = measure(server.port, time);
  Process clients([&](auto tell) {
    if (::nice(5) == -1) tell(0);  // the storm is others' machines: it should not take the server's core
    asio::io_context io{1};
    for (int i = 0; i < 450; ++i) asio::co_spawn(io, flood(server.port), asio::detached);
    tell(1);
    io.run();
  });
  measure(server.port, time / 4);
  const Latency stormy = measure(server.port, time);
  std::printf("  %-28s %6.2f %6.2f %6.2f   %7.2f %7.2f %7.2f   %5.2fx %5.2fx\n", name, quiet.p50, quiet.p90,
              quiet.p99, stormy.p50, stormy.p90, stormy.p99, stormy.p50 / quiet.p50, stormy.p90 / quiet.p90);
}

}  // namespace
}  // namespace bulkhead::bench

int main(int argc, char** argv) {
  using namespace bulkhead::bench;
  using namespace std::chrono_literals;
  const bool quick = argc > 1 && std::strcmp(argv[1], "--quick") == 0;
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  std::signal(SIGPIPE, SIG_IGN);
  compare(quick ? 1 : 9, quick ? 1 : 3);
  const auto time = quick ? 400ms : 4000ms;
  std::printf(
      "/fast at 500 requests/s, ms     quiet: p50    p90    p99   storm: p50     p90     p99   p50    p90 "
      "(target 1.5x)\n");
  storm("no measures", {.per_second = 0}, false, time);
  storm("refused served last", {.per_second = 0}, true, time);
  storm("held", {}, false, time);
  storm("held, refused served last", {}, true, time);
}
