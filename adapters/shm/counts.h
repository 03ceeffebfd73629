// counts.h - the units of a budget: one count per process, because its calls cost thousands of units each.
//
//   bulkhead::shm::Counts counts{limit, token};
//   if (counts.take(16'000)) { work(); counts.give_back(16'000); }
//
// Threads: any number, of any number of processes.
// Promises: T7 in layout.h: the calls that have been admitted hold at most the limit, up to 268'435'455 units. A call that
//   finds too few left adds its units, looks, and withdraws them, so held() may be above the limit for an instant.
// Not promised: that one of two calls gets units that are enough for one. Each may see the units of the other, and both look
//   again a few times.
// Cost: two looks at the words of all processes that ever used the limit, and one compare-exchange.
#pragma once

#include <algorithm>

#include "layout.h"

namespace bulkhead::shm {

class Counts {
 public:
  Counts(Limit& limit, std::uint64_t token) noexcept : limit_(&limit), token_(token) {}

  // `count` units if then at most limit - reserve are in use.
  bool take(std::uint32_t count, std::uint32_t reserve, std::int64_t now) noexcept {
    return take_if(count, now, [&] {
      const std::uint32_t most = limit_->most.load();
      return most - std::min(most, reserve);
    });
  }
  // The same, independent of the limit; for a lease that has ended.
  bool take_within(std::uint32_t count, std::uint32_t most, std::int64_t now) noexcept {
    return take_if(count, now, [&] { return most; });
  }
  // `count` units if then at most bound() are in use. The sum is looked at after the units are added, sequentially consistent:
  // of the calls that stay in, the one that added its units last has seen all others. bound() is asked after that, too, so
  // a limit that was lowered before is not missed.
  template <class Bound>
  bool take_if(std::uint32_t count, std::int64_t now, Bound bound) noexcept {
    constexpr int kLooks = 8;  // others may add and withdraw theirs at the same time
    for (int i = 0; i < kLooks; ++i) {
      if (held(*limit_) + count > bound()) return false;  // do not disturb others
      if (change([&](std::uint32_t held) { return held + count; }) == 0)
        limit_->since[slot_of(token_)].store(now, std::memory_order_relaxed);
      if (held(*limit_) <= bound()) return true;
      give_back(count);
    }
    return false;
  }
  // Not more than the owner holds.
  void give_back(std::uint32_t count) noexcept {
    change([&](std::uint32_t held) { return held - std::min(held, count); });
  }
  void give_back_everything() noexcept {
    change([](std::uint32_t) { return 0u; });
  }

  static std::uint64_t held(const Limit& limit) noexcept {  // by all processes
    std::uint64_t sum = 0;
    const std::uint32_t end = std::min(limit.high.load(), kSlots);
    for (std::uint32_t i = 0; i < end; ++i) sum += units_of(limit.permits[i].load());
    return sum;
  }
  std::uint32_t held_by_owner() const noexcept {
    const std::uint64_t w = word().load(std::memory_order_relaxed);
    return generation_of(w) == generation_of_owner() ? units_of(w) : 0;
  }

  static constexpr std::uint32_t units_of(std::uint64_t word) noexcept {
    return static_cast<std::uint32_t>(word);
  }
  static constexpr std::uint32_t generation_of(std::uint64_t word) noexcept {
    return static_cast<std::uint32_t>(word >> 32);
  }

 private:
  template <class Next>
  std::uint32_t change(Next next) noexcept {  // what it was before
    std::uint64_t w = word().load(std::memory_order_relaxed);
    for (;;) {
      const std::uint32_t before = generation_of(w) == generation_of_owner() ? units_of(w) : 0;
      const std::uint64_t after = std::uint64_t{generation_of_owner()} << 32 | next(before);
      if (word().compare_exchange_weak(w, after)) return before;
    }
  }
  std::uint32_t generation_of_owner() const noexcept { return static_cast<std::uint32_t>(token_); }
  Cell<std::uint64_t>& word() const noexcept { return limit_->permits[slot_of(token_)]; }

  Limit* limit_;
  std::uint64_t token_;
};

}  // namespace bulkhead::shm
