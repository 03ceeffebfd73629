#include "app/cli/command_line.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdio>

#include "app/cli/suggest.h"

namespace bulkhead::cli {
namespace {

// The command that was given, or the program itself.
CLI::App& chosen(CLI::App& app) {
  const auto given = app.get_subcommands();
  return given.empty() ? app : *given.front();
}

std::string full_name(CLI::App& app) {
  CLI::App& command = chosen(app);
  return &command == &app ? app.get_name() : app.get_name() + " " + command.get_name();
}

std::vector<std::string> known_words(CLI::App& app, bool option) {
  std::vector<std::string> words;
  if (!option) {
    for (const CLI::App* command : app.get_subcommands([](CLI::App*) { return true; }))
      words.push_back(command->get_name());
    return words;
  }
  for (const CLI::Option* o : app.get_options())
    for (const std::string& name : o->get_lnames()) words.push_back("--" + name);
  return words;
}

void explain_unknown(CLI::App& app, const std::string& word) {
  CLI::App& command = chosen(app);
  const bool option = word.starts_with("-");
  const std::string bare = word.substr(0, word.find('='));
  std::string text = fmt::format("{}: unknown {} \"{}\"", full_name(app),
                                 option             ? "option"
                                 : &command == &app ? "command"
                                                    : "argument",
                                 bare);
  if (const std::string nearest = suggest(bare, known_words(command, option)); !nearest.empty())
    text += fmt::format("; did you mean \"{}\"?", nearest);
  fmt::print(stderr, "{}\nTry: {} --help\n", text, full_name(app));
}

int explain(CLI::App& app, const CLI::ParseError& error) {
  if (const auto* extras = dynamic_cast<const CLI::ExtrasError*>(&error)) {
    const auto unknown = app.remaining(true);
    explain_unknown(app, unknown.empty() ? extras->what() : unknown.front());
  } else {
    fmt::print(stderr, "{}: {}\nTry: {} --help\n", full_name(app), error.what(), full_name(app));
  }
  return kUsage;
}

}  // namespace

int parse_and_run(CLI::App& app, int argc, char** argv, const std::function<int()>& run) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& asked) {  // --help, --version
    return app.exit(asked);
  } catch (const CLI::ParseError& error) {
    return explain(app, error);
  }
  return run();
}

std::string check_number(const std::string& text, double low, double high) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc{} && end == text.data() + text.size() && value >= low && value <= high) return "";
  return fmt::format("\"{}\" is not a number from {:g} to {:g}", text, low, high);
}

std::string check_whole_number(const std::string& text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc{} && end == text.data() + text.size()) return "";
  return fmt::format("\"{}\" is not a whole number from 0 to {}", text, ~std::uint64_t{0});
}

}  // namespace bulkhead::cli
