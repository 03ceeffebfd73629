// patience.h - decides whether an idle worker spins for a while before it sleeps.
//
// Waking a thread on a sleeping core takes tens of microseconds. If the next task comes sooner, spinning is worth the
// core; otherwise it takes the core from other threads, perhaps from the one that would submit the task. So spinning is
// tried now and then, less often each time it fails, and continued while it succeeds two times out of three.
//
// Threads: one at a time.
#pragma once

#include <algorithm>

namespace bulkhead {

class Patience {
 public:
  static constexpr int kLooks =
      2500;  // with a pause in between: 50 to 150 us, which is two or three wake-ups

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
  static constexpr int kFirstInterval = 16;  // so a pool with rare tasks never spins
  int trust_ = 0;
  int interval_ = kFirstInterval;
  int rests_ = kFirstInterval;
};

}  // namespace bulkhead
