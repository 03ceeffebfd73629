// model_gate.h - a sequential model of a gate, with which the property test compares the real one.
//
// One thread and no atomics: the line is a vector in the order of arrival, and every function scans all of it.
// Check it by reading it beside the contract in gate.h.
#pragma once

#include <algorithm>
#include <compare>
#include <cstdint>
#include <map>
#include <ranges>
#include <tuple>
#include <vector>

#include "bulkhead/gate.h"
#include "gate/flow_queues.h"

namespace bulkhead::model {

enum class Fact : std::uint8_t { admit, reject, release, resize, close };

// What the hooks must report.
struct LoggedEvent {
  Fact fact;
  Priority tier = Priority::normal;
  Reason reason{};  // of a rejection
  std::uint32_t in_flight, waiting, limit, max_queue;
  bool operator==(const LoggedEvent&) const = default;
};

// The result that a caller must get.
struct Answer {
  int id;
  bool admitted;
  Reason reason{};
  std::uint32_t in_flight = 0, waiting = 0, limit = 0, max_queue = 0;  // of a rejection
  bool operator==(const Answer&) const = default;
};

struct Call {
  int id;
  Priority tier;
  std::uint32_t cost;
  bool queues;             // false: try_acquire
  bool stopped;            // its stop_token has fired already
  std::int64_t timeout;    // ns; forever: no limit
  std::int64_t deadline;   // ns since the epoch; forever: none
  std::int64_t mean_hold;  // ns; 0: unknown
  std::uint64_t flow = 0;
  std::int64_t since = 0, until = 0;
  std::uint32_t queue = 0;  // of its tier; always 0 without flows
};

struct ModelGate {
  static constexpr std::int64_t forever = INT64_MAX;

  // The shape
  Fairness fairness;
  std::uint32_t limit, max_queue, reserve_percent;
  std::int64_t max_barge;
  std::uint32_t queue_reserve_percent = 0;
  std::uint32_t flow_queues = 0, flow_hand = 0;
  // The state
  std::int64_t now;
  bool closed = false;
  std::vector<Call> running{}, line{};
  // Flows: when the first of a queue may begin, in units of cost; and the same for the tier.
  struct Turn {
    std::map<std::uint32_t, std::uint64_t> start{};
    std::uint64_t now = 0, end = 0;
  };
  std::map<Priority, Turn> turns{};
  // What has been seen of it
  std::uint64_t released = 0, failed = 0, double_releases = 0;
  std::map<Reason, std::uint64_t> rejected{};
  std::int64_t occupancy = 0, saturated = 0;
  std::vector<LoggedEvent> log{};
  std::vector<Answer> answers{};

  std::uint32_t in_flight() const {
    std::uint32_t units = 0;
    for (const Call& c : running) units += c.cost;
    return units;
  }
  std::uint32_t waiting() const { return static_cast<std::uint32_t>(line.size()); }
  std::uint32_t waiting(Priority tier) const {
    return static_cast<std::uint32_t>(std::ranges::count(line, tier, &Call::tier));
  }
  // The share is rounded up, but never takes all of the limit.
  std::uint32_t reserve() const { return std::min((limit * reserve_percent + 99) / 100, limit - 1); }
  std::uint32_t most(Priority tier) const { return tier == Priority::critical ? limit : limit - reserve(); }
  // The same for the places in line.
  std::uint32_t places(Priority tier) const {
    if (tier == Priority::critical || max_queue == 0) return max_queue;
    return max_queue - std::min((max_queue * queue_reserve_percent + 99) / 100, max_queue - 1);
  }
  bool fits(const Call& c) const { return in_flight() + c.cost <= most(c.tier); }

  auto head() {  // of equals, the oldest
    if (flow_queues == 0) return std::ranges::min_element(line, {}, &Call::tier);
    return std::ranges::min_element(
        line, {}, [this](const Call& c) { return std::tuple(c.tier, turns[c.tier].start[c.queue]); });
  }
  bool head_is_starved() {
    return fairness == Fairness::adaptive && !line.empty() && now - head()->since > max_barge;
  }
  std::int64_t ahead(const Call& c) const {
    return std::ranges::count_if(line, [&](const Call& w) { return w.tier <= c.tier; });
  }

  // ---- flows ----

