// flow_queues.h - the line of a gate that is fair between flows: a noisy one waits behind itself.
//
// Within a tier the waiters stand in a fixed set of queues. A flow is dealt a hand of them by its key, and an
// arrival joins the shortest of its hand: two flows share a queue often, but a whole hand hardly ever
// (shuffle sharding). The queues are served in turn by what their calls cost.
//
// Threads: none of its own; all of it is guarded by the turnstile's lock. Cost: everything is allocated
// when it is made. Joining looks at a hand; serving looks at every queue once per waiter served; leaving
// is O(1).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "bulkhead/detail/turnstile.h"

namespace bulkhead::detail {

inline constexpr std::uint32_t kMostFlowQueues = 1024, kMostFlowHand = 16;

// Well-spread numbers from a key, the same for ever (splitmix64).
constexpr std::uint64_t mixed(std::uint64_t x) noexcept {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// The queues of a flow: `hand` different ones out of `queues`, every such hand being as likely as any other.
struct FlowHand {
  FlowHand(std::uint64_t flow, std::uint64_t seed, std::uint32_t queues, std::uint32_t hand) noexcept
      : size(hand) {
    std::uint64_t x = mixed(flow ^ mixed(seed));
    std::uint32_t sorted[kMostFlowHand];
    for (std::uint32_t i = 0; i < size; ++i) {
      x = mixed(x);
      auto card = static_cast<std::uint32_t>(x % (queues - i));  // the card-th of those that are left
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
//  F1  A queue's `start` is the virtual time at which its first waiter may begin. It rises by the cost of
//      each waiter served, and only then: who leaves otherwise has used nothing.
//  F2  `now` is the start of the queue last served, and no queue with waiters has a start before it. A queue
//      that had nobody in it begins at `now`: it saves up nothing, and owes nothing but its last call.
//  F3  When the tier is empty, `now` is the end of all that was served: then nobody owes anything.
//  F4  Who is next does not change but by serving, leaving, or an arrival in an empty queue.
template <class P>
class FlowQueues {
 public:
  using Waiter = detail::Waiter<P>;

  FlowQueues(std::uint32_t queues, std::uint32_t hand, std::uint64_t seed)
      : queues_(queues), hand_(hand), seed_(seed), all_(std::size_t{queues} * kPriorities) {}

  FlowHand hand(std::uint64_t flow) const noexcept { return {flow, seed_, queues_, hand_}; }

  // Who is next in this tier: of the queues with the earliest start, the first in turn. Null: nobody waits.
  Waiter* head(std::size_t tier) noexcept {
    Tier& t = tiers_[tier];
    if (t.count == 0) return nullptr;
    if (t.next == nobody) {
      for (std::uint32_t i = 1; i <= queues_; ++i) {
        const std::uint32_t q = (t.last_served + i) % queues_;
        if (of(tier, q).first && (t.next == nobody || of(tier, q).start < of(tier, t.next).start)) t.next = q;
      }
    }
    return of(tier, t.next).first;
  }

  void push(Waiter& w) noexcept {
    w.queue = static_cast<std::uint16_t>(shortest(w));
    Tier& t = tiers_[tier_of(w)];
    Queue& q = of(tier_of(w), w.queue);
    if (!q.first) {
      if (q.start < t.now) q.start = t.now;
      t.next = nobody;
    }
    w.next = nullptr;
    w.prev = q.last;
    (q.last ? q.last->next : q.first) = &w;
    q.last = &w;
    ++q.count;
    q.units += w.cost;
    ++t.count;
  }

  // `served`: it is the head(), and has its units.
  void remove(Waiter& w, bool served) noexcept {
    Tier& t = tiers_[tier_of(w)];
    Queue& q = of(tier_of(w), w.queue);
    (w.prev ? w.prev->next : q.first) = w.next;
    (w.next ? w.next->prev : q.last) = w.prev;
    --q.count;
    q.units -= w.cost;
    --t.count;
    if (served) {
      t.now = q.start;
      q.start += w.cost;
      if (t.end < q.start) t.end = q.start;
      t.last_served = w.queue;
    }
    if (served || !q.first) t.next = nobody;
    if (t.count == 0) t.now = t.end;
  }

  // The newest waiter of the longest queue: who makes room when the line is full. Null: nobody waits.
  Waiter* last_of_longest(std::size_t tier) const noexcept {
    const Queue* longest = &all_[tier * queues_];
    for (const Queue* q = longest + 1; q < &all_[tier * queues_] + queues_; ++q)
      if (q->count > longest->count) longest = q;
    return longest->last;
  }
  // Whether `w` may take the place of that one in its own tier: its flow then has no more in line than the
  // other's. A flow has at most what stands in its hand.
  bool may_evict(const Waiter& w) const noexcept {
    const Waiter* victim = last_of_longest(tier_of(w));
    return victim && in_hand(w) + 1 < in_hand(*victim);
  }

  // How many of its tier come before `w`, if it joins: those in its queue, and of each other queue one more.
  std::uint32_t ahead(const Waiter& w) const noexcept {
    const std::uint32_t mine = shortest(w);
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
  static constexpr std::uint32_t nobody = ~std::uint32_t{0};
  struct Queue {
    Waiter* first = nullptr;
    Waiter* last = nullptr;
    std::uint64_t start = 0, units = 0;
    std::uint32_t count = 0;
  };
  struct Tier {
    std::uint64_t now = 0, end = 0;
    std::uint32_t count = 0, last_served = 0;
    std::uint32_t next = nobody;  // the queue of head(), as long as it is known
  };

  static std::size_t tier_of(const Waiter& w) noexcept { return static_cast<std::size_t>(w.tier); }
  Queue& of(std::size_t tier, std::uint32_t queue) noexcept { return all_[tier * queues_ + queue]; }
  const Queue& of(std::size_t tier, std::uint32_t queue) const noexcept {
    return all_[tier * queues_ + queue];
  }
  std::uint32_t shortest(const Waiter& w) const noexcept {
    const FlowHand dealt = hand(w.flow);
    std::uint32_t best = dealt.queue[0];
    for (const std::uint32_t q : dealt)
      if (of(tier_of(w), q).units < of(tier_of(w), best).units) best = q;
    return best;
  }
  std::uint32_t in_hand(const Waiter& w) const noexcept {
    std::uint32_t sum = 0;
    for (const std::uint32_t q : hand(w.flow)) sum += of(tier_of(w), q).count;
    return sum;
  }

  const std::uint32_t queues_, hand_;
  const std::uint64_t seed_;
  std::vector<Queue> all_;
  Tier tiers_[kPriorities];
};

}  // namespace bulkhead::detail
