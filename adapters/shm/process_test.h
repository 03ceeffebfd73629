// process_test.h - child processes for tests: told apart by pipes, ended with the test.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <functional>
#include <stdexcept>
#include <string>

namespace bulkhead::shm {

class TempDir {
 public:
  TempDir() {
    char name[] = "/dev/shm/bulkhead_test.XXXXXX";
    if (!mkdtemp(name)) throw std::runtime_error("mkdtemp");
    path_ = name;
  }
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  std::string operator/(const std::string& file) const { return path_ + "/" + file; }

 private:
  std::string path_;
};

// The child's ends.
class Pipe {
 public:
  Pipe(int in, int out) : in_(in), out_(out) {}
  void tell(char c = 'y') const {
    if (write(out_, &c, 1) != 1) _exit(2);
  }
  char wait_go() const {
    char c = 0;
    if (read(in_, &c, 1) != 1) _exit(2);
    return c;
  }
  void close_on_exec() const {
    fcntl(out_, F_SETFD, FD_CLOEXEC);
    fcntl(in_, F_SETFD, FD_CLOEXEC);
  }

 private:
  int in_, out_;
};

// Runs `body` in a forked child, which is killed, with all it has forked, when this is destroyed.
class Process {
 public:
  explicit Process(const std::function<void(Pipe&)>& body) {
    int to[2], from[2];
    if (pipe(to) != 0 || pipe(from) != 0) throw std::runtime_error("pipe");
    pid_ = fork();
    if (pid_ == 0) {
      setpgid(0, 0);
      close(to[1]);
      close(from[0]);
      Pipe ends(to[0], from[1]);
      try {
        body(ends);
      } catch (const std::exception& e) {
        (void)!write(2, e.what(), std::string_view(e.what()).size());
        _exit(3);
      }
      _exit(0);
    }
    setpgid(pid_, pid_);
    close(to[0]);
    close(from[1]);
    go_ = to[1];
    told_ = from[0];
  }
  ~Process() {
    end_orphans();
    if (!reaped_) {
      ::kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    close(go_);
    close(told_);
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t pid() const { return pid_; }
  int told() const { return told_; }
  void go(char c = 'g') const {
    if (write(go_, &c, 1) != 1) throw std::runtime_error("the child is gone");
  }
  // What it told; 0: its end of the pipe is closed.
  int wait_told() const {
    char c = 0;
    ssize_t n = 0;
    do n = read(told_, &c, 1);
    while (n < 0 && errno == EINTR);
    return n == 1 ? c : 0;
  }
  void kill(int signal) const { ::kill(pid_, signal); }
  void wait_stopped() const {
    siginfo_t info{};
    waitid(P_PID, static_cast<id_t>(pid_), &info, WSTOPPED | WNOWAIT);
  }
  // Dead when it returns, and not reaped: kill(pid, 0) still finds it.
  void kill_and_leave_a_zombie() const {
    ::kill(pid_, SIGKILL);
    siginfo_t info{};
    waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT);
  }
  int wait_exit() {
    int status = 0;
    waitpid(pid_, &status, 0);
    reaped_ = true;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  void end_orphans() const { ::kill(-pid_, SIGKILL); }

 private:
  pid_t pid_ = 0;
  int go_ = -1, told_ = -1;
  bool reaped_ = false;
};

}  // namespace bulkhead::shm
