// The same for stackful coroutines (asio::spawn), and for plain handlers with a signal that takes them back.
#include <bulkhead/adapters/asio/async_acquire.h>
#include <bulkhead/adapters/asio/async_submit.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/bind_executor.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/spawn.hpp>
#include <cstdio>

namespace asio = boost::asio;
using namespace std::chrono_literals;

int main() {
  bulkhead::Gate gate{{.name = "door", .max_concurrent = 1, .max_queue = 8}};
  bulkhead::Pool pool{{.name = "reports", .max_concurrent = 1, .max_queue = 4}};
  asio::io_context io;
  asio::cancellation_signal impatience;

  asio::spawn(
      io,
      [&](const asio::yield_context& yield) {
        bulkhead::Result<bulkhead::Permit> permit = bulkhead::async_acquire(gate, {.timeout = 1s}, yield);
        std::printf("spawned: %s\n", permit ? "admitted" : permit.error().message().c_str());
        bulkhead::async_acquire(gate, {},
                                asio::bind_cancellation_slot(
                                    impatience.slot(), asio::bind_executor(io, [](const auto& second) {
                                      std::printf("handler: %s\n",
                                                  second ? "admitted" : second.error().message().c_str());
                                    })));
        // as_tuple: yield_context of Boost 1.81 does not compile for an exception_ptr with a value.
        const auto [thrown, answer] =
            bulkhead::async_submit(pool, [] { return 42; }, {}, asio::as_tuple(yield));
        std::printf("pool: %d\n", thrown ? -1 : answer.value_or(0));
        impatience.emit(asio::cancellation_type::total);  // leaves the line at once
      },
      asio::detached);
  io.run();
}
