// scene.h - what a viewer shows of a running act, and the words for it.
#pragma once

#include <array>
#include <deque>
#include <string>

#include "app/cli/text.h"
#include "app/demo/shop.h"
#include "app/demo/story.h"

namespace bulkhead::demo {

struct Scene {
  const Story* story = nullptr;
  Bulkheads bulkheads = Bulkheads::off;
  Reading now;
  std::array<Count, kRoutes> recent;              // of about the last second
  double seconds = 1;                             // what that second really was
  std::array<std::uint64_t, kRoutes> calm_p99{};  // ns; 0 while it is still calm

  nanoseconds elapsed{}, total{};  // of the whole demo

  std::uint64_t per_second(std::uint64_t n) const noexcept;
};

// Turns readings into scenes: keeps those of the last second to tell what has changed.
class Watcher {
 public:
  Watcher(const Story& story, const Shop& shop, Bulkheads bulkheads) noexcept
      : story_(story), shop_(shop), bulkheads_(bulkheads) {}
  Scene look();

 private:
  const Story& story_;
  const Shop& shop_;
  const Bulkheads bulkheads_;
  std::deque<Reading> readings_;
};

// "analytics has turned slow: its report compares orders with all others"
std::string headline(const Scene& scene);
// "Without bulkheads: all routes share the 100 connections and one line of 200"
std::string setting(const Story& story, Bulkheads bulkheads);

struct Remark {
  std::string text;
  bool bad = false;  // routes other than the slow one are rejected or slow
};
Remark remark(const Scene& scene);  // what the numbers of the last second say

}  // namespace bulkhead::demo
