// flow_queues.h - a line that is fair between flows: a noisy flow delays only its own calls.
//
// Each tier has a fixed number of queues. The key of a flow selects a few of them, its hand (shuffle sharding: two flows
// often share a queue, but rarely a whole hand). The first call of a flow joins the queue of its hand in which its turn
// comes first; while the flow has calls in line, its other calls join the same queue. So a flow is first in, first out,
// and uses one queue at a time. The queues are served in turns of equal cost.
//
// Threads: guarded by the turnstile's lock. Cost: all memory is allocated in the constructor, about 420 bytes per queue.
// Joining reads a hand and four seats; serving and leaving compare one queue per level of a tree (6 for 64 queues);
// evicting and predicting a wait read every queue.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "bulkhead/detail/turnstile.h"

namespace bulkhead::detail {

inline constexpr std::uint32_t kMostFlowQueues = 1024, kMostFlowHand = 16;

// A hash of a key (splitmix64).
constexpr std::uint64_t mixed(std::uint64_t x) noexcept {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// The queues of a flow: `hand` different ones out of `queues`, all hands equally likely.
struct FlowHand {
  FlowHand(std::uint64_t flow, std::uint64_t seed, std::uint32_t queues, std::uint32_t hand) noexcept
      : size(hand) {
    std::uint64_t x = mixed(flow ^ mixed(seed));
    std::uint32_t sorted[kMostFlowHand];
    for (std::uint32_t i = 0; i < size; ++i) {
      x = mixed(x);
      auto card = static_cast<std::uint32_t>(x % (queues - i));  // the card-th of the remaining queues
      std::uint32_t at = 0;
      while (at < i && sorted[at] <= card) ++card, ++at;
      for (std::uint32_t j = i; j > at; --j) sorted[j] = sorted[j - 1];
      sorted[at] = queue[i] = card;
    }
  }
  const std::uint32_t* begin() const noexcept { return queue; }
  const std::uint32_t* end() const noexcept { return queue + size; }

  std::uint32_t queue[kMostFlowHand];
  std::uint32_t size;
};

// Invariants, for each tier (start-time fair queueing)
//  F1  A queue's `start` is the virtual time at which its first waiter may begin. It increases by the cost of each served
//      waiter, and only then: a waiter that leaves has used nothing.
//  F2  `now` is the start of the queue that was served last, and no queue with waiters has an earlier start. A queue that
//      was empty starts at `now` at the earliest: it gets no credit for the time without waiters.
//  F3  When the tier is empty, `now` is the end of all served calls, so all queues are equal again.
//  F4  The next waiter changes only by serving, leaving, or an arrival in an empty queue. Of queues with the same start,
//      the one whose first waiter arrived first is next.
//  F5  All waiters of a flow are in one queue: that of its seat; without a seat, the first one of its hand. A flow takes a
//      seat only if no waiter of its row is without one (`standing`), so a flow never has waiters of both kinds.
template <class P>
class FlowQueues {
 public:
  using Waiter = detail::Waiter<P>;

  FlowQueues(std::uint32_t queues, std::uint32_t hand, std::uint64_t seed)
      : queues_(queues),
        hand_(hand),
        seed_(seed),
        leaves_(std::bit_ceil(queues)),
        all_(std::size_t{queues} * kPriorities),
        winners_(std::size_t{leaves_} * kPriorities),
        rows_(std::bit_ceil(queues < kLeastRows / kRowsPerQueue ? kLeastRows : queues * kRowsPerQueue)) {
    for (std::size_t tier = 0; tier < kPriorities; ++tier)
      for (std::uint32_t queue = 0; queue < leaves_; ++queue) compare_again(tier, queue);
  }

  FlowHand hand(std::uint64_t flow) const noexcept { return {flow, seed_, queues_, hand_}; }

  // The next waiter of this tier, or null.
  Waiter* head(std::size_t tier) const noexcept {
    return tiers_[tier].count == 0 ? nullptr : of(tier, winner(tier, 1)).first;
  }

  void push(Waiter& w) noexcept {
    w.queue = static_cast<std::uint16_t>(sit_down(w));
    w.waiting = ++tickets_;  // decide() overwrites it
    Tier& t = tiers_[tier_of(w)];
    Queue& q = of(tier_of(w), w.queue);
    if (!q.first) {
      if (q.start < t.now) q.start = t.now;
      q.ticket = w.waiting;
    }
    w.next = nullptr;
    w.prev = q.last;
    (q.last ? q.last->next : q.first) = &w;
    q.last = &w;
    ++q.count;
    q.units += w.cost;
    ++t.count;
    if (q.first == &w) compare_again(tier_of(w), w.queue);
  }

  // `served`: it is the head() and was admitted.
  void remove(Waiter& w, bool served) noexcept {
    stand_up(w);
    Tier& t = tiers_[tier_of(w)];
    Queue& q = of(tier_of(w), w.queue);
    const bool was_first = q.first == &w;
    (w.prev ? w.prev->next : q.first) = w.next;
    (w.next ? w.next->prev : q.last) = w.prev;
    --q.count;
    q.units -= w.cost;
    --t.count;
    if (was_first && q.first) q.ticket = q.first->waiting;
    if (served) {
      t.now = q.start;
      q.start += w.cost;
      if (t.end < q.start) t.end = q.start;
    }
    if (was_first) compare_again(tier_of(w), w.queue);
    if (t.count == 0) t.now = t.end;
  }

  // The newest waiter of the longest queue, which is evicted when the line is full; or null.
  Waiter* last_of_longest(std::size_t tier) const noexcept {
    const Queue* longest = &all_[tier * queues_];
    for (const Queue* q = longest + 1; q < &all_[tier * queues_] + queues_; ++q)
      if (q->count > longest->count) longest = q;
    return longest->last;
  }
  Waiter* first_of_longest(std::size_t tier) const noexcept {
    const Waiter* last = last_of_longest(tier);
    return last ? of(tier, last->queue).first : nullptr;
  }
  // Whether `w` may evict that one in its own tier: its queue is then no longer than the other.
  bool may_evict(const Waiter& w) const noexcept {
    const Waiter* victim = last_of_longest(tier_of(w));
    return victim && of(tier_of(w), queue_for(w)).count + 1 < of(tier_of(w), victim->queue).count;
  }

  // How many calls of its tier are served before `w` if it joins: those in its queue, and at most one more of each other
  // queue.
  std::uint32_t ahead(const Waiter& w) const noexcept {
    const std::uint32_t mine = queue_for(w);
    const std::uint32_t before = of(tier_of(w), mine).count;
    std::uint32_t sum = before;
    for (std::uint32_t q = 0; q < queues_; ++q) {
      if (q == mine) continue;
      const std::uint32_t theirs = of(tier_of(w), q).count;
      sum += theirs < before + 1 ? theirs : before + 1;
    }
    return sum;
  }

  std::uint32_t size() const noexcept { return queues_; }
  Waiter* first(std::size_t tier, std::uint32_t queue) const noexcept { return of(tier, queue).first; }

 private:
  static constexpr std::uint32_t kRowsPerQueue = 4, kLeastRows = 64;
  struct Queue {
    Waiter* first = nullptr;
    Waiter* last = nullptr;
    std::uint64_t start = 0, units = 0;
    std::uint32_t count = 0;
    std::uint32_t ticket = 0;  // of `first`, modulo 2^32
    bool before(const Queue& other) const noexcept {
      if (!first || !other.first) return first;
      return start != other.start ? start < other.start
                                  : static_cast<std::int32_t>(ticket - other.ticket) < 0;
    }
  };
  struct Tier {
    std::uint64_t now = 0, end = 0;
    std::uint32_t count = 0;
  };
  // The queue of a flow of this tier; free if count is 0.
  struct Seat {
    std::uint64_t flow = 0;
    std::uint32_t count = 0;  // of its waiters
    std::uint16_t queue = 0;
    Priority tier = Priority::normal;
    bool of(const Waiter& w) const noexcept { return count > 0 && flow == w.flow && tier == w.tier; }
  };
  struct FlowRow {
    Seat seats[4];
    std::uint32_t standing = 0;  // waiters whose flow has no seat
  };

  static std::size_t tier_of(const Waiter& w) noexcept { return static_cast<std::size_t>(w.tier); }
  Queue& of(std::size_t tier, std::uint32_t queue) noexcept { return all_[tier * queues_ + queue]; }
  const Queue& of(std::size_t tier, std::uint32_t queue) const noexcept {
    return all_[tier * queues_ + queue];
  }
  // A tournament tree: node 1 is the root, the children of n are 2n and 2n + 1, and the queues are the leaves from leaves_
  // on. Only the winners of inner nodes are stored.
  std::uint32_t winner(std::size_t tier, std::uint32_t node) const noexcept {
    return node >= leaves_ ? node - leaves_ : winners_[tier * leaves_ + node];
  }
  void compare_again(std::size_t tier, std::uint32_t queue) noexcept {
    for (std::uint32_t node = (leaves_ + queue) / 2; node > 0; node /= 2) {
      const std::uint32_t left = winner(tier, 2 * node), right = winner(tier, 2 * node + 1);
      const bool right_wins = right < queues_ && (left >= queues_ || of(tier, right).before(of(tier, left)));
      winners_[tier * leaves_ + node] = static_cast<std::uint16_t>(right_wins ? right : left);
    }
  }
  std::size_t row_of(const Waiter& w) const noexcept {
    return mixed(w.flow ^ mixed(seed_ + 1 + tier_of(w))) & (rows_.size() - 1);
  }
  static const Seat* seat_of(const FlowRow& row, const Waiter& w) noexcept {
    for (const Seat& seat : row.seats)
      if (seat.of(w)) return &seat;
    return nullptr;
  }
  static const Seat* free_seat(const FlowRow& row) noexcept {
    if (row.standing > 0) return nullptr;
    for (const Seat& seat : row.seats)
      if (seat.count == 0) return &seat;
    return nullptr;
  }

  // The queue of its hand in which a call that joins now has its turn first.
  std::uint32_t earliest(const Waiter& w) const noexcept {
    const std::uint64_t now = tiers_[tier_of(w)].now;
    const auto turn = [&](std::uint32_t queue) {
      const Queue& q = of(tier_of(w), queue);
      return (q.start < now ? now : q.start) + q.units;
    };
    const FlowHand dealt = hand(w.flow);
    std::uint32_t best = dealt.queue[0];
    for (const std::uint32_t q : dealt)
      if (turn(q) < turn(best)) best = q;
    return best;
  }
  std::uint32_t queue_for(const Waiter& w) const noexcept {
    const FlowRow& row = rows_[row_of(w)];
    if (const Seat* seat = seat_of(row, w)) return seat->queue;
    return free_seat(row) ? earliest(w) : hand(w.flow).queue[0];
  }
  // Returns the queue of the call, and keeps F5: a flow that finds no seat uses the first queue of its hand.
  std::uint32_t sit_down(const Waiter& w) noexcept {
    FlowRow& row = rows_[row_of(w)];
    const Seat* seat = seat_of(row, w);
    if (!seat) seat = free_seat(row);
    if (!seat) {
      ++row.standing;
      return hand(w.flow).queue[0];
    }
    Seat& own = row.seats[seat - row.seats];
    if (own.count++ == 0) {
      own.queue = static_cast<std::uint16_t>(earliest(w));
      own.flow = w.flow;
      own.tier = w.tier;
    }
    return own.queue;
  }
  void stand_up(const Waiter& w) noexcept {
    FlowRow& row = rows_[row_of(w)];
    if (const Seat* seat = seat_of(row, w))
      --row.seats[seat - row.seats].count;
    else
      --row.standing;
  }

  const std::uint32_t queues_, hand_;
  const std::uint64_t seed_;
  const std::uint32_t leaves_;  // a power of 2
  std::vector<Queue> all_;
  std::vector<std::uint16_t> winners_;
  std::vector<FlowRow> rows_;  // a power of 2
  Tier tiers_[kPriorities];
  std::uint32_t tickets_ = 0;
};

}  // namespace bulkhead::detail
