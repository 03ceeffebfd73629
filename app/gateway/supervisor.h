// supervisor.h - nginx as a child of this program: started, restarted when it dies, reloaded, ended without cutting requests.
//
// Threads: all of it belongs to one thread. The child gets no terminal signals; it ends when this process does.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace bulkhead::gateway {

struct SupervisorOptions {
  std::string program{};                             // nginx
  std::string directory{};                           // nginx.conf is written here
  std::function<void(std::string_view text)> say{};  // what happens, for people
};

class Supervisor {
 public:
  explicit Supervisor(SupervisorOptions options) : options_(std::move(options)) {}
  ~Supervisor();  // ends the child at once
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  // Has nginx check it; its complaint, or "". Then nginx is told to take it, or takes it at its start.
  std::string apply(const std::string& nginx_conf);
  // nginx has not taken it, and goes on with this one: the next one that is started does, too.
  void take_back(const std::string& nginx_conf) const;
  void tend();  // starts the child, if it does not run and it is time
  // The child serves what has begun. True: it has ended. False: not before `until`; then it is cut.
  bool drain(std::chrono::steady_clock::time_point until, const std::function<bool()>& hurry);
  std::string how_ended();  // "" if it runs; also noticed by the next tend()

 private:
  bool ended();  // takes note if it has, and says so
  std::string check(const std::string& file) const;

  SupervisorOptions options_;
  pid_t pid_ = 0;   // 0: it does not run
  int deaths_ = 0;  // in a row
  std::chrono::steady_clock::time_point started_{}, next_{};
};

// That nginx may have open: as many as the system lets this process have, not only as many as it has now.
std::uint64_t max_descriptors();

// Whose workers nginx has when root runs it. Of `name`, or of the first of the usual users that exists.
struct WorkerUser {
  std::string
      words{};  // "www-data www-data", for nginx.conf; empty: this process is not root's, and its user is theirs
  gid_t group = 0;
};
WorkerUser worker_user(const std::string& name);

// The program and the module that a file does not name; "" if there is none.
std::string find_nginx();
std::string find_module();

}  // namespace bulkhead::gateway
