#include "server.h"

#include <atomic>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/strand.hpp>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/text.h"
#include "listener.h"
#include "session.h"

namespace bulkhead::beast {
namespace asio = boost::asio;
using asio::ip::tcp;

namespace {

// The coroutine owns the objects that its session refers to.
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
        strand(asio::make_strand(io)),
        listener(listening(), open,
                 {.has_room = [this] { return open.connections() < options.max_connections; },
                  .executor = [this] { return executor(); },
                  .serve =
                      [this](tcp::socket socket) {
                        const auto where = socket.get_executor();
                        asio::co_spawn(where, connection(std::move(socket), open.connection()),
                                       asio::detached);
                      },
                  .failed = [this](const auto& error, bool again) { fail(error, again); }}) {
    options.session.drain = draining.get_token();
  }

  tcp::acceptor listening() {
    tcp::acceptor acceptor(strand);
    boost::system::error_code error;
    listen_on(acceptor, options.address, options.port, error);
    if (error || options.threads == 0)
      base::throw_invalid(
          base::join({"http server: cannot listen on ", options.address, ":", std::to_string(options.port),
                      ": ", error ? error.message() : std::string("threads = 0, give 1 or more")}));
    return acceptor;
  }

  asio::any_io_executor executor() {
    if (options.threads == 1) return io.get_executor();
    return asio::make_strand(io);
  }

  // Calls the hook once for each time that accepting begins to fail.
  void fail(const boost::system::error_code& error, bool again) noexcept {
    ++accept_failures;
    if (again || !options.on_accept_failure) return;
    try {
      options.on_accept_failure(base::join({"http server: cannot accept connections on port ",
                                            std::to_string(listener.port()), ": ", error.message()}));
    } catch (...) {  // an exception of the hook must not end accepting
    }
  }

  asio::awaitable<void> connection(tcp::socket socket, OpenConnections::Token) {
    Session session(std::move(socket), guard, handler, options.session);
    co_await session.run();
  }

  http::Guard& guard;
  ServerOptions options;
  const AnyHandler handler;
  std::atomic<std::uint64_t> accept_failures{0};
  std::atomic<std::uint32_t> threads{0};
  std::stop_source draining;
  detail::StdMutex mutex;  // orders run() and drain()
  bool running BULKHEAD_GUARDED_BY(mutex) = false;
  OpenConnections open;
  asio::io_context io;
  asio::strand<asio::io_context::executor_type> strand;  // of the listener
  Listener<tcp> listener;
};

Server::Server(http::Guard& guard, ServerOptions options, Handler handler)
    : state_(std::make_unique<State>(guard, std::move(options), std::move(handler))) {}
Server::Server(http::Guard& guard, ServerOptions options, BlockingHandler handler)
    : state_(std::make_unique<State>(guard, std::move(options), std::move(handler))) {}
Server::~Server() { stop(); }

std::uint16_t Server::port() const noexcept { return state_->listener.port(); }
std::uint32_t Server::connections() const noexcept { return state_->open.connections(); }
std::uint32_t Server::threads() const noexcept { return state_->threads; }
std::uint64_t Server::accept_failures() const noexcept { return state_->accept_failures; }

void Server::run() {
  State& s = *state_;
  {
    const detail::MutexLock lock(s.mutex);
    if (s.draining.stop_requested()) return;
    s.running = true;
    asio::co_spawn(s.strand, s.listener.run(), asio::detached);
  }
  std::vector<std::jthread> others;
  s.threads = 1;
  try {
    for (std::uint32_t i = 1; i < s.options.threads; ++i, ++s.threads)
      others.emplace_back([&s] { s.io.run(); });
  } catch (const std::system_error&) {  // the system has no more
  }
  s.io.run();
}

bool Server::drain(TimePoint until) {
  State& s = *state_;
  {
    const detail::MutexLock lock(s.mutex);
    if (s.draining.request_stop() && !s.running) s.listener.close();
  }
  asio::post(s.strand, [&s] { s.listener.drain(); });
  return s.open.wait(until);
}

void Server::stop() noexcept {
  state_->io.stop();
  state_->open.stop_waiting();
}

}  // namespace bulkhead::beast
