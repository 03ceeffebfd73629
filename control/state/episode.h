// episode.h - a condition over time: since when it holds, and how bad it was at its worst.
//
//   Episode rejecting({.begin = 2, .end = 10});
//   if (rejecting.second(share >= 0.01, share, now) == Episode::Step::begun) report(rejecting.since());
//
// A condition that holds for `begin` seconds in a row begins an episode, and `end` seconds in a row without it end the
// episode. A condition that comes and goes is therefore one episode, and not an event every second.
// Threads: one at a time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "journal.h"

namespace bulkhead::control {

class Episode {
 public:
  struct Options {
    std::uint32_t begin = 2, end = 10;  // seconds
  };
  enum class Step : std::uint8_t { none, begun, ended };

  constexpr explicit Episode(Options options) noexcept : options_(options) {}

  // Call once a second. `value` says how bad it is; the highest is the peak.
  Step second(bool holds, double value, WallTime now) noexcept {
    if (holds) {
      if (in_a_row_ == 0 && !active_) first_ = now, peak_ = 0;
      calm_ = 0;
      last_ = now;
      peak_ = std::max(peak_, value);
      if (++in_a_row_ < options_.begin || active_) return Step::none;
      active_ = true;
      return Step::begun;
    }
    in_a_row_ = 0;
    if (!active_ || ++calm_ < options_.end) return Step::none;
    active_ = false;
    return Step::ended;
  }

  // Ends it at once, because what it is about is gone. False: there was none.
  bool cut() noexcept {
    in_a_row_ = 0;
    return std::exchange(active_, false);
  }

  bool active() const noexcept { return active_; }
  bool beginning() const noexcept { return active_ || in_a_row_ > 0; }
  WallTime since() const noexcept { return first_; }  // its first second
  WallTime until() const noexcept { return last_; }   // the last second in which the condition held
  double peak() const noexcept { return peak_; }

 private:
  Options options_;
  bool active_ = false;
  std::uint32_t in_a_row_ = 0, calm_ = 0;
  WallTime first_{}, last_{};
  double peak_ = 0;
};

}  // namespace bulkhead::control
