// asio_lifetimes.h - runs one asynchronous operation through every phase of its life and every way to end it.
//
// To cover a new operation, derive an Operation in a lifetimes_test.cc and add it to the table there. AddressSanitizer and
// ThreadSanitizer find what the expectations here do not.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <tuple>

namespace bulkhead::lifetimes {

namespace asio = boost::asio;

enum class Phase { queued, granted, running, finishing };
enum class End { cancelled, io_context_first, owner_first, cancelled_at_the_grant };
inline constexpr Phase kPhases[] = {Phase::queued, Phase::granted, Phase::running, Phase::finishing};
inline constexpr End kEnds[] = {End::cancelled, End::io_context_first, End::owner_first,
                                End::cancelled_at_the_grant};

inline std::string name_of(Phase phase) {
  constexpr const char* names[] = {"Queued", "GrantedAndNotResumed", "Running", "Finishing"};
  return names[static_cast<int>(phase)];
}
inline std::string name_of(End end) {
  constexpr const char* names[] = {"Cancelled", "TheIoContextGoesFirst", "TheOwnerGoesFirst",
                                   "CancelledAtTheInstantOfTheNextStep"};
  return names[static_cast<int>(end)];
}

// The state that a call shares with the test.
struct Scene {
  std::stop_source stop;
  std::optional<asio::cancellation_signal> signal{std::in_place};
  std::shared_ptr<int> alive = std::make_shared<int>();  // captured by everything that must not leak
  std::atomic<int> entered = 0, ended = 0;
  std::atomic<bool> leaving = false;

  // Runs until `leaving` is set.
  asio::awaitable<void> inside() {
    ++entered;
    asio::steady_timer timer(co_await asio::this_coro::executor);
    while (!leaving) {
      timer.expires_after(std::chrono::milliseconds(1));
      co_await timer.async_wait(asio::use_awaitable);
    }
  }
  void inside_blocking() {
    ++entered;
    while (!leaving) std::this_thread::yield();
  }
};

// One operation, with an owner that admits one call at a time.
class Operation {
 public:
  virtual ~Operation() = default;
  virtual void make() = 0;                               // the owner
  virtual void fill() = 0;                               // takes the only unit
  virtual void free() = 0;                               // returns it
  virtual asio::awaitable<void> call(Scene& scene) = 0;  // the operation, and inside() once it is admitted
  virtual std::uint32_t waiting() = 0;                   // calls in the queue
  virtual bool idle() = 0;                               // no call waits or runs
  virtual void destroy() = 0;                            // the owner
};

template <class Until>
void wait_until(asio::io_context* io, Until until) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!until()) {
    ASSERT_LT(std::chrono::steady_clock::now(), limit) << "timed out";
    if (io) {
      io->restart();
      io->poll();
    }
    std::this_thread::yield();
  }
}

inline void play(Operation& row, Phase phase, End end) {
  Scene scene;
  auto io = std::make_unique<asio::io_context>();
  row.make();
  const bool in_line = phase == Phase::queued || phase == Phase::granted;
  if (in_line) row.fill();
  const auto ended = [&scene, keep = scene.alive](const std::exception_ptr&) { ++scene.ended; };
  if (end == End::cancelled)
    asio::co_spawn(asio::make_strand(*io), row.call(scene),
                   asio::bind_cancellation_slot(scene.signal->slot(), ended));
  else
    asio::co_spawn(asio::make_strand(*io), row.call(scene), ended);
  wait_until(io.get(), [&] { return in_line ? row.waiting() == 1 : scene.entered == 1; });
  if (phase == Phase::granted) {
    row.free();
    wait_until(nullptr, [&] { return row.waiting() == 0; });
  }
  if (phase == Phase::finishing) scene.leaving = true;

  // The step that would follow.
  const auto next_step = [&] {
    if (phase == Phase::queued) row.free();
    scene.leaving = true;
  };
  switch (end) {
    case End::cancelled:
      scene.signal->emit(asio::cancellation_type::terminal);
      next_step();
      wait_until(io.get(), [&] { return scene.ended == 1; });
      scene.signal.reset();  // Asio keeps the strand in it, which must not outlive the io_context
      break;
    case End::io_context_first: {
      std::thread other(next_step);
      io.reset();
      other.join();
      break;
    }
    case End::owner_first: {
      scene.leaving = true;
      std::atomic<bool> gone = false;
      std::thread other([&] {
        row.destroy();
        gone = true;
      });
      next_step();
      wait_until(io.get(), [&] { return scene.ended == 1 && gone; });
      other.join();
      break;
    }
    case End::cancelled_at_the_grant: {
      std::thread granting(next_step);
      std::thread cancelling([&] { scene.stop.request_stop(); });
      wait_until(io.get(), [&] { return scene.ended == 1; });
      granting.join();
      cancelling.join();
      break;
    }
  }
  if (end != End::owner_first) {
    wait_until(nullptr, [&] { return row.idle(); });
    EXPECT_EQ(scene.ended, end == End::io_context_first ? scene.ended.load() : 1);
    row.destroy();
  }
  io.reset();
  EXPECT_EQ(scene.alive.use_count(), 2) << "something that was captured is lost, or destroyed twice";
}

// The parameters of a suite: every operation of a table in every phase with every end.
struct NamedOperation {
  const char* name;
  std::function<std::unique_ptr<Operation>()> make;
};
template <class O>
NamedOperation named(const char* name) {
  return {name, [] { return std::make_unique<O>(); }};
}
using Case = std::tuple<NamedOperation, Phase, End>;

template <class Table>
auto all_cases(const Table& operations) {
  return testing::Combine(testing::ValuesIn(operations), testing::ValuesIn(kPhases),
                          testing::ValuesIn(kEnds));
}
inline std::string case_name(const testing::TestParamInfo<Case>& each) {
  const auto& [operation, phase, end] = each.param;
  return std::string(operation.name) + "_" + name_of(phase) + "_" + name_of(end);
}
inline void play(const Case& each, int rounds) {
  const auto& [operation, phase, end] = each;
  for (int round = 0; round < rounds; ++round) play(*operation.make(), phase, end);
}

}  // namespace bulkhead::lifetimes
