// shop.h - the compartments and routes of the example servers: a shop, and its reports.
#pragma once

#include <bulkhead/http_guard.h>

#include <chrono>

struct Shop {
  bulkhead::Registry registry;
  bulkhead::http::Guard guard;

  Shop()
      : guard(
            filled(),
            {.routes = {{.path = "/reports", .bulkhead = "reports", .max_timeout = std::chrono::seconds(30)},
                        {.path = "/", .bulkhead = "shop"}}}) {}

 private:
  bulkhead::Registry& filled() {
    using std::chrono::seconds;
    registry.add({.options = {.name = "shop", .max_concurrent = 64, .max_queue = 256, .max_wait = seconds(1)},
                  .criticality = bulkhead::Priority::critical});
    registry.add(
        {.options = {.name = "reports", .max_concurrent = 2, .max_queue = 2, .max_wait = seconds(10)}});
    return registry;
  }
};
