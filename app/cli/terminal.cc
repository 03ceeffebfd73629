#include "app/cli/terminal.h"

#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <system_error>

namespace bulkhead::cli {
namespace {

volatile sig_atomic_t caught_signal = 0;

constexpr std::array kSignals{SIGINT, SIGTERM, SIGHUP};
std::array<struct sigaction, kSignals.size()> previous;

std::string_view env(const char* name) noexcept {
  const char* value =
      std::getenv(name);  // NOLINT(concurrency-mt-unsafe): nothing here changes the environment
  return value ? value : "";
}

bool utf8_locale() noexcept {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"})
    if (const std::string_view value = env(name); !value.empty())
      return value.find("UTF-8") != value.npos || value.find("utf8") != value.npos;
  return false;
}

}  // namespace

bool is_terminal(int fd) noexcept { return ::isatty(fd) == 1; }

bool can_redraw(int fd) noexcept {
  const std::string_view term = env("TERM");
  return is_terminal(fd) && !term.empty() && term != "dumb";
}

Size terminal_size(int fd) noexcept {
  winsize size{};
  if (::ioctl(fd, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0) return {};
  return {size.ws_col, size.ws_row};
}

Style style_of(int fd, bool want_colour) noexcept {
  const bool terminal = can_redraw(fd);
  return {.colour = terminal && want_colour && env("NO_COLOR").empty(), .utf8 = terminal && utf8_locale()};
}

bool write_all(int fd, std::string_view text) noexcept {
  while (!text.empty()) {
    const ssize_t n = ::write(fd, text.data(), text.size());
    if (n < 0 && errno != EINTR) return false;
    if (n > 0) text.remove_prefix(static_cast<std::size_t>(n));
  }
  return true;
}

void say(std::string_view text) {
  if (!write_all(STDOUT_FILENO, text))
    throw std::system_error(errno, std::generic_category(), "cannot write");
}

CatchSignals::CatchSignals() noexcept {
  caught_signal = 0;
  struct sigaction action{};
  action.sa_handler = [](int signal) { caught_signal = signal; };
  sigemptyset(&action.sa_mask);
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    ::sigaction(kSignals[i], nullptr, &previous[i]);
    if (previous[i].sa_handler != SIG_IGN) ::sigaction(kSignals[i], &action, nullptr);  // nohup stays nohup
  }
}

CatchSignals::~CatchSignals() {
  for (std::size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], &previous[i], nullptr);
}

int CatchSignals::caught() noexcept { return caught_signal; }

FullScreen::FullScreen(int fd) : fd_(fd) {
  termios keyboard{};
  // In the background tcsetattr would stop the process.
  if (::tcgetpgrp(STDIN_FILENO) == ::getpgrp() && ::tcgetattr(STDIN_FILENO, &keyboard) == 0) {
    keyboard_ = keyboard;
    keyboard.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    keyboard.c_cc[VSUSP] = _POSIX_VDISABLE;  // stopped, it would leave the screen as it is
    ::tcsetattr(STDIN_FILENO, TCSANOW, &keyboard);
  }
  write_all(fd_, "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[H\x1b[2J");
}

FullScreen::~FullScreen() {
  write_all(fd_, "\x1b[0m\x1b[?7h\x1b[?25h\x1b[?1049l");
  if (keyboard_) {
    ::tcflush(STDIN_FILENO, TCIFLUSH);  // keys pressed meanwhile were not meant for the shell
    ::tcsetattr(STDIN_FILENO, TCSANOW, &*keyboard_);
  }
}

void FullScreen::draw(std::string_view lines) {
  const Size size = terminal_size(fd_);
  std::string out = "\x1b[?2026h\x1b[H";  // one update, on terminals that know how to
  for (std::size_t row = 0; row < size.rows; ++row) {
    if (row > 0) out += "\r\n";
    if (lines.empty()) {
      out += "\x1b[J";
      break;
    }
    const std::size_t end = std::min(lines.find('\n'), lines.size());
    const std::string line = clip(lines.substr(0, end), size.columns);
    out += line;
    if (width(line) < size.columns) out += "\x1b[K";  // in a full line it would take the last character
    lines.remove_prefix(std::min(end + 1, lines.size()));
  }
  write_all(fd_, out + "\x1b[?2026l");
}

char FullScreen::wait_for_key(std::chrono::milliseconds at_most) noexcept {
  pollfd keys{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
  const bool ours = ::tcgetpgrp(STDIN_FILENO) == ::getpgrp();
  if (::poll(&keys, ours ? 1 : 0, static_cast<int>(at_most.count())) <= 0) return 0;
  char key = 0;
  if (::read(STDIN_FILENO, &key, 1) == 1) return key;
  ::poll(nullptr, 0, static_cast<int>(at_most.count()));  // the keyboard is gone: at least sleep
  return 0;
}

}  // namespace bulkhead::cli
