// fleet_world_test.h - a store, some members and a network between them, on virtual time, with everything that goes wrong:
// loss, repetition and delay of messages, crashes and pauses of members, a store that stalls, restarts, forgets or rolls
// back, and steps of its clock.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <queue>
#include <random>
#include <string>
#include <vector>

#include "shared/lease.h"
#include "shared/limit_state.h"

namespace bulkhead::shared {

// A rule that is left out, to show that the test notices.
enum class Without { nothing, sequence, learning, empty_claim, margin, step_detection, measuring };

class FleetWorld {
 public:
  static constexpr std::uint32_t kLimit = 10;
  static constexpr std::int64_t kTtl = 5000;

  FleetWorld(std::uint64_t seed, Without without) : random_(seed), without_(without) {
    moves_limit_ = without == Without::nothing && pick(4) == 0;
    if (without == Without::nothing && chance(25)) grace_ = pick(2000) * 1'000'000;
    for (int i = 0; i < 5; ++i) {
      members_.emplace_back();
      renew(members_.back());
    }
    for (std::size_t i = 0; i < members_.size(); ++i) at(pick(100), [this, i] { tick(i); });
    at(pick(3000), [this] { fault(); });
    at(500, [this] { remember(); });
  }

  void run(int events) {
    for (int i = 0; i < events && !events_.empty(); ++i) {
      const Event event = events_.top();
      events_.pop();
      now_ = std::max(now_, event.at);
      event.what();
      check();
    }
  }

  std::uint64_t violations() const { return violations_; }
  std::uint32_t worst() const { return worst_; }
  std::uint64_t requests() const { return requests_; }
  std::uint64_t requests(StoreOp op) const { return by_op_[static_cast<std::size_t>(op)]; }
  double leased() const {
    return static_cast<double>(leased_) / static_cast<double>(std::max<std::int64_t>(1, checks_)) / kLimit;
  }

 private:
  struct Event {
    std::int64_t at;
    std::uint64_t order;
    std::function<void()> what;
    bool operator<(const Event& e) const { return at != e.at ? at > e.at : order > e.order; }
  };
  struct Process {
    std::unique_ptr<Lease> lease;
    std::uint64_t incarnation = 0;
    std::int64_t paused_until = 0, cut_until = 0;
    Lease::Needs needs{};
    std::uint32_t line = 0;
    std::uint64_t seen = 0;
  };

  std::int64_t pick(std::int64_t below) {
    return static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(below));
  }
  bool chance(int percent) { return pick(100) < percent; }
  std::int64_t ns() const { return now_ * 1'000'000; }
  void at(std::int64_t after, std::function<void()> what) {
    events_.push({now_ + after, ++order_, std::move(what)});
  }

  void renew(Process& p) {
    ++p.incarnation;
    p.seen = 0;
    LeaseOptions o;
    o.member = "m" + std::to_string(++made_);
    o.tie = static_cast<std::uint32_t>(random_());
    o.limit = kLimit;
    o.times = LeaseTimes::from(kTtl * 1'000'000, grace_);
    o.when_cut_off = without_ == Without::empty_claim ? WhenCutOff::keep : WhenCutOff::closed;
    if (without_ == Without::margin || without_ == Without::step_detection) o.times.margin = kTtl * 20'000;
    if (without_ == Without::step_detection) o.times.gap = kTtl * 1'000'000;
    o.direct = chance(50);
    o.weight = static_cast<std::uint32_t>(1 + pick(3));
    p.lease = std::make_unique<Lease>(std::move(o));
  }

  void tick(std::size_t i) {
    Process& p = members_[i];
    at(5 + pick(200), [this, i] { tick(i); });
    if (now_ < p.paused_until) return;
    Lease& lease = *p.lease;
    if (chance(40)) {
      const auto cost = static_cast<std::uint32_t>(1 + pick(3));
      p.line = lease.take(cost, ns()) ? 0 : cost;
    }
    if (lease.in_use() > 0 && chance(45)) lease.give_back(1);
    if (pick(300) == 0) {  // a clean end, and another process in its place
      send(i, lease.leave_request(run_, ns()));
      renew(p);
      return;
    }
    if (moves_limit_ && pick(100) == 0) lease.set_limit(static_cast<std::uint32_t>(6 + pick(5)));
    if (chance(10)) {
      p.needs.need = static_cast<std::uint32_t>(pick(12));
      p.needs.slack = static_cast<std::uint32_t>(pick(4));
    }
    p.needs.line = p.line;
    p.needs.rejected = p.line > 0;
    if (auto r = lease.next(p.needs, run_, ns())) send(i, *r);
  }

  std::int64_t delay() { return chance(8) ? 300 + pick(7700) : 1 + pick(30); }

