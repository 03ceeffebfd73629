#include "gate/meter.h"

#include <thread>

namespace bulkhead::detail {
namespace {
constexpr std::uint64_t kWrap = (std::uint64_t{1} << 63) - 1;
}

// For threads without a stripe; takes the stripe if it has no owner.
void Meter::step_shared(std::int64_t units, int full, std::int64_t now) noexcept {
  const base::ThreadNumber me = base::this_thread();
  std::uint32_t nobody = 0;
  if (stripes_[me.stripe].owner.compare_exchange_strong(nobody, me.number, std::memory_order_relaxed)) {
    step_own(me, units, full, now);
    return;
  }
  for (std::size_t i = me.number % kShared;; i = (i + 1) % kShared) {
    Stripe& stripe = stripes_[kOwned + i];
    std::uint32_t version = stripe.version.load(std::memory_order_relaxed);
    // acquire: sees the sums of the last writer
    if (!(version & 1) && stripe.version.compare_exchange_strong(
                              version, version + 1, std::memory_order_acquire, std::memory_order_relaxed))
      return write(stripe, version + 1, units, full, now);
  }
}

bool Meter::add_up(const Stripe& stripe, std::uint64_t (&sums)[kSums]) noexcept {
  for (int tries = 0; tries < 1000; ++tries) {
    if (tries > 10) std::this_thread::yield();
    const std::uint32_t version = stripe.version.load(std::memory_order_acquire);
    if (version & 1) continue;
    std::uint64_t seen[kSums];
    // acquire: with a sum newer than `version` it sees the odd version
    for (std::size_t i = 0; i < kSums; ++i) seen[i] = stripe.sums[i].load(std::memory_order_acquire);
    if (stripe.version.load(std::memory_order_relaxed) != version) continue;
    for (std::size_t i = 0; i < kSums; ++i) sums[i] += seen[i];
    return true;
  }
  return false;
}

// A release that is not added yet makes a reading too large and the next one smaller. Then the larger one is kept until
// the sum exceeds it.
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
  // A writer was preempted for long: return the last reading.
  if (!whole)
    return {shown_[0].load(std::memory_order_relaxed) & kWrap,
            shown_[1].load(std::memory_order_relaxed) & kWrap};
  return {rise(shown_[0], sums[taken] * t - sums[taken_by_time]),
          rise(shown_[1], sums[filled] * t - sums[filled_by_time])};
}

}  // namespace bulkhead::detail
