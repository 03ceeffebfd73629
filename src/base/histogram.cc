#include "bulkhead/histogram.h"

#include <algorithm>
#include <cmath>

namespace bulkhead {

std::uint64_t HistogramCounts::count() const noexcept {
  std::uint64_t n = 0;
  for (const auto in_bucket : buckets) n += in_bucket;
  return n;
}

std::uint64_t HistogramCounts::quantile(double q) const noexcept {
  const std::uint64_t n = count();
  if (n == 0) return 0;
  const double wanted = std::ceil(std::clamp(q, 0.0, 1.0) * static_cast<double>(n));
  const auto rank = std::clamp(static_cast<std::uint64_t>(wanted), std::uint64_t{1}, n);
  std::size_t i = 0;
  for (std::uint64_t seen = buckets[0]; seen < rank; seen += buckets[i]) ++i;
  if (i == 0) return buckets[0] == n && sum == 0 ? 0 : 1;
  constexpr double kToMiddle = 0.9576032806985737;  // 2^(-1/16)
  return static_cast<std::uint64_t>(std::llround(Histogram::upper_bound(i) * kToMiddle));
}

double HistogramCounts::mean() const noexcept {
  const std::uint64_t n = count();
  return n == 0 ? 0 : static_cast<double>(sum) / static_cast<double>(n);
}

HistogramCounts& HistogramCounts::operator+=(const HistogramCounts& other) noexcept {
  for (std::size_t i = 0; i < kBuckets; ++i) buckets[i] += other.buckets[i];
  sum += other.sum;
  return *this;
}

HistogramCounts& HistogramCounts::operator-=(const HistogramCounts& earlier) noexcept {
  for (std::size_t i = 0; i < kBuckets; ++i) buckets[i] -= std::min(buckets[i], earlier.buckets[i]);
  sum -= std::min(sum, earlier.sum);
  return *this;
}

void Histogram::merge(const HistogramCounts& other) noexcept {
  for (std::size_t i = 0; i < kBuckets; ++i)
    if (other.buckets[i]) buckets_[i].fetch_add(other.buckets[i], std::memory_order_relaxed);
  sum_.fetch_add(other.sum, std::memory_order_relaxed);
}

void Histogram::reset() noexcept {
  for (auto& in_bucket : buckets_) in_bucket.store(0, std::memory_order_relaxed);
  sum_.store(0, std::memory_order_relaxed);
}

HistogramCounts Histogram::counts() const noexcept {
  HistogramCounts copy;
  for (std::size_t i = 0; i < kBuckets; ++i) copy.buckets[i] = buckets_[i].load(std::memory_order_relaxed);
  copy.sum = sum_.load(std::memory_order_relaxed);
  return copy;
}

double Histogram::upper_bound(std::size_t bucket) noexcept {
  return std::exp2(static_cast<double>(bucket) / kPerOctave);
}

}  // namespace bulkhead
