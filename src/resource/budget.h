// budget.h - the inside of a ResourceBudget: a count, and the pools that share it.
#pragma once

#include <algorithm>
#include <atomic>
#include <shared_mutex>
#include <vector>

#include "resource/core.h"

namespace bulkhead {

struct ResourceBudget::State {
  explicit State(std::uint32_t t) : total(t) {}

  const std::uint32_t total;
  std::atomic<std::uint32_t> alive{0}, most{0};
  std::shared_mutex mutex;  // shared: pools do not come or go meanwhile
  std::vector<detail::ResourceCore*> pools;

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

  // A unit has become free: somebody in another pool may be waiting for it.
  void changed() noexcept {
    const std::shared_lock lock(mutex);
    for (detail::ResourceCore* pool : pools) pool->changed();
  }
  // On behalf of `asking`, which needs a unit. False: nobody has an idle one.
  bool close_an_idle_one(const detail::ResourceCore& asking) {
    const std::shared_lock lock(mutex);
    return std::ranges::any_of(
        pools, [&](detail::ResourceCore* pool) { return pool != &asking && pool->close_an_idle_one(); });
  }
  void add(detail::ResourceCore& pool) {
    const std::lock_guard lock(mutex);
    pools.push_back(&pool);
  }
  void remove(detail::ResourceCore& pool) {
    const std::lock_guard lock(mutex);
    std::erase(pools, &pool);
  }
};

}  // namespace bulkhead
