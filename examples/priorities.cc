// A fifth of the gate is reserved for critical calls, and they are admitted first. When the queue is full, they replace
// best-effort calls.
#include <bulkhead/gate.h>

#include <cstdio>
#include <vector>

using bulkhead::Priority;

int main() {
  bulkhead::Gate gate{{.name = "api", .max_concurrent = 5, .max_queue = 2, .critical_reserve = 0.2}};
  std::vector<bulkhead::Permit> permits;
  while (auto permit = gate.try_acquire()) permits.push_back(*std::move(permit));
  std::printf("%zu of 5 for normal calls\n", permits.size());
  const auto critical = gate.try_acquire({.priority = Priority::critical});
  std::printf("critical call: %s\n", critical ? "admitted" : "rejected");

  const auto tell = [](const char* who) {
    return [who](const bulkhead::Result<bulkhead::Permit>& permit) {
      std::printf("%s: %s\n", who, permit ? "admitted" : to_string(permit.error().reason).data());
    };
  };
  gate.async_acquire({.priority = Priority::best_effort}, tell("report"));
  gate.async_acquire({}, tell("page"));
  gate.async_acquire({.priority = Priority::critical}, tell("payment"));  // evicts the report
  permits.clear();                                                        // payment first, then page
}
