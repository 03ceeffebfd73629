// Random sequences of calls, results, waits and switches, on the breaker and on a model that keeps every
// result in a list and every probe in another. The model knows nothing of words, rings or generations:
// it throws away what belongs to an earlier period.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <ostream>
#include <sstream>
#include <vector>

#include "bulkhead/breaker.h"
#include "bulkhead/manual_clock.h"
#include "gate/property_test.h"

namespace bulkhead {
namespace {

using namespace std::chrono_literals;
using std::chrono::nanoseconds;

enum class Do : std::uint8_t { admit, complete, advance, reset, mode, update, leap, churn };

// Where tags of 22 bits of a tick and of 10 bits of a generation meet themselves again, and the half of that.
constexpr std::int64_t leaps[] = {1 << 19, 1 << 20, 1 << 21, (1 << 21) + 7, 1 << 22, 5 << 22};
constexpr int churns[] = {1, 500, 511, 512, 513, 700, 1023, 1024};

struct Command {
  Do what{};
  std::uint32_t n = 0;
  Outcome verdict{};
  bool slow = false;
};
std::ostream& operator<<(std::ostream& out, const Command& c) {
  constexpr const char* names[] = {"admit", "complete", "advance", "reset",
                                   "mode",  "update",   "leap",    "churn"};
  return out << names[static_cast<int>(c.what)] << "(" << c.n << ", " << to_string(c.verdict)
             << (c.slow ? ", slow" : "") << ")\n";
}
rc::Gen<Command> command() {
  using rc::gen::set;
  using rc::gen::weightedElement;
  return rc::gen::build<Command>(
      set(&Command::what, weightedElement<Do>({{30, Do::admit},
                                               {30, Do::complete},
                                               {12, Do::advance},
                                               {1, Do::reset},
                                               {1, Do::mode},
                                               {1, Do::update},
                                               {2, Do::leap},
                                               {2, Do::churn}})),
      set(&Command::n, rc::gen::inRange<std::uint32_t>(0, 12)),
      set(&Command::verdict,
          weightedElement<Outcome>({{5, Outcome::success}, {4, Outcome::failure}, {1, Outcome::ignored}})),
      set(&Command::slow, weightedElement<bool>({{4, false}, {1, true}})));
}

class Model {
 public:
  struct Ticket {
    int period;
    int probe;  // 0: none
  };

  explicit Model(const BreakerOptions& o) : o_(o) {}

  // Number of the ticket, or -1.
  int admit(TimePoint now) {
    if (mode == BreakerMode::forced_open) return -1;
    int probe = 0;
    if (mode == BreakerMode::automatic && state != BreakerState::closed) {
      if (state == BreakerState::half_open) expire(now);
      if (state == BreakerState::open) {
        if (now < until_) return -1;
        turn(BreakerState::half_open);
      }
      if (state == BreakerState::half_open) {
        if (probes_.size() + done_ >= o_.half_open_calls) return -1;
        probe = ++last_probe_;
        probes_.push_back({probe, now + o_.probe_lease});
      }
    }
    tickets.push_back({period_, probe});
    return static_cast<int>(tickets.size()) - 1;
  }

  void complete(std::size_t i, Outcome verdict, bool slow, TimePoint now) {
    const Ticket t = tickets[i];
    tickets.erase(tickets.begin() + static_cast<std::ptrdiff_t>(i));
    if (t.period != period_) return;
    if (t.probe != 0) {
      const auto p =
          std::find_if(probes_.begin(), probes_.end(), [&](const Probe& x) { return x.number == t.probe; });
      if (p == probes_.end()) return;
      if (p->until <= now) return expire(now);
      probes_.erase(p);
      if (verdict != Outcome::ignored) probe_result(verdict == Outcome::failure, slow, now);
      if (state == BreakerState::half_open) expire(now);
      return;
    }
    if (verdict == Outcome::ignored || mode == BreakerMode::disabled) return;
    results_.push_back({now, verdict == Outcome::failure, slow});
    judge(now);
  }

  void reset() { close(); }
  void set_mode(BreakerMode m) {
    if (m == mode) return;
    mode = m;
    close();
  }
  void update(double failure_rate, TimePoint now) {
    o_.failure_rate = failure_rate;
    if (state == BreakerState::half_open && done_ > 0) decide(now);
    judge(now);
  }

  struct Counts {
    std::uint64_t calls = 0, failures = 0, slow = 0;
  };
  Counts window(TimePoint now) {
    if (state == BreakerState::half_open) return {done_, failed_, slow_};
    const auto tenth = o_.window_time / 10;
    const auto outside = [&](const Result& r) {
      return r.at.time_since_epoch() / tenth + 10 <= now.time_since_epoch() / tenth;
    };
    if (o_.window == BreakerWindow::time) std::erase_if(results_, outside);
    while (o_.window == BreakerWindow::calls && results_.size() > o_.window_calls) results_.pop_front();
    Counts c;
    for (const Result& r : results_) {
      ++c.calls;
      c.failures += r.failure;
      c.slow += r.slow;
    }
    return c;
  }

  BreakerState state = BreakerState::closed;
  BreakerMode mode = BreakerMode::automatic;
  std::vector<Ticket> tickets;

 private:
  struct Result {
    TimePoint at;
    bool failure, slow;
  };
  struct Probe {
    int number;
    TimePoint until;
  };

