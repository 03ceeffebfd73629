// Handlers, for event loops: called exactly once, at once if there is room, else when it is their turn.
#include <bulkhead/gate.h>

#include <cstdio>

using namespace std::chrono_literals;

int main() {
  bulkhead::Gate gate{{.name = "mail", .max_concurrent = 1, .max_queue = 10}};
  const auto show = [](bulkhead::Result<bulkhead::Permit> permit) {
    std::puts(permit ? "sent" : permit.error().message().c_str());
  };
  gate.async_acquire({}, show);  // at once

  auto permit = gate.acquire();
  gate.async_acquire({.timeout = 10ms}, show);  // times out on the library's timer thread
  std::stop_source stop;
  gate.async_acquire({.stop = stop.get_token()}, show);
  stop.request_stop();  // cancelled: leaves the line at once
  gate.drain(std::chrono::steady_clock::now() + 50ms);
}
