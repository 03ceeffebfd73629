// live_shop.h - the shop of the demo without a script: it runs until it is stopped, and its bulkheads belong to a registry.
//
//   LiveShop shop(story, *store, registry);
//   shop.set_slow(true);                 // analytics turns slow
//   shop.set_bulkheads(false);           // and nothing protects the others
//
// Every route has its bulkhead, and all share "database", another one: with the routes' bulkheads switched off, that is
// the only line there is. What it admits borrows a connection of a pool of as many, and queries.
// Threads: every member may be called from any thread.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <stop_token>

#include "app/demo/awaits.h"
#include "app/demo/event_loop.h"
#include "app/demo/store.h"
#include "app/demo/story.h"
#include "app/demo/tally.h"
#include "bulkhead/detail/std_mutex.h"
#include "bulkhead/registry.h"

namespace bulkhead::demo {

class LiveShop {
 public:
  LiveShop(const Story& story, Store& store, Registry& registry);  // opens at once
  ~LiveShop();                                                     // closes it: calls under way end early
  LiveShop(const LiveShop&) = delete;
  LiveShop& operator=(const LiveShop&) = delete;

  void set_slow(bool on);
  bool slow() const;
  void set_bulkheads(bool on);
  bool bulkheads() const noexcept { return bulkheads_.load(); }
  const Story& story() const noexcept { return story_; }
  Count result(std::size_t route) const noexcept { return routes_[route].tally.read(); }  // since it opened

 private:
  struct Route {
    const RouteSpec* spec = nullptr;
    std::shared_ptr<Bulkhead> bulkhead{};
    Tally tally{};
  };
  Job customers(Route& route, std::uint64_t seed);
  Job serve(Route& route, nanoseconds service);
  auto ask(Held& held, Ask what, std::stop_token slow);
  std::stop_token slowness() const;  // one that can be stopped while analytics is slow

  const Story story_;
  EventLoop loop_;
  std::unique_ptr<ConnectionPool> connections_;
  Attached attached_;  // so that metrics tell of them
  std::shared_ptr<Bulkhead> database_;
  std::array<Route, kRoutes> routes_;
  mutable detail::StdMutex mutex_;
  std::stop_source slowness_ BULKHEAD_GUARDED_BY(mutex_){std::nostopstate};  // stopped when it is over
  std::atomic<bool> bulkheads_{true};
  std::atomic<std::uint32_t> jobs_{0};  // coroutines that have not ended
  std::atomic<std::uint64_t> asked_{0};
  Pool queries_, reports_;  // last, so that their threads end first
};

}  // namespace bulkhead::demo
