#include "app/demo/demo.h"

#include <fmt/format.h>
#include <unistd.h>

#include <memory>
#include <optional>

#include "app/cli/command_line.h"
#include "app/cli/terminal.h"
#include "app/demo/report.h"
#include "app/demo/store.h"
#include "app/demo/viewer.h"

namespace bulkhead::demo {
namespace {

constexpr std::chrono::milliseconds kFrame{100};

std::unique_ptr<Viewer> viewer_for(const DemoOptions& options, const cli::Style& style) {
  if (options.json) return cli::can_redraw(STDERR_FILENO) ? progress_line(STDERR_FILENO) : no_viewer();
  if (options.plain || !cli::can_redraw(STDOUT_FILENO)) return plain_lines(STDOUT_FILENO);
  return live_table(STDOUT_FILENO, style);
}

// Nothing when the user ended it.
std::optional<ActResult> play(const Story& story, Store& store, Bulkheads bulkheads, Viewer& viewer) {
  Shop shop(story, store, bulkheads);
  Watcher watcher(story, shop, bulkheads);
  while (!shop.finished()) {
    if (cli::CatchSignals::caught() != 0 || !viewer.pause(kFrame)) return std::nullopt;
    viewer.show(watcher.look());
  }
  return result_of(shop);
}

std::string closing(const cli::Style& style, const Results& results, std::size_t columns) {
  return '\n' + report_table(style, results, columns) + '\n' +
         cli::paint(style, isolated(results) ? cli::Paint::bold_green : cli::Paint::bold_red,
                    cli::wrap(conclusion(style, results), columns - 1, " ")) +
         "\n\n"
         " Next:\n"
         "   bulkhead demo --json      these numbers as JSON\n"
         "   include/bulkhead/gate.h   three lines that do this in your own program\n";
}

}  // namespace

int run_demo(const DemoOptions& options, std::string_view version) {
  cli::Style style = cli::style_of(STDOUT_FILENO, !options.no_colour);
  if (options.plain) style = {};
  std::unique_ptr<Store> store;
  try {
    store = open_store(options.postgres);
  } catch (const std::exception& error) {
    cli::write_all(STDERR_FILENO, fmt::format("bulkhead demo: {}\n", error.what()));
    return cli::kFailure;
  }
  Story story = story_of(options.seconds, options.seed, store->connections());
  story.database = store->about();
  story.database_kind = store->kind();
  std::optional<ActResult> without, with;
  int signal = 0;
  {
    const cli::CatchSignals signals;
    const auto viewer = viewer_for(options, style);
    without = play(story, *store, Bulkheads::off, *viewer);
    if (without) with = play(story, *store, Bulkheads::on, *viewer);
    signal = cli::CatchSignals::caught();
  }
  if (!with) {
    cli::write_all(
        STDERR_FILENO,
        fmt::format("bulkhead demo: ended early; it takes {:g} s, less with --seconds\n", options.seconds));
    return signal != 0 ? 128 + signal : 0;
  }
  const Results results{story, *without, *with};
  const std::string text = options.json ? report_json(results, version)
                                        : closing(style, results, cli::terminal_size(STDOUT_FILENO).columns);
  return cli::say(text), 0;
}

}  // namespace bulkhead::demo
