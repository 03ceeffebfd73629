// counter_clock.h - std::chrono::steady_clock read from the processor's own counter, at half the cost.
//
//   const std::int64_t ns = base::counter_now();       // within a few microseconds of steady_clock
//
// Good for measuring, not for deadlines: every tenth of a second it is set right by the system's clock, and may
// then step by the error of that tenth, forward or back. Where there is no such counter, or it cannot be
// trusted, this is the system's clock.
// Threads: any. Cost: a counter read, five loads and a multiplication; nothing is written.
#pragma once

#include <cstdint>

namespace bulkhead::base {

std::int64_t counter_now() noexcept;

}  // namespace bulkhead::base
