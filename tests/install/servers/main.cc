// Three servers as a stranger uses them, and the clock that comes with Asio: each is made, listens, and ends.
#include <bulkhead/adapters/asio/asio_clock.h>
#include <bulkhead/adapters/beast/server.h>
#include <bulkhead/control/server.h>

#include <boost/asio/io_context.hpp>
#include <cstdio>

int httplib_port(bulkhead::http::Guard& guard);

int main() {
  boost::asio::io_context io;
  bulkhead::AsioClock clock(io.get_executor());
  bulkhead::Registry registry;
  registry.add({.options = {.name = "shop", .max_concurrent = 4, .clock = &clock}});
  bulkhead::http::Guard guard(registry, {.routes = {{.path = "/", .bulkhead = "shop"}}});
  bulkhead::beast::Server beast(guard, {}, [](const bulkhead::beast::Request&, bulkhead::beast::Context&) {
    return bulkhead::beast::Response();
  });
  beast.stop();
  beast.run();
  const bulkhead::control::Server control(registry, {.unix_socket = "", .listen = "127.0.0.1:0"});
  const int httplib = httplib_port(guard);
  std::printf("beast on %u, cpp-httplib on %d, control on %s\n", beast.port(), httplib,
              control.url().c_str());
  return beast.port() != 0 && httplib > 0 && !control.url().empty() ? 0 : 1;
}
