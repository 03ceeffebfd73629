#include "gate/meter.h"

#include <thread>

#include "base/tally.h"

namespace bulkhead::detail {
namespace {
constexpr std::uint64_t kWrap = (std::uint64_t{1} << 63) - 1;
}

inline void Meter::write(Stripe& stripe, std::uint32_t version, std::uint64_t units, std::uint64_t full,
                         std::uint64_t now) noexcept {
  // release, each of them: who reads a new sum also reads that the version was odd
  const auto add = [&](Sum sum, std::uint64_t n) {
    stripe.sums[sum].store(stripe.sums[sum].load(std::memory_order_relaxed) + n, std::memory_order_release);
  };
  if (units != 0) {
    add(taken, units);
    add(taken_by_time, units * now);
  }
  if (full != 0) {
    add(filled, full);
    add(filled_by_time, full * now);
  }
  stripe.version.store(version + 1, std::memory_order_release);
}

void Meter::step(std::int64_t units, int full, std::int64_t now) noexcept {
  const auto u = static_cast<std::uint64_t>(units);
  const auto f = static_cast<std::uint64_t>(std::int64_t{full});
  const auto t = static_cast<std::uint64_t>(now);
  const std::uint32_t me = base::thread_number();
  Stripe& mine = stripes_[me % kOwned];
  // relaxed: an owner is chosen once, and reads back what it has written itself
  std::uint32_t owner = mine.owner.load(std::memory_order_relaxed);
  if (owner == 0 && mine.owner.compare_exchange_strong(owner, me, std::memory_order_relaxed)) owner = me;
  if (owner == me) [[likely]] {
    const std::uint32_t version = mine.version.load(std::memory_order_relaxed);
    mine.version.store(version + 1, std::memory_order_relaxed);  // seen before the sums, which are released
    return write(mine, version + 1, u, f, t);
  }
  for (std::size_t i = me % kShared;; i = (i + 1) % kShared) {
    Stripe& stripe = stripes_[kOwned + i];
    std::uint32_t version = stripe.version.load(std::memory_order_relaxed);
    // acquire: the sums are those of the one who wrote last
    if (!(version & 1) && stripe.version.compare_exchange_strong(
                              version, version + 1, std::memory_order_acquire, std::memory_order_relaxed))
      return write(stripe, version + 1, u, f, t);
  }
}

bool Meter::add_up(const Stripe& stripe, std::uint64_t (&sums)[kSums]) noexcept {
  for (int tries = 0; tries < 1000; ++tries) {
    if (tries > 10) std::this_thread::yield();
    const std::uint32_t version = stripe.version.load(std::memory_order_acquire);
    if (version & 1) continue;
    std::uint64_t seen[kSums];
    // acquire: a sum newer than `version` brings the odd version along
    for (std::size_t i = 0; i < kSums; ++i) seen[i] = stripe.sums[i].load(std::memory_order_acquire);
    if (stripe.version.load(std::memory_order_relaxed) != version) continue;
    for (std::size_t i = 0; i < kSums; ++i) sums[i] += seen[i];
    return true;
  }
  return false;
}

// A release that is not yet added makes a reading too large, and the next one smaller: then the larger
// one stands until it is overtaken.
std::uint64_t Meter::rise(std::atomic<std::uint64_t>& shown, std::uint64_t to) noexcept {
  std::uint64_t before = shown.load(std::memory_order_relaxed);
  while (static_cast<std::int64_t>(to - before) > 0)
    if (shown.compare_exchange_weak(before, to, std::memory_order_relaxed)) return to & kWrap;
  return before & kWrap;
}

Meter::Reading Meter::read(std::int64_t now) noexcept {
  std::uint64_t sums[kSums]{};
  bool whole = true;
  for (const Stripe& stripe : stripes_) whole = whole && add_up(stripe, sums);
  const auto t = static_cast<std::uint64_t>(now);
  // A thread lost its core while it wrote, and does not come back to it: as before, then.
  if (!whole)
    return {shown_[0].load(std::memory_order_relaxed) & kWrap,
            shown_[1].load(std::memory_order_relaxed) & kWrap};
  return {rise(shown_[0], sums[taken] * t - sums[taken_by_time]),
          rise(shown_[1], sums[filled] * t - sums[filled_by_time])};
}

}  // namespace bulkhead::detail
