// The consumer that `conan create` builds and runs.
#include <bulkhead/gate.h>

#include <cstdio>

int main() {
  bulkhead::Gate gate{{.name = "db", .max_concurrent = 1}};
  auto first = gate.acquire();
  auto second = gate.try_acquire();
  if (!first || second) return 1;
  std::puts(second.error().message().c_str());
  return gate.snapshot().in_flight == 1 ? 0 : 1;
}
