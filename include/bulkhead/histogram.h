// histogram.h - counts durations in buckets that grow by a factor of 2^(1/8), so that every quantile is exact within
// about 4.5 %.
//
//   bulkhead::Histogram waits;
//   waits.record(1'300'000);                                // ns
//   const auto last = waits.counts();
//   ...
//   auto window = waits.counts();
//   window -= last;
//   window.quantile(0.99);                                  // of the values recorded in between
//
// Bucket i holds the values in (2^((i-1)/8), 2^(i/8)] ns: the bounds of a Prometheus native histogram of
// schema 3. Bucket 0 holds 0 and 1; the last bucket everything above 73 minutes.
// Threads: any number may record and read. A concurrent read may miss values that are being recorded.
// Cost: recording is two relaxed additions; nothing allocates; 2.7 KB.
#pragma once

#include "bulkhead/detail/language.h"

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace bulkhead {

// A plain copy of the counts: merge several, subtract an earlier one, compute quantiles.
struct HistogramCounts {
  static constexpr std::size_t kPerOctave = 8;
  static constexpr std::size_t kBuckets = 42 * kPerOctave + 1;

  std::array<std::uint64_t, kBuckets> buckets{};
  std::uint64_t sum = 0;  // of the recorded values, ns

  std::uint64_t count() const noexcept;
  // The middle of the bucket of the ceil(q * count)-th smallest value; 0 when nothing was recorded.
  std::uint64_t quantile(double q) const noexcept;
  double mean() const noexcept;
  HistogramCounts& operator+=(const HistogramCounts& other) noexcept;
  HistogramCounts& operator-=(const HistogramCounts& earlier) noexcept;
};

class Histogram {
 public:
  static constexpr std::size_t kPerOctave = HistogramCounts::kPerOctave;
  static constexpr std::size_t kBuckets = HistogramCounts::kBuckets;

  Histogram() = default;
  Histogram(const Histogram&) = delete;
  Histogram& operator=(const Histogram&) = delete;

  // Relaxed: the numbers are independent, and publish nothing.
  void record(std::uint64_t ns) noexcept {
    count(ns);
    sum_.fetch_add(ns, std::memory_order_relaxed);
  }
  // Without the sum, for callers that keep it elsewhere.
  void count(std::uint64_t ns) noexcept { buckets_[bucket_of(ns)].fetch_add(1, std::memory_order_relaxed); }
  void merge(const HistogramCounts& other) noexcept;
  void reset() noexcept;  // values recorded concurrently may be lost or kept

  HistogramCounts counts() const noexcept;
  std::uint64_t count() const noexcept { return counts().count(); }
  std::uint64_t quantile(double q) const noexcept { return counts().quantile(q); }

  static constexpr std::size_t bucket_of(std::uint64_t ns) noexcept {
    if (ns <= 1) return 0;
    if (ns > kMost) [[unlikely]]
      return kBuckets - 1;
    const auto above = static_cast<unsigned>(std::countl_zero(ns));
    const std::uint64_t mantissa = ns << above;
    const std::uint64_t cell = kCells[(mantissa >> 58) - 32];
    return (63 - above) * kPerOctave + (cell & kBelow) + (mantissa > cell);
  }
  static double upper_bound(std::size_t bucket) noexcept;  // ns

 private:
  // Each 32nd of an octave contains at most one bound. So a cell is that bound (2^63 * 2^(k/8), rounded down, or one above
  // all), and in its lowest bits the number of bounds below the cell: values up to kMost have zeros there, so these bits
  // do not change the comparison.
  static constexpr std::uint64_t kBelow = 15, kMost = std::uint64_t{1} << ((kBuckets - 1) / kPerOctave);
  static constexpr std::array<std::uint64_t, 32> kCells = [] {
    constexpr std::array<std::uint64_t, kPerOctave + 1> bounds{
        0x8000000000000000, 0x8b95c1e3ea8bd6e6, 0x9837f0518db8a96f, 0xa5fed6a9b15138ea, 0xb504f333f9de6484,
        0xc5672a115506dadd, 0xd744fccad69d6af4, 0xeac0c6e7dd24392e, 0xffffffffffffffff};
    std::array<std::uint64_t, 32> cells{};
    for (std::size_t i = 0; i < cells.size(); ++i) {
      std::size_t below = 0;
      while (bounds[below] < (i + 32) << 58) ++below;
      cells[i] = (bounds[below] & ~kBelow) | below;
    }
    return cells;
  }();

  std::array<std::atomic<std::uint64_t>, kBuckets> buckets_{};
  std::atomic<std::uint64_t> sum_{0};
};

}  // namespace bulkhead
