// terminal.h - what stands behind the standard streams, and a screen that is given back as it was.
#pragma once

#include <termios.h>

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "app/cli/text.h"

namespace bulkhead::cli {

struct Size {
  std::size_t columns = 80, rows = 24;
};

bool is_terminal(int fd) noexcept;
bool can_redraw(int fd) noexcept;  // a terminal that understands cursor movement
Size terminal_size(int fd) noexcept;
// Colours only on a terminal, and not with NO_COLOR or TERM=dumb; more than ASCII only in a UTF-8 locale.
Style style_of(int fd, bool want_colour = true) noexcept;

bool write_all(int fd, std::string_view text) noexcept;  // false: see errno
// To standard output. std::system_error if it cannot be written; parse_and_run() tells that.
void say(std::string_view text);

// SIGINT, SIGTERM and SIGHUP are remembered instead of ending the process, for as long as this lives.
class CatchSignals {
 public:
  CatchSignals() noexcept;
  ~CatchSignals();
  CatchSignals(const CatchSignals&) = delete;
  CatchSignals& operator=(const CatchSignals&) = delete;

  static int caught() noexcept;  // the signal, or 0
};

// The alternate screen without cursor, wrapping and echo. The destructor restores the terminal.
class FullScreen {
 public:
  explicit FullScreen(int fd);
  ~FullScreen();
  FullScreen(const FullScreen&) = delete;
  FullScreen& operator=(const FullScreen&) = delete;

  // Replaces what is shown, in one write so that nothing flickers. Longer lines and texts are cut off.
  void draw(std::string_view lines);
  // Sleeps; a key ends it early and is returned, else 0.
  static char wait_for_key(std::chrono::milliseconds at_most) noexcept;

 private:
  const int fd_;
  std::optional<termios> keyboard_;  // as it was
};

}  // namespace bulkhead::cli
