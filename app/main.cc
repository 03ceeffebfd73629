#include <CLI/CLI.hpp>

#include "app/cli/command_line.h"
#include "app/cli/terminal.h"
#include "app/client/commands.h"
#include "app/config/commands.h"
#include "app/demo/demo.h"
#include "app/demo/serve.h"
#include "app/run/run.h"

namespace {

using namespace bulkhead;

constexpr const char* kAbout =
    "Bulkhead keeps one slow dependency from taking everything else down with it.\n"
    "\n"
    "Examples:\n"
    "  bulkhead demo                 see it: a shop whose analytics turns slow (24 s)\n"
    "  bulkhead demo --serve         the shop until Ctrl-C, with a dashboard in the browser\n"
    "  bulkhead check bulkhead.yaml  everything that is wrong or unwise in a file\n"
    "  bulkhead run bulkhead.yaml    its bulkheads as a process, with a dashboard\n"
    "  bulkhead set reports --limit 5 --for 15m --reason \"incident 4711\"";

constexpr const char* kDemo =
    "A slow route sinks a shop; bulkheads save it\n"
    "\n"
    "The shop's four routes share 100 connections of a database: SQLite in a temporary file,\n"
    "or PostgreSQL. Its queries are real; every number shown is measured on this run's calls.\n"
    "\n"
    "Examples:\n"
    "  bulkhead demo             a live table, and a before/after table at the end\n"
    "  bulkhead demo --serve     no script: you make analytics slow, by a key or in a browser\n"
    "  bulkhead demo --postgres postgresql://me@localhost/test";

void add_demo(CLI::App& app, demo::DemoOptions& options, demo::ServeOptions& serve, bool& serves) {
  CLI::App* command = app.add_subcommand("demo", kDemo);
  auto* json = command->add_flag("--json", options.json,
                                 "Print the results as JSON and nothing else; see docs/demo.md");
  command->add_flag("--plain", options.plain, "Plain lines also in a terminal")->excludes(json);
  command->add_flag("--no-color", options.no_colour, "No colours; also with NO_COLOR in the environment");
  command->add_option("--seconds", options.seconds, "How long it takes in all, 4 to 600")
      ->check([](const std::string& text) {
        return cli::check_number(text, demo::kMinSeconds, demo::kMaxSeconds);
      })
      ->type_name("N")
      ->capture_default_str();
  command->add_option("--postgres", options.postgres, "On this server, in a schema of its own")
      ->type_name("URL");
  auto* serve_flag =
      command->add_flag("--serve", serves, "Run until Ctrl-C, with control plane and dashboard");
  command
      ->add_option("--listen", serve.listen, "With --serve: where (default 127.0.0.1:9920, or a free port)")
      ->needs(serve_flag)
      ->type_name("ADDRESS");
  command->add_option("--unix-socket", serve.unix_socket, "With --serve: the path of the socket")
      ->needs(serve_flag)
      ->type_name("PATH");
  command->add_flag("--slow", serve.slow, "With --serve: analytics is slow from the start")
      ->needs(serve_flag);
  command->add_option("--seed", options.seed, "Another N, other arrivals")
      ->check(cli::check_whole_number)
      ->type_name("N")
      ->capture_default_str();
}

constexpr const char* kRun =
    "The bulkheads of a file as a process, with a dashboard\n"
    "\n"
    "Loads the file anew when it changes, and on SIGHUP; a file that is not valid changes nothing.\n"
    "\n"
    "Examples:\n"
    "  bulkhead run bulkhead.yaml\n"
    "  bulkhead run bulkhead.yaml --unix-socket ./admin.sock --grace 5";

void add_run(CLI::App& app, run::RunOptions& options) {
  CLI::App* command = app.add_subcommand("run", kRun);
  command->add_option("FILE", options.file, "The configuration")->required();
  command->add_option("--listen", options.listen, "Instead of the file's control.listen")
      ->type_name("ADDRESS");
  command->add_option("--unix-socket", options.unix_socket, "Instead of the file's control.unix_socket")
      ->type_name("PATH");
  command
      ->add_option("--grace", options.grace,
                   "Seconds from SIGTERM to the end, in which /readyz says no, 0 to 600")
      ->check([](const std::string& text) { return cli::check_number(text, 0, 600); })
      ->type_name("SECONDS")
      ->capture_default_str();
  command->add_flag("--no-watch", options.no_watch, "Load the file anew only on SIGHUP and bulkhead reload");
  command->add_flag("--json", options.json, "A line of JSON for the start, each event and the stop");
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(kAbout, "bulkhead");
  app.set_version_flag("--version", "bulkhead " BULKHEAD_VERSION, "Print the version and exit");
  app.set_help_flag("-h,--help", "Print this help and exit; every command has it, and --json");
  app.require_subcommand(0, 1);  // what follows one is never another: a bulkhead may be called "top"
  demo::DemoOptions demo_options;
  demo::ServeOptions serve_options;
  bool serves = false;
  add_demo(app, demo_options, serve_options, serves);
  run::RunOptions run_options;
  add_run(app, run_options);
  const client::Commands commands(app, BULKHEAD_VERSION);
  const auto check = config::add_check(app);
  const auto env = config::add_env(app);
  const auto explain = config::add_explain(app);
  const auto size = config::add_size(app);

  return cli::parse_and_run(app, argc, argv, [&] {
    if (app.got_subcommand("demo") && serves) {
      serve_options.seed = demo_options.seed;
      serve_options.json = demo_options.json;
      serve_options.postgres = demo_options.postgres;
      if (app.get_subcommand("demo")->count("--seconds") > 0) serve_options.seconds = demo_options.seconds;
      return demo::serve_demo(serve_options, BULKHEAD_VERSION);
    }
    if (app.got_subcommand("demo")) return demo::run_demo(demo_options, BULKHEAD_VERSION);
    if (app.got_subcommand("run")) return run::run_file(run_options, BULKHEAD_VERSION);
    if (app.got_subcommand("check")) return check();
    if (app.got_subcommand("env")) return env();
    if (app.got_subcommand("explain")) return explain();
    if (app.got_subcommand("size")) return size();
    if (const int code = commands.run(); code >= 0) return code;
    cli::say(app.help() + "Try: bulkhead demo\n");
    return 0;
  });
}
