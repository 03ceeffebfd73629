// server_test.h - a redis-server of its own for a test, on a free port of the loopback interface.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "adapters/redis/connection.h"
#include "tests/support/temp_directory.h"

namespace bulkhead::redis::tests {

std::uint16_t free_port();

class Server {
 public:
  // More words of the command line, such as {"--appendonly", "yes"}.
  explicit Server(std::vector<std::string> more = {}, std::uint16_t port = 0);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  std::uint16_t port() const noexcept { return port_; }
  std::string url() const { return "redis://127.0.0.1:" + std::to_string(port_); }
  const std::filesystem::path& dir() const noexcept { return dir_.path(); }
  pid_t pid() const noexcept { return pid_; }

  void start();           // and waits until it answers
  void kill();            // -9
  void signal(int what);  // SIGSTOP, SIGCONT
  Value call(std::initializer_list<std::string_view> words);

 private:
  bulkhead::tests::TempDirectory dir_;
  std::uint16_t port_;
  std::vector<std::string> more_;
  pid_t pid_ = -1;
  bool plain_ = true;
};

// An address that answers no attempt to connect, as that of a machine that is down.
class DeadAddress {
 public:
  DeadAddress(const char* address, std::uint16_t port);
  ~DeadAddress();
  DeadAddress(const DeadAddress&) = delete;
  DeadAddress& operator=(const DeadAddress&) = delete;

 private:
  int listener_, waiting_;  // the only place in its line
};

// A Sentinel that watches one server under the name "limits", and promotes its replica soon after it has died.
class Sentinel {
 public:
  explicit Sentinel(const Server& master, const std::string& password = {});
  Server& server() noexcept { return *server_; }
  std::string url() const {
    return "redis+sentinel://127.0.0.1:" + std::to_string(server_->port()) + "/limits";
  }

 private:
  bulkhead::tests::TempDirectory dir_;
  std::unique_ptr<Server> server_;
};

}  // namespace bulkhead::redis::tests
