// leases.h - the permits of one member that can be told to stop, newest first. Not synchronised.
#pragma once

#include <cstdint>
#include <optional>
#include <stop_token>
#include <vector>

namespace bulkhead::group {

class Leases {
 public:
  std::uint32_t add(std::uint32_t cost) {
    std::uint32_t id = free_;
    if (id != 0) {
      free_ = entries_[id - 1].next_free;
    } else {
      entries_.emplace_back();
      id = static_cast<std::uint32_t>(entries_.size());
    }
    Entry& e = entries_[id - 1];
    e.source.emplace();
    e.order = ++made_;
    e.cost = cost;
    e.told = false;
    return id;
  }
  std::stop_token token(std::uint32_t id) const { return entries_[id - 1].source->get_token(); }
  void remove(std::uint32_t id) {
    Entry& e = entries_[id - 1];
    if (e.told) stopping_ -= e.cost;
    e.source.reset();
    e.next_free = free_;
    free_ = id;
  }

  // The newest permit that has not been told yet, which is told by this; nothing if there is none.
  std::optional<std::stop_source> next_to_stop() {
    Entry* newest = nullptr;
    for (Entry& e : entries_)
      if (e.source && !e.told && (!newest || e.order > newest->order)) newest = &e;
    if (!newest) return std::nullopt;
    newest->told = true;
    stopping_ += newest->cost;
    ++stopped_;
    return newest->source;
  }
  std::uint32_t stopping() const { return stopping_; }  // units told and not given back yet
  std::uint64_t stopped() const { return stopped_; }    // permits ever told

 private:
  struct Entry {
    std::optional<std::stop_source> source;  // nothing: a free entry
    std::uint64_t order = 0;
    std::uint32_t cost = 0;
    std::uint32_t next_free = 0;
    bool told = false;
  };
  std::vector<Entry> entries_;
  std::uint32_t free_ = 0;  // the first free entry, from 1
  std::uint32_t stopping_ = 0;
  std::uint64_t made_ = 0, stopped_ = 0;
};

}  // namespace bulkhead::group
