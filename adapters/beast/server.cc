#include "server.h"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <thread>
#include <vector>

#include "base/text.h"
#include "session.h"

namespace bulkhead::beast {
namespace asio = boost::asio;
using asio::ip::tcp;

namespace {

// The coroutine owns what its session refers to.
asio::awaitable<void> serve_any(tcp::socket socket, http::Guard& guard, AnyHandler handler,
                                SessionOptions options) {
  Session session(std::move(socket), guard, handler, options);
  co_await session.run();
}

}  // namespace

asio::awaitable<void> serve(tcp::socket socket, http::Guard& guard, Handler handler, SessionOptions options) {
  return serve_any(std::move(socket), guard, std::move(handler), options);
}
asio::awaitable<void> serve(tcp::socket socket, http::Guard& guard, BlockingHandler handler,
                            SessionOptions options) {
  return serve_any(std::move(socket), guard, std::move(handler), options);
}

struct Server::State {
  State(http::Guard& g, ServerOptions o, AnyHandler h)
      : guard(g),
        options(std::move(o)),
        handler(std::move(h)),
        io(static_cast<int>(options.threads)),
        acceptor(io) {
    boost::system::error_code error;
    const auto address = asio::ip::make_address(options.address, error);
    const tcp::endpoint endpoint(address, options.port);
    if (!error) acceptor.open(endpoint.protocol(), error);
    if (!error) acceptor.set_option(asio::socket_base::reuse_address(true), error);
    if (!error) acceptor.bind(endpoint, error);
    if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
    if (error || options.threads == 0)
      base::throw_invalid(
          base::join({"http server: cannot listen on ", options.address, ":", std::to_string(options.port),
                      ": ", error ? error.message() : std::string("threads = 0, give 1 or more")}));
    port = acceptor.local_endpoint().port();
  }

  asio::any_io_executor executor() {
    if (options.threads == 1) return io.get_executor();
    return asio::make_strand(io);
  }

  asio::awaitable<void> accept() {
    asio::steady_timer pause(io);
    boost::system::error_code error;
    for (;;) {
      while (connections.load() >= options.max_connections || error) {  // no room, or no file descriptors
        pause.expires_after(std::chrono::milliseconds(5));
        co_await pause.async_wait(asio::redirect_error(asio::use_awaitable, error));
        error.clear();
      }
      tcp::socket socket =
          co_await acceptor.async_accept(executor(), asio::redirect_error(asio::use_awaitable, error));
      if (error) continue;
      const auto where = socket.get_executor();
      asio::co_spawn(where, connection(std::move(socket)), asio::detached);
    }
  }

  asio::awaitable<void> connection(tcp::socket socket) {
    struct Counted {
      std::atomic<std::uint32_t>& n;
      explicit Counted(std::atomic<std::uint32_t>& count) : n(count) { ++n; }
      Counted(const Counted&) = delete;
      Counted& operator=(const Counted&) = delete;
      ~Counted() { --n; }
    };
    const Counted counted(connections);
    Session session(std::move(socket), guard, handler, options.session);
    co_await session.run();
  }

  http::Guard& guard;
  const ServerOptions options;
  const AnyHandler handler;
  std::atomic<std::uint32_t> connections{0};
  asio::io_context io;
  tcp::acceptor acceptor;
  std::uint16_t port = 0;
};

Server::Server(http::Guard& guard, ServerOptions options, Handler handler)
    : state_(std::make_unique<State>(guard, std::move(options), std::move(handler))) {}
Server::Server(http::Guard& guard, ServerOptions options, BlockingHandler handler)
    : state_(std::make_unique<State>(guard, std::move(options), std::move(handler))) {}
Server::~Server() { stop(); }

std::uint16_t Server::port() const noexcept { return state_->port; }
std::uint32_t Server::connections() const noexcept { return state_->connections; }

void Server::run() {
  State& s = *state_;
  asio::co_spawn(s.io, s.accept(), asio::detached);
  std::vector<std::jthread> others;
  for (std::uint32_t i = 1; i < s.options.threads; ++i) others.emplace_back([&s] { s.io.run(); });
  s.io.run();
}

void Server::stop() noexcept { state_->io.stop(); }

}  // namespace bulkhead::beast
