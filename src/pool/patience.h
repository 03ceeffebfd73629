// patience.h - whether an idle worker looks for work a while before it sleeps.
//
// Waking a thread on a core that sleeps takes tens of microseconds, so where the next task comes sooner than that,
// looking for it is worth the core; where it does not, looking takes the core from others, perhaps from the very
// thread that would bring the task. Nobody can tell beforehand: it is tried now and then, ever more rarely while
// it does not pay, and kept up while it pays two times of three.
//
// Threads: one at a time.
#pragma once

#include <algorithm>

namespace bulkhead {

class Patience {
 public:
  static constexpr int kLooks = 2500;  // with a pause between them: 50 to 150 us, two or three wake-ups

  bool wants_to_look() noexcept {
    if (trust_ > 0) return true;
    if (--rests_ > 0) return false;
    rests_ = interval_;
    return true;
  }
  void learn(bool paid) noexcept {
    if (paid) {
      trust_ = std::min(trust_ + 1, 4);
      interval_ = kFirstInterval;
    } else if (trust_ > 0) {
      trust_ = std::max(trust_ - 2, 0);
    } else {
      interval_ = std::min(2 * interval_, 4096);
    }
  }

 private:
  static constexpr int kFirstInterval = 16;  // work that comes once in a while is never looked for
  int trust_ = 0;
  int interval_ = kFirstInterval;
  int rests_ = kFirstInterval;
};

}  // namespace bulkhead
