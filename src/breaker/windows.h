// windows.h - the results of recent calls, recorded without a lock: of the last n calls, or of a period of time.
//
// A window belongs to a generation. begin() starts the next one by changing the tag that results must carry, so nothing
// has to be cleared, and a result of an earlier generation is dropped even if its thread slept in the middle of record().
// begin(), resize() and set_width() are for one thread at a time (the breaker's lock); the others for any thread.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "bulkhead/detail/mutex.h"

namespace bulkhead::breaker {

struct Counts {
  std::uint64_t calls = 0, failures = 0, slow = 0;
  bool operator==(const Counts&) const = default;
};

struct CallResult {
  bool failure = false, slow = false;
};

// Invariants:
//  C1 A slot holds the result of one call and its generation; a slot of another generation counts as empty. Slots change
//     by compare-exchange only.
//  C2 A thread that changed a slot adds the difference to `totals_`. When no thread is inside record(), the totals are the
//     sum of the slots, in whatever order the additions came; before that they are an estimate, and count() counts the
//     slots. The bias prevents a borrow if a negative difference comes first.
//  C3 No thread waits for another. If a thread sleeps between taking its slot and filling it while the whole window
//     passes, it overwrites a newer result: one result of the window is then older than n calls.
//  C4 A ring is never freed before the window is destroyed, and is replaced only by a larger one: all rings together are
//     at most twice the largest.
//  C5 Tags are compared by the sign of a difference of 30 bits. begin() tags every slot again once in kEra generations, and
//     the slots of a new ring, so no slot is too old for that comparison.
class CallWindow {
 public:
  static constexpr std::uint32_t kMost = 1u << 15;

  explicit CallWindow(std::uint32_t size) { resize(size); }

  void reserve(std::uint32_t size) {  // resize() up to this size will not allocate
    if (!rings_.empty() && rings_.back()->slots.size() >= size) return;
    std::uint32_t capacity = 16;
    while (capacity < size) capacity *= 2;
    rings_.emplace_back(std::make_unique<Ring>(capacity));
  }

  void resize(std::uint32_t size) {  // before begin()
    reserve(size);
    Ring* ring = rings_.back().get();
    ring->size.store(size, std::memory_order_relaxed);
    ring->reciprocal.store(((1ull << kShift) + size - 1) / size, std::memory_order_relaxed);
    ring_.store(ring, std::memory_order_release);  // release: publishes its slots
  }

  void begin(std::uint64_t generation) noexcept {
    if (Ring* ring = ring_.load(std::memory_order_relaxed); generation / kEra != era_ || !ring->tagged) {
      for (auto& slot : ring->slots) slot.store(tag(generation - 1), std::memory_order_relaxed);  // C5
      ring->tagged = true;
      era_ = generation / kEra;
    }
    totals_.store(totals_of(generation), std::memory_order_relaxed);
  }

  // The counts of the window after this result, as an estimate.
  Counts record(std::uint64_t generation, CallResult result) noexcept {
    // Acquire: sees the slots of a new ring.
    Ring& ring = *ring_.load(std::memory_order_acquire);
    // One more good result does not change a window full of good results.
    const std::uint64_t size = ring.size.load(std::memory_order_relaxed);
    if (!result.failure && !result.slow && totals() == totals_of(generation) + (size << 32)) [[likely]]
      return {.calls = size};
    auto& slot = ring.slots[ring.place(next_.fetch_add(1, std::memory_order_relaxed))];
    const std::uint32_t mine = tag(generation) | (result.failure ? kFailure : 0) | (result.slow ? kSlow : 0);
    std::uint32_t old = slot.load(std::memory_order_relaxed);
    do {
      if (old == mine) return hint();
      if (newer(old, mine)) return {};
    } while (!slot.compare_exchange_weak(old, mine, std::memory_order_relaxed));
    add(generation, weight(mine) - ((old ^ mine) < kTag ? weight(old) : 0));
    return hint();
  }

  // The packed sum of the slots.
  std::uint64_t totals() const noexcept { return totals_.load(std::memory_order_relaxed); }

  Counts hint() const noexcept {
    const std::uint64_t t = totals();
    const auto field = [](std::uint64_t v) { return std::max<std::uint64_t>(v & 0xffff, kBias) - kBias; };
    return {field(t >> 32), field(t), field(t >> 16)};
  }

