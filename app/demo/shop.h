// shop.h - one act of the demo: the shop's calls on a real database of 100 connections, through real gates.
//
//   Shop shop(story, Bulkheads::on);
//   while (!shop.finished()) show(shop.read());
//   Count checkout = shop.result(0, Phase::slow);
//
// Calls arrive at their times whether or not the shop keeps up (open loop), and their response time counts
// from the intended arrival, so a stall is not flattered. Both acts get the very same arrivals.
// Threads: opens its own event loop; every member may be called from any thread.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <optional>

#include "app/demo/event_loop.h"
#include "app/demo/story.h"
#include "app/demo/tally.h"
#include "bulkhead/gate.h"

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
    std::uint32_t in_flight = 0, waiting = 0, limit = 0, line = 0;
  };
  nanoseconds elapsed{};
  Phase phase = Phase::calm;
  std::array<Route, kRoutes> routes;
  std::uint32_t in_flight = 0, limit = 0, waiting = 0, line = 0;  // of the whole database
};

class Shop {
 public:
  Shop(const Story& story, Bulkheads bulkheads);  // opens at once
  ~Shop();

  bool finished() const noexcept { return jobs_.load(std::memory_order_acquire) == 0; }
  void abandon() noexcept { loop_.hurry(); }  // finished() soon; the results mean nothing then

  Reading read() const;
  Count result(std::size_t route, Phase phase) const noexcept;
  std::uint32_t peak_in_flight(std::size_t route) const noexcept { return routes_[route].in_flight.peak(); }
  std::uint32_t peak_connections() const noexcept { return connections_.peak(); }

 private:
  struct Route {
    const RouteSpec* spec = nullptr;
    std::unique_ptr<Gate> bulkhead;  // none in the act without bulkheads
    std::array<Tally, kPhases> tallies;
    Occupancy in_flight, waiting;
  };
  struct Call {
    TimePoint arrives;
    nanoseconds service;
  };

  Job customers(Route& route, std::uint64_t seed);
  Job serve(Route& route, Call call);
  TimePoint done_at(const Route& route, TimePoint start, nanoseconds service) const noexcept;
  nanoseconds elapsed(TimePoint t) const noexcept { return t - opens_; }

  const Story story_;
  const TimePoint opens_;
  EventLoop loop_;
  Gate database_;
  std::array<Route, kRoutes> routes_;
  Occupancy connections_;               // seen from inside the calls that hold one
  std::atomic<std::uint32_t> jobs_{0};  // coroutines that have not ended
};

}  // namespace bulkhead::demo