  std::uint32_t in_queue(Priority tier, std::uint32_t queue) const {
    return static_cast<std::uint32_t>(
        std::ranges::count_if(line, [&](const Call& w) { return w.tier == tier && w.queue == queue; }));
  }
  std::uint32_t units_in_queue(Priority tier, std::uint32_t queue) const {
    std::uint32_t units = 0;
    for (const Call& w : line)
      if (w.tier == tier && w.queue == queue) units += w.cost;
    return units;
  }
  detail::FlowHand hand(const Call& c) const { return {c.flow, 0, flow_queues, flow_hand}; }
  // Where its flow stands already; else where its turn comes first.
  std::uint32_t queue_for(const Call& c) {
    if (flow_queues == 0) return 0;
    for (const Call& w : line)
      if (w.tier == c.tier && w.flow == c.flow) return w.queue;
    const detail::FlowHand dealt = hand(c);
    Turn& turn = turns[c.tier];
    return *std::ranges::min_element(dealt, {}, [&](std::uint32_t q) {
      return std::max(turn.start[q], turn.now) + units_in_queue(c.tier, q);
    });
  }
  // Those served before it: all of higher tiers, those in its queue, and of each other queue one more
  // than that.
  std::int64_t predicted_ahead(const Call& c) {
    if (flow_queues == 0) return ahead(c);
    std::int64_t sum = std::ranges::count_if(line, [&](const Call& w) { return w.tier < c.tier; });
    const std::uint32_t mine = queue_for(c), before = in_queue(c.tier, mine);
    for (std::uint32_t q = 0; q < flow_queues; ++q)
      sum += q == mine ? before : std::min(in_queue(c.tier, q), before + 1);
    return sum;
  }
  // If those ahead hold as many units as those that run do, on average.
  bool too_late(const Call& c) {
    const double calls = static_cast<double>(std::max<std::size_t>(running.size(), 1));
    const double each = std::max(1.0, static_cast<double>(in_flight()) / calls);
    return static_cast<double>(predicted_ahead(c)) * static_cast<double>(c.mean_hold) * each / limit >
           static_cast<double>(c.deadline - now);
  }
  // The waiter that is evicted for `c`, of the lowest tier in line: the newest; with flows, the newest of the longest queue.
  const Call* victim(const Call& c) {
    if (line.empty()) return nullptr;
    const Priority lowest = std::ranges::max_element(line, {}, &Call::tier)->tier;
    std::uint32_t longest = 0;
    for (std::uint32_t q = 1; q < flow_queues; ++q)
      if (in_queue(lowest, q) > in_queue(lowest, longest)) longest = q;
    const auto newest_first = std::views::reverse(line);
    const Call& found = *std::ranges::find_if(
        newest_first, [&](const Call& w) { return w.tier == lowest && w.queue == longest; });
    if (lowest > c.tier) return &found;
    if (flow_queues == 0 || lowest < c.tier) return nullptr;
    // Among equals, only to make the queues more even.
    return in_queue(lowest, queue_for(c)) + 1 < in_queue(lowest, longest) ? &found : nullptr;
  }

  void acquire(Call c) {
    if (closed) return reject(c, Reason::shutdown);
    if (c.stopped) return reject(c, Reason::cancelled);
    if (c.deadline <= now) return reject(c, Reason::deadline);
    const bool my_turn = ahead(c) == 0 || (fairness != Fairness::fifo && !head_is_starved());
    if (my_turn && fits(c)) return admit(c);
    if (c.cost > most(c.tier)) return reject(c, Reason::concurrency_limit);
    if (c.queues && c.deadline != forever && too_late(c)) return reject(c, Reason::deadline);
    if (!c.queues || max_queue == 0) return reject(c, Reason::concurrency_limit);
    const bool full = waiting() >= places(c.tier);
    if (full && !victim(c)) return reject(c, Reason::queue_limit);
    if (c.timeout <= 0) return reject(c, Reason::timeout);
    if (full) leave(victim(c)->id, Reason::evicted);
    c.queue = queue_for(c);
    if (in_queue(c.tier, c.queue) == 0) {  // it saves up nothing
      Turn& turn = turns[c.tier];
      turn.start[c.queue] = std::max(turn.start[c.queue], turn.now);
    }
    c.since = now;
    c.until = std::min(c.timeout == forever ? forever : now + c.timeout, c.deadline);
    line.push_back(c);
    if (flow_queues == 0) return;
    const auto told = std::ssize(answers), noted = std::ssize(log);
    serve();  // a flow that has had less may come before a heavy call that does not fit yet
    // If it was its turn already, its owner and the hooks learn so as the call returns: after all others.
    const auto own = std::ranges::find(answers, c.id, &Answer::id);
    if (own == answers.end()) return;
    const auto entry = log.begin() + noted + (own - answers.begin() - told);
    std::rotate(own, own + 1, answers.end());
    std::rotate(entry, entry + 1, log.end());
  }

