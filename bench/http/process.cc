#include "bench/http/process.h"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <string>

namespace bulkhead::bench {

double busy_seconds() {
  std::ifstream file("/proc/stat");
  std::string cpu;
  double user = 0, nice = 0, system = 0, idle = 0, io = 0, irq = 0, soft = 0, steal = 0;
  file >> cpu >> user >> nice >> system >> idle >> io >> irq >> soft >> steal;
  return (user + nice + system + irq + soft + steal) / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

double own_cpu_seconds() {
  timespec used{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) / 1e9;
}

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