  Counts count(std::uint64_t generation) const noexcept {
    const Ring& ring = *ring_.load(std::memory_order_acquire);
    Counts counts;
    const std::uint32_t size = ring.size.load(std::memory_order_relaxed);
    for (std::uint32_t i = 0; i < size; ++i) {
      const std::uint32_t slot = ring.slots[i].load(std::memory_order_relaxed);
      if ((slot ^ tag(generation)) >= kTag) continue;
      ++counts.calls;
      counts.failures += slot & kFailure;
      counts.slow += (slot & kSlow) / kSlow;
    }
    return counts;
  }

 private:
  // A slot: generation (30 bits), slow, failure. The totals: generation (16 bits), calls, slow, failures.
  static constexpr std::uint32_t kFailure = 1, kSlow = 2, kTag = 4;
  static constexpr std::uint64_t kEra = 1 << 28;
  static constexpr std::uint64_t kBias = 1 << 14;
  static constexpr unsigned kShift = 47;  // 32 bits of an index and 15 of a size

  struct Ring {
    explicit Ring(std::uint32_t capacity) : slots(capacity) {}
    std::vector<std::atomic<std::uint32_t>> slots;
    std::atomic<std::uint32_t> size{1};
    std::atomic<std::uint64_t> reciprocal{0};  // 2^47 / size, rounded up
    bool tagged = false;                       // C5

    // n % size by multiplication. During a resize() the two numbers may not match; the result is still below size.
    std::uint32_t place(std::uint32_t n) const noexcept {
      const std::uint64_t fraction =
          (reciprocal.load(std::memory_order_relaxed) * n) & ((1ull << kShift) - 1);
      return static_cast<std::uint32_t>((fraction * size.load(std::memory_order_relaxed)) >> kShift);
    }
  };

  static std::uint32_t tag(std::uint64_t generation) noexcept {
    return static_cast<std::uint32_t>(generation) * kTag;
  }
  static bool newer(std::uint32_t a, std::uint32_t b) noexcept {
    return static_cast<std::int32_t>((a & ~(kTag - 1)) - (b & ~(kTag - 1))) > 0;
  }
  static std::uint64_t weight(std::uint32_t slot) noexcept {
    return (1ull << 32) + ((slot & kSlow) ? 1ull << 16 : 0) + (slot & kFailure);
  }
  static std::uint64_t totals_of(std::uint64_t generation) noexcept {
    return (generation << 48) | (kBias << 32) | (kBias << 16) | kBias;
  }
  void add(std::uint64_t generation, std::uint64_t difference) noexcept {
    std::uint64_t t = totals_.load(std::memory_order_relaxed);
    do {
      if ((t >> 48) != (generation & 0xffff)) return;  // a new generation has begun
    } while (!totals_.compare_exchange_weak(t, t + difference, std::memory_order_relaxed));
  }

  // Relaxed throughout: the word is the whole result, and decisions count under the breaker's lock.
  std::atomic<std::uint32_t> next_{0};
  std::atomic<std::uint64_t> totals_{totals_of(0)};
  std::atomic<Ring*> ring_{nullptr};
  std::vector<std::unique_ptr<Ring>> rings_;
  std::uint64_t era_ = 0;
};

// Ten buckets of a tenth of the window each. A tick is the number of a tenth since the start of the clock. A bucket counts
// the results of one tick; each of its words has the generation and the tick as a tag.
//
// Invariants:
//  T1 A word counts results of one tick of one generation. It is increased by compare-exchange, and only if its tag equals
//     the tag of the result. Tags are only compared for equality, so they may wrap around.
//  T2 The first result of a tick gives the buckets of the ticks since `last_tick_` their new tags, under the lock, and then
//     stores `last_tick_`. So once `last_tick_` has reached a tick, the buckets of that tick and of the nine before it have
//     their tags, and a result that finds another tag is a whole window late.
//  T3 A new generation has no ticks until its first result: `last_tick_` is kNone, and no bucket counts.
class TimeWindow {
 public:
  static constexpr std::int64_t kBuckets = 10;

  void set_width(std::int64_t window_ns) noexcept {  // before begin()
    width_.store(std::max<std::int64_t>(window_ns / kBuckets, 1), std::memory_order_relaxed);
  }

  void begin(std::uint64_t generation) noexcept {
    const detail::MutexLock lock(lock_);
    generation_ = generation;
    last_tick_.store(kNone, std::memory_order_relaxed);
    last_bad_.store(kNone, std::memory_order_relaxed);
  }

