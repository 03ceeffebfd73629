// shop.h - one act of the demo: the shop's calls on a real database, through real pools of its connections.
//
//   Shop shop(story, *store, Bulkheads::on);
//   while (!shop.finished()) show(shop.read());
//   Count checkout = shop.result(0, Phase::slow);
//
// Calls arrive at their times whether or not the shop keeps up (open loop), and their response time counts
// from the intended arrival, so a stall is not flattered. Both acts get the very same arrivals.
// A call holds its connection for its service time: it asks the database, does something else (it waits for a payment,
// it fills a page), and asks again. While analytics is slow, its calls ask for something that takes seconds instead.
// Threads: opens its own event loop, and threads for queries; every member may be called from any thread.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "app/demo/awaits.h"
#include "app/demo/event_loop.h"
#include "app/demo/store.h"
#include "app/demo/story.h"
#include "app/demo/tally.h"
#include "bulkhead/detail/std_mutex.h"

namespace bulkhead::demo {

enum class Bulkheads : bool { off, on };

// Calls now in a place, and the most there ever were. Written by the event loop only.
class Occupancy {
 public:
  void enter() noexcept {
    const auto n = now_.fetch_add(1, std::memory_order_relaxed) + 1;
    if (n > peak_.load(std::memory_order_relaxed)) peak_.store(n, std::memory_order_relaxed);
  }
  void leave() noexcept { now_.fetch_sub(1, std::memory_order_relaxed); }
  std::uint32_t now() const noexcept { return now_.load(std::memory_order_relaxed); }
  std::uint32_t peak() const noexcept { return peak_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::uint32_t> now_{0}, peak_{0};
};

// What a viewer sees at one moment.
struct Reading {
  struct Route {
    Count total;
    std::uint32_t in_flight = 0, waiting = 0, limit = 0;
  };
  nanoseconds elapsed{};
  Phase phase = Phase::calm;
  std::array<Route, kRoutes> routes;
  std::uint32_t in_flight = 0, limit = 0, waiting = 0;  // of the whole database
};

class Shop {
 public:
  Shop(const Story& story, Store& store, Bulkheads bulkheads);  // opens as soon as its connections are there
  ~Shop();

  bool finished() const noexcept { return jobs_.load(std::memory_order_acquire) == 0; }
  void abandon() noexcept;  // finished() soon; the results mean nothing then

  Reading read() const;
  Count result(std::size_t route, Phase phase) const noexcept;
  std::uint32_t peak_in_flight(std::size_t route) const noexcept { return routes_[route].in_flight.peak(); }
  std::uint32_t peak_connections() const noexcept { return connections_.peak(); }
  // How long the slow queries took, also those that were stopped because the trouble was over.
  HistogramCounts reports_took() const noexcept { return reports_took_.counts(); }
  std::string first_failure() const;  // of a query, or of a connection that could not be opened; empty: none

 private:
  struct Route {
    const RouteSpec* spec = nullptr;
    ConnectionPool* pool = nullptr;  // its own, or in the act without bulkheads that of all
    std::array<Tally, kPhases> tallies;
    Occupancy in_flight, waiting;
  };
  struct Call {
    TimePoint arrives;
    nanoseconds service;
  };

  Job customers(Route& route, std::uint64_t seed);
  Job serve(Route& route, Call call);
  Job mend();
  auto ask(Held& held, Ask what);
  bool slow_now(const Route& route) const noexcept;
  void failed(Tally& tally, std::string why);
  nanoseconds elapsed(TimePoint t) const noexcept { return t - opens_; }

  const Story story_;
  const Bulkheads bulkheads_;
  EventLoop loop_;
  std::vector<std::unique_ptr<ConnectionPool>> pools_;
  const TimePoint opens_;
  std::array<Route, kRoutes> routes_;
  std::stop_source slowness_;  // stopped when analytics is fast again: slow queries in flight end early
  Histogram reports_took_;
  Occupancy connections_;               // seen from inside the calls that hold one
  std::atomic<std::uint32_t> jobs_{0};  // coroutines that have not ended
  std::uint64_t asked_ = 0;             // for values of their own
  mutable detail::StdMutex mutex_;
  std::string first_failure_ BULKHEAD_GUARDED_BY(mutex_);
  Pool queries_, reports_;  // last, so that their threads end first
};

}  // namespace bulkhead::demo
