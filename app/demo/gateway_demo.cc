#include "app/demo/gateway_demo.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string_view>
#include <thread>
#include <vector>

#include "app/cli/command_line.h"
#include "app/gateway/supervisor.h"

namespace bulkhead::demo {
namespace {

constexpr std::string_view kFile = R"(version: 1
bulkheads:
  checkout: {{max_concurrent: 8, max_queue: 32, max_wait: 500ms, criticality: critical}}
  reports: {{max_concurrent: 4, max_queue: 8, max_wait: 200ms}}
gateway:
  listeners: {{http: {{address: 127.0.0.1:{gateway}}}}}
  upstreams: {{shop: {{servers: [127.0.0.1:{shop}], keep_alive: 0}}}}
  routes:
    checkout: {{path: /checkout, bulkhead: checkout, upstream: shop}}
    reports: {{path: /reports, bulkhead: reports, upstream: shop}}
    other: {{path: /, upstream: shop}}
    open: {{host: open, path: /, upstream: shop}}      # the same shop, not protected
)";

// A port that is free now.
std::uint16_t free_port() {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  const bool bound = ::bind(fd, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
                     ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0;
  ::close(fd);
  return bound ? ntohs(address.sin_port) : std::uint16_t{0};
}

bool answers(std::uint16_t port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const bool connected = ::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  ::close(fd);
  return connected;
}

class Child {
 public:
  Child(const std::vector<std::string>& words, const std::string& log) {
    std::vector<char*> arguments;
    for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    pid_ = ::fork();
    if (pid_ != 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (!log.empty()) {
      const int fd = ::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
      ::dup2(fd, 1);
      ::dup2(fd, 2);
    }
    ::execvp(arguments[0], arguments.data());
    ::_exit(127);
  }
  ~Child() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGTERM);
    wait();
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  int wait() {
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
  }
  bool ended() {
    int status = 0;
    if (pid_ > 0 && ::waitpid(pid_, &status, WNOHANG) == pid_) pid_ = 0;
    return pid_ == 0;
  }

 private:
  pid_t pid_ = 0;
};

bool wait_for(std::uint16_t port, Child& child) {
  for (int i = 0; i < 500 && !child.ended(); ++i) {
    if (answers(port)) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return false;
}

}  // namespace

int run_gateway_demo(const GatewayDemoOptions& options) {
  if (gateway::find_nginx().empty() || gateway::find_module().empty()) {
    fmt::print(stderr,
               "bulkhead demo --gateway needs nginx and its module: apt-get install nginx nginx-dev, and "
               "build again "
               "(or install libnginx-mod-http-bulkhead)\n");
    return cli::kFailure;
  }
  std::string directory = (std::filesystem::temp_directory_path() / "bulkhead-demo-XXXXXX").string();
  if (!::mkdtemp(directory.data())) {
    fmt::print(stderr, "bulkhead demo: cannot make a directory for its files\n");
    return cli::kFailure;
  }
  const std::uint16_t shop_port = free_port(), gateway_port = free_port(), admin_port = free_port();
  const std::string script = directory + "/shop.py", file = directory + "/shop.yaml",
                    log = directory + "/log";
  std::ofstream(script) << kShopScript;
  std::ofstream(file) << fmt::format(kFile, fmt::arg("gateway", gateway_port), fmt::arg("shop", shop_port));
  const std::string admin = fmt::format("127.0.0.1:{}", admin_port);
  int code = cli::kFailure;
  {
    Child shop({"python3", script, "serve", std::to_string(shop_port)}, log);
    Child run({"/proc/self/exe", "run", file, "--listen", admin, "--grace", "0"}, log);
    if (wait_for(shop_port, shop) && wait_for(gateway_port, run)) {
      std::vector<std::string> words{"python3",         script,
                                     "story",           std::to_string(gateway_port),
                                     "http://" + admin, fmt::format("{}", options.seconds)};
      if (options.json) words.emplace_back("--json");
      code = Child(words, "").wait();
    } else {
      std::ifstream said(log);
      fmt::print(stderr, "bulkhead demo: the shop or the gateway did not start\n{}",
                 std::string(std::istreambuf_iterator<char>(said), {}));
    }
  }
  std::error_code ignored;
  std::filesystem::remove_all(directory, ignored);
  return code;
}

}  // namespace bulkhead::demo
