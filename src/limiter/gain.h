// gain.h - what a step of the limit brings: 1 if goodput grows as the limit does, 0 if only the round trip does.
#pragma once

#include <algorithm>
#include <cmath>

namespace bulkhead::limiter {

// The gain between two limits, with its standard deviation.
struct Comparison {
  double gain = 0, noise = 0;
};

// The average of comparisons, each weighed by its noise.
class Gain {
 public:
  // False: the comparison differs from those before by more than chance, so it comes from another state and begins a new
  // average.
  bool learn(const Comparison& c) {
    const bool same = pairs_ == 0 || std::abs(c.gain - value_) <= kChance * std::hypot(c.noise, doubt_);
    if (pairs_ == 0 || !same) {
      *this = {};
      value_ = c.gain;
      doubt_ = c.noise;
    } else {
      const double share = doubt_ * doubt_ / (doubt_ * doubt_ + c.noise * c.noise);
      value_ += (c.gain - value_) * share;
      doubt_ = std::max(doubt_ * std::sqrt(1 - share), c.noise / std::sqrt(kMostPairs));
    }
    pairs_ = std::min(pairs_ + 1, kMostPairs);
    return same;
  }
  // A gain belongs to a limit: the further the limit moves, the less is known. `steps`: of the size that is compared.
  void move(double steps) { doubt_ = std::hypot(doubt_, kForget * steps); }
  void clear() { *this = {}; }

  double value() const { return value_; }
  double doubt() const { return doubt_; }  // its standard deviation
  double pairs() const { return pairs_; }  // of slots, since the average began

 private:
  static constexpr double kChance = 2.5, kMostPairs = 20, kForget = 0.25;
  double value_ = 0, doubt_ = 1, pairs_ = 0;
};

}  // namespace bulkhead::limiter
