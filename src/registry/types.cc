#include "registry/types.h"

#include <chrono>

namespace bulkhead::registry {

std::vector<std::pair<std::string, BulkheadOptions>> built_in_types() {
  using std::chrono::seconds;
  return {{"database", {.max_concurrent = 20, .max_queue = 50, .max_wait = seconds(5)}},
          {"external-api", {.max_concurrent = 10, .max_queue = 20, .max_wait = seconds(10)}},
          {"cache", {.max_concurrent = 50, .max_queue = 100, .max_wait = seconds(1)}}};
}

}  // namespace bulkhead::registry
