// harness.h - many short windows, the designs taking turns, and only the undisturbed ones counted.
//
// Benchmarks share their machine. So a measurement is cut into short windows; the designs take turns,
// window by window, so that whatever drifts hits all of them; a window counts only if its threads had their
// cores to themselves; a round yields the median of its windows, and only figures of the same round are
// compared. On a box that is never quiet the quietest windows are taken instead and the result is marked as
// noisy: it never hangs.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

namespace bench {

struct Sample {
  double value = 0;
  double share = 0;  // of the machine the window should have had: 1 is undisturbed
  std::array<double, 2> extra{};
  bool hung = false;  // a thread slept for ever and had to be woken from outside
};

struct Series {
  std::vector<std::vector<Sample>> rounds;  // the windows that count
  unsigned clean = 0, taken = 0;
  unsigned hung = 0;   // windows left out because a thread slept for ever
  bool noisy = false;  // too few were clean: what counts is the quietest half

  std::vector<double> medians() const;
  double median_extra(std::size_t i) const;
  double max_extra(std::size_t i) const;
};

struct Plan {
  unsigned rounds = 3;
  unsigned windows = 21;      // clean ones wanted, per design and round
  double clean_share = 0.97;  // a window with less is not counted
  unsigned patience = 3;      // windows taken at most, as a multiple of those wanted
};

// sample(i) measures one window of design i.
std::vector<Series> take_turns(std::string_view title, const Plan& plan, std::size_t designs,
                               const std::function<Sample(std::size_t)>& sample);

double median(std::vector<double> values);
double quantile(std::vector<double> values, double q);

// Threads that start a job together. With no more threads than cores, each has its own.
class Team {
 public:
  explicit Team(unsigned threads);
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  void run(const std::function<void(unsigned thread)>& job);
  void meet() noexcept;  // inside a job: waits until all threads are here
  // How often a job did not end within seconds and its threads had to be shaken out of their sleep: libstdc++
  // 12's counting_semaphore can sleep for ever though it is free (GCC bug 104928).
  unsigned rescued() const;
  unsigned size() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// How often `loop` has to run for about 15 us.
using Loop = std::function<void(std::uint64_t n)>;
std::uint64_t batch_size(const Loop& loop);

// ns per operation over all threads, each running loop(batch) until the window is over.
Sample measure(Team& team, std::int64_t window_ns, std::uint64_t batch, const Loop& loop);

}  // namespace bench
