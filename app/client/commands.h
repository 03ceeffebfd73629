// commands.h - the commands that speak to a running process: status, set, reset, breaker, drain, fault, events, diff, reload, top.
#pragma once

#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace bulkhead::cli {
struct Style;
}

namespace bulkhead::client {

// What the command line said; filled in by CLI11 when it parses.
struct ClientOptions {
  std::string admin, token, certificate;
  bool json = false, plain = false, no_colour = false;
  std::string name, reason, duration = "15m", action;
  long long max_concurrent = -1, max_queue = -1;
  std::vector<std::string> budgets{};  // NAME=N
  std::string latency, error, fault_duration = "1m";
  bool dry_run = false, resume = false, end = false, follow = false, once = false, names = false;
  std::string shell;
};

// Adds the commands. When one was given, run() gives the exit code; else it gives -1.
class Commands {
 public:
  explicit Commands(CLI::App& app, std::string version);
  Commands(const Commands&) = delete;
  Commands& operator=(const Commands&) = delete;
  int run() const;

 private:
  void add(CLI::App& app, const char* name, const char* about, const std::function<void(CLI::App&)>& options,
           std::function<int()> action);

  void print(CLI::App& command, std::function<std::pair<std::string, boost::json::object>()> what);

  // An argument that has to be one of these words.
  CLI::Option* one_of(CLI::App& command, const char* name, std::string& to,
                      const std::vector<std::string>& words);
  std::string completion() const;

  ClientOptions o_;
  std::string version_;
  CLI::App& app_;
  std::vector<std::pair<CLI::App*, std::function<int()>>> commands_;
  std::map<const CLI::Option*, std::string> words_;  // for completion
};

class Admin;
struct Reply;
// Tells what went wrong, also as JSON if that is asked for; gives the exit code.
int failed(const ClientOptions& options, const Reply& reply, const Admin& admin);
// Ends every override of a bulkhead. `any`: there was one.
Reply end_overrides(const Admin& admin, const std::string& name, const std::string& reason, bool dry_run,
                    bool& any);
// What `bulkhead status NAME` prints: one line of the table, settings that differ from the defaults, holders.
std::string detail_lines(const cli::Style& style, const boost::json::value& bulkhead, std::size_t columns);
int run_top(const ClientOptions& options);

}  // namespace bulkhead::client
