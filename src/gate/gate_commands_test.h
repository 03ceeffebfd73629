// gate_commands_test.h - random commands and gates for the property test, how they are printed, and how a
// failing sequence gets simpler.
#pragma once

#include <rapidcheck.h>

#include <array>
#include <cstdint>
#include <ostream>
#include <utility>
#include <vector>

#include "bulkhead/gate.h"

namespace bulkhead::model {

// Times are whole steps. Each call begins a nanosecond after the one before, so that no two waiters run out
// of time at the same instant: nobody promises which of them would be first.
inline constexpr std::int64_t kStep = 100'000;

enum class Do : std::uint8_t {
  try_acquire,
  acquire,  // only with a timeout of 0 or less: there is no other thread to end a wait
  async_acquire,
  co_acquire,
  release,
  fail_and_drop,
  settle,  // at `cost` units
  grow,    // by `cost` units
  cancel,
  abandon,  // destroys the coroutine that waits
  resize,
  resize_queue,
  advance,
  drain,
  close,
};

enum class Stop : std::uint8_t { none, possible, requested };

inline constexpr int kDefault = 1000, kForever = 1001, kNone = 1002;

struct Command {
  Do what = Do::try_acquire;
  Priority tier = Priority::normal;
  std::uint32_t cost = 1;
  int timeout = kDefault;  // steps, or kDefault, kForever
  int deadline = kNone;    // steps from now, or kNone
  Stop stop = Stop::none;
  std::uint32_t flow = 0;
  Outcome outcome = Outcome::success;
  std::uint32_t n = 0;  // which call (of those eligible, modulo), the new limit, or the steps to advance
};

inline std::ostream& operator<<(std::ostream& out, const Command& c) {
  constexpr std::array<std::string_view, 15> names{
      "try_acquire", "acquire", "async_acquire", "co_acquire",   "release", "fail_and_drop", "settle", "grow",
      "cancel",      "abandon", "resize",        "resize_queue", "advance", "drain",         "close"};
  out << "\n  " << names[static_cast<std::size_t>(c.what)] << "(";
  switch (c.what) {
    case Do::try_acquire:
    case Do::acquire:
    case Do::async_acquire:
    case Do::co_acquire:
      out << to_string(c.tier) << ", cost " << c.cost;
      if (c.timeout == kForever) out << ", wait_forever";
      if (c.timeout < kDefault) out << ", timeout " << c.timeout;
      if (c.deadline != kNone) out << ", deadline now" << (c.deadline < 0 ? "" : "+") << c.deadline;
      if (c.flow != 0) out << ", flow " << c.flow;
      if (c.stop != Stop::none) out << (c.stop == Stop::possible ? ", stop_token" : ", stop requested");
      break;
    case Do::release:
      out << "#" << c.n << ", " << to_string(c.outcome);
      break;
    case Do::settle:
    case Do::grow:
      out << "#" << c.n << ", " << c.cost;
      break;
    case Do::fail_and_drop:
    case Do::cancel:
    case Do::abandon:
      out << "#" << c.n;
      break;
    case Do::resize:
    case Do::resize_queue:
    case Do::advance:
      out << c.n;
      break;
    case Do::drain:
    case Do::close:
      break;
  }
  return out << ")";
}

struct Shape {
  std::uint32_t limit = 1, max_queue = 0, reserve_percent = 0;
  int max_wait = kForever;  // steps
  std::uint32_t max_barge = 2;
  std::uint32_t flow_queues = 0, flow_hand = 1;
  bool hooks = false, throwing = false, holders = false, measure = false, occupancy = false;
};

inline std::ostream& operator<<(std::ostream& out, const Shape& s) {
  out << "limit " << s.limit << ", max_queue " << s.max_queue << ", critical_reserve " << s.reserve_percent
      << "%, max_wait ";
  s.max_wait == kForever ? out << "for ever" : out << s.max_wait;
  if (s.flow_queues > 0) out << ", " << s.flow_queues << " flow queues, hand " << s.flow_hand;
  return out << ", max_barge " << s.max_barge << (s.hooks ? ", hooks" : "")
             << (s.throwing ? " that throw" : "") << (s.holders ? ", holders" : "")
             << (s.measure ? ", measure_service" : "") << (s.occupancy ? ", measure_occupancy" : "");
}

// ---- generators ----

class Dice {
 public:
  explicit Dice(const rc::Random& random) : random_(random) {}
  std::uint32_t below(std::uint32_t n) { return static_cast<std::uint32_t>(random_.next() % n); }
  std::uint32_t from(std::uint32_t least, std::uint32_t most) { return least + below(most - least + 1); }
  bool one_in(std::uint32_t n) { return below(n) == 0; }

