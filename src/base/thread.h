// thread.h - a thread with a name, a stack size, a place and a nice value; what std::thread does not offer.
#pragma once

#include <pthread.h>

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace bulkhead::base {

inline constexpr std::size_t kThreadName = 15;  // characters of a name that the kernel keeps

struct ThreadOptions {
  std::string name;            // as shown by top and debuggers
  std::size_t stack_size = 0;  // bytes; 0: the system's default
  std::vector<unsigned> cpus;  // where it may run; empty: anywhere
  int nice = 0;                // -20 to 19; raising the priority needs the right to do so
};

// Starts a detached thread that runs `body`. False: the system has no thread to give.
// Wishes it cannot fulfil (a processor that does not exist, a nice value without the right) are passed over.
bool start_thread(const ThreadOptions& options, std::function<void()> body) noexcept;

unsigned processors() noexcept;  // at least 1

}  // namespace bulkhead::base
