// Bulkheads by name, from types, and one for each tenant.
#include <bulkhead/registry.h>

#include <cstdio>
#include <string>

int main() {
  bulkhead::Registry registry;
  registry.add({.options = {.name = "payments", .max_concurrent = 20, .max_queue = 40},
                .criticality = bulkhead::Priority::critical});
  auto users = registry.get_or_create("users", "database");  // 20 at once, 50 in line, 5 s
  if (users->execute([] { return 42; }) != 42) return 1;

  registry.resize("payments", 30);  // the same object: calls and counters stay

  registry.define_tenants({.name = "orders", .each = {.max_concurrent = 4}, .max_tenants = 2});
  for (const std::string customer : {"acme", "zenith", "stranger"})
    if (auto own = registry.tenant("orders", customer)) (void)(*own)->execute([] {});

  for (const auto& entry : registry.snapshot().bulkheads)
    std::printf("%-14s %2u at once, %llu calls\n", entry.name.c_str(), entry.configured.max_concurrent,
                static_cast<unsigned long long>(entry.now.gate.admitted));
  const auto tenants = registry.snapshot().tenants.at(0);
  return tenants.live == 2 && tenants.overflowed == 1 ? 0 : 1;
}
