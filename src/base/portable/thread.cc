// thread.h with std::thread, which has no name, stack size, processors or nice value to set.
#include "base/thread.h"

#include <algorithm>
#include <thread>
#include <utility>

namespace bulkhead::base {

bool start_thread(const ThreadOptions& /*options*/, std::function<void()> body) noexcept {
#if defined(__cpp_exceptions)
  try {
    std::thread(std::move(body)).detach();
    return true;
  } catch (...) {
    return false;
  }
#else
  std::thread(std::move(body)).detach();
  return true;
#endif
}

bool thread_options_work() noexcept { return false; }
unsigned processors() noexcept { return std::max(1u, std::thread::hardware_concurrency()); }

}  // namespace bulkhead::base
