#include <CLI/CLI.hpp>
#include <cstdio>

#include "app/cli/command_line.h"
#include "app/demo/demo.h"

namespace {

using namespace bulkhead;

constexpr const char* kAbout =
    "Bulkhead keeps one slow dependency from taking everything else down with it.\n"
    "\n"
    "Examples:\n"
    "  bulkhead demo                 see it: a shop whose analytics turns slow (24 s)\n"
    "  bulkhead demo --json          the same, measured, for machines";

constexpr const char* kDemo =
    "A shop on one database of 100 connections. Its analytics turns slow: first without\n"
    "bulkheads, then with them. Every number is measured on the calls of this run.\n"
    "\n"
    "Examples:\n"
    "  bulkhead demo                 a live table, and a before/after table at the end\n"
    "  bulkhead demo --seconds 60    the same at leisure\n"
    "  bulkhead demo --json          one JSON document (docs/demo.md describes it)";

void add_demo(CLI::App& app, demo::DemoOptions& options) {
  CLI::App* command = app.add_subcommand("demo", "A slow route, without bulkheads and with them");
  command->description(kDemo);
  auto* json = command->add_flag("--json", options.json, "Print the results as JSON and nothing else");
  command->add_flag("--plain", options.plain, "Plain lines also in a terminal")->excludes(json);
  command->add_flag("!--no-color", options.colour, "No colours; also with NO_COLOR in the environment");
  command->add_option("--seconds", options.seconds, "How long it takes in all, 4 to 600")
      ->check([](const std::string& text) {
        return cli::check_number(text, demo::kMinSeconds, demo::kMaxSeconds);
      })
      ->type_name("N")
      ->capture_default_str();
  command->add_option("--seed", options.seed, "Another N, other arrivals")
      ->check(cli::check_whole_number)
      ->type_name("N")
      ->capture_default_str();
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(kAbout, "bulkhead");
  app.set_version_flag("--version", "bulkhead " BULKHEAD_VERSION);
  app.get_formatter()->column_width(28);
  demo::DemoOptions demo_options;
  add_demo(app, demo_options);

  return cli::parse_and_run(app, argc, argv, [&] {
    if (app.got_subcommand("demo")) return demo::run_demo(demo_options, BULKHEAD_VERSION);
    std::fputs(app.help().c_str(), stdout);
    std::fputs("\nTry: bulkhead demo\n", stdout);
    return 0;
  });
}