  // False: the window has no failed or slow call, so there is nothing to decide.
  bool record(std::uint64_t generation, CallResult result, std::int64_t now_ns) noexcept {
    const std::int64_t tick = tick_of(now_ns);
    // Acquire: a thread that sees last_tick_ at its tick sees the tags of T2.
    if (tick > last_tick_.load(std::memory_order_acquire)) [[unlikely]]
      advance(generation, tick);
    Bucket& bucket = buckets_[place(tick)];
    const std::uint64_t mine = tag(generation, tick);
    if (!raise(bucket.calls, mine)) return false;
    if (result.failure) raise(bucket.failures, mine);
    if (result.slow) raise(bucket.slow, mine);
    if (result.failure || result.slow) {
      last_bad_.store(tick, std::memory_order_relaxed);
      return true;
    }
    const std::int64_t bad = last_bad_.load(std::memory_order_relaxed);
    return bad != kNone && tick < bad + kBuckets;
  }

  // A word of another generation or tick counts as 0: nothing is cleared when the state changes.
  Counts count(std::uint64_t generation, std::int64_t now_ns) const noexcept {
    const std::int64_t now = tick_of(now_ns), last = last_tick_.load(std::memory_order_acquire);
    Counts counts;
    if (last == kNone) return counts;
    for (std::int64_t tick = std::max<std::int64_t>(now - kBuckets + 1, 0); tick <= std::min(now, last);
         ++tick) {
      const Bucket& bucket = buckets_[place(tick)];
      const std::uint64_t wanted = tag(generation, tick);
      const auto read = [&](const std::atomic<std::uint64_t>& word) -> std::uint64_t {
        const std::uint64_t w = word.load(std::memory_order_relaxed);
        return w >> 32 == wanted ? w & kCount : 0;
      };
      counts.calls += read(bucket.calls);
      counts.failures += read(bucket.failures);
      counts.slow += read(bucket.slow);
    }
    return counts;
  }

 private:
  // A word: generation (10 bits), tick (22 bits), count.
  struct Bucket {
    std::atomic<std::uint64_t> calls{0}, failures{0}, slow{0};
  };
  static constexpr std::uint64_t kCount = 0xffff'ffff;
  static constexpr std::int64_t kNone = -1;

  static std::size_t place(std::int64_t tick) noexcept { return static_cast<std::size_t>(tick % kBuckets); }
  static std::uint64_t tag(std::uint64_t generation, std::int64_t tick) noexcept {
    return ((generation & 0x3ff) << 22) | (static_cast<std::uint64_t>(tick) & 0x3f'ffff);
  }

  std::int64_t tick_of(std::int64_t now_ns) const noexcept {
    return std::max<std::int64_t>(now_ns, 0) / width_.load(std::memory_order_relaxed);
  }

  void advance(std::uint64_t generation, std::int64_t tick) noexcept {
    const detail::MutexLock lock(lock_);
    const std::int64_t last = last_tick_.load(std::memory_order_relaxed);
    // The thread may have slept since an earlier generation: its result is dropped.
    if (generation != generation_ || tick <= last) return;
    const std::int64_t first = std::max<std::int64_t>(tick - kBuckets + 1, 0);
    for (std::int64_t t = last == kNone ? first : std::max(first, last + 1); t <= tick; ++t) {
      Bucket& bucket = buckets_[place(t)];
      for (auto* word : {&bucket.calls, &bucket.failures, &bucket.slow})
        word->store(tag(generation, t) << 32, std::memory_order_relaxed);
    }
    last_tick_.store(tick, std::memory_order_release);  // T2
  }

  // False: the bucket counts another tick or generation.
  static bool raise(std::atomic<std::uint64_t>& word, std::uint64_t mine) noexcept {
    std::uint64_t w = word.load(std::memory_order_relaxed);
    do {
      if (w >> 32 != mine) return false;
      if ((w & kCount) == kCount) return true;
    } while (!word.compare_exchange_weak(w, w + 1, std::memory_order_relaxed));
    return true;
  }

  // Relaxed unless a comment says otherwise, as in CallWindow.
  std::array<Bucket, kBuckets> buckets_{};
  std::atomic<std::int64_t> width_{1};
  std::atomic<std::int64_t> last_tick_{kNone}, last_bad_{kNone};
  detail::Mutex lock_;
  std::uint64_t generation_ BULKHEAD_GUARDED_BY(lock_) = 0;
};

}  // namespace bulkhead::breaker
