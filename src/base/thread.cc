#include "base/thread.h"

#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <memory>
#include <thread>

namespace bulkhead::base {
namespace {

struct Start {
  ThreadOptions options;
  std::function<void()> body;
};

void* run(void* argument) {
  const std::unique_ptr<Start> start(static_cast<Start*>(argument));
  const ThreadOptions& o = start->options;
  pthread_setname_np(pthread_self(), o.name.substr(0, kThreadName).c_str());
  if (!o.cpus.empty()) {
    cpu_set_t set;
    CPU_ZERO(&set);
    for (const unsigned cpu : o.cpus)
      if (cpu < CPU_SETSIZE) CPU_SET(cpu, &set);
    pthread_setaffinity_np(pthread_self(), sizeof set, &set);
  }
  // On Linux the nice value of this id applies to the thread, not to the process.
  if (o.nice != 0) setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), o.nice);
  start->body();
  return nullptr;
}

}  // namespace

bool start_thread(const ThreadOptions& options, std::function<void()> body) noexcept {
  Start* start = nullptr;  // owned by the thread, once it exists
#if defined(__cpp_exceptions)
  try {
    start = new Start{options, std::move(body)};
  } catch (...) {
    return false;
  }
#else
  start = new Start{options, std::move(body)};
#endif
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  if (options.stack_size > 0) {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    const std::size_t least = std::max(options.stack_size, static_cast<std::size_t>(PTHREAD_STACK_MIN));
    pthread_attr_setstacksize(&attributes, (least + page - 1) / page * page);
  }
  pthread_t thread;
  const bool started = pthread_create(&thread, &attributes, &run, start) == 0;
  if (!started) delete start;
  pthread_attr_destroy(&attributes);
  return started;
}

bool thread_options_work() noexcept { return true; }
unsigned processors() noexcept { return std::max(1u, std::thread::hardware_concurrency()); }

}  // namespace bulkhead::base
