// Coroutines on one io_context: at most two at a time are past the gate, the others wait without blocking a thread.
#include <bulkhead/adapters/asio/async_acquire.h>
#include <bulkhead/adapters/asio/async_execute.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cstdio>

namespace asio = boost::asio;
using namespace std::chrono_literals;

asio::awaitable<void> pause(std::chrono::milliseconds time) {
  asio::steady_timer timer(co_await asio::this_coro::executor, time);
  co_await timer.async_wait(asio::use_awaitable);
}

asio::awaitable<void> visitor(bulkhead::Gate& gate, int number) {
  auto permit = co_await bulkhead::async_acquire(gate, {.timeout = 1s}, asio::use_awaitable);
  if (!permit) co_return std::puts(permit.error().message().c_str()), void();
  co_await pause(5ms);
  std::printf("visitor %d, %u inside\n", number, gate.in_flight());
}

asio::awaitable<void> customer(bulkhead::Bulkhead& payments) {
  // The coroutine runs under the bulkhead, and is cancelled when its time is up.
  auto pay = []() -> asio::awaitable<int> { co_return co_await pause(1h), 1; };
  bulkhead::CallOptions<int> options{
      .fallback = [](const bulkhead::Cause& why) { return std::puts(why.message().c_str()), 0; },
      .execution_timeout = 10ms};
  const bulkhead::Result<int> receipt =
      co_await bulkhead::async_execute(payments, std::move(pay), std::move(options), asio::use_awaitable);
  std::printf("receipt %d\n", receipt.value_or(-1));
}

int main() {
  bulkhead::Gate gate{{.name = "door", .max_concurrent = 2, .max_queue = 8}};
  bulkhead::Bulkhead payments{{.name = "payments", .max_concurrent = 2}};
  asio::io_context io;
  for (int i = 1; i <= 5; ++i) asio::co_spawn(io, visitor(gate, i), asio::detached);
  asio::co_spawn(io, customer(payments), asio::detached);
  io.run();
}
