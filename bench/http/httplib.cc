#include "bench/http/httplib.h"

#include <chrono>
#include <string>
#include <thread>

#include "adapters/httplib/server.h"

namespace bulkhead::bench {

void serve_httplib(const http::StormOptions& storm, const std::function<void(std::uint16_t)>& tell) {
  Registry registry;
  registry.add({.options = {.name = "slow", .max_concurrent = 50}});
  registry.add({.options = {.name = "fast", .max_concurrent = 256, .max_queue = 256}});
  http::Guard guard(
      registry,
      {.routes = {{.path = "/slow", .bulkhead = "slow"}, {.path = "/", .bulkhead = "fast"}}, .storm = storm});
  bulkhead::httplib::Server server(guard);
  server.Get("/slow", [](const auto&, auto& response) {
    std::this_thread::sleep_for(std::chrono::seconds(1));
    response.set_content(std::string(100, 'x'), "text/plain");
  });
  server.Get("/fast",
             [](const auto&, auto& response) { response.set_content(std::string(100, 'x'), "text/plain"); });
  tell(static_cast<std::uint16_t>(server.bind_to_any_port("127.0.0.1")));
  server.listen_after_bind();
}

}  // namespace bulkhead::bench
