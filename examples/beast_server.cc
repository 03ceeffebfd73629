// A complete server on Boost.Beast: a shop and its reports, each in its own compartment.
//
//   example_beast_server [port]        prints the port, serves until SIGINT or SIGTERM
//   example_beast_server --check       asks itself one question and ends
#include <bulkhead/adapters/beast/server.h>

#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/write.hpp>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <thread>

#include "shop.h"

namespace asio = boost::asio;
namespace wire = boost::beast::http;
using bulkhead::beast::Context;
using bulkhead::beast::Request;
using bulkhead::beast::Response;
using namespace std::chrono_literals;

Response reply(std::string body) {
  Response r(wire::status::ok, 11);
  r.set(wire::field::content_type, "text/plain");
  r.body() = std::move(body);
  r.prepare_payload();
  return r;
}

// The number behind the last '/': how many milliseconds, or bytes.
std::size_t number_in(const Request& request) {
  const std::string target(request.target());
  return std::strtoul(target.c_str() + target.rfind('/') + 1, nullptr, 10);
}

asio::awaitable<Response> handle(const Request& request, Context& context) {
  if (request.target().starts_with("/reports/")) {  // a slow dependency
    const std::stop_token stop = context.stop();    // stop early when the client has gone
    asio::steady_timer pause(co_await asio::this_coro::executor);
    for (std::size_t ms = number_in(request); ms > 0 && !stop.stop_requested(); --ms) {
      pause.expires_after(1ms);
      co_await pause.async_wait(asio::use_awaitable);
    }
    co_return reply("the report\n");
  }
  if (request.target().starts_with("/large/")) co_return reply(std::string(number_in(request), 'x'));
  co_return reply("hello\n");
}

int main(int argc, char** argv) {
  Shop shop;

  const bool check = argc > 1 && std::string_view(argv[1]) == "--check";
  const auto port = static_cast<std::uint16_t>(argc > 1 && !check ? std::atoi(argv[1]) : 0);
  bulkhead::beast::Server server(shop.guard, {.port = port, .threads = 2}, handle);
  std::printf("listening on http://127.0.0.1:%d\n", server.port());
  std::fflush(stdout);

  asio::io_context signals;
  asio::signal_set ends(signals, SIGINT, SIGTERM);
  ends.async_wait([&](boost::system::error_code error, int) {
    // What runs and what waits in line is answered first.
    if (!error && !server.drain(std::chrono::steady_clock::now() + 20s)) server.stop();
  });
  std::thread watching([&] { signals.run(); });
  if (check) {
    std::thread serving([&] { server.run(); });
    boost::beast::tcp_stream client(signals);
    client.connect({asio::ip::make_address("127.0.0.1"), server.port()});
    wire::request<wire::empty_body> question(wire::verb::get, "/", 11);
    question.set(wire::field::host, "localhost");
    wire::write(client, question);
    boost::beast::flat_buffer buffer;
    wire::response<wire::string_body> answer;
    wire::read(client, buffer, answer);
    std::printf("%u %s", answer.result_int(), answer.body().c_str());
    server.stop();
    serving.join();
  } else {
    server.run();
  }
  signals.stop();
  watching.join();
}
