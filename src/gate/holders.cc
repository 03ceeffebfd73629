#include "gate/holders.h"

#include <algorithm>

namespace bulkhead {

std::uint32_t Holders::add(std::string_view label, TimePoint since, Priority priority, std::uint32_t cost,
                           const std::source_location& where) noexcept {
  std::lock_guard lock(mutex_);
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
  Entry& entry = entries_[number - 1];
  free_ = entry.next_free;
  entry.used = true;
  entry.priority = priority;
  entry.cost = cost;
  entry.since = since;
  entry.where = where;
  std::size_t length = std::min(label.size(), Holder::max_label);
  if (length < label.size())
    while (length > 0 && (label[length] & 0xc0) == 0x80) --length;  // not inside a character of UTF-8
  entry.label_length = static_cast<std::uint8_t>(label.copy(entry.label, length));
  return number;
}

void Holders::remove(std::uint32_t number) noexcept {
  std::lock_guard lock(mutex_);
  Entry& entry = entries_[number - 1];
  entry.used = false;
  entry.next_free = free_;
  free_ = number;
}

std::chrono::nanoseconds Holders::oldest(TimePoint now) const noexcept {
  std::lock_guard lock(mutex_);
  TimePoint since = now;
  for (const Entry& e : entries_)
    if (e.used) since = std::min(since, e.since);
  return now - since;
}

std::vector<Holder> Holders::list(TimePoint now) const {
  std::vector<Holder> holders;
  {
    std::lock_guard lock(mutex_);
    for (const Entry& e : entries_)
      if (e.used) holders.push_back({{e.label, e.label_length}, now - e.since, e.priority, e.cost, e.where});
  }
  std::sort(holders.begin(), holders.end(), [](const Holder& a, const Holder& b) { return a.age > b.age; });
  return holders;
}

}  // namespace bulkhead
