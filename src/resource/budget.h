// budget.h - the inside of a ResourceBudget: a count, and the pools that share it.
//
// Invariants
//  B1  No lock is held while a pool is called: it may wait for its own lock, run functions of the user, or come back here. A
//      visitor counts itself in visitors_ of the pool first; a pool that ends leaves `pools` and then waits for its visitors.
//  B2  A pool that finds no unit counts itself in `hungry` (for a call) or `lacking` (for min_idle) and then looks again; a
//      pool that gives a unit back does that first and then looks at both, one that has a resource idle at `hungry`. So one
//      of the two sees the other.
#pragma once

#include <algorithm>
#include <atomic>
#include <vector>

#include "bulkhead/detail/std_mutex.h"
#include "resource/pool_core.h"

namespace bulkhead {

struct ResourceBudget::State {
  explicit State(std::uint32_t t) : total(t) {}

  const std::uint32_t total;
  std::atomic<std::uint32_t> alive{0}, most{0};
  std::atomic<std::uint32_t> hungry{0};   // pools with seekers that the budget has no unit for
  std::atomic<std::uint32_t> lacking{0};  // pools whose min_idle the budget has no unit for
  detail::StdMutex mutex;
  std::vector<detail::ResourceCore*> pools BULKHEAD_GUARDED_BY(mutex);

  bool take() noexcept {
    std::uint32_t now = alive.load();
    do {
      if (now >= total) return false;
    } while (!alive.compare_exchange_weak(now, now + 1));
    std::uint32_t high = most.load();
    while (high < now + 1 && !most.compare_exchange_weak(high, now + 1)) {
    }
    return true;
  }
  void give() noexcept { alive.fetch_sub(1); }

  // Calls visit(pool) for each, in the order of their addresses, until it returns true.
  template <class Visit>
  bool any(Visit&& visit) noexcept {
    detail::ResourceCore* last = nullptr;
    for (;;) {
      detail::ResourceCore* next = nullptr;
      {
        const detail::MutexLock lock(mutex);
        for (detail::ResourceCore* pool : pools)
          if (std::less<>()(last, pool) && (!next || std::less<>()(pool, next))) next = pool;
        if (!next) return false;
        next->visitors_.fetch_add(1, std::memory_order_relaxed);  // relaxed: remove() takes the lock
      }
      const bool found = visit(*next);
      last = next;
      next->visitors_.fetch_sub(1, std::memory_order_release);  // release: the pool may end now
      if (found) return true;
    }
  }

  // A unit was given back: a pool that waits for one can open now. Calls come before min_idle, which a helper refills.
  void freed(detail::Aftermath& after) noexcept {
    if (hungry.load() == 0 && lacking.load() == 0) return;
    any([&](detail::ResourceCore& pool) {
      if (pool.lacks_unit_.exchange(false)) {
        lacking.fetch_sub(1);
        pool.kick();
      }
      if (pool.unmet_.load(std::memory_order_relaxed) == 0) return false;  // relaxed: written before `hungry`
      detail::Aftermath its;
      pool.serve_now(its);
      pool.wake(its);
      while (detail::Seeker* s = its.decided.pop_front()) after.decided.push_back(*s);
      return false;
    });
  }
  // Has pools close what is idle for those that need a unit, no more than these need, and `more`.
  void reclaim(std::uint32_t more = 0) noexcept {
    std::uint32_t needed = more, coming = 0;
    any([&](detail::ResourceCore& pool) {
      // Relaxed: a guess; if it is wrong, one resource is closed and opened again for nothing.
      needed += pool.unmet_.load(std::memory_order_relaxed);
      coming += pool.leaving_.load(std::memory_order_relaxed);
      return false;
    });
    any([&](detail::ResourceCore& pool) {
      while (coming < needed && pool.waiting_.load() == 0 && pool.spare_one()) ++coming;
      return coming >= needed;
    });
  }
  // By hand, on behalf of `asking`. False: no other pool has an idle one.
  bool close_an_idle_one(const detail::ResourceCore& asking) noexcept {
    return any([&](detail::ResourceCore& pool) { return &pool != &asking && pool.close_an_idle_one(); });
  }
  void add(detail::ResourceCore& pool) {
    const detail::MutexLock lock(mutex);
    pools.push_back(&pool);
  }
  void remove(detail::ResourceCore& pool) {
    const detail::MutexLock lock(mutex);
    std::erase(pools, &pool);
  }
};

}  // namespace bulkhead
