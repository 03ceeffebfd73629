// commands.h - the commands that speak to a running process: status, set, reset, breaker, drain, events, diff, reload, top.
#pragma once

#include <boost/json/object.hpp>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace bulkhead::client {

// What the command line said; filled in by CLI11 when it parses.
struct ClientOptions {
  std::string admin, token;
  bool json = false, plain = false, no_colour = false;
  std::string name, reason, duration = "15m", action;
  long long limit = -1, queue = -1;
  bool dry_run = false, resume = false, follow = false, once = false;
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
int run_top(const ClientOptions& options);

}  // namespace bulkhead::client
