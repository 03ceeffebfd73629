#include "app/cli/man.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <string_view>
#include <vector>

namespace bulkhead::cli {
namespace {

// Text as roff: its own signs as themselves, and no line that it would take for a request.
std::string roff(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if ((c == '.' || c == '\'') && (out.empty() || out.back() == '\n')) out += "\\&";
    if (c == '\\')
      out += "\\e";
    else if (c == '-')
      out += "\\-";
    else
      out += c;
  }
  return out;
}

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  for (;;) {
    const std::size_t end = text.find('\n');
    lines.push_back(text.substr(0, end));
    if (end == text.npos) return lines;
    text.remove_prefix(end + 1);
  }
}

// A description as CLI11 has it: paragraphs, and examples that stand indented.
std::string paragraphs(std::string_view text) {
  std::string out;
  bool example = false;
  const auto set_example = [&](bool on) {
    if (on != example) out += on ? ".PP\n.RS 4\n.nf\n" : ".fi\n.RE\n";
    example = on;
  };
  for (const std::string_view line : lines_of(text)) {
    if (line == "Examples:") continue;
    set_example(line.starts_with("  "));
    out += line.empty() ? ".PP\n" : roff(example ? line.substr(2) : line) + '\n';
  }
  set_example(false);
  return out;
}

std::string option_entry(const CLI::Option& option) {
  std::string names;
  const auto add = [&](const std::string& name) {
    names += fmt::format("{}\\fB{}\\fR", names.empty() ? "" : ", ", roff(name));
  };
  for (const std::string& name : option.get_snames()) add("-" + name);
  for (const std::string& name : option.get_lnames()) add("--" + name);
  if (names.empty())
    names = fmt::format("\\fI{}\\fR", roff(option.get_name(true)));
  else if (option.get_type_size() != 0)
    names += fmt::format(" \\fI{}\\fR", roff(option.get_type_name()));
  const std::string standard = option.get_default_str();
  return fmt::format(
      ".TP\n{}\n{}\n", names,
      roff(option.get_description() + (standard.empty() ? "" : fmt::format(" (default {})", standard))));
}

std::string synopsis(const CLI::App& command) {
  std::string out = fmt::format("\\fBbulkhead {}\\fR", roff(command.get_name()));
  for (const CLI::Option* option : command.get_options()) {
    if (option->nonpositional()) continue;
    const std::string argument = fmt::format("\\fI{}\\fR", roff(option->get_name(true)));
    out += option->get_required() ? ' ' + argument : " [" + argument + ']';
  }
  return out + " [\\fIoptions\\fR]";
}

constexpr std::string_view kRest = R"(.SH EXIT STATUS
.TP
.B 0
done
.TP
.B 1
failed
.TP
.B 2
wrong usage
.TP
.B 3
a file or a value that is not valid
.TP
.B 4
no answer from the address of the control plane
.TP
.B 5
conflict: impossible in the current state
.TP
.B 6
not allowed
.SH ENVIRONMENT
.TP
.B BULKHEAD_ADMIN
The control plane: a socket's path, http://host:port or https://host:port. Without it and without \fB\-\-admin\fR: /run/bulkhead/admin.sock, then
http://127.0.0.1:9920.
.TP
.B BULKHEAD_TOKEN
The token for changes over TCP.
.TP
.B BULKHEAD_CERTIFICATE
For mutual TLS: a PEM file with a certificate and its private key.
.TP
.B SSL_CERT_FILE
Authorities to trust with https instead of the system's.
.TP
.B NO_COLOR
If set, no colours.
.TP
.B NOTIFY_SOCKET, WATCHDOG_USEC
Of the service manager, for \fBbulkhead run\fR.
.SH SIGNALS
\fBbulkhead run\fR loads its file anew on SIGHUP. On SIGTERM it says that it is not ready, waits for \fB\-\-grace\fR seconds and ends; on
SIGINT, or on a second signal, at once.
)";

}  // namespace

// The same texts as --help, as roff.
std::string manual(const CLI::App& app, const std::string& version) {
  const auto commands = app.get_subcommands([](const CLI::App*) { return true; });
  const std::string about = app.get_description();
  const std::size_t end = about.find('\n');
  std::string page = fmt::format(
      ".TH BULKHEAD 1 \"\" \"bulkhead {}\" \"User Commands\"\n"
      ".SH NAME\nbulkhead \\- watertight compartments for services\n.SH SYNOPSIS\n",
      roff(version));
  for (const CLI::App* command : commands) page += synopsis(*command) + "\n.br\n";
  page += ".SH DESCRIPTION\n" + roff(about.substr(0, end)) + "\n.SH OPTIONS\n";
  for (const CLI::Option* option : app.get_options()) page += option_entry(*option);
  page += ".SH COMMANDS\n";
  for (const CLI::App* command : commands) {
    page += fmt::format(".SS {}\n{}", roff(command->get_name()), paragraphs(command->get_description()));
    for (const CLI::Option* option : command->get_options())
      if (option->get_lnames() != std::vector<std::string>{"help"}) page += option_entry(*option);
  }
  page += kRest;
  page += ".SH EXAMPLES\n" + paragraphs(about.substr(std::min(about.size(), end + 1)));
  return page;
}

}  // namespace bulkhead::cli
