#include "app/demo/serve.h"

#include <fmt/format.h>
#include <signal.h>
#include <termios.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <random>
#include <system_error>

#include "app/cli/command_line.h"
#include "app/cli/json.h"
#include "app/cli/json_lines.h"
#include "app/cli/private_directory.h"
#include "app/cli/terminal.h"
#include "app/demo/live_shop.h"
#include "app/demo/phases.h"
#include "control/http/access.h"
#include "control/server.h"

namespace bulkhead::demo {
namespace {

constexpr std::string_view kUsualListen = "127.0.0.1:9920";

std::string new_token() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", random(), random(), random(), random());
}

// Keys come one by one and are not shown, for as long as this lives.
class Keys {
 public:
  explicit Keys(bool wanted) {
    if (!wanted || !cli::is_terminal(STDIN_FILENO) || !cli::is_terminal(STDOUT_FILENO)) return;
    termios now{};
    if (::tcgetattr(STDIN_FILENO, &now) != 0) return;
    before_ = now;
    now.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    ::tcsetattr(STDIN_FILENO, TCSANOW, &now);
  }
  ~Keys() {
    if (before_) ::tcsetattr(STDIN_FILENO, TCSANOW, &*before_);
  }
  Keys(const Keys&) = delete;
  Keys& operator=(const Keys&) = delete;
  bool any() const noexcept { return before_.has_value(); }

 private:
  std::optional<termios> before_;
};

void greet(const control::Server& server, const std::string& token, const std::string& socket,
           const Store& store, bool keys) {
  fmt::print(
      "A shop under load: checkout, browse, analytics and admin share a database of {3} connections "
      "({4}).\n\n"
      "  dashboard   {0}/ui/#token={1}\n"
      "  terminal    bulkhead top --admin {2}\n"
      "  trouble     bulkhead switch slow-analytics on --admin {2}\n"
      "  rehearse    bulkhead fault browse --latency 1s --for 1m --reason drill --admin {2}\n"
      "  change it   bulkhead set analytics --max-concurrent 5 --for 2m --reason trying --admin {2}\n"
      "  metrics     curl {0}/metrics\n\n",
      server.url(), token, socket, store.connections(), store.about());
  fmt::print(
      "{}Ctrl-C ends it.\n",
      keys ? "Keys: s makes analytics slow and quick again, b switches the bulkheads off and on, q quits. "
           : "");
  std::fflush(stdout);
}

}  // namespace

int serve_demo(const ServeOptions& o, std::string_view version) {
  const cli::CatchSignals signals;
  ::signal(SIGPIPE, SIG_IGN);  // the reader of the output may exit
  ::signal(SIGXFSZ, SIG_IGN);  // as in bulkhead run
  cli::JsonLines lines;
  const cli::PrivateDirectory directory("bulkhead-demo");
  const std::string token = new_token();
  const std::string tokens = directory.path() + "/tokens";
  std::ofstream(tokens) << "demo operator " << control::sha256_hex(token) << '\n';
  std::filesystem::permissions(tokens, std::filesystem::perms(0600));  // whatever the umask

  Registry registry;
  std::unique_ptr<Store> store;
  try {
    store = open_store(o.postgres);
  } catch (const std::exception& error) {
    fmt::print(stderr, "bulkhead demo: {}\n", error.what());
    return cli::kFailure;
  }
  LiveShop shop(story_of(24, o.seed, store->connections()), *store, registry);
  control::ServerOptions options{
      .unix_socket = o.unix_socket.empty() ? directory.path() + "/admin.sock" : o.unix_socket,
      .listen = o.listen.empty() ? std::string(kUsualListen) : o.listen,
      .tokens_file = tokens,
      .instance = "demo",
      .version = std::string(version),
      .allow_faults = true,
      .switches = {{.name = "slow-analytics",
                    .title = "Analytics is slow",
                    .is_on = [&shop] { return shop.slow(); },
                    .set = [&shop](bool on) { shop.set_slow(on); }},
                   {.name = "bulkheads",
                    .title = "Bulkheads",
                    .is_on = [&shop] { return shop.bulkheads(); },
                    .set = [&shop](bool on) { shop.set_bulkheads(on); }}}};
  if (o.json) options.on_event = [&lines](std::string_view line) { lines.add(line); };
  std::optional<control::Server> server;
  try {
    try {
      server.emplace(registry, options);
    } catch (const std::system_error& taken) {
      if (!o.listen.empty() || taken.code() != std::errc::address_in_use) throw;
      options.listen = "127.0.0.1:0";
      server.emplace(registry, options);
    }
  } catch (const std::exception& error) {
    fmt::print(stderr, "bulkhead demo: {}\n", error.what());
    return cli::kFailure;
  }
  shop.set_slow(o.slow);
  if (o.json) {
    const auto quoted = [](std::string_view text) { return cli::json_quoted(text); };
    lines.add(
        fmt::format(R"({{"kind":"ready","url":{},"token":{},"unix_socket":{},"version":{},"store":{}}})",
                    quoted(server->url()), quoted(token), quoted(options.unix_socket), quoted(version),
                    quoted(store->about())));
  }
  const Keys keys(!o.json);
  if (!o.json) greet(*server, token, options.unix_socket, *store, keys.any());
  const TimePoint until =
      o.seconds > 0 ? std::chrono::steady_clock::now() +
                          std::chrono::duration_cast<nanoseconds>(std::chrono::duration<double>(o.seconds))
                    : no_deadline;
  const auto setting = [&shop] {
    return Phases::Setting{.slow = shop.slow(), .bulkheads = shop.bulkheads()};
  };
  const auto counts = [&shop] {
    Phases::Counts now;
    for (std::size_t i = 0; i < kRoutes; ++i) now[i] = shop.result(i);
    return now;
  };
  const cli::Style style = cli::style_of(STDOUT_FILENO);
  Phases phases(shop.story(), std::chrono::steady_clock::now(), setting(), counts());
  while (cli::CatchSignals::caught() == 0 && std::chrono::steady_clock::now() < until) {
    const char key = keys.any() ? cli::FullScreen::wait_for_key(std::chrono::milliseconds(200))
                                : (::usleep(100'000), '\0');
    lines.flush();
    if (!o.json) {  // also after a switch on the page or on the command line
      fmt::print("{}", phases.look(std::chrono::steady_clock::now(), setting(), counts(), style));
      std::fflush(stdout);
    }
    if (key == 'q') break;
    if (key == 's') shop.set_slow(!shop.slow());
    if (key == 'b') shop.set_bulkheads(!shop.bulkheads());
    if (key != 's' && key != 'b') continue;
    const std::string text = fmt::format("analytics is {}, bulkheads are {}", shop.slow() ? "slow" : "quick",
                                         shop.bulkheads() ? "on" : "off");
    fmt::print("{}\n", text);
    std::fflush(stdout);
    server->note("switch", text);
  }
  server->set_stopping();
  return 0;
}

}  // namespace bulkhead::demo
