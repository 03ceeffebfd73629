// holders.h - the permits in flight, for Gate::holders().
//
// A slab of entries under its own lock, made only with track_holders. It grows to the largest number of permits at once
// (about 150 bytes each). Entries do not move, and those in use are linked in the order of arrival: adding, removing and
// finding the oldest are O(1). list() copies in batches and unlocks in between.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <source_location>
#include <string_view>
#include <vector>

#include "bulkhead/clock.h"
#include "bulkhead/detail/std_mutex.h"
#include "bulkhead/snapshot.h"

namespace bulkhead {

class Holders {
 public:
  // The number of the new entry, from 1; 0 if there is no memory for it.
  std::uint32_t add(std::string_view label, TimePoint since, Priority priority, std::uint32_t cost,
                    const std::source_location& where) noexcept;
  void remove(std::uint32_t entry) noexcept;
  void set_cost(std::uint32_t entry, std::uint32_t cost) noexcept;
  std::vector<Holder> list(TimePoint now) const;
  std::chrono::nanoseconds oldest(TimePoint now) const noexcept;  // the age of the oldest; 0: there is none

 private:
  struct HolderEntry {
    bool used = false;
    Priority priority = Priority::normal;
    std::uint32_t cost = 0;
    std::uint32_t older = 0, newer = 0;  // `older` of a free entry: the next free one
    TimePoint since;
    std::source_location where;
    std::uint8_t label_length = 0;
    char label[Holder::kMaxLabel];
  };

  static constexpr std::size_t kBatch = 1024;
  HolderEntry& at(std::uint32_t number) noexcept BULKHEAD_REQUIRES(mutex_) { return entries_[number - 1]; }

  mutable detail::StdMutex mutex_;
  std::deque<HolderEntry> entries_ BULKHEAD_GUARDED_BY(mutex_);
  std::uint32_t free_ BULKHEAD_GUARDED_BY(mutex_) = 0;  // the first free entry, from 1
  std::uint32_t oldest_ BULKHEAD_GUARDED_BY(mutex_) = 0, newest_ BULKHEAD_GUARDED_BY(mutex_) = 0;
};

}  // namespace bulkhead