  static bool enough(std::uint64_t bad, std::uint64_t of, double share) {
    return static_cast<double>(bad) / static_cast<double>(of) >= share - 1e-9;
  }
  void turn(BreakerState to) {
    state = to;
    ++period_;
    results_.clear();
    probes_.clear();
    done_ = failed_ = slow_ = 0;
  }
  void open(TimePoint now) {
    turn(BreakerState::open);
    auto time = o_.open_for;
    for (int i = 0; i < row_; ++i) time = std::min(2 * time, o_.max_open);
    ++row_;
    until_ = now + time;
  }
  void close() {
    turn(BreakerState::closed);
    row_ = 0;
  }
  void judge(TimePoint now) {
    if (mode != BreakerMode::automatic || state != BreakerState::closed) return;
    const Counts c = window(now);
    const bool by_calls = o_.window == BreakerWindow::calls;
    if (c.calls < (by_calls ? std::min(o_.minimum_calls, o_.window_calls) : o_.minimum_calls)) return;
    if (enough(c.failures, c.calls, o_.failure_rate) || enough(c.slow, c.calls, o_.slow_call_rate)) open(now);
  }
  void probe_result(bool failure, bool slow, TimePoint now) {
    ++done_;
    failed_ += failure;
    slow_ += slow;
    decide(now);
  }
  void decide(TimePoint now) {
    const std::uint64_t n = o_.half_open_calls, rest = n - done_;
    if (enough(failed_, n, o_.failure_rate) || enough(slow_, n, o_.slow_call_rate)) return open(now);
    if (!enough(failed_ + rest, n, o_.failure_rate) && !enough(slow_ + rest, n, o_.slow_call_rate)) close();
  }
  void expire(TimePoint now) {
    const auto n = std::erase_if(probes_, [&](const Probe& p) { return p.until <= now; });
    if (n == 0) return;
    done_ += n;
    failed_ += n;
    decide(now);
  }

  BreakerOptions o_;
  int period_ = 0, last_probe_ = 0, row_ = 0;
  TimePoint until_{};
  std::deque<Result> results_;
  std::vector<Probe> probes_;
  std::uint64_t done_ = 0, failed_ = 0, slow_ = 0;
};

void check(const std::vector<Command>& commands, BreakerOptions options) {
  ManualClock clock;
  options.clock = &clock;
  Breaker breaker(options);
  Model model(options);
  std::vector<BreakerPass> passes;  // beside model.tickets
  for (const Command& c : commands) {
    std::ostringstream text;
    text << c;
    RC_LOG(text.str());
    const TimePoint now = clock.now();
    switch (c.what) {
      case Do::admit: {
        const auto pass = c.n % 2 ? breaker.admit() : breaker.admit(now);
        const int ticket = model.admit(now);
        RC_ASSERT(pass.has_value() == (ticket >= 0));
        if (pass) passes.push_back(*pass);
        break;
      }
      case Do::complete: {
        if (passes.empty()) break;
        const std::size_t i = c.n % passes.size();
        const nanoseconds took = c.slow ? 2s : 1ms;
        if (c.n % 2)
          breaker.complete(passes[i], c.verdict, took);
        else
          breaker.complete(passes[i], c.verdict, took, now);
        passes.erase(passes.begin() + static_cast<std::ptrdiff_t>(i));
        model.complete(i, c.verdict, c.slow, now);
        break;
      }
      case Do::advance:
        clock.advance(c.n * 333ms);
        break;
      case Do::leap:
        clock.advance(leaps[c.n % std::size(leaps)] * (options.window_time / 10));
        break;
      case Do::churn:
        for (int i = 0; i < churns[c.n % std::size(churns)]; ++i) {
          breaker.reset();
          model.reset();
        }
        break;
      case Do::reset:
        breaker.reset();
        model.reset();
        break;
      case Do::mode: {
        const auto mode = static_cast<BreakerMode>(c.n > 4 ? 0 : c.n);
        breaker.set_mode(mode);
        model.set_mode(mode);
        break;
      }
      case Do::update: {
        options.failure_rate = 0.2 + 0.06 * c.n;
        breaker.update(options);
        model.update(options.failure_rate, now);
        break;
      }
    }
    const BreakerSnapshot s = breaker.snapshot();
    RC_ASSERT(s.mode == model.mode);
    if (model.mode != BreakerMode::forced_open) RC_ASSERT(s.state == model.state);
    const Model::Counts w = model.window(clock.now());
    RC_ASSERT(s.calls == w.calls);
    RC_ASSERT(s.failures == w.failures);
    RC_ASSERT(s.slow == w.slow);
    RC_ASSERT(s.probes_in_flight <= options.half_open_calls);
  }
}

class BreakerProperty : public testing::TestWithParam<BreakerWindow> {};

// A failing sequence shrinks to the shortest; RC_PARAMS="seed=... max_success=..." repeats or lengthens
// a run.
TEST_P(BreakerProperty, DoesWhatTheModelDoes) {
  model::check_property([] {
    BreakerOptions o{.window = GetParam(),
                     .window_calls = *rc::gen::inRange<std::uint32_t>(1, 9),
                     .window_time = 2s,
                     .minimum_calls = *rc::gen::inRange<std::uint32_t>(1, 6),
                     .failure_rate = *rc::gen::element(0.2, 0.5, 2.0 / 3, 1.0),
                     .slow_call_rate = *rc::gen::element(0.5, 1.0),
                     .slow_call = 1s,
                     .open_for = 1s,
                     .backoff = 2,
                     .max_open = 3s,
                     .half_open_calls = *rc::gen::inRange<std::uint32_t>(1, 5),
                     .probe_lease = 2s};
    check(*rc::gen::scale(3.0, rc::gen::container<std::vector<Command>>(command())), o);
  });
}
INSTANTIATE_TEST_SUITE_P(, BreakerProperty, testing::Values(BreakerWindow::calls, BreakerWindow::time),
                         [](const auto& test) {
                           return test.param == BreakerWindow::calls ? "Calls" : "Time";
                         });

}  // namespace
}  // namespace bulkhead
