// asio_lifetimes.h - runs one asynchronous operation through every phase of its life and every way to end it.
//
// The phases: queued (waits in the line of its owner), granted (has its unit and has not been resumed), running, and finishing
// (its unit is being given back: inside the release hook of its owner).
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

#include "bulkhead/gate.h"

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
  virtual void make(const Hooks& hooks) = 0;             // the owner
  virtual void fill() = 0;                               // takes the only unit
  virtual void free() = 0;                               // returns it
  virtual asio::awaitable<void> call(Scene& scene) = 0;  // the operation, and inside() once it is admitted
  virtual std::uint32_t waiting() = 0;                   // calls in the queue
  virtual bool idle() = 0;                               // no call waits or runs
  virtual void destroy() = 0;                            // the owner
  // Its call runs, and ends, on a thread of the owner. Otherwise in the io_context.
  virtual bool on_threads() const { return false; }
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

// One call, from its start to the end of everything.
class Play {
 public:
  Play(Operation& row, Phase phase, End end) : row_(row), phase_(phase), end_(end) {}

  void run() {
    row_.make({.on_release = [this](const Event&) { released(); }});
    const bool in_line = phase_ == Phase::queued || phase_ == Phase::granted;
    if (in_line) row_.fill();
    armed_ = phase_ == Phase::finishing;
    spawn();
    wait_until(io_.get(), [&] { return in_line ? row_.waiting() == 1 : scene_.entered == 1; });
    if (phase_ == Phase::granted) {
      row_.free();
      wait_until(nullptr, [&] { return row_.waiting() == 0; });
    }
    if (phase_ == Phase::finishing && row_.on_threads()) {
      scene_.leaving = true;
      wait_until(nullptr, [&] { return held_.load(); });
    }
    const int ended = finish();
    if (end_ != End::owner_first) {
      wait_until(nullptr, [&] { return row_.idle(); });
      row_.destroy();
    }
    EXPECT_EQ(scene_.ended, ended);
    EXPECT_EQ(hooked_, phase_ == Phase::finishing);
    io_.reset();
    EXPECT_EQ(scene_.alive.use_count(), 1) << "something that was captured is lost, or destroyed twice";
  }

 private:
  void spawn() {
    const auto ended = [this, keep = scene_.alive](const std::exception_ptr&) { ++scene_.ended; };
    if (end_ == End::cancelled)
      asio::co_spawn(asio::make_strand(*io_), row_.call(scene_),
                     asio::bind_cancellation_slot(scene_.signal->slot(), ended));
    else
      asio::co_spawn(asio::make_strand(*io_), row_.call(scene_), ended);
  }

  // The step that would follow.
  void next_step() {
    if (phase_ == Phase::queued) row_.free();
    scene_.leaving = true;
    held_ = false;
  }

  // The release hook. A thread of the owner stays in it until the end has begun; in the io_context, which is this thread's, it
  // begins the end itself.
  void released() {
    if (!armed_.exchange(false)) return;
    if (!row_.on_threads()) {
      begin_end();
      hooked_ = true;
    } else {
      hooked_ = held_ = true;
      while (held_) std::this_thread::yield();
    }
  }

  // What may happen in the middle of the release.
  void begin_end() {
    switch (end_) {
      case End::cancelled:
        scene_.signal->emit(asio::cancellation_type::terminal);
        break;
      case End::io_context_first:
        break;  // see finish()
      case End::owner_first:
        other_ = std::thread([this] {
          row_.destroy();
          gone_ = true;
        });
        break;
      case End::cancelled_at_the_grant:
        other_ = std::thread([this] { scene_.stop.request_stop(); });
        break;
    }
  }

  // Returns how often the handler of the call may have run.
  int finish() {
    if (end_ == End::io_context_first) {
      const int before = scene_.ended;  // once the io_context has stopped, it runs no handler
      std::thread next([this] { next_step(); });
      io_.reset();
      next.join();
      return before;
    }
    // In the io_context the hook does it.
    if (phase_ != Phase::finishing || row_.on_threads()) begin_end();
    std::thread next;
    if (end_ == End::cancelled_at_the_grant)
      next = std::thread([this] { next_step(); });
    else
      next_step();
    wait_until(io_.get(), [&] {
      return scene_.ended == 1 && (end_ != End::owner_first || gone_) &&
             (phase_ != Phase::finishing || hooked_);
    });
    if (next.joinable()) next.join();
    if (other_.joinable()) other_.join();
    scene_.signal.reset();  // Asio keeps the strand in it, which must not outlive the io_context
    return 1;
  }

  Operation& row_;
  const Phase phase_;
  const End end_;
  Scene scene_;
  std::atomic<bool> armed_ = false, held_ = false, hooked_ = false, gone_ = false;
  std::thread other_;
  std::unique_ptr<asio::io_context> io_ = std::make_unique<asio::io_context>();
};

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
  for (int round = 0; round < rounds; ++round) Play(*operation.make(), phase, end).run();
}

}  // namespace bulkhead::lifetimes
