#include "app/gateway/run.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <thread>

#include "app/cli/command_line.h"
#include "app/cli/json.h"
#include "app/cli/terminal.h"
#include "app/gateway/gateway.h"
#include "app/gateway/nginx_conf.h"
#include "app/gateway/supervisor.h"
#include "bulkhead/live_config.h"

namespace bulkhead::gateway {
namespace {

// For nginx to serve requests; it tries for 2.5 s to bind an address.
constexpr std::chrono::seconds kPatience{10};

NginxOptions nginx_options(const std::string& file, const Loaded& loaded, const std::string& directory) {
  NginxOptions options{.file = std::filesystem::absolute(file).string(), .directory = directory};
  options.module = loaded.gateway->module.empty() ? find_module() : loaded.gateway->module;
  // Beside its connections a worker has files: listeners, logs, bodies and responses that are large. Root may raise the limit.
  options.descriptors = std::uint64_t{loaded.gateway->max_connections} + 1024;
  if (::geteuid() != 0) options.descriptors = std::min(options.descriptors, max_descriptors());
  options.connections = std::min<std::uint64_t>(loaded.gateway->max_connections, options.descriptors);
  options.user = worker_user(loaded.gateway->user).words;
  return options;
}

int invalid(const Loaded& loaded) {
  std::fputs(to_text(loaded.file.problems).c_str(), stderr);
  return loaded.file.readable ? cli::kInvalid : cli::kFailure;
}

workers::Orders orders_of(const LiveConfig& live) {
  workers::Orders orders;
  for (ActiveOverride& o : live.overrides())
    orders.overrides.push_back({.path = o.bulkhead.empty() ? std::move(o.path) : "",
                                .bulkhead = std::move(o.bulkhead),
                                .setting = std::move(o.setting),
                                .value = std::move(o.value),
                                .reason = std::move(o.reason),
                                .actor = std::move(o.actor),
                                .expires = o.expires});
  for (const std::string& name : live.registry().names()) {
    const auto bulkhead = live.registry().find(name);
    if (!bulkhead) continue;
    const BulkheadSnapshot now = bulkhead->snapshot();
    const BreakerMode mode = now.breaker ? now.breaker->mode : BreakerMode::automatic;
    if (now.draining || mode != BreakerMode::automatic || now.fault)
      orders.forced.push_back({name, now.draining, mode, now.fault.value_or(Fault{})});
  }
  return orders;
}

}  // namespace

bool has_gateway(const std::string& file) { return load(file).gateway.has_value(); }

// A directory for nginx's files that is gone when this is. One whose process was killed goes at the next start: it is locked
// by those that use it, this process and nginx, which inherits the lock.
class Runner::Directory {
 public:
  Directory() {
    const std::filesystem::path parent = std::filesystem::temp_directory_path();
    remove_left_over(parent);
    for (int tries = 0; tries < 10; ++tries) {
      path_ = (parent / kPattern).string();
      if (!::mkdtemp(path_.data())) break;
      lock_ = lock(path_, 0);
      if (lock_ >= 0 && ::access(path_.c_str(), F_OK) == 0) return;  // else another start has just removed it
      if (lock_ >= 0) ::close(lock_);
    }
    throw std::runtime_error("cannot make the directory " + path_);
  }
  ~Directory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
    ::close(lock_);
  }
  Directory(const Directory&) = delete;
  Directory& operator=(const Directory&) = delete;
  const std::string& path() const noexcept { return path_; }
  // For the workers, which read the bulkheads' file and write bodies here, and for no other user.
  void open_to(gid_t group) const {
    if (::chown(path_.c_str(), 0, group) == 0) ::chmod(path_.c_str(), 0750);
  }

 private:
  static constexpr std::string_view kPattern = "bulkhead-gateway-XXXXXX";

