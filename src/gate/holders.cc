#include "gate/holders.h"

#include <algorithm>

#include "bulkhead/detail/mutex.h"

namespace bulkhead {

std::uint32_t Holders::add(std::string_view label, TimePoint since, Priority priority, std::uint32_t cost,
                           const std::source_location& where) noexcept {
  detail::MutexLock lock(mutex_);
  if (free_ == 0) {
#if defined(__cpp_exceptions)
    try {
      entries_.emplace_back();
    } catch (...) {
      return 0;
    }
#else
    entries_.emplace_back();
#endif
    free_ = static_cast<std::uint32_t>(entries_.size());
  }
  const std::uint32_t number = free_;
  HolderEntry& entry = entries_[number - 1];
  free_ = entry.older;
  entry.older = newest_;
  entry.newer = 0;
  (newest_ != 0 ? at(newest_).newer : oldest_) = number;
  newest_ = number;
  entry.used = true;
  entry.priority = priority;
  entry.cost = cost;
  entry.since = since;
  entry.where = where;
  std::size_t length = std::min(label.size(), Holder::kMaxLabel);
  if (length < label.size())
    while (length > 0 && (label[length] & 0xc0) == 0x80) --length;  // not inside a character of UTF-8
  entry.label_length = static_cast<std::uint8_t>(label.copy(entry.label, length));
  return number;
}

void Holders::remove(std::uint32_t number) noexcept {
  detail::MutexLock lock(mutex_);
  HolderEntry& entry = at(number);
  (entry.newer != 0 ? at(entry.newer).older : newest_) = entry.older;
  (entry.older != 0 ? at(entry.older).newer : oldest_) = entry.newer;
  entry.used = false;
  entry.older = free_;
  free_ = number;
}

void Holders::set_cost(std::uint32_t number, std::uint32_t cost) noexcept {
  detail::MutexLock lock(mutex_);
  at(number).cost = cost;
}

std::chrono::nanoseconds Holders::oldest(TimePoint now) const noexcept {
  detail::MutexLock lock(mutex_);
  // Threads read the clock before they add, so the first entry may be slightly younger than the second.
  return oldest_ != 0 ? std::max(now - entries_[oldest_ - 1].since, std::chrono::nanoseconds(0))
                      : std::chrono::nanoseconds(0);
}

std::vector<Holder> Holders::list(TimePoint now) const {
  std::vector<Holder> holders;
  for (std::size_t next = 0, size = 1; next < size;) {
    if (holders.capacity() < holders.size() + kBatch)
      holders.reserve(2 * (holders.size() + kBatch));  // not under the lock
    detail::MutexLock lock(mutex_);
    size = entries_.size();
    for (const std::size_t end = std::min(next + kBatch, size); next < end; ++next) {
      const HolderEntry& e = entries_[next];
      if (e.used) holders.push_back({{e.label, e.label_length}, now - e.since, e.priority, e.cost, e.where});
    }
  }
  std::sort(holders.begin(), holders.end(), [](const Holder& a, const Holder& b) { return a.age > b.age; });
  return holders;
}

}  // namespace bulkhead
