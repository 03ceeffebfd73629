// table.h - taking and giving back the units of one limit: one compare-exchange each.
//
//   bulkhead::shm::Table table{limit, token};
//   if (const auto unit = table.take(); unit != bulkhead::shm::Table::kNone) { work(); table.give_back(unit); }
//
// Threads: one Table for one thread at a time; any number of tables of one limit, in any number of processes.
// Promises: see the invariants in layout.h. A unit is given back once: the second time, or by another owner, changes
//   nothing and returns false.
// Cost: about 4 ns for both (docs/design/shm.md), if the unit taken last is free again; a look at every word of a full limit.
#pragma once

#include <algorithm>

#include "layout.h"

namespace bulkhead::shm {

class Table {
 public:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};

  Table() noexcept = default;
  Table(Limit& limit, std::uint64_t token) noexcept : Table(limit, token, slot_of(token) * 8 % kUnits) {}
  Table(Limit& limit, std::uint64_t token, std::uint32_t hint) noexcept
      : limit_(&limit), token_(token), hint_(hint) {}

  // The index of a unit below limit - reserve, or none.
  std::uint32_t take(std::uint32_t reserve = 0) noexcept {
    const std::uint64_t seen = limit_->shape.load(std::memory_order_relaxed);
    const std::uint32_t bound = bound_of(seen, reserve);
    std::uint64_t free = 0;
    std::uint32_t i = hint_;
    if (i >= bound || !limit_->permits[i].compare_exchange_strong(free, token_)) [[unlikely]] {
      i = search(bound);
      if (i == kNone) return kNone;
    }
    if (still(seen) || confirm(i, reserve)) [[likely]]
      return i;
    give_back(i);
    return kNone;
  }

  // `count` units, or none. `now`: ns; shown as the time since when they are held.
  bool take_all(std::uint32_t count, std::uint32_t reserve, std::int64_t now) noexcept {
    const std::uint64_t seen = limit_->shape.load(std::memory_order_relaxed);
    const std::uint32_t bound = bound_of(seen, reserve);
    if (count > bound - std::min(bound, held(bound))) return false;  // do not disturb others
    std::uint32_t taken = 0, highest = 0;
    for (; taken < count; ++taken) {
      const std::uint32_t unit = search(bound);
      if (unit == kNone) break;
      limit_->since[unit].store(now, std::memory_order_relaxed);
      highest = std::max(highest, unit);
    }
    if (taken == count && (still(seen) || confirm(highest, reserve))) return true;
    give_back_any(taken);
    return false;
  }

  // `count` units if all owners then hold at most `most`, independent of the limit; for a lease that has ended.
  bool take_within(std::uint32_t count, std::uint32_t most, std::int64_t now) noexcept {
    const std::uint32_t end = std::min(limit_->high.load(), kUnits);
    most = std::min(most, end);
    if (count > most - std::min(most, held(end))) return false;
    std::uint32_t taken = 0;
    for (std::uint32_t unit = 0; taken < count && (unit = search(most)) != kNone; ++taken)
      limit_->since[unit].store(now, std::memory_order_relaxed);
    if (taken == count && held(end) <= most) return true;
    give_back_any(taken);
    return false;
  }

  // False: it was not this owner's.
  bool give_back(std::uint32_t unit) noexcept {
    std::uint64_t mine = token_;
    if (unit >= kUnits || !limit_->permits[unit].compare_exchange_strong(mine, 0)) return false;
    hint_ = unit;
    return true;
  }
  // Any `count` of the units that the owner holds: they are all alike. Other threads of the owner may take and give back
  // units meanwhile, so a look at all words can miss one; the owner holds it, so a later look finds it.
  void give_back_any(std::uint32_t count) noexcept {
    constexpr int kMost = 1000;  // more looks than other threads can spoil
    for (int looks = 0; count > 0 && looks < kMost; ++looks) {
      const std::uint32_t end = std::min(limit_->high.load(std::memory_order_relaxed), kUnits);
      const std::uint32_t start = hint_ < end ? hint_ : 0;
      for (std::uint32_t n = 0; n < end && count > 0; ++n) {
        const std::uint32_t i =
            n <= start ? start - n : start + end - n;  // downwards: units are taken upwards
        if (limit_->permits[i].load(std::memory_order_relaxed) == token_ && give_back(i)) --count;
      }
    }
  }
  void give_back_everything() noexcept {
    for (std::uint32_t i = 0; i < std::min(limit_->high.load(), kUnits); ++i) give_back(i);
  }

  std::uint32_t held(std::uint32_t end) const noexcept {
    std::uint32_t sum = 0;
    for (std::uint32_t i = 0; i < end; ++i) sum += limit_->permits[i].load() != 0;
    return sum;
  }
  std::uint32_t held_by_owner() const noexcept {
    std::uint32_t sum = 0;
    for (std::uint32_t i = 0; i < std::min(limit_->high.load(), kUnits); ++i)
      sum += limit_->permits[i].load(std::memory_order_relaxed) == token_;
    return sum;
  }
  bool any_line() const noexcept {
    std::uint64_t any = 0;
    for (const auto& word : limit_->waiting) any |= word.load();
    return any != 0;
  }
  Limit& limit() const noexcept { return *limit_; }
  std::uint64_t token() const noexcept { return token_; }
  std::uint32_t hint() const noexcept { return hint_; }  // where this owner last took or gave back a unit

 private:
  static std::uint32_t bound_of(std::uint64_t shape, std::uint32_t reserve) noexcept {
    const std::uint32_t limit = std::min(Shape::of(shape).limit, kUnits);
    return limit - std::min(limit, reserve);
  }
  // The limit has not changed since its units were looked for. Sequentially consistent, as is the exchange before it: either
  // the process that lowers the limit sees the unit taken, or this load sees the lower limit.
  bool still(std::uint64_t seen) const noexcept {
    return limit_->shape.load() == seen && !Shape::of(seen).draining();
  }
  std::uint32_t search(std::uint32_t bound) noexcept {
    const std::uint32_t start = bound == 0 ? 0 : hint_ < bound ? hint_ : hint_ % bound;
    for (std::uint32_t n = 0; n < bound; ++n) {
      const std::uint32_t i = start + n < bound ? start + n : start + n - bound;
      std::uint64_t free = limit_->permits[i].load(std::memory_order_relaxed);
      if (free == 0 && limit_->permits[i].compare_exchange_strong(free, token_)) return hint_ = i;
    }
    return kNone;
  }
  bool confirm(std::uint32_t highest, std::uint32_t reserve) noexcept;

  Limit* limit_ = nullptr;
  std::uint64_t token_ = 0;
  std::uint32_t hint_ = 0;
};

// The limit has changed meanwhile, or was lowered before. False: with these units more is held than it allows.
inline bool Table::confirm(std::uint32_t highest, std::uint32_t reserve) noexcept {
  std::uint64_t word = limit_->shape.load();
  const Shape shape = Shape::of(word);
  bool allowed = highest < bound_of(word, reserve);
  if (allowed && shape.draining()) {
    const std::uint32_t drain = std::min(shape.drain, kUnits);
    const std::uint32_t below = held(std::min(shape.limit, drain));
    std::uint32_t above = 0;
    for (std::uint32_t i = shape.limit; i < drain; ++i) above += limit_->permits[i].load() != 0;
    allowed = below + above <= shape.limit;
    if (above == 0) {  // drained; the version keeps this from undoing a later change
      const Shape drained{shape.limit, shape.limit, shape.version + 1};
      limit_->shape.compare_exchange_strong(word, drained.word());
    }
  }
  return allowed;
}

}  // namespace bulkhead::shm
