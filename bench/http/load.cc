#include "bench/http/load.h"

#include <algorithm>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace bulkhead::bench {
namespace {

namespace asio = boost::asio;
using namespace std::chrono_literals;
using asio::ip::tcp;
using std::chrono::steady_clock;

// As little as can be: the clients share the machine with what is measured.
class Client {
 public:
  explicit Client(asio::any_io_executor executor) : socket_(std::move(executor)) {}

  asio::awaitable<void> connect(std::uint16_t port) {
    co_await socket_.async_connect({asio::ip::make_address("127.0.0.1"), port}, asio::use_awaitable);
    socket_.set_option(tcp::no_delay(true));
  }
  // The status; 0: the connection has ended.
  asio::awaitable<int> ask(std::string_view request) {
    boost::system::error_code error;
    co_await asio::async_write(socket_, asio::buffer(request),
                               asio::redirect_error(asio::use_awaitable, error));
    for (std::size_t size = 0; !error;) {
      size += co_await socket_.async_read_some(asio::buffer(text_ + size, sizeof text_ - size),
                                               asio::redirect_error(asio::use_awaitable, error));
      if (complete({text_, size})) {
        stays_ = std::string_view(text_, size).find("Connection: close") == std::string_view::npos;
        co_return (text_[9] - '0') * 100 + (text_[10] - '0') * 10 + text_[11] - '0';
      }
    }
    stays_ = false;
    co_return 0;
  }
  bool stays() const { return stays_; }  // the connection can be asked again

 private:
  static bool complete(std::string_view text) {
    const std::size_t head = text.find("\r\n\r\n");
    if (head == std::string_view::npos) return false;
    const std::size_t length = text.find("Content-Length: ");
    if (length > head) return true;
    return text.size() >= head + 4 + std::stoul(std::string(text.substr(length + 16, 8)));
  }
  tcp::socket socket_;
  bool stays_ = true;
  char text_[4096];
};

asio::awaitable<void> insist(std::uint16_t port, std::atomic<std::uint64_t>& rejected) {
  for (;;) {
    Client client(co_await asio::this_coro::executor);
    co_await client.connect(port);
    while (client.stays())
      if (co_await client.ask("GET /slow HTTP/1.1\r\nHost: x\r\n\r\n") == 503)
        rejected.fetch_add(1, std::memory_order_relaxed);  // a counter
  }
}

asio::awaitable<void> probe(std::uint16_t port, steady_clock::time_point first, steady_clock::duration every,
                            steady_clock::time_point end, std::vector<double>& ms) {
  Client client(co_await asio::this_coro::executor);
  co_await client.connect(port);
  asio::steady_timer timer(co_await asio::this_coro::executor);
  for (auto due = first; due < end; due += every) {
    timer.expires_at(due);
    co_await timer.async_wait(asio::use_awaitable);
    if (co_await client.ask("GET /fast HTTP/1.1\r\nHost: x\r\n\r\n") != 200) co_return;
    ms.push_back(std::chrono::duration<double, std::milli>(steady_clock::now() - due).count());
  }
}

}  // namespace

Latency measure(std::uint16_t port, std::chrono::milliseconds time) {
  constexpr int kConnections = 16;
  constexpr auto kEvery = 32ms;
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

void flood(std::uint16_t port, int clients, std::atomic<std::uint64_t>& rejected) {
  asio::io_context io{1};
  for (int i = 0; i < clients; ++i) asio::co_spawn(io, insist(port, rejected), asio::detached);
  io.run();
}

}  // namespace bulkhead::bench
