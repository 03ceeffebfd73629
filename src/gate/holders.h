// holders.h - who holds the permits of a gate, for Gate::holders().
//
// A slab of entries under a lock of its own. It grows to as many entries as there were ever permits at once,
// and is only made when GateOptions::track_holders asks for it.
#pragma once

#include <cstdint>
#include <mutex>
#include <source_location>
#include <string_view>
#include <vector>

#include "bulkhead/clock.h"
#include "bulkhead/snapshot.h"

namespace bulkhead {

class Holders {
 public:
  // The number of the new entry, from 1; 0 if there is no memory for it.
  std::uint32_t add(std::string_view label, TimePoint since, Priority priority, std::uint32_t cost,
                    const std::source_location& where) noexcept;
  void remove(std::uint32_t entry) noexcept;
  std::vector<Holder> list(TimePoint now) const;
  std::chrono::nanoseconds oldest(TimePoint now) const noexcept;  // its age; 0: there is none

 private:
  struct Entry {
    bool used = false;
    Priority priority = Priority::normal;
    std::uint32_t cost = 0;
    std::uint32_t next_free = 0;
    TimePoint since;
    std::source_location where;
    std::uint8_t label_length = 0;
    char label[Holder::max_label];
  };

  mutable std::mutex mutex_;
  std::vector<Entry> entries_;
  std::uint32_t free_ = 0;  // the first free entry, from 1
};

}  // namespace bulkhead
