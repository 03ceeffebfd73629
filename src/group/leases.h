// leases.h - the permits of one member that have a stop_token, newest first. Not synchronised. A permit that has settled
// at 0 returns nothing when it ends, so it is not in the list until it grows; then it is the newest.
//
// Cost: every function is O(1); 64 bytes for each permit with a stop_token at one time, and the memory of the
// std::stop_source. Entries do not move, so growing does not copy.
#pragma once

#include <cstdint>
#include <deque>
#include <stop_token>
#include <utility>

namespace bulkhead::group {

class Leases {
 public:
  // The number of a new entry for `source`, from 1. Throws std::bad_alloc without a change.
  std::uint32_t add(const std::stop_source& source, std::uint32_t cost) {
    if (free_ == 0) {
      entries_.emplace_back();
      free_ = static_cast<std::uint32_t>(entries_.size());
    }
    const std::uint32_t id = free_;
    LeaseEntry& e = at(id);
    free_ = e.older;
    e.source = source;
    e.cost = cost;
    e.told = false;
    if (cost > 0) link(id);
    return id;
  }
  std::stop_token token(std::uint32_t id) const { return entries_[id - 1].source.get_token(); }
  void remove(std::uint32_t id) {
    LeaseEntry& e = at(id);
    if (e.told)
      stopping_ -= e.cost;
    else if (e.cost > 0)
      unlink(e);
    e.source = std::stop_source(std::nostopstate);
    e.older = free_;
    free_ = id;
  }

  // True: the permit can be told to stop, and could not before.
  bool change(std::uint32_t id, std::uint32_t cost) {
    LeaseEntry& e = at(id);
    const std::uint32_t before = std::exchange(e.cost, cost);
    if (e.told) {
      stopping_ += cost - before;  // modulo 2^32: the sum stays right also if it falls
      return false;
    }
    if (before > 0 && cost == 0) unlink(e);
    if (before > 0 || cost == 0) return false;
    link(id);
    return true;
  }

  // Marks the newest permit whose token has not fired, and returns its source; without a state if there is none.
  std::stop_source next_to_stop() {
    if (newest_ == 0) return std::stop_source(std::nostopstate);
    LeaseEntry& e = at(newest_);
    unlink(e);
    e.told = true;
    stopping_ += e.cost;
    ++stopped_;
    return e.source;
  }
  std::uint32_t stopping() const {
    return stopping_;
  }  // units whose token has fired and that are not given back yet
  std::uint64_t stopped() const { return stopped_; }  // permits whose token has fired, in total

 private:
  struct LeaseEntry {
    std::stop_source source{std::nostopstate};
    std::uint32_t cost = 0;
    bool told = false;
    std::uint32_t
        older = 0,
        newer = 0;  // among entries whose token has not fired; `older` of a free entry: the next free one
  };
  LeaseEntry& at(std::uint32_t id) { return entries_[id - 1]; }
  void link(std::uint32_t id) {
    LeaseEntry& e = at(id);
    e.older = newest_;
    e.newer = 0;
    if (newest_ != 0) at(newest_).newer = id;
    newest_ = id;
  }
  void unlink(const LeaseEntry& e) {
    (e.newer != 0 ? at(e.newer).older : newest_) = e.older;
    if (e.older != 0) at(e.older).newer = e.newer;
  }

  std::deque<LeaseEntry> entries_;
  std::uint32_t free_ = 0;    // the first free entry, from 1
  std::uint32_t newest_ = 0;  // whose token has not fired
  std::uint32_t stopping_ = 0;
  std::uint64_t stopped_ = 0;
};

}  // namespace bulkhead::group
