// A service that people can see and change while it runs: the dashboard, the REST interface and the commands.
//
//   example_control_plane            until Enter
//   example_control_plane --check    for a hundred calls
#include <bulkhead/control/server.h>
#include <bulkhead/registry.h>

#include <chrono>
#include <cstdio>
#include <stop_token>
#include <thread>
#include <vector>

using namespace std::chrono_literals;

int main(int argc, char**) {
  bulkhead::Registry registry;
  const auto payments =
      registry.add({.options = {.name = "payments", .max_concurrent = 4, .max_queue = 8, .max_wait = 100ms}});

  const bulkhead::control::Server admin(registry, {.unix_socket = "shop.sock", .listen = "127.0.0.1:0"});
  std::printf("open    %s/ui/\n", admin.url().c_str());
  std::printf("type    bulkhead top --admin ./shop.sock\n");
  std::printf("        bulkhead set payments --max-concurrent 2 --reason \"a try\" --admin ./shop.sock\n");

  std::vector<std::jthread> clients;
  for (int i = 0; i < 6; ++i)
    clients.emplace_back([&payments](const std::stop_token& stop) {
      while (!stop.stop_requested())
        static_cast<void>(payments->execute([] { std::this_thread::sleep_for(5ms); }));
    });
  if (argc == 1)
    std::getchar();
  else
    while (payments->snapshot().gate.admitted < 100) std::this_thread::sleep_for(1ms);
}  // the clients end first, then the control plane, then the bulkheads
