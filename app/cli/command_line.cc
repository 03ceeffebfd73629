#include "app/cli/command_line.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <sstream>
#include <system_error>

#include "app/cli/terminal.h"
#include "base/suggest.h"

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

std::string did_you_mean(CLI::App& app, const std::string& word) {
  CLI::App& command = chosen(app);
  const bool option = word.starts_with("-");
  if (const std::string nearest = base::suggest(word, known_words(command, option)); !nearest.empty())
    return nearest;
  if (!option || &command != &app) return "";
  for (CLI::App* other : app.get_subcommands([](CLI::App*) { return true; }))
    if (const std::string nearest = base::suggest(word, known_words(*other, true)); !nearest.empty())
      return fmt::format("{} {} {}", app.get_name(), other->get_name(), nearest);
  return "";
}

std::string explain_unknown(CLI::App& app, const std::string& word) {
  const std::string bare = word.substr(0, word.find('='));
  const char* kind = word.starts_with("-") ? "option" : &chosen(app) == &app ? "command" : "argument";
  const std::string nearest = did_you_mean(app, bare);
  return fmt::format("unknown {} \"{}\"{}", kind, bare,
                     nearest.empty() ? "" : fmt::format("; did you mean \"{}\"?", nearest));
}

// As it was typed, for a shell; without secrets.
std::string g_typed;

// Quoted where a shell needs it, so that the line can be pasted.
std::string typed_line(int argc, char** argv) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:@%+=,";
  std::string line = "bulkhead";
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    const bool secret = std::string_view(argv[i - 1]) == "--token" || word.starts_with("--token=");
    line += ' ';
    if (secret) {
      line += word.starts_with("--token=") ? "--token=TOKEN" : "TOKEN";
    } else if (!word.empty() && word.find_first_not_of(kPlain) == word.npos) {
      line += word;
    } else {
      line += '\'';
      for (const char c : word) line += c == '\'' ? std::string("'\\''") : std::string(1, c);
      line += '\'';
    }
  }
  return line;
}

int explain(CLI::App& app, const CLI::ParseError& error) {
  std::string what = error.what();
  const std::vector<std::string> left = app.remaining(true);
  // An unknown option comes first: what is missing, or wrong, may be what it was meant for.
  const auto option =
      std::ranges::find_if(left, [](const std::string& word) { return word.starts_with("-"); });
  if (option != left.end()) {
    what = explain_unknown(app, *option);
  } else if (dynamic_cast<const CLI::ExtrasError*>(&error)) {
    if (!left.empty()) what = explain_unknown(app, left.front());
  } else if (dynamic_cast<const CLI::ArgumentMismatch*>(&error)) {
    what = what.substr(0, what.find(':')) + " needs a value";
  } else if (what == "--reason is required") {
    return needs_reason(chosen(app).get_name());
  }
  fmt::print(stderr, "{}: {}\nTry: {} --help\n", full_name(app), what, full_name(app));
  return kUsage;
}

// CLI11's, without the remarks it adds to options, and with one line for each command.
class HelpFormat final : public CLI::Formatter {
 public:
  std::string make_subcommand(const CLI::App* command) const override {
    const std::string about = command->get_description();
    return fmt::format("  {:<26}{}\n", command->get_name(), about.substr(0, about.find('\n')));
  }
  std::string make_option_opts(const CLI::Option* option) const override {
    if (option->get_type_size() == 0) return "";
    return ' ' + option->get_type_name();
  }
  std::string make_option_desc(const CLI::Option* option) const override {
    const std::string standard = option->get_default_str();
    return option->get_description() + (standard.empty() ? "" : fmt::format(" (default {})", standard));
  }
  std::string make_usage(const CLI::App* app, std::string name) const override {
    return '\n' + CLI::Formatter::make_usage(app, std::move(name));
  }
};

// The groups of the help, in the order in which people need them.
std::string group_of(std::string_view command) {
  constexpr std::string_view kTry[] = {"demo"};
  constexpr std::string_view kRun[] = {"run", "gateway", "host", "fleet"};
  constexpr std::string_view kOperate[] = {"status", "top",   "events", "set",  "reset", "breaker",
                                           "drain",  "fault", "switch", "diff", "reload"};
  constexpr std::string_view kWrite[] = {"check", "explain", "size", "simulate",
                                         "env",   "init",    "fmt",  "config"};
  const auto has = [&](const auto& names) { return std::ranges::find(names, command) != std::end(names); };
  return has(kTry)       ? "Try it"
         : has(kRun)     ? "Run it"
         : has(kOperate) ? "Operate a running process"
         : has(kWrite)   ? "Write a configuration file"
                         : "More";
}

// A command is done when its output is written. If the reader has closed the pipe, it exits without a message.
int written(const std::function<int()>& run) {
  try {
    const int code = run();
    if (std::fflush(stdout) == 0) return code;
    throw std::system_error(errno, std::generic_category(), "cannot write");
  } catch (const std::system_error& error) {
    if (error.code() != std::errc::broken_pipe)
      fmt::print(stderr, "bulkhead: {}\n",
                 std::ferror(stdout) ? "cannot write: " + error.code().message() : error.what());
    return kFailure;
  }
}

}  // namespace

int parse_and_run(CLI::App& app, int argc, char** argv, const std::function<int()>& run) {
  const auto format = std::make_shared<HelpFormat>();
  format->column_width(28);
  format->label("SUBCOMMAND", "COMMAND");
  for (CLI::App* command : app.get_subcommands([](CLI::App*) { return true; })) {
    command->formatter(format);
    command->group(group_of(command->get_name()));
  }
  app.formatter(format);
  g_typed = typed_line(argc, argv);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& asked) {  // --help, --version
    return written([&] {
      std::ostringstream text;
      const int code = app.exit(asked, text, text);
      return say(text.str()), code;
    });
  } catch (const CLI::ParseError& error) {
    return explain(app, error);
  }
  return written(run);
}

int needs_reason(std::string_view command) {
  fmt::print(stderr,
             "bulkhead {}: --reason is required: colleagues see it, and the audit log keeps it\nTry: {} "
             "--reason \"why\"\n",
             command, g_typed);
  return kUsage;
}

std::string check_number(const std::string& text, double low, double high) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc{} && end == text.data() + text.size() && value >= low && value <= high) return "";
  return fmt::format("\"{}\" is not a number from {:g} to {:g}", text, low, high);
}

std::string check_whole_number(const std::string& text, std::uint64_t low, std::uint64_t high) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc{} && end == text.data() + text.size() && value >= low && value <= high) return "";
  return fmt::format("\"{}\" is not a whole number from {} to {}", text, low, high);
}

}  // namespace bulkhead::cli
