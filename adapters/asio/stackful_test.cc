// The operations as stackful coroutines see them: asio::spawn and a yield_context.
#include <gtest/gtest.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/spawn.hpp>
#include <string>
#include <vector>

#include "async_execute.h"

namespace bulkhead {
namespace {

namespace asio = boost::asio;
using namespace std::chrono_literals;

TEST(AsioStackful, AcquiresSubmitsAndExecutesAsIfItBlocked) {
  Gate gate{{.name = "db", .max_concurrent = 1, .max_queue = 1}};
  Pool pool{{.name = "work", .max_concurrent = 1, .max_queue = 1}};
  Bulkhead bulkhead{{.name = "pay", .max_concurrent = 1}};
  asio::io_context io;
  std::vector<std::string> log;
  asio::spawn(
      io,
      [&](const asio::yield_context& yield) {
        Result<Permit> permit = async_acquire(gate, {}, yield);
        log.push_back(permit ? "admitted" : "rejected");
        const Result<Permit> second = async_acquire(gate, {.timeout = 1ms}, yield);
        log.emplace_back(to_string(second.error().reason));
        const auto [thrown, answer] = async_submit(pool, [] { return 42; }, {}, asio::as_tuple(yield));
        log.push_back(thrown ? "threw" : std::to_string(answer.value_or(0)));
        const auto [also_thrown, called] = async_execute(
            bulkhead,
            [&] {
              EXPECT_EQ(bulkhead.gate().in_flight(), 1u);
              return 7;
            },
            {}, asio::as_tuple(yield));
        log.push_back(also_thrown ? "threw" : std::to_string(called.value_or(0)));
        Result<Call> call = async_acquire(bulkhead, {}, yield);
        log.push_back(call ? "called" : "rejected");
      },
      asio::detached);
  io.run();
  EXPECT_EQ(log, (std::vector<std::string>{"admitted", "timeout", "42", "7", "called"}));
  EXPECT_EQ(gate.in_flight(), 0u);
  EXPECT_EQ(bulkhead.gate().in_flight(), 0u);
}

TEST(AsioStackful, IsCancelledInLineThroughItsSlot) {
  Gate gate{{.name = "db", .max_concurrent = 1, .max_queue = 1}};
  auto held = gate.try_acquire();
  asio::io_context io;
  asio::cancellation_signal signal;
  std::optional<Reason> reason;
  asio::spawn(
      io,
      [&](const asio::yield_context& yield) {
        const Result<Permit> permit = async_acquire(gate, {}, yield);
        if (!permit) reason = permit.error().reason;
      },
      asio::bind_cancellation_slot(signal.slot(), asio::detached));
  io.poll();
  EXPECT_EQ(gate.snapshot().waiting, 1u);
  signal.emit(asio::cancellation_type::terminal);
  io.run();
  EXPECT_EQ(reason, Reason::cancelled);
}

TEST(AsioStackful, AnIoContextThatGoesTakesItOutOfTheLine) {
  Gate gate{{.name = "db", .max_concurrent = 1, .max_queue = 1}};
  auto held = gate.try_acquire();
  auto alive = std::make_shared<int>();
  {
    asio::io_context io;
    asio::spawn(
        io,
        [&gate, alive](const asio::yield_context& yield) {
          const Result<Permit> permit = async_acquire(gate, {}, yield);
          ADD_FAILURE() << "went on";
        },
        asio::detached);
    io.poll();
    EXPECT_EQ(gate.snapshot().waiting, 1u);
  }
  EXPECT_EQ(gate.snapshot().waiting, 0u);
  EXPECT_EQ(alive.use_count(), 1);
}

}  // namespace
}  // namespace bulkhead
