// service_times.h - how long calls took: a histogram and a sum, of which the first thread has its own.
//
//   times.add(took_ns);
//   times.counts();                   // everything added before, and the sum
//
// Many services have one thread that makes all calls of a bulkhead, an event loop: it needs no atomic addition.
// Threads: any may add and read at once. Cost: three loads and two stores for the first thread, else what a
// histogram costs.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/tally.h"
#include "bulkhead/histogram.h"

namespace bulkhead {

class ServiceTimes {
 public:
  void add(std::uint64_t ns) noexcept { add(base::this_thread(), ns); }
  // For callers that have their thread number already.
  [[gnu::always_inline]] void add(base::ThreadNumber me, std::uint64_t ns) noexcept {
    // Relaxed throughout: the owner is chosen once, and every number stands for itself.
    std::uint32_t owner = owner_.load(std::memory_order_relaxed);
    if (owner == 0 && owner_.compare_exchange_strong(owner, me.number, std::memory_order_relaxed))
      owner = me.number;
    if (owner == me.number) [[likely]] {
      raise(own_[Histogram::bucket_of(ns)], 1);
      raise(own_sum_, ns);
    } else {
      others_.count(ns);
      others_sum_.add(me, 0, ns);
    }
  }

  HistogramCounts counts() const noexcept {
    HistogramCounts counts = others_.counts();
    for (std::size_t i = 0; i < own_.size(); ++i)
      counts.buckets[i] += own_[i].load(std::memory_order_relaxed);
    counts.sum = own_sum_.load(std::memory_order_relaxed) + others_sum_.sum(0);
    if (before_) counts -= *before_;
    return counts;
  }

  // The counters are not set to 0, because another thread may write them: counts() subtracts their values of now. One
  // thread at a time, and not while another thread reads.
  void reset() {
    before_.reset();
    before_ = std::make_unique<HistogramCounts>(counts());
  }

 private:
  static void raise(std::atomic<std::uint64_t>& number, std::uint64_t by) noexcept {
    number.store(number.load(std::memory_order_relaxed) + by, std::memory_order_relaxed);
  }

  std::atomic<std::uint32_t> owner_{0};  // the only thread that writes the next two; 0: none yet
  std::atomic<std::uint64_t> own_sum_{0};
  std::array<std::atomic<std::uint64_t>, Histogram::kBuckets> own_{};
  Histogram others_;
  base::Tally<1> others_sum_;
  std::unique_ptr<HistogramCounts> before_;
};

}  // namespace bulkhead
