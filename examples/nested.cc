// Gates at every layer compose: all or nothing; and a function can carry its gate with it.
#include <bulkhead/compose.h>

#include <cstdio>

int main() {
  bulkhead::Gate process{{.name = "process", .max_concurrent = 100}};
  bulkhead::Gate database{{.name = "database", .max_concurrent = 1}};

  const auto held = database.acquire();
  const auto both = bulkhead::acquire_all({}, process, database);
  if (!both) std::puts(both.error().message().c_str());
  std::printf("left in process: %u\n", process.snapshot().in_flight);  // 0: it was given back

  auto length = bulkhead::wrap(process, [](const char* text) { return std::string_view(text).size(); });
  std::printf("%zu\n", length("protected everywhere").value());
}
