// windows.h - the results of recent calls, recorded without a lock: of the last n, or of a stretch of time.
//
// A window belongs to a generation; begin() starts the next one by changing the tag that results must
// carry, so nothing has to be cleared, and a result of an earlier generation finds no place even if its
// thread slept in the middle of record(). begin(), resize() and set_width() are for one thread at a time
// (the breaker's lock); the rest is for any.
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
//  C1 A slot holds the result of one call and the generation it belongs to; a slot of another generation
//     is empty. Slots change by compare-exchange only.
//  C2 Whoever changed a slot adds the difference to `totals_`. So once nobody is inside record(), the
//     totals are the sum of the slots, in whatever order the additions came; before that they are an
//     estimate, and count() counts the slots. The bias keeps a difference that comes early from
//     borrowing.
//  C3 Nobody waits for anybody. A thread that sleeps between taking its place and filling it, while the
//     whole window goes by, puts an old result over a newer one: one result of the window is then older
//     than n calls.
//  C4 A ring is never freed while the window lives, and is replaced only by a larger one: all of them
//     together are at most twice the largest.
class CallWindow {
 public:
  static constexpr std::uint32_t kMost = 1u << 15;

  explicit CallWindow(std::uint32_t size) { resize(size); }

  void resize(std::uint32_t size) {  // before begin()
    Ring* ring = rings_.empty() ? nullptr : rings_.back().get();
    if (!ring || ring->slots.size() < size) {
      std::uint32_t capacity = 16;
      while (capacity < size) capacity *= 2;
      ring = rings_.emplace_back(std::make_unique<Ring>(capacity)).get();
    }
    ring->size.store(size, std::memory_order_relaxed);
    ring->reciprocal.store(((1ull << kShift) + size - 1) / size, std::memory_order_relaxed);
    ring_.store(ring, std::memory_order_release);  // with its slots
  }

  void begin(std::uint64_t generation) noexcept {
    totals_.store(totals_of(generation), std::memory_order_relaxed);
  }

  // What the window now holds, as far as this thread can tell without counting.
  Counts record(std::uint64_t generation, CallResult result) noexcept {
    // Acquire: the slots of a new ring are there.
    Ring& ring = *ring_.load(std::memory_order_acquire);
    // A window full of good results stays as it is by one more, whichever of them that replaces.
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

  // The sum of the slots, packed, and what it is while all of them are good.
  std::uint64_t totals() const noexcept { return totals_.load(std::memory_order_relaxed); }
  std::uint64_t all_well(std::uint64_t generation) const noexcept {
    const Ring& ring = *ring_.load(std::memory_order_acquire);
    return totals_of(generation) + (std::uint64_t{ring.size.load(std::memory_order_relaxed)} << 32);
  }

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
  // A slot: generation (30 bits), slow, failure. The totals: generation (16 bits), calls, slow,
  //   failures.
  static constexpr std::uint32_t kFailure = 1, kSlow = 2, kTag = 4;
  static constexpr std::uint64_t kBias = 1 << 14;
  static constexpr unsigned kShift = 47;  // 32 bits of a place and 15 of a size

  struct Ring {
    explicit Ring(std::uint32_t capacity) : slots(capacity) {}
    std::vector<std::atomic<std::uint32_t>> slots;
    std::atomic<std::uint32_t> size{1};
    std::atomic<std::uint64_t> reciprocal{0};  // 2^47 / size, rounded up

    // n % size by multiplication. Read beside a resize() the two may not match; it is below size even
    // then.
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
      if ((t >> 48) != (generation & 0xffff)) return;  // another window has begun
    } while (!totals_.compare_exchange_weak(t, t + difference, std::memory_order_relaxed));
  }

  // Relaxed throughout: a result is the word itself, and what decides counts under the breaker's lock.
  std::atomic<std::uint32_t> next_{0};
  std::atomic<std::uint64_t> totals_{totals_of(0)};
  std::atomic<Ring*> ring_{nullptr};
  std::vector<std::unique_ptr<Ring>> rings_;
};

// Ten buckets of a tenth of the window each. A bucket's words carry the generation and the tick (the
// number of the tenth since the clock began) they count, so a bucket of another time is empty and is
// taken over by the first result of its new tick.
//
// Invariants:
//  T1 A word counts results of one tick of one generation only; it changes by compare-exchange.
//  T2 A result older than what its bucket already counts is dropped: it is a whole window old.
//  T3 Ticks are compared by 22 bits. Whoever sees more than a quarter of their range go by empties the
//     buckets first, under a lock: after that long nothing else is going on here.
class TimeWindow {
 public:
  static constexpr std::uint64_t kBuckets = 10;

