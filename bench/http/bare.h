// bare.h - the smallest Beast server that does what the guarded one does, but for the bulkheads.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/write.hpp>
#include <chrono>

#include "adapters/beast/server.h"

namespace bulkhead::bench {

class BareServer {
 public:
  explicit BareServer(beast::Handler handler)
      : handler_(std::move(handler)), acceptor_(io_, {boost::asio::ip::make_address("127.0.0.1"), 0}) {}
  std::uint16_t port() const { return acceptor_.local_endpoint().port(); }
  void run() {
    boost::asio::co_spawn(io_, accept(), boost::asio::detached);
    io_.run();
  }

 private:
  boost::asio::awaitable<void> accept() {
    for (;;) {
      auto socket = co_await acceptor_.async_accept(boost::asio::use_awaitable);
      boost::asio::co_spawn(io_, serve(std::move(socket)), boost::asio::detached);
    }
  }
  boost::asio::awaitable<void> serve(boost::asio::ip::tcp::socket socket) {
    namespace wire = boost::beast::http;
    boost::beast::tcp_stream stream(std::move(socket));
    stream.socket().set_option(boost::asio::ip::tcp::no_delay(true));
    boost::beast::flat_buffer buffer;
    beast::Context context;
    boost::beast::error_code error;
    for (;;) {
      wire::request_parser<wire::string_body> parser;
      parser.header_limit(8192);
      parser.body_limit(1 << 20);
      stream.expires_after(std::chrono::seconds(30));
      co_await wire::async_read(stream, buffer, parser,
                                boost::asio::redirect_error(boost::asio::use_awaitable, error));
      if (error) co_return;
      const beast::Request request = parser.release();
      beast::Response response = co_await handler_(request, context);
      stream.expires_after(std::chrono::seconds(30));
      co_await wire::async_write(stream, response,
                                 boost::asio::redirect_error(boost::asio::use_awaitable, error));
      if (error || !response.keep_alive()) co_return;
    }
  }

  beast::Handler handler_;
  boost::asio::io_context io_{1};
  boost::asio::ip::tcp::acceptor acceptor_;
};

}  // namespace bulkhead::bench
