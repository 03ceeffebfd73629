// live_shop.h - the shop of the demo without a script: it runs until it is told to stop, and its bulkheads are a registry's.
//
//   LiveShop shop(story, registry);
//   shop.set_slow(true);                 // analytics turns slow
//   shop.set_bulkheads(false);           // and nothing protects the others
//
// Every route has its bulkhead, and all share "database", another one: with the routes' bulkheads switched off, that is
// the only line there is.
// Threads: every member may be called from any thread.
#pragma once

#include <array>
#include <atomic>
#include <memory>

#include "app/demo/event_loop.h"
#include "app/demo/story.h"
#include "bulkhead/registry.h"

namespace bulkhead::demo {

class LiveShop {
 public:
  LiveShop(const Story& story, Registry& registry);  // opens at once
  ~LiveShop();                                       // closes it: calls under way end early
  LiveShop(const LiveShop&) = delete;
  LiveShop& operator=(const LiveShop&) = delete;

  void set_slow(bool on) noexcept { slow_.store(on); }
  bool slow() const noexcept { return slow_.load(); }
  void set_bulkheads(bool on);
  bool bulkheads() const noexcept { return bulkheads_.load(); }

 private:
  struct Route {
    const RouteSpec* spec = nullptr;
    std::shared_ptr<Bulkhead> bulkhead;
  };
  Job customers(Route& route, std::uint64_t seed);
  Job serve(Route& route, nanoseconds service);

  const Story story_;
  EventLoop loop_;
  std::shared_ptr<Bulkhead> database_;
  std::array<Route, kRoutes> routes_;
  std::atomic<bool> slow_{false}, bulkheads_{true};
  std::atomic<std::uint32_t> jobs_{0};  // coroutines that have not ended
};

}  // namespace bulkhead::demo
