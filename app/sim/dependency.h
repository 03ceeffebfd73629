// dependency.h - the server side of a world: calls enter, wait for a slot, and leave when their work is done.
//
// Time is an argument. enter() and advance() may begin work; the world asks next() for the time of the next
// event and calls advance() then, which reports each call that has left through `done`.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <queue>
#include <random>
#include <vector>

#include "app/sim/scenario.h"

namespace bulkhead::sim {

using Nanos = std::int64_t;

// Log-normal times of mean 1, drawn beforehand: a draw in the loop is a look into a table.
class ServiceTimes {
 public:
  ServiceTimes(double sigma, std::uint32_t seed);
  double next() { return table_[random_() % table_.size()]; }

 private:
  std::mt19937 random_;
  std::vector<double> table_ = std::vector<double>(1 << 16);
};

class Dependency {
 public:
  // When the work of a call ends that begins now and takes `factor` times its usual time.
  using Ends = std::function<Nanos(Nanos now, std::uint32_t call, double factor)>;
  // Without `ends`, service times are drawn as the scenario says.
  Dependency(const Scenario& scenario, std::uint32_t seed, Ends ends = {});

  // `done(call)` reports a call that has left. `gone(call)` tells whether a waiting call has been cancelled;
  // such a call leaves without being served.
  template <class Done, class Gone>
  void enter(Nanos now, std::uint32_t call, const Done& done, const Gone& gone) {
    ++inside_;
    stations_[0].line.push_back(call);
    serve(now, 0, done, gone);
  }
  template <class Done, class Gone>
  void advance(Nanos now, const Done& done, const Gone& gone) {
    while (!events_.empty() && events_.top().at <= now) {
      const Event event = events_.top();
      events_.pop();
      finish(now, event, done, gone);
    }
  }
  Nanos next() const { return events_.empty() ? kNever : events_.top().at; }

  // A new phase, or a step of a capacity that swings.
  template <class Done, class Gone>
  void set(Nanos now, std::uint32_t capacity, double slowdown, const Done& done, const Gone& gone) {
    slowdown_ = slowdown;
    if (stations_.size() == 1 && scenario_.model == Model::slots) stations_[0].slots = capacity;
    for (std::size_t s = 0; s < stations_.size(); ++s) serve(now, s, done, gone);
  }

  // worked() counts only service in this time.
  void measure(Nanos from, Nanos to) {
    from_ = from;
    to_ = to;
  }
  double worked() const { return worked_; }  // ns of service, of all slots together

  static constexpr Nanos kNever = INT64_MAX;

 private:
  static constexpr double kLinger = 0.05;  // in service times

  struct Event {
    Nanos at;
    std::uint32_t call, station;
    bool operator<(const Event& other) const { return at > other.at; }
  };
  struct Station {
    std::uint32_t slots = 0, busy = 0;
    std::deque<std::uint32_t> line{};
  };

  template <class Done, class Gone>
  void finish(Nanos now, const Event& event, const Done& done, const Gone& gone) {
    Station& station = stations_[event.station];
    if (scenario_.model == Model::batching) {
      finish_batch(now, done);
      return;
    }
    --station.busy;
    serve(now, event.station, done, gone);
    if (event.station + 1 < stations_.size()) {
      stations_[event.station + 1].line.push_back(event.call);
      serve(now, event.station + 1, done, gone);
    } else {
      leave(event.call, done);
    }
  }

  template <class Done>
  void leave(std::uint32_t call, const Done& done) {
    --inside_;
    done(call);
  }

  template <class Done, class Gone>
  void serve(Nanos now, std::size_t at, const Done& done, const Gone& gone) {
    if (scenario_.model == Model::batching) {
      // The worker waits a little for company before it takes what is there.
      if (!lingering_ && batch_.empty() && !stations_[0].line.empty()) {
        lingering_ = true;
        events_.push({now + static_cast<Nanos>(kLinger * mean_), 0, 0});
      }
      return;
    }
    Station& station = stations_[at];
    while (!station.line.empty() && station.busy < station.slots) {
      const std::uint32_t call = station.line.front();
      station.line.pop_front();
      if (at == 0 && gone(call)) {
        leave(call, done);
        continue;
      }
      ++station.busy;
      const Nanos end = end_of(now, call);
      worked_ += static_cast<double>(std::max<Nanos>(0, std::min(end, to_) - std::max(now, from_)));
      events_.push({end, call, static_cast<std::uint32_t>(at)});
    }
  }

  template <class Done>
  void finish_batch(Nanos now, const Done& done) {
    Station& station = stations_[0];
    if (!lingering_) {
      for (const std::uint32_t call : batch_) leave(call, done);
      batch_.clear();
      if (station.line.empty()) return;
    }
    lingering_ = false;
    while (!station.line.empty() && batch_.size() < station.slots) {
      batch_.push_back(station.line.front());
      station.line.pop_front();
    }
    events_.push({with_pauses(now, service_.next() * mean_ * factor()), 0, 0});
  }

  double factor() const;                          // of service times, at this load
  Nanos end_of(Nanos now, std::uint32_t call);    // of work that begins now
  Nanos with_pauses(Nanos now, double ns) const;  // the same, with the pauses in between

  const Scenario& scenario_;
  ServiceTimes service_;
  Ends ends_;
  double mean_;  // of one station, in ns
  double slowdown_ = 1, worked_ = 0;
  Nanos from_ = 0, to_ = kNever;
  std::vector<Station> stations_;
  std::vector<std::uint32_t> batch_;  // being served
  bool lingering_ = false;
  std::uint32_t inside_ = 0;
  std::priority_queue<Event> events_;
};

}  // namespace bulkhead::sim
