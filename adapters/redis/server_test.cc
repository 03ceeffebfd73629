#include "adapters/redis/server_test.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <stdexcept>
#include <thread>

#include "adapters/redis/store.h"

namespace bulkhead::redis::tests {

using namespace std::chrono_literals;

std::uint16_t free_port() {
  const int s = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in a{};
  a.sin_family = AF_INET;
  a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof a;
  if (::bind(s, reinterpret_cast<sockaddr*>(&a), size) != 0 ||
      ::getsockname(s, reinterpret_cast<sockaddr*>(&a), &size) != 0)
    throw std::runtime_error("no free port");
  ::close(s);
  return ntohs(a.sin_port);
}

DeadAddress::DeadAddress(const char* address, std::uint16_t port)
    : listener_(::socket(AF_INET, SOCK_STREAM, 0)), waiting_(::socket(AF_INET, SOCK_STREAM, 0)) {
  sockaddr_in a{};
  a.sin_family = AF_INET;
  a.sin_port = htons(port);
  ::inet_pton(AF_INET, address, &a.sin_addr);
  const auto* const to = reinterpret_cast<const sockaddr*>(&a);
  if (::bind(listener_, to, sizeof a) != 0 || ::listen(listener_, 0) != 0 ||
      ::connect(waiting_, to, sizeof a) != 0)
    throw std::runtime_error(std::string("no line to fill at ") + address);
}

DeadAddress::~DeadAddress() {
  ::close(waiting_);
  ::close(listener_);
}

Server::Server(std::vector<std::string> more, std::uint16_t port)
    : port_(port != 0 ? port : free_port()), more_(std::move(more)) {
  plain_ = std::ranges::find(more_, "--tls-port") == more_.end();
  start();
}

Server::~Server() { kill(); }

void Server::start() {
  std::vector<std::string> words = {
      "redis-server",          "--dir", dir().string(), "--bind", "127.0.0.1", "--save", "", "--logfile",
      (dir() / "log").string()};
  if (plain_) words.insert(words.end(), {"--port", std::to_string(port_)});
  words.insert(words.end(), more_.begin(), more_.end());
  if (!more_.empty() && more_[0].starts_with('/')) {  // a configuration file comes first
    words.erase(words.end() - static_cast<std::ptrdiff_t>(more_.size()));
    words.insert(words.begin() + 1, more_[0]);
  }
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  pid_ = ::fork();
  if (pid_ == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // a test that dies leaves no server behind
    const int null = ::open("/dev/null", O_RDWR);
    ::dup2(null, 1);
    ::dup2(null, 2);
    ::execvp(argv[0], argv.data());
    ::_exit(127);
  }
  for (int i = 0; i < 500; ++i) {
    try {
      if (!plain_) {  // no more than that it listens
        Connection connection({{"127.0.0.1", std::to_string(port_), ""}},
                              std::chrono::steady_clock::now() + 2s);
        return;
      }
      call({"PING"});
      return;
    } catch (const std::runtime_error& error) {
      if (std::string(error.what()).find("NOAUTH") != std::string::npos) return;
      std::this_thread::sleep_for(10ms);
    }
  }
  throw std::runtime_error("redis-server does not start: is the package redis-server installed?");
}

void Server::kill() {
  if (pid_ <= 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

void Server::signal(int what) { ::kill(pid_, what); }

Value Server::call(std::initializer_list<std::string_view> words) {
  const auto until = std::chrono::steady_clock::now() + 5s;
  const Address address{"127.0.0.1", std::to_string(port_), ""};
  Connection connection({address}, until);
  return redis::call(connection, address, Command(words.begin(), words.end()), until);
}

Sentinel::Sentinel(const Server& master, const std::string& password) {
  const std::filesystem::path conf = dir_.path() / "conf";
  std::ofstream(conf)
      << "sentinel monitor limits 127.0.0.1 " << master.port()
      << " 1\nsentinel down-after-milliseconds limits 500\nsentinel failover-timeout limits 5000\n"
      << (password.empty() ? ""
                           : "requirepass " + password + "\nsentinel auth-pass limits " + password + "\n");
  server_ = std::make_unique<Server>(std::vector<std::string>{conf.string(), "--sentinel"});
}

}  // namespace bulkhead::redis::tests