  // -1: another process has it, or it is not this user's.
  static int lock(const std::string& path, int flags) {
    const int directory = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | flags);
    struct stat its{};
    if (directory >= 0 && ::fstat(directory, &its) == 0 && its.st_uid == ::geteuid() &&
        ::flock(directory, LOCK_EX | LOCK_NB) == 0)
      return directory;
    if (directory >= 0) ::close(directory);
    return -1;
  }

  static void remove_left_over(const std::filesystem::path& parent) {
    const std::string_view prefix = kPattern.substr(0, kPattern.find('X'));
    std::error_code error;
    std::vector<std::string> left;
    for (std::filesystem::directory_iterator one(parent, error), end; !error && one != end;
         one.increment(error)) {
      const std::string name = one->path().filename().string();
      if (name.size() == kPattern.size() && name.starts_with(prefix)) left.push_back(one->path().string());
    }
    for (const std::string& path : left) {
      const int directory = lock(path, O_CLOEXEC);
      if (directory < 0) continue;
      std::filesystem::remove_all(path, error);
      ::close(directory);
    }
  }

  std::string path_;
  int lock_ = -1;
};

Runner::Runner(RunnerOptions options)
    : options_(std::move(options)),
      directory_(options_.board.empty() ? std::make_unique<Directory>() : nullptr),
      board_(workers::Board::open(directory_ ? directory_->path() + "/board" : options_.board)) {}

Runner::~Runner() = default;

std::string Runner::conf_of(const Loaded& loaded) const {
  NginxOptions options = nginx_options(options_.file, loaded, directory_->path());
  options.copy = file();
  return nginx_conf(*loaded.gateway, loaded.file.config, options);
}

std::string Runner::file() const { return directory_->path() + "/bulkhead.yaml"; }

void Runner::copy(const LiveConfig& live) {
  std::ofstream(file() + ".new") << live.text();
  ::chmod((file() + ".new").c_str(), 0644);  // despite the umask: its directory is closed to others
  std::filesystem::rename(file() + ".new", file());
  copied_ = live.status().text_hash;
}

int Runner::start(const LiveConfig& live) {
  if (!directory_) {
    addresses_ = {"with " + options_.board};
    return 0;
  }
  const Loaded first = parse(live.text(), options_.file);
  if (!first.file.ok() || !first.gateway) return invalid(first);
  const std::string program = first.gateway->nginx.empty() ? find_nginx() : first.gateway->nginx;
  const std::string module = first.gateway->module.empty() ? find_module() : first.gateway->module;
  if (program.empty() || module.empty()) {
    options_.say(program.empty() ? "nginx was not found: apt-get install nginx, or set gateway.nginx"
                                 : "ngx_http_bulkhead_module.so was not found: install "
                                   "libnginx-mod-http-bulkhead, or set gateway.module");
    return cli::kFailure;
  }
  if (const WorkerUser user = worker_user(first.gateway->user); !user.words.empty())
    directory_->open_to(user.group);
  copy(live);
  nginx_ = std::make_unique<Supervisor>(
      SupervisorOptions{.program = program, .directory = directory_->path(), .say = options_.say});
  running_ = conf_of(first);
  if (const std::string problem = nginx_->apply(running_); !problem.empty()) {
    options_.say("nginx rejects the configuration made from the file:\n" + problem);
    if (problem.find("is not binary compatible") != problem.npos)
      options_.say(module + " was built for another nginx than " + program +
                   ": install the libnginx-mod-http-bulkhead of that nginx, or build it with its nginx-dev");
    return cli::kFailure;
  }
  nginx_->tend();
  // Ready means that requests are served.
  const auto until = std::chrono::steady_clock::now() + kPatience;
  while (board_->workers() == 0) {
    const std::string end = nginx_->how_ended();
    if (end.empty() && std::chrono::steady_clock::now() < until) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      continue;
    }
    options_.say(end.empty() ? "nginx has no worker; its messages are above"
                             : "nginx has ended (" + end + "); its messages are above");
    return cli::kFailure;
  }
  for (const Listener& l : first.gateway->listeners) addresses_.push_back(l.address);
  return 0;
}

