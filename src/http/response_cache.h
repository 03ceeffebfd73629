// response_cache.h - caches the last successful responses, to send instead of rejections: a bounded number of entries, each
// of a bounded size; a full cache drops the oldest entry.
//
//   const std::string key = cache_key(tenant, target, header);              // when the request arrives
//   cache.put({.key = variant_key(key, *varies), ...}, *varies);            // when it was answered
//   if (auto kept = cache.get(key, now)) ...                                // when a request is rejected
//
// A cache key holds everything of the request that may select a response. Which part of it does select one is known
// only from the response's Vary, so an entry is stored under the part that its own Vary names (`varies`, a set of
// bits), and a lookup tries the sets that are in use: one or two as a rule.
// Threads: any; a short lock.
#pragma once

#include <array>
#include <bitset>
#include <cstddef>
#include <list>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "bulkhead/clock.h"
#include "bulkhead/detail/std_mutex.h"
#include "bulkhead/http.h"
#include "bulkhead/http_hints.h"

namespace bulkhead::http {

// Request headers that a response may depend on and still be kept. A response whose Vary names another one is not kept.
inline constexpr std::array<std::string_view, 4> kVarying{"Accept", "Accept-Encoding", "Accept-Language",
                                                          "Origin"};
inline constexpr unsigned kVaryEncoding = 1U << 1;

// What every response depends on. A handler behind a proxy builds links from the forwarded ones.
inline constexpr std::array<std::string_view, 3> kAlwaysVarying{"Host", "X-Forwarded-Host",
                                                                "X-Forwarded-Proto"};

// The parts are separated by line feeds, which neither targets nor header values contain.
inline std::string cache_key(std::string_view tenant, std::string_view target, HeaderLookup header) {
  std::string key;
  const auto add = [&key](std::string_view part) { key.append(part).push_back('\n'); };
  for (const std::string_view name : kVarying) add(header(name));
  for (const std::string_view name : kAlwaysVarying) add(header(name));
  add(tenant);
  key.append(target);
  return key;
}

// `key` with only those of the kVarying parts that `varies` names.
inline std::string variant_key(std::string_view key, unsigned varies) {
  std::string variant(1, static_cast<char>('a' + varies));
  for (std::size_t i = 0; i < kVarying.size(); ++i) {
    const std::size_t end = key.find('\n') + 1;
    if (varies & (1U << i)) variant.append(key.substr(0, end));
    key.remove_prefix(end);
  }
  return variant.append(key);
}

class ResponseCache {
 public:
  struct CacheEntry {
    std::string key;  // see variant_key()
    std::vector<Header> headers;
    std::string body;
    TimePoint stored{}, until{};
  };

  ResponseCache(std::size_t max_entries, std::size_t max_bytes)
      : max_entries_(max_entries), max_bytes_(max_bytes) {}

  void put(CacheEntry entry, unsigned varies) {
    std::size_t bytes = entry.body.size();
    for (const Header& h : entry.headers) bytes += h.name.size() + h.value.size();
    if (bytes > max_bytes_ || max_entries_ == 0) return;
    const detail::MutexLock lock(mutex_);
    used_.set(varies);
    if (const auto old = by_key_.find(entry.key); old != by_key_.end()) erase(old->second);
    if (entries_.size() >= max_entries_) erase(entries_.begin());
    entries_.push_back(std::move(entry));
    by_key_.emplace(entries_.back().key, std::prev(entries_.end()));
  }

  // The newest entry that fits the request of this cache_key(). A resource may have been stored with different Varys.
  std::optional<CacheEntry> get(std::string_view key, TimePoint now) {
    const detail::MutexLock lock(mutex_);
    const CacheEntry* newest = nullptr;
    for (unsigned varies = 0; varies < used_.size(); ++varies) {
      if (!used_[varies]) continue;
      const auto found = by_key_.find(variant_key(key, varies));
      if (found == by_key_.end()) continue;
      if (found->second->until < now)
        erase(found->second);
      else if (!newest || newest->stored < found->second->stored)
        newest = &*found->second;
    }
    if (!newest) return std::nullopt;
    return *newest;
  }

 private:
  using Place = std::list<CacheEntry>::iterator;
  void erase(Place place) BULKHEAD_REQUIRES(mutex_) {
    by_key_.erase(place->key);
    entries_.erase(place);
  }

  const std::size_t max_entries_, max_bytes_;
  detail::StdMutex mutex_;
  std::bitset<1U << kVarying.size()> used_ BULKHEAD_GUARDED_BY(mutex_);  // the sets of `varies` ever stored
  std::list<CacheEntry> entries_ BULKHEAD_GUARDED_BY(mutex_);            // the oldest first
  std::unordered_map<std::string_view, Place> by_key_
      BULKHEAD_GUARDED_BY(mutex_);  // the keys are those of the entries
};

}  // namespace bulkhead::http
