#include "app/gateway/supervisor.h"

#include <fmt/format.h>
#include <grp.h>
#include <pwd.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

namespace bulkhead::gateway {
namespace {

using Clock = std::chrono::steady_clock;

// Between fork and exec only what a signal handler may call: this process has threads.
pid_t start(const std::vector<std::string>& words, int error_to) {
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid != 0) return pid;
  ::setpgid(0, 0);  // Ctrl-C is for the supervisor
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != parent) ::_exit(1);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::signal(SIGPIPE, SIG_DFL);
  ::signal(SIGXFSZ, SIG_DFL);
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) == 0) {
    files.rlim_cur = files.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &files);
  }
  if (error_to >= 0) ::dup2(error_to, 2);
  ::execv(arguments[0], arguments.data());
  ::_exit(127);
}

std::string how(int status) {
  if (WIFSIGNALED(status)) return fmt::format("signal {}", WTERMSIG(status));
  return fmt::format("exit code {}", WEXITSTATUS(status));
}

}  // namespace

Supervisor::~Supervisor() {
  if (pid_ == 0) return;
  ::kill(pid_, SIGTERM);
  ::waitpid(pid_, nullptr, 0);
}

std::string Supervisor::check(const std::string& file) const {
  int ends[2];
  if (::pipe(ends) != 0) return std::strerror(errno);
  const pid_t pid =
      start({options_.program, "-p", options_.directory, "-c", file, "-e", "stderr", "-t", "-q"}, ends[1]);
  ::close(ends[1]);
  std::string said;
  char part[4096];
  for (ssize_t n = 0; (n = ::read(ends[0], part, sizeof part)) > 0;)
    said.append(part, static_cast<std::size_t>(n));
  ::close(ends[0]);
  int status = 0;
  if (pid < 0 || ::waitpid(pid, &status, 0) != pid) return "cannot start " + options_.program;
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return "";
  return said.empty() ? options_.program + " -t: " + how(status) : said;
}

std::string Supervisor::apply(const std::string& nginx_conf) {
  const std::string file = options_.directory + "/nginx.conf", wanted = file + ".new";
  std::ofstream(wanted) << nginx_conf;
  if (std::string problem = check(wanted); !problem.empty()) return problem;
  if (std::rename(wanted.c_str(), file.c_str()) != 0) return file + ": " + std::strerror(errno);
  if (pid_ != 0 && !ended()) ::kill(pid_, SIGHUP);
  return "";
}

void Supervisor::take_back(const std::string& nginx_conf) const {
  const std::string file = options_.directory + "/nginx.conf";
  std::ofstream(file + ".new") << nginx_conf;
  std::rename((file + ".new").c_str(), file.c_str());
}

std::string Supervisor::how_ended() {
  siginfo_t info{};
  // Its status stays for ended().
  if (pid_ == 0 || ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0)
    return "it cannot be started";
  if (info.si_pid == 0) return "";
  return fmt::format("{} {}", info.si_code == CLD_EXITED ? "exit code" : "signal", info.si_status);
}

bool Supervisor::ended() {
  int status = 0;
  if (pid_ == 0 || ::waitpid(pid_, &status, WNOHANG) != pid_) return pid_ == 0;
  pid_ = 0;
  // One that ran for a while is started at once; one that dies again and again more and more seldom.
  deaths_ = Clock::now() - started_ > std::chrono::seconds(10) ? 0 : std::min(deaths_ + 1, 6);
  const auto pause = std::chrono::milliseconds(deaths_ == 0 ? 0 : 50 << deaths_);
  next_ = Clock::now() + pause;
  options_.say(fmt::format("nginx has ended ({}); it is started again in {} ms", how(status), pause.count()));
  return true;
}

void Supervisor::tend() {
  if (pid_ != 0 && !ended()) return;
  if (Clock::now() < next_) return;
  started_ = Clock::now();
  pid_ = start(
      {options_.program, "-p", options_.directory, "-c", options_.directory + "/nginx.conf", "-e", "stderr"},
      -1);
  if (pid_ < 0) {
    pid_ = 0;
    next_ = started_ + std::chrono::seconds(1);
  }
}

bool Supervisor::drain(Clock::time_point until, const std::function<bool()>& hurry) {
  if (pid_ == 0) return true;
  ::kill(pid_, SIGQUIT);
  while (Clock::now() < until && !hurry()) {
    if (::waitpid(pid_, nullptr, WNOHANG) == pid_) {
      pid_ = 0;
      return true;
    }
  }
  return false;  // the destructor cuts it
}

std::uint64_t max_descriptors() {
  rlimit files{};
  return ::getrlimit(RLIMIT_NOFILE, &files) == 0 ? files.rlim_max : 1024;
}

WorkerUser worker_user(const std::string& name) {
  if (::geteuid() != 0) return {};
  const std::vector<std::string> usual{"www-data", "nginx", "nobody"};
  for (const std::string& one : name.empty() ? usual : std::vector{name}) {
    const passwd* const user = ::getpwnam(one.c_str());
    const group* const its = user ? ::getgrgid(user->pw_gid) : nullptr;
    if (its) return {.words = one + ' ' + its->gr_name, .group = user->pw_gid};
  }
  return {.words = name.empty() ? "root" : name};  // nginx says that it does not exist
}

std::string find_nginx() {
  std::string path = std::getenv("PATH") ? std::getenv("PATH") : "";
  path += ":/usr/sbin:/usr/local/sbin";
  for (std::size_t from = 0; from <= path.size();) {
    const std::size_t end = std::min(path.find(':', from), path.size());
    if (std::string file = path.substr(from, end - from) + "/nginx";
        end > from && ::access(file.c_str(), X_OK) == 0)
      return file;
    from = end + 1;
  }
  return "";
}

// Beside the program in a build tree, or where Debian's nginx has its modules.
std::string find_module() {
  std::error_code none;
  const auto here = std::filesystem::read_symlink("/proc/self/exe", none).parent_path();
  for (const std::filesystem::path& directory : {here / "../adapters/nginx", here / "../lib/nginx/modules",
                                                 std::filesystem::path("/usr/lib/nginx/modules")}) {
    const auto file = directory / "ngx_http_bulkhead_module.so";
    if (std::filesystem::exists(file, none)) return std::filesystem::weakly_canonical(file, none).string();
  }
  return "";
}

}  // namespace bulkhead::gateway