 private:
  rc::Random random_;
};

// What a class of sequences is about.
struct Kind {
  const char* name;
  std::uint32_t most_cost, most_limit, most_queue;
  std::uint32_t one_reserve_in;  // how often there is a reserve: one sequence in ...
  std::uint32_t one_timed_in;    // how often a call has a timeout or a deadline
  std::uint32_t one_close_in;    // how often a command is close()
  bool measure;
  bool flows = false;  // several, in a line that is fair between them
};

inline constexpr Kind kKinds[] = {
    {"LightCalls", 1, 4, 5, 4, 3, 300, false},         {"HeavyCalls", 5, 6, 6, 2, 3, 300, false},
    {"ShortLives", 3, 3, 3, 3, 2, 40, false},          {"MeasuredCalls", 2, 3, 8, 4, 1, 300, true},
    {"LightFlows", 1, 3, 9, 4, 4, 300, false, true},   {"HeavyFlows", 5, 6, 12, 3, 4, 300, false, true},
    {"MeasuredFlows", 2, 3, 9, 4, 1, 300, true, true},
};

template <class T, class Make, class Simpler>
rc::Gen<T> generator(Make make, Simpler simpler) {
  return [=](const rc::Random& random, int) {
    Dice dice(random);
    return rc::shrinkable::shrinkRecur(
        make(dice), [=](const T& value) { return rc::seq::fromContainer(simpler(value)); });
  };
}

// Tries `value` for one member: a candidate if that changes something.
template <class T, class M>
void simpler(std::vector<T>& candidates, const T& from, M T::* member, M value) {
  if (from.*member == value) return;
  candidates.push_back(from);
  candidates.back().*member = value;
}

inline Command random_command(const Kind& kind, Dice& dice) {
  Command c;
  if (dice.one_in(kind.one_close_in)) {
    c.what = Do::close;
    return c;
  }
  constexpr std::pair<Do, std::uint32_t> weights[] = {
      {Do::try_acquire, 10}, {Do::acquire, 4},       {Do::async_acquire, 18}, {Do::co_acquire, 12},
      {Do::release, 19},     {Do::fail_and_drop, 3}, {Do::settle, 5},         {Do::grow, 4},
      {Do::cancel, 6},       {Do::abandon, 2},       {Do::resize, 4},         {Do::resize_queue, 3},
      {Do::advance, 8},      {Do::drain, 2}};
  std::uint32_t roll = dice.below(100);
  for (const auto& [what, weight] : weights) {
    c.what = what;
    if (roll < weight) break;
    roll -= weight;
  }
  c.tier = static_cast<Priority>(dice.below(3));
  c.cost = dice.one_in(20) ? dice.below(9) : dice.from(1, kind.most_cost);  // 0, and above the limit
  if (dice.one_in(kind.one_timed_in)) {
    const std::uint32_t pick = dice.below(8);
    if (pick < 5)
      c.timeout = static_cast<int>(dice.from(1, 6));
    else if (pick == 5)
      c.timeout = kForever;
    else if (pick == 6)
      c.timeout = -static_cast<int>(dice.below(2));
    if (kind.measure || dice.one_in(2)) c.deadline = static_cast<int>(dice.below(10)) - 1;
  }
  if (c.what == Do::acquire) c.timeout = -static_cast<int>(dice.below(2));
  if (c.what == Do::settle) c.cost = dice.below(kind.most_cost + 1);
  if (dice.one_in(3)) c.stop = dice.one_in(8) ? Stop::requested : Stop::possible;
  if (dice.one_in(3)) c.outcome = Outcome::failure;
  if (kind.flows && !dice.one_in(3)) c.flow = dice.one_in(2) ? 1 : dice.below(9);  // one is noisy
  c.n = dice.below(12);
  if (c.what == Do::resize) c.n = dice.from(1, kind.most_limit + 2);
  if (c.what == Do::resize_queue) c.n = dice.below(kind.most_queue + 2);
  if (c.what == Do::advance) c.n = dice.from(1, 4);
  return c;
}

inline rc::Gen<Command> command(const Kind& kind) {
  return generator<Command>([&kind](Dice& dice) { return random_command(kind, dice); },
                            [](const Command& c) {
                              std::vector<Command> s;
                              simpler(s, c, &Command::tier, Priority::normal);
                              simpler(s, c, &Command::cost, 1u);
                              if (c.what != Do::acquire) simpler(s, c, &Command::timeout, kDefault);
                              simpler(s, c, &Command::deadline, kNone);
                              simpler(s, c, &Command::stop, Stop::none);
                              simpler(s, c, &Command::flow, 0u);
                              simpler(s, c, &Command::outcome, Outcome::success);
                              const std::uint32_t least = c.what == Do::resize ? 1 : 0;
                              if (c.n > least) simpler(s, c, &Command::n, least);
                              if (c.n > least) simpler(s, c, &Command::n, c.n - 1);
                              if (c.cost > 2) simpler(s, c, &Command::cost, c.cost - 1);
                              return s;
                            });
}

inline rc::Gen<Shape> shape(const Kind& kind) {
  return generator<Shape>(
      [&kind](Dice& dice) {
        Shape s;
        s.limit = dice.from(1, kind.most_limit);
        s.max_queue = dice.one_in(8) ? 0 : dice.from(1, kind.most_queue);
        if (dice.one_in(kind.one_reserve_in))
          s.reserve_percent = std::array{10u, 25u, 50u, 99u}[dice.below(4)];
        if (dice.one_in(3)) s.max_wait = static_cast<int>(dice.below(5));
        s.max_barge = dice.below(4);
        s.hooks = !dice.one_in(4);
        s.throwing = s.hooks && dice.one_in(6);
        s.holders = dice.one_in(4);
        s.measure = kind.measure;
        if (kind.flows) {
          s.flow_queues = dice.from(1, 6);
          s.flow_hand = dice.from(1, std::min(s.flow_queues, 3u));
        }
        s.occupancy = dice.one_in(2);
        return s;
      },
      [](const Shape& s) {
        std::vector<Shape> simple;
        simpler(simple, s, &Shape::reserve_percent, 0u);
        simpler(simple, s, &Shape::max_wait, kForever);
        simpler(simple, s, &Shape::throwing, false);
        simpler(simple, s, &Shape::holders, false);
        simpler(simple, s, &Shape::occupancy, false);
        if (!s.throwing) simpler(simple, s, &Shape::hooks, false);
        if (s.limit > 1) simpler(simple, s, &Shape::limit, s.limit - 1);
        if (s.max_queue > 0) simpler(simple, s, &Shape::max_queue, s.max_queue - 1);
        return simple;
      });
}

}  // namespace bulkhead::model
