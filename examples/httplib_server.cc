// A complete server on cpp-httplib: a shop and its reports, each in its own compartment.
//
//   example_httplib_server [port]      prints the port, serves until SIGINT or SIGTERM
//   example_httplib_server --check     asks itself one question and ends
#include <bulkhead/adapters/httplib/server.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <thread>

#include "shop.h"

using namespace std::chrono_literals;
using bulkhead::httplib::Server;

int main(int argc, char** argv) {
  Shop shop;

  Server server(shop.guard);
  server.Get("/", [](const auto&, auto& response) { response.set_content("hello\n", "text/plain"); });
  server.Get(R"(/reports/(\d+))", [](const auto& request, auto& response) {  // a slow dependency
    const std::stop_token stop = Server::stop_token();  // stop early when the client has gone
    for (int ms = std::atoi(request.matches[1].str().c_str()); ms > 0 && !stop.stop_requested(); --ms)
      std::this_thread::sleep_for(1ms);
    response.set_content("the report\n", "text/plain");
  });
  server.Get(R"(/large/(\d+))", [](const auto& request, auto& response) {
    response.set_content(std::string(std::strtoul(request.matches[1].str().c_str(), nullptr, 10), 'x'),
                         "text/plain");
  });

  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGINT);
  sigaddset(&ends, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &ends, nullptr);  // before there are other threads

  const bool check = argc > 1 && std::string_view(argv[1]) == "--check";
  int port = argc > 1 && !check ? std::atoi(argv[1]) : 0;
  if (port == 0)
    port = server.bind_to_any_port("127.0.0.1");
  else
    server.bind_to_port("127.0.0.1", port);
  std::printf("listening on http://127.0.0.1:%d\n", port);
  std::fflush(stdout);
  std::thread serving([&] { server.listen_after_bind(); });
  if (check) {
    httplib::Client client("127.0.0.1", port);
    const auto answer = client.Get("/");
    std::printf("%d %s", answer ? answer->status : 0, answer ? answer->body.c_str() : "no answer\n");
  } else {
    int signal = 0;
    sigwait(&ends, &signal);
  }
  // What runs and what waits in line is answered first.
  if (!server.drain(std::chrono::steady_clock::now() + 20s)) server.stop();
  serving.join();
}
