// A gate of 2 for a database; further calls are rejected with the reason and the numbers.
#include <bulkhead/gate.h>

#include <cstdio>

using namespace std::chrono_literals;

int main() {
  bulkhead::Gate db{{.name = "db", .max_concurrent = 2, .max_queue = 8}};

  auto first = db.acquire();   // Result<Permit>: the place is free again when the permit is destroyed
  auto second = db.acquire();  // both places are taken now
  auto third = db.acquire({.timeout = 20ms});
  if (!third) std::puts(third.error().message().c_str());

  first->release();
  const bulkhead::Result<int> rows = db.run([] { return 42; });  // acquire, call, release, also on a throw
  std::printf("%d rows\n", rows.value());
}
