// scenario.h - what a scenario is to the program that runs it.
//
// scenarios.cc compiles against the turnstile, checker.cc against Relacy's machinery; they meet here, so a
// mutant of the turnstile costs the compilation of one file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace bulkhead::model {

// One execution. Made anew for each; everything a thread does after its start is explored.
class Scenario {
 public:
  virtual ~Scenario() = default;
  virtual void thread(unsigned index) = 0;
  virtual void after() = 0;  // all threads are done
};

enum class Mode : std::uint8_t { fifo, barging, adaptive };
inline constexpr const char* mode_names[] = {"fifo", "barging", "adaptive"};

struct Entry {
  const char* name;
  unsigned threads;
  Scenario* (*make)(void* place, Mode mode);
  bool modes[3];      // in which fairness modes it says something of its own
  unsigned bound[3];  // of context switches for the exhaustive search in that mode; 0: random only
};

std::span<const Entry> scenarios();
inline constexpr std::size_t scenario_size = 16 * 1024;

}  // namespace bulkhead::model
