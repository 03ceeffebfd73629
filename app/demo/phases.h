// phases.h - the calls of the live shop before and after a switch, side by side.
//
//   Phases phases(steady_clock::now(), {.slow = false, .bulkheads = true}, counts);
//   fmt::print("{}", phases.look(steady_clock::now(), setting, counts, style));   // often; empty while there is nothing to say
//
// A phase is the time between two switches. Its table is due when it has lasted long enough to be compared with the phase
// before, or when it ends earlier.
// Threads: one at a time.
#pragma once

#include <array>
#include <chrono>
#include <optional>
#include <string>

#include "app/cli/text.h"
#include "app/demo/story.h"
#include "app/demo/tally.h"

namespace bulkhead::demo {

class Phases {
 public:
  using Counts = std::array<Count, kRoutes>;  // since the shop opened
  struct Setting {
    bool slow = false, bulkheads = true;
    bool operator==(const Setting&) const = default;
  };
  static constexpr std::chrono::seconds kSettled{10};

  Phases(const Story& story, TimePoint now, Setting setting, const Counts& counts);
  std::string look(TimePoint now, Setting setting, const Counts& counts, const cli::Style& style);

 private:
  struct Phase {
    Setting setting{};
    nanoseconds lasted{};
    Counts counts{};  // of its calls alone
  };
  Phase current(TimePoint now, const Counts& counts) const;
  std::string table(const Phase& after, const cli::Style& style) const;

  const Story story_;
  Setting setting_;
  TimePoint begun_;
  Counts at_begin_;
  std::optional<Phase> before_;
  bool due_ = false;  // the table of the current phase has not been made
};

}  // namespace bulkhead::demo
