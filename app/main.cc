#include <CLI/CLI.hpp>

#include "app/cli/command_line.h"
#include "app/cli/terminal.h"
#include "app/client/commands.h"
#include "app/config/commands.h"
#include "app/demo/demo.h"
#include "app/demo/fleet_demo.h"
#include "app/demo/gateway_demo.h"
#include "app/demo/serve.h"
#include "app/fleet/fleet.h"
#include "app/gateway/run.h"
#include "app/host/host.h"
#include "app/run/run.h"
#include "app/simulate/simulate.h"

namespace {

using namespace bulkhead;

constexpr const char* kAbout =
    "Bulkhead keeps one slow dependency from taking everything else down with it.\n"
    "\n"
    "Examples:\n"
    "  bulkhead demo                 a shop whose analytics becomes slow (24 s)\n"
    "  bulkhead demo --serve         run the shop with a dashboard until Ctrl-C\n"
    "  bulkhead demo --gateway       protect a service in Python through nginx (12 s)\n"
    "  bulkhead check bulkhead.yaml  check a configuration file\n"
    "  bulkhead run bulkhead.yaml    run the bulkheads of a file, with a dashboard\n"
    "  bulkhead simulate bulkhead.yaml --load load.yaml    predict, before you deploy\n"
    "  bulkhead set reports --max-concurrent 5 --for 15m --reason \"incident 4711\"";

constexpr const char* kDemo =
    "Show how bulkheads protect a shop from one slow route\n"
    "\n"
    "Its four routes share 100 connections of a real database; every number is measured.\n"
    "\n"
    "Examples:\n"
    "  bulkhead demo             a live table, and a before/after table at the end\n"
    "  bulkhead demo --serve     no script: you make analytics slow, by a key or in a browser\n"
    "  bulkhead demo --gateway   nginx with bulkheads in front of a service in Python (12 s)\n"
    "  bulkhead demo --fleet 5   5 processes, one limit: a crash, a partition, a lost Redis";

void add_demo(CLI::App& app, demo::DemoOptions& options, demo::ServeOptions& serve, bool& serves,
              bool& gateway, demo::FleetDemoOptions& fleet) {
  CLI::App* command = app.add_subcommand("demo", kDemo);
  auto* json = command->add_flag("--json", options.json,
                                 "Print the results as JSON and nothing else; see docs/demo.md");
  command->add_flag("--plain", options.plain, "Print plain lines, also on a terminal")->excludes(json);
  command->add_flag("--no-color", options.no_colour, "No colours; also with NO_COLOR in the environment");
  command->add_option("--seconds", options.seconds, "Duration of the whole demo, 4 to 600")
      ->check([](const std::string& text) {
        return cli::check_number(text, demo::kMinSeconds, demo::kMaxSeconds);
      })
      ->type_name("N")
      ->capture_default_str();
  command->add_option("--postgres", options.postgres, "Use this PostgreSQL server, with a schema of its own")
      ->type_name("URL");
  auto* gateway_flag =
      command->add_flag("--gateway", gateway, "Instead: nginx in front of a service in Python");
  auto* serve_flag =
      command->add_flag("--serve", serves, "Run until Ctrl-C, with control plane and dashboard");
  gateway_flag->excludes(serve_flag);
  command->add_option("--listen", serve.listen, "With --serve: address and port (default 127.0.0.1:9920)")
      ->needs(serve_flag)
      ->type_name("ADDRESS");
  command->add_option("--unix-socket", serve.unix_socket, "With --serve: the path of the socket")
      ->needs(serve_flag)
      ->type_name("PATH");
  command->add_flag("--slow", serve.slow, "With --serve: analytics is slow from the start")
      ->needs(serve_flag);
  command->add_option("--fleet", fleet.shops, "Instead: 3 to 8 processes share a limit by Redis")
      ->excludes(serve_flag)
      ->check(
          [](const std::string& text) { return cli::check_number(text, demo::kMinShops, demo::kMaxShops); })
      ->type_name("N");
  command->add_option("--seed", options.seed, "Seed of the random arrivals")
      ->check([](const std::string& text) { return cli::check_whole_number(text); })
      ->type_name("N")
      ->capture_default_str();
}

constexpr const char* kRun =
    "Run the bulkheads of a file, with a dashboard\n"
    "\n"
    "Reloads the file when it changes, and on SIGHUP. An invalid file changes nothing.\n"
    "\n"
    "Examples:\n"
    "  bulkhead run bulkhead.yaml\n"
    "  bulkhead run bulkhead.yaml --unix-socket ./admin.sock --grace 5";

void add_run(CLI::App& app, run::RunOptions& options) {
  CLI::App* command = app.add_subcommand("run", kRun);
  command->add_option("FILE", options.file, "The configuration file")->required();
  command->add_option("--listen", options.listen, "Instead of the file's control.listen")
      ->type_name("ADDRESS");
  command->add_option("--unix-socket", options.unix_socket, "Instead of the file's control.unix_socket")
      ->type_name("PATH");
  command
      ->add_option("--grace", options.grace,
                   "Seconds between SIGTERM and the end, while /readyz answers 503; 0 to 600")
      ->check([](const std::string& text) { return cli::check_number(text, 0, 600); })
      ->type_name("SECONDS")
      ->capture_default_str();
  command->add_flag("--no-watch", options.no_watch, "Reload the file only on SIGHUP and bulkhead reload");
  command
      ->add_option("--board", options.board,
                   "The bulkhead_board of an nginx that you run yourself: show and change its bulkheads")
      ->type_name("FILE");
  command->add_flag("--json", options.json, "Print a line of JSON for the start, each event and the stop");
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(kAbout, "bulkhead");
  app.set_version_flag("--version", "bulkhead " BULKHEAD_VERSION, "Print the version and exit");
  app.set_help_flag("-h,--help", "Print this help and exit; every command has it, and --json");
  app.require_subcommand(0, 1);  // a bulkhead may be named like a command
  demo::DemoOptions demo_options;
  demo::ServeOptions serve_options;
  bool serves = false, through_gateway = false;
  demo::FleetDemoOptions fleet_options;
  add_demo(app, demo_options, serve_options, serves, through_gateway, fleet_options);
  run::RunOptions run_options;
  add_run(app, run_options);
  const auto check = config::add_check(app);
  const auto env = config::add_env(app);
  const auto explain = config::add_explain(app);
  const auto size = config::add_size(app);
  const auto init = config::add_init(app);
  const auto format = config::add_fmt(app);
  const auto show_config = config::add_config(app);
  const auto simulate = simulate::add_simulate(app, BULKHEAD_VERSION);
  const auto host = host::add_host(app);
  const auto show_fleet = fleet::add_fleet(app);
  const auto show_gateway = gateway::add_gateway(app);
  const client::Commands commands(app, BULKHEAD_VERSION);

  return cli::parse_and_run(app, argc, argv, [&] {
    if (app.got_subcommand("demo") && serves) {
      serve_options.seed = demo_options.seed;
      serve_options.json = demo_options.json;
      serve_options.postgres = demo_options.postgres;
      if (app.get_subcommand("demo")->count("--seconds") > 0) serve_options.seconds = demo_options.seconds;
      return demo::serve_demo(serve_options, BULKHEAD_VERSION);
    }
    if (app.got_subcommand("demo") && fleet_options.shops > 0) {
      fleet_options.json = demo_options.json;
      return demo::run_fleet_demo(fleet_options);
    }
    if (app.got_subcommand("demo") && through_gateway)
      return demo::run_gateway_demo(
          {.seconds = app.get_subcommand("demo")->count("--seconds") > 0 ? demo_options.seconds : 12.0,
           .json = demo_options.json});
    if (app.got_subcommand("demo")) return demo::run_demo(demo_options, BULKHEAD_VERSION);
    if (app.got_subcommand("run")) {
      run_options.gateway = !run_options.board.empty() || gateway::has_gateway(run_options.file);
      if (run_options.gateway && app.get_subcommand("run")->count("--grace") == 0) run_options.grace = 10;
      return run::run_file(run_options, BULKHEAD_VERSION);
    }
    if (app.got_subcommand("gateway")) return show_gateway();
    if (app.got_subcommand("check")) return check();
    if (app.got_subcommand("env")) return env();
    if (app.got_subcommand("explain")) return explain();
    if (app.got_subcommand("size")) return size();
    if (app.got_subcommand("init")) return init();
    if (app.got_subcommand("fmt")) return format();
    if (app.got_subcommand("config")) return show_config();
    if (app.got_subcommand("host")) return host();
    if (app.got_subcommand("fleet")) return show_fleet();
    if (app.got_subcommand("simulate")) return simulate();
    if (const int code = commands.run(); code >= 0) return code;
    cli::say(app.help() + "Try: bulkhead demo\n");
    return 0;
  });
}