  void set_width(std::int64_t window_ns) noexcept {  // before begin()
    width_.store(std::max<std::int64_t>(window_ns / static_cast<std::int64_t>(kBuckets), 1),
                 std::memory_order_relaxed);
    last_tick_.store(0, std::memory_order_relaxed);  // ticks are other numbers now
  }

  void begin() noexcept { last_bad_.store(kNever, std::memory_order_relaxed); }

  // False: nothing went wrong within the window, there is nothing to decide.
  bool record(std::uint64_t generation, CallResult result, std::int64_t now_ns) noexcept {
    const std::uint64_t tick = tick_of(now_ns);
    advance(tick);
    Bucket& bucket = buckets_[tick % kBuckets];
    raise(bucket.calls, generation, tick);
    if (result.failure) raise(bucket.failures, generation, tick);
    if (result.slow) raise(bucket.slow, generation, tick);
    if (result.failure || result.slow) {
      last_bad_.store(tick, std::memory_order_relaxed);
      return true;
    }
    const std::uint64_t bad = last_bad_.load(std::memory_order_relaxed);
    return bad != kNever && tick < bad + kBuckets;
  }

  Counts count(std::uint64_t generation, std::int64_t now_ns) const noexcept {
    const std::uint64_t tick = tick_of(now_ns);
    Counts counts;
    if (tick > last_tick_.load(std::memory_order_relaxed) + kTickMask / 4) return counts;
    const auto read = [&](const std::atomic<std::uint64_t>& word) -> std::uint64_t {
      const std::uint64_t w = word.load(std::memory_order_relaxed);
      const bool of_this = (w >> 54) == (generation & 0x3ff);
      return of_this && ((tick - (w >> 32)) & kTickMask) < kBuckets ? w & 0xffff'ffff : 0;
    };
    for (const Bucket& b : buckets_) {
      counts.calls += read(b.calls);
      counts.failures += read(b.failures);
      counts.slow += read(b.slow);
    }
    return counts;
  }

 private:
  // A word: generation (10 bits), tick (22 bits), count.
  struct Bucket {
    std::atomic<std::uint64_t> calls{0}, failures{0}, slow{0};
  };
  static constexpr std::uint64_t kTickMask = (1 << 22) - 1, kNever = ~0ull;

  std::uint64_t tick_of(std::int64_t now_ns) const noexcept {
    return static_cast<std::uint64_t>(std::max<std::int64_t>(now_ns, 0) /
                                      width_.load(std::memory_order_relaxed));
  }

  void advance(std::uint64_t tick) noexcept {
    // Acquire: who sees that the buckets were emptied must not add to what was in them.
    const std::uint64_t last = last_tick_.load(std::memory_order_acquire);
    if (tick <= last) return;
    if (tick - last > kTickMask / 4) [[unlikely]]
      empty(tick);
    // A plain store: two threads at the turn of a tick may leave the older one, which the next call
    //   repairs.
    last_tick_.store(tick, std::memory_order_release);
  }

  void empty(std::uint64_t tick) noexcept {
    lock_.lock();
    if (tick - last_tick_.load(std::memory_order_relaxed) > kTickMask / 4) {
      for (Bucket& b : buckets_)
        for (auto* word : {&b.calls, &b.failures, &b.slow}) word->store(0, std::memory_order_relaxed);
      last_tick_.store(tick, std::memory_order_release);
    }
    lock_.unlock();
  }

  static void raise(std::atomic<std::uint64_t>& word, std::uint64_t generation, std::uint64_t tick) noexcept {
    const std::uint64_t mine = ((generation & 0x3ff) << 22) | (tick & kTickMask);
    std::uint64_t w = word.load(std::memory_order_relaxed);
    std::uint64_t next;
    do {
      const std::uint64_t theirs = w >> 32;
      if (theirs == mine) {
        if ((w & 0xffff'ffff) == 0xffff'ffff) return;
        next = w + 1;
      } else {
        if (w != 0 && older(mine, theirs)) return;
        next = (mine << 32) | 1;
      }
    } while (!word.compare_exchange_weak(w, next, std::memory_order_relaxed));
  }

  // By generation, then by tick; each wraps around.
  static bool older(std::uint64_t a, std::uint64_t b) noexcept {
    const std::uint64_t generations = ((a >> 22) - (b >> 22)) & 0x3ff;
    if (generations != 0) return generations >= 0x200;
    return ((a - b) & kTickMask) > kTickMask / 2;
  }

  // Relaxed throughout, as in CallWindow.
  std::array<Bucket, kBuckets> buckets_{};
  std::atomic<std::int64_t> width_{1};
  std::atomic<std::uint64_t> last_tick_{0}, last_bad_{kNever};
  detail::Mutex lock_;
};

}  // namespace bulkhead::breaker
