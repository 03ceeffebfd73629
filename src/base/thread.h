// thread.h - starts a thread with a name, a stack size, processors and a nice value, which std::thread does not offer.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace bulkhead::base {

inline constexpr std::size_t kThreadName = 15;  // characters of a name that the kernel keeps

struct ThreadOptions {
  std::string name;            // as shown by top and debuggers
  std::size_t stack_size = 0;  // bytes; 0: the system's default
  std::vector<unsigned> cpus;  // the processors it may run on; empty: all
  int nice = 0;                // -20 to 19; a negative value needs a permission
};

// Starts a detached thread that runs `body`. False: no thread or no memory. Options that the system rejects (a processor
// that does not exist, a nice value without permission) are ignored.
bool start_thread(const ThreadOptions& options, std::function<void()> body) noexcept;

// False in the portable build, which ignores all options.
bool thread_options_work() noexcept;

unsigned processors() noexcept;  // at least 1

}  // namespace bulkhead::base
