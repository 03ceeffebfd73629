// loop.h - the event loop of an nginx worker, for code that needs none of nginx's headers.
//
// Threads: ring_at(), tick_in() and post() belong to the thread of the loop, wake() to every thread.
#pragma once

#include <chrono>

#include "bulkhead/clock.h"

namespace bulkhead::nginx {

struct LoopHandlers {
  void (*ring)() noexcept;     // the time given to ring_at() has come
  void (*run)() noexcept;      // post() or wake() was called
  void (*leaving)() noexcept;  // the worker exits once its requests have ended
  void (*tick)() noexcept;     // the time given to tick_in() is over
};

// On the thread of the loop, once. False: the system gave no descriptor; the log says why.
bool start_loop(void* cycle, const LoopHandlers& handlers);
void end_loop() noexcept;

bool on_loop() noexcept;                                // this is the thread of the loop
void ring_at(TimePoint at) noexcept;                    // replaces an earlier one; no_deadline: never
void tick_in(std::chrono::milliseconds time) noexcept;  // does not keep a worker that is to leave
void post() noexcept;  // run() is called after the events at hand, from a flat stack
void wake() noexcept;

}  // namespace bulkhead::nginx
