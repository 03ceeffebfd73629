#include "bench/http/process.h"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <ctime>

namespace bulkhead::bench {

Process::Process(const std::function<void(const std::function<void(std::uint16_t)>& tell)>& body) {
  int ends[2];
  if (::pipe(ends) != 0) std::abort();
  child_ = ::fork();
  if (child_ == 0) {
    ::close(ends[0]);
    body([&](std::uint16_t its) { [[maybe_unused]] const auto n = ::write(ends[1], &its, sizeof its); });
    ::_exit(0);
  }
  ::close(ends[1]);
  [[maybe_unused]] const auto n = ::read(ends[0], &port, sizeof port);
  ::close(ends[0]);
}

Process::~Process() {
  ::kill(child_, SIGKILL);
  ::waitpid(child_, nullptr, 0);
}

double Process::cpu_seconds() const {
  clockid_t clock{};
  timespec used{};
  if (::clock_getcpuclockid(child_, &clock) != 0 || ::clock_gettime(clock, &used) != 0) return 0;
  return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) / 1e9;
}

void Process::pause(bool on) const { ::kill(child_, on ? SIGSTOP : SIGCONT); }

}  // namespace bulkhead::bench
