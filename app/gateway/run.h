// run.h - the gateway of `bulkhead run`: nginx with the bulkheads of a file, and the board that its workers and this process
// share. Also `bulkhead gateway show`.
//
//   gateway::Runner nginx({.file = "bulkhead.yaml", .say = print});
//   Registry registry({.complete = [&](RegistrySnapshot& s) { nginx.board().add_up(s); }});   // the workers' numbers
//   if (const int code = nginx.start(live)) return code;
//   for (;;) nginx.tend(live);                                                                // ten times a second
//
// With `board` the operator runs nginx, with its own `bulkhead_board`: only counters and orders are exchanged here.
//
// Workers read a copy of the last valid file, so that an invalid file changes nothing for them either.
//
// Threads: all of it belongs to one thread; board() may be used from any.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "adapters/workers/board.h"

namespace CLI {
class App;
}
namespace bulkhead {
class LiveConfig;
}

namespace bulkhead::gateway {

struct Loaded;
class Supervisor;

// Whether the file has a `gateway:`; false also if it cannot be read.
bool has_gateway(const std::string& file);

struct RunnerOptions {
  std::string file{};
  std::string board{};  // of an nginx that runs already; empty: run one
  std::function<void(std::string_view text)> say{};
};

class Runner {
 public:
  explicit Runner(RunnerOptions options);  // std::runtime_error: no directory for nginx's files
  ~Runner();
  Runner(const Runner&) = delete;
  Runner& operator=(const Runner&) = delete;

  workers::Board& board() noexcept { return *board_; }
  // The exit code: 0 when requests are served, 3 if the file is not valid, 1 if nginx cannot run. What is wrong has been said.
  int start(const LiveConfig& live);
  // Starts nginx if it has died, gives its workers the file in force and the orders of operators (overrides, drains, forced
  // breakers), and reloads it if routes, listeners or upstreams have changed. If nginx cannot take them, the last ones stay.
  void tend(const LiveConfig& live);
  void reload();  // with new log files and certificates, also if nothing has changed
  // nginx finishes what has begun. False: not before `until`; then the destructor cuts it.
  bool drain(std::chrono::steady_clock::time_point until, const std::function<bool()>& hurry);
  const std::vector<std::string>& addresses() const noexcept { return addresses_; }  // of the listeners

 private:
  class Directory;
  std::string conf_of(const Loaded& loaded) const;
  std::string file() const;  // the copy
  void copy(const LiveConfig& live);
  void apply(const std::string& text, bool always);
  void watch_reload();

  RunnerOptions options_;
  std::unique_ptr<Directory> directory_;  // null: the operator runs nginx; nginx_ likewise
  std::shared_ptr<workers::Board> board_;
  std::optional<workers::Orders> orders_;  // as given last; none: the board may have those of an earlier run
  std::uint64_t copied_ = 0;               // the hash of the file that workers have
  std::unique_ptr<Supervisor> nginx_;
  std::string running_;  // the nginx.conf
  // nginx was told to take another one, and has not yet: it says nothing when it cannot. A new worker shows that it has.
  struct Reload {
    std::string nginx_conf;
    std::vector<std::string> addresses;
    std::vector<workers::Board::Worker> before;
    std::chrono::steady_clock::time_point until;
  };
  std::optional<Reload> reload_;
  std::vector<std::string> addresses_;
};

std::function<int()> add_gateway(CLI::App& app);

}  // namespace bulkhead::gateway