  void release(int id, Outcome outcome) {
    const auto c = std::ranges::find(running, id, &Call::id);
    if (c == running.end()) return void(++double_releases);
    const Priority tier = c->tier;
    running.erase(c);
    ++released;
    if (outcome == Outcome::failure) ++failed;
    serve();
    note(Fact::release, tier);
  }

  bool settle(int id, std::uint32_t units) {
    const auto c = std::ranges::find(running, id, &Call::id);
    if (c == running.end() || units > c->cost) return false;
    if (units < c->cost) {
      c->cost = units;
      serve();
    }
    return true;
  }

  bool grow(int id, std::uint32_t units) {
    const auto c = std::ranges::find(running, id, &Call::id);
    if (c == running.end()) return false;
    if (units > 0 && (ahead(*c) > 0 || in_flight() + units > most(c->tier))) return false;
    c->cost += units;
    return true;
  }

  void cancel(int id, Reason reason = Reason::cancelled) {
    if (std::ranges::find(line, id, &Call::id) == line.end()) return;
    leave(id, reason);
    serve();
  }

  void resize(std::uint32_t new_limit) {
    limit = new_limit;
    for (const Priority tier : {Priority::critical, Priority::normal, Priority::best_effort})
      for (std::uint32_t q = 0; q < std::max(flow_queues, 1u); ++q)
        for (const Call& c : std::vector(line))
          if (c.tier == tier && c.queue == q && c.cost > most(tier)) leave(c.id, Reason::concurrency_limit);
    serve();
    note(Fact::resize, Priority::normal);
  }

  void resize_queue(std::uint32_t new_max_queue) {
    max_queue = new_max_queue;
    note(Fact::resize, Priority::normal);
  }

  void advance(std::int64_t by) {
    const std::int64_t then = now + by;
    while (!line.empty()) {
      const Call next = *std::ranges::min_element(line, {}, &Call::until);
      if (next.until > then) break;
      wait_until(std::max(now, next.until));
      leave(next.id, Reason::timeout);
      serve();
    }
    wait_until(then);
  }

  void close() {
    if (closed) return;
    closed = true;
    while (!line.empty()) leave(head()->id, Reason::shutdown);
    note(Fact::close, Priority::normal);
  }

  bool idle() const { return running.empty() && line.empty(); }

 private:
  void wait_until(std::int64_t then) {
    occupancy += in_flight() * (then - now);
    if (in_flight() >= most(Priority::normal)) saturated += then - now;
    now = then;
  }
  void serve() {
    while (!line.empty() && fits(*head())) {
      const Call c = *head();
      line.erase(head());
      Turn& turn = turns[c.tier];
      turn.now = turn.start[c.queue];
      turn.start[c.queue] += c.cost;
      turn.end = std::max(turn.end, turn.start[c.queue]);
      forgive(c.tier);
      admit(c);
    }
  }
  void leave(int id, Reason reason) {
    const auto w = std::ranges::find(line, id, &Call::id);
    const Call c = *w;
    line.erase(w);
    forgive(c.tier);
    reject(c, reason);
  }
  void forgive(Priority tier) {  // an empty tier makes all queues equal
    if (waiting(tier) == 0) turns[tier].now = turns[tier].end;
  }
  void admit(const Call& c) {
    running.push_back(c);
    note(Fact::admit, c.tier);
    answers.push_back({.id = c.id, .admitted = true});
  }
  void reject(const Call& c, Reason reason) {
    ++rejected[reason];
    note(Fact::reject, c.tier, reason);
    answers.push_back({c.id, false, reason, in_flight(), waiting(), limit, max_queue});
  }
  void note(Fact fact, Priority tier, Reason reason = {}) {
    log.push_back({fact, tier, reason, in_flight(), waiting(), limit, max_queue});
  }
};

}  // namespace bulkhead::model