  void send(std::size_t i, const StoreRequest& r) {
    for (int copies = chance(10) ? 2 : 1; copies > 0; --copies)
      if (!chance(8) && now_ >= members_[i].cut_until)
        at(delay(), [this, i, r, id = members_[i].incarnation] { deliver(i, id, r); });
  }

  // A connection belongs to one run of the store: what is on the way when it ends is lost.
  void deliver(std::size_t i, std::uint64_t incarnation, StoreRequest r) {
    if (r.run != run_) return;
    if (now_ < stalled_until_)
      return at(stalled_until_ - now_, [this, i, incarnation, r] { deliver(i, incarnation, r); });
    const std::int64_t server_now = now_ + offset_;
    const auto stored = state_.members.find(r.member);
    if (without_ == Without::sequence && stored != state_.members.end())
      r.seq = std::max(r.seq, stored->second.seq + 1);
    if (without_ == Without::measuring) r.since = std::max<std::int64_t>(0, server_now - r.seen_at);
    if (without_ == Without::learning) {
      if (!state_.known) state_ = {.known = true, .limit = kLimit};
      state_.run = r.run;
      state_.ver = std::max(state_.ver, r.seen_ver);
      state_.last = server_now;
      state_.sum = 0;
      for (const auto& [id, m] : state_.members) state_.sum += m.granted;
    }
    ++requests_;
    ++by_op_[static_cast<std::size_t>(r.op)];
    const LimitState before = state_;
    const StoreReply reply = decide(state_, r, server_now);
    if (reply.status != StoreStatus::ok && !(state_ == before)) ++violations_;  // F2
    if (chance(8)) return;
    at(delay(), [this, i, incarnation, seq = r.seq, run = r.run, reply] {
      Process& p = members_[i];
      if (p.incarnation != incarnation || run != run_ || now_ < std::max(p.paused_until, p.cut_until)) return;
      if (!p.lease->on_reply(seq, reply, ns())) return;
      if (reply.status == StoreStatus::ok && reply.ver < p.seen)
        ++violations_;  // ver never goes back for a member
      p.seen = std::max(p.seen, reply.ver);
    });
  }

  void restart(std::int64_t lost) {
    run_ = "run" + std::to_string(++runs_);
    state_ = {};
    for (const auto& [when, state] : past_)
      if (when <= now_ - lost) state_ = state;
    past_.clear();
  }

  void remember() {
    at(200, [this] { remember(); });
    past_.emplace_back(now_, state_);
    if (past_.size() > 60) past_.pop_front();
  }

  void fault() {
    at(200 + pick(6000), [this] { fault(); });
    Process& p = members_[static_cast<std::size_t>(pick(static_cast<std::int64_t>(members_.size())))];
    switch (pick(18)) {
      case 0:
        return renew(p);  // kill -9
      case 1:
        p.paused_until = now_ + 200 + pick(8000);
        return;
      case 2:
        state_ = {};  // FLUSHALL
        return;
      case 3:
        state_.members.clear();  // one of its keys is evicted
        return;
      case 4:
        return restart(1'000'000);  // without data
      case 5:
        return restart(pick(1000));  // with an append-only file
      case 6:
        return restart(pick(6000));  // a replica that is behind becomes the master
      case 7:
        stalled_until_ = now_ + 200 + pick(8000);
        return;
      case 8:
      case 9:
      case 10:
      case 11:
      case 12:
      case 13:
      case 14:
        p.cut_until = now_ + 1000 + pick(9000);
        return;
      default:
        // Steps that each stay below what can be noticed must not add up within one lease.
        if (now_ - stepped_at_ < 2 * kTtl) return;
        stepped_at_ = now_;
        offset_ += chance(40) ? pick(1250) : chance(50) ? pick(5000) : pick(40'000) - 20'000;
    }
  }

  void check() {
    std::uint32_t sum = 0;
    for (const Process& p : members_)
      if (p.lease->valid(ns())) sum += p.lease->held();
    worst_ = std::max(worst_, sum);
    if (sum > kLimit) ++violations_;
    leased_ += sum;
    ++checks_;
  }

  std::mt19937_64 random_;
  const Without without_;
  bool moves_limit_ = false;
  std::int64_t grace_ = 0;
  std::priority_queue<Event> events_;
  std::uint64_t order_ = 0;
  std::int64_t now_ = 1'000'000;

  std::vector<Process> members_;
  std::uint64_t made_ = 0;

  LimitState state_;
  std::string run_ = "run0";
  int runs_ = 0;
  std::int64_t offset_ = 1'700'000'000'000, stepped_at_ = 0, stalled_until_ = 0;
  std::deque<std::pair<std::int64_t, LimitState>> past_;

  std::uint64_t violations_ = 0, requests_ = 0, by_op_[5] = {};
  std::uint32_t worst_ = 0;
  std::int64_t leased_ = 0, checks_ = 0;
};

}  // namespace bulkhead::shared
