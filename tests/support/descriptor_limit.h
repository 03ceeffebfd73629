// descriptor_limit.h - runs a server in a child process that has few file descriptors, so that the clients of the test have
// their own.
//
//   Served served([](int ready) {
//     Server server(...);
//     use_up_descriptors_but(4);
//     tell(ready, server.port());
//     server.run();
//   });
//   HttpClient c(served.port());
//
//   { const NoDescriptors none;  connect(); }    // in this process
//
// A test begins with BULKHEAD_SKIP_WITHOUT_DESCRIPTORS(). Fork before the test has threads of its own.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <functional>
#include <string>

// UndefinedBehaviorSanitizer opens a pipe to check a virtual call, and ends the process when it cannot.
#if defined(__has_feature)
#if __has_feature(undefined_behavior_sanitizer)
#define BULKHEAD_SKIP_WITHOUT_DESCRIPTORS() GTEST_SKIP() << "the sanitizer needs file descriptors itself"
#endif
#endif
#ifndef BULKHEAD_SKIP_WITHOUT_DESCRIPTORS
#define BULKHEAD_SKIP_WITHOUT_DESCRIPTORS() static_cast<void>(0)
#endif

namespace bulkhead::tests {

// The process can open `left` more.
inline void use_up_descriptors_but(int left) {
  const rlimit limit{256, 256};
  ::setrlimit(RLIMIT_NOFILE, &limit);
  int last = 0;
  for (int fd = 0; fd >= 0; fd = ::dup(0)) last = fd;
  for (int i = 0; i < left; ++i) ::close(last - i);
}

// While this lives the process can open none.
class NoDescriptors {
 public:
  NoDescriptors() {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit none{0, before_.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &none);
  }
  ~NoDescriptors() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  NoDescriptors(const NoDescriptors&) = delete;
  NoDescriptors& operator=(const NoDescriptors&) = delete;

 private:
  rlimit before_{};
};

inline void tell(int ready, std::uint16_t port) {
  [[maybe_unused]] const auto written = ::write(ready, &port, sizeof port);
}

class Served {
 public:
  explicit Served(const std::function<void(int ready)>& serve) {
    int ready[2];
    if (::pipe(ready) != 0) return;
    child_ = ::fork();
    if (child_ == 0) {
      ::close(ready[0]);
      serve(ready[1]);
      ::_exit(0);
    }
    ::close(ready[1]);
    if (::read(ready[0], &port_, sizeof port_) != sizeof port_) port_ = 0;
    ::close(ready[0]);
  }
  ~Served() {
    if (child_ <= 0) return;
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
  }
  Served(const Served&) = delete;
  Served& operator=(const Served&) = delete;

  std::uint16_t port() const noexcept { return port_; }  // 0: it did not start
  bool alive() const { return ::waitpid(child_, nullptr, WNOHANG) == 0; }
  // Processor time that it has used, all threads together.
  std::chrono::milliseconds used() const {
    std::ifstream stat("/proc/" + std::to_string(child_) + "/stat");
    std::string word;
    long ticks = 0, n = 0;
    for (int i = 1; i <= 15 && stat >> word; ++i)
      if (i >= 14 && std::sscanf(word.c_str(), "%ld", &n) == 1) ticks += n;
    return std::chrono::milliseconds(1000 * ticks / ::sysconf(_SC_CLK_TCK));
  }

 private:
  pid_t child_ = -1;
  std::uint16_t port_ = 0;
};

}  // namespace bulkhead::tests
