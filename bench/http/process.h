// process.h - a part of a measurement in a process of its own, so that its processor time can be measured alone.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>

namespace bulkhead::bench {

double busy_seconds();     // of all processors and all processes so far, including what the host took away
double own_cpu_seconds();  // of this process

class Process {
 public:
  // body(tell) runs there until it is killed; what it tells is `port` here.
  explicit Process(const std::function<void(const std::function<void(std::uint16_t)>& tell)>& body);
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  ~Process();

  double cpu_seconds() const;  // user and system, so far
  void pause(bool on) const;   // SIGSTOP, SIGCONT
  std::uint16_t port = 0;

 private:
  pid_t child_;
};

}  // namespace bulkhead::bench