void Runner::tend(const LiveConfig& live) {
  if (nginx_) nginx_->tend();
  watch_reload();
  if (nginx_ && live.status().text_hash != copied_) {
    copy(live);
    apply(live.text(), false);
  }
  workers::Orders wanted = orders_of(live);
  if (wanted == orders_) return;
  board_->give(wanted);
  orders_ = std::move(wanted);
}

void Runner::reload() {
  if (!nginx_) return;
  std::ifstream copied(file());
  apply({std::istreambuf_iterator<char>(copied), {}}, true);
}

void Runner::apply(const std::string& text, bool always) {
  const Loaded loaded = parse(text, options_.file);
  if (!loaded.gateway)
    return options_.say("the file has no gateway any more; nginx goes on with the last one");
  std::string wanted = conf_of(loaded);
  if (wanted == (reload_ ? reload_->nginx_conf : running_) && !always) return;
  std::vector<workers::Board::Worker> before = board_->living();
  if (const std::string problem = nginx_->apply(wanted); !problem.empty())
    return options_.say(
        "nginx rejects the configuration made from the file; the last valid one stays in force:\n" + problem);
  reload_ = {.nginx_conf = std::move(wanted),
             .addresses = {},
             .before = std::move(before),
             .until = std::chrono::steady_clock::now() + kPatience};
  for (const Listener& l : loaded.gateway->listeners) reload_->addresses.push_back(l.address);
}

void Runner::watch_reload() {
  if (!reload_) return;
  const auto is_new = [this](const workers::Board::Worker& worker) {
    return std::ranges::find(reload_->before, worker) == reload_->before.end();
  };
  if (std::ranges::any_of(board_->living(), is_new)) {
    running_ = std::move(reload_->nginx_conf);
    addresses_ = std::move(reload_->addresses);
    options_.say("nginx has been reloaded");
  } else if (std::chrono::steady_clock::now() < reload_->until) {
    return;
  } else {
    nginx_->take_back(running_);
    options_.say(
        "nginx could not take the new listeners, routes or upstreams, and its messages are above; the last "
        "ones stay "
        "in force until the file changes, or this process gets SIGHUP");
  }
  reload_.reset();
}

bool Runner::drain(std::chrono::steady_clock::time_point until, const std::function<bool()>& hurry) {
  return !nginx_ || nginx_->drain(until, hurry);
}

std::function<int()> add_gateway(CLI::App& app) {
  struct Show {
    std::string action, file;
    bool json = false;
  };
  CLI::App* const command = app.add_subcommand("gateway",
                                               "Print the nginx configuration of a file\n"
                                               "\n"
                                               "Examples:\n"
                                               "  bulkhead gateway show bulkhead.yaml");
  auto o = std::make_shared<Show>();
  command->add_option("ACTION", o->action, "show: print it")
      ->required()
      ->check(CLI::IsMember({"show"}))
      ->type_name("");
  command->add_option("FILE", o->file, "The configuration")->required()->type_name("");
  command->add_flag("--json", o->json, "Print one JSON document and nothing else");
  return [o] {
    const Loaded loaded = load(o->file);
    if (!loaded.file.ok()) return invalid(loaded);
    if (!loaded.gateway) {
      fmt::print(stderr, "bulkhead: {} has no gateway: no traffic passes through bulkhead run\n", o->file);
      return cli::kInvalid;
    }
    const std::string text = nginx_conf(*loaded.gateway, loaded.file.config,
                                        nginx_options(o->file, loaded, "/tmp/bulkhead-gateway"));
    if (o->json) {
      cli::JsonWriter json;
      json.open().field("file", o->file).field("nginx_conf", text);
      cli::say(json.close().text());
    } else {
      cli::say(text);
    }
    return 0;
  };
}

}  // namespace bulkhead::gateway
