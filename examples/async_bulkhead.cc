// One bulkhead for handlers and coroutines: no thread blocks, and each call gets one result.
#include <bulkhead/bulkhead.h>

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

Detached coroutine(bulkhead::Bulkhead& mail) {
  const bulkhead::Result<int> sent =
      co_await mail.co_execute([] { return 2; });  // or returns a task of yours
  std::printf("coroutine: %d\n", sent.value_or(0));
}

int main() {
  bulkhead::Bulkhead mail{{.name = "mail", .max_concurrent = 1, .max_queue = 1}};
  auto busy = mail.acquire();  // Result<Call>: a call that ends elsewhere than it began

  mail.async_execute([] { return 1; }, {},
                     [](bulkhead::Ended<int> ended) {
                       std::printf("handler: %d\n",
                                   std::move(ended).get().value_or(0));  // get() throws what the call threw
                     });
  mail.async_execute(
      [] { return 1; }, {.fallback = [](const bulkhead::Cause&) { return -1; }},  // the line is full
      [](bulkhead::Ended<int> ended) { std::printf("rejected: %d\n", std::move(ended).get().value_or(0)); });

  busy->finish(bulkhead::Outcome::success);  // runs the one in line
  coroutine(mail);
}
