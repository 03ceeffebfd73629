// Coroutines wait in the same line as threads. The place in line is in the coroutine's frame: nothing is
// allocated.
#include <bulkhead/gate.h>

#include <coroutine>
#include <cstdio>
#include <exception>

struct Detached {  // the smallest coroutine type; use your framework's
  struct promise_type {
    Detached get_return_object() { return {}; }
    std::suspend_never initial_suspend() noexcept { return {}; }
    std::suspend_never final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() { std::terminate(); }
  };
};

Detached call(bulkhead::Gate& gate, int number) {
  const auto permit = co_await gate.co_acquire();
  std::printf("call %d: %s\n", number, permit ? "admitted" : permit.error().message().c_str());
}

int main() {
  bulkhead::Gate gate{{.name = "search", .max_concurrent = 1, .max_queue = 2}};
  auto permit = gate.acquire();
  call(gate, 1);      // waits
  call(gate, 2);      // waits behind it
  call(gate, 3);      // the line is full: queue_limit
  permit->release();  // runs 1 to its end, which runs 2
}
