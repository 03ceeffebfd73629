// One compartment, many tenants: the line is fair between them, so a noisy one waits behind itself.
#include <bulkhead/gate.h>

#include <cstdio>
#include <deque>

int main() {
  bulkhead::Gate gate{{.name = "search", .max_concurrent = 1, .max_queue = 100, .flow_queues = 64}};
  std::deque<bulkhead::Permit> running;
  const auto ask = [&](const char* tenant) {
    gate.async_acquire({.flow = bulkhead::flow_of(tenant)}, [&running, tenant](auto permit) {
      if (!permit) return;
      std::printf("%s ", tenant);
      running.push_back(*std::move(permit));
    });
  };
  for (int i = 0; i < 50; ++i) ask("noisy");
  ask("quiet");  // fifty came before it
  for (int i = 0; i < 9; ++i) running.pop_front();
  std::printf("...\nquiet had to wait for a few, not for all\n");
  gate.close();
  running.clear();
}
