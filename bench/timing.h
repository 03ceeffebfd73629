// timing.h - the clock, work of a given length, and how much of the machine we had.
#pragma once

#include <cstdint>

namespace bench {

// Nanoseconds of a steady clock; about 10 ns where the processor has a constant time stamp counter.
std::int64_t now_ns() noexcept;

// Busy work of about `ns` on an undisturbed core. It counts work, not time: a thread that is preempted inside
// has still all the rest of it to do.
void burn(std::int64_t ns) noexcept;

void nap(std::int64_t ns) noexcept;  // sleeps; the kernel adds its wake-up latency

std::int64_t thread_cpu_ns() noexcept;

// The share of the machine that was ours or idle since construction: 1 means nothing else ran, neither
// another process nor, on a virtual machine, another guest. The kernel counts in ticks of 10 ms: use it for
// 100 ms and more.
class Quiet {
 public:
  Quiet();
  double share() const;

 private:
  std::int64_t start_;
  double busy_, own_;
};

unsigned cores();  // that this program could use when it first asked

}  // namespace bench
