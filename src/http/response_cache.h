// response_cache.h - the last good responses, for the time when there is no place to make a new one.
//
// Bounded in entries and in bytes of each; when it is full the oldest goes. Threads: any; a short lock.
#pragma once

#include <chrono>
#include <cstddef>
#include <list>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "bulkhead/clock.h"

namespace bulkhead::http {

class ResponseCache {
 public:
  struct Entry {
    std::string key, content_type, body;
    TimePoint stored{}, until{};
  };

  ResponseCache(std::size_t max_entries, std::size_t max_bytes)
      : max_entries_(max_entries), max_bytes_(max_bytes) {}

  void put(Entry entry) {
    if (entry.body.size() > max_bytes_ || max_entries_ == 0) return;
    const std::lock_guard lock(mutex_);
    if (const auto old = by_key_.find(entry.key); old != by_key_.end()) erase(old->second);
    if (entries_.size() >= max_entries_) erase(entries_.begin());
    entries_.push_back(std::move(entry));
    by_key_.emplace(entries_.back().key, std::prev(entries_.end()));
  }

  std::optional<Entry> get(std::string_view key, TimePoint now) {
    const std::lock_guard lock(mutex_);
    const auto found = by_key_.find(key);
    if (found == by_key_.end()) return std::nullopt;
    if (found->second->until >= now) return *found->second;
    erase(found->second);
    return std::nullopt;
  }

 private:
  using Place = std::list<Entry>::iterator;
  void erase(Place place) {
    by_key_.erase(place->key);
    entries_.erase(place);
  }

  const std::size_t max_entries_, max_bytes_;
  std::mutex mutex_;
  std::list<Entry> entries_;                            // the oldest first
  std::unordered_map<std::string_view, Place> by_key_;  // the keys are those of the entries
};

}  // namespace bulkhead::http
