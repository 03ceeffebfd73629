// journal.h - the events of the process, and the audit log of changes and denials.
//
// The last thousand entries stay in memory, and beside them the last thousand automatic events and the last 200 denials,
// so that neither a condition that comes and goes nor clients without access can displace what people did. All are passed
// to `tell`; audit entries and automatic events are also appended to a file as JSON lines, if there is one. A file that
// log rotation has moved is created again. If the file cannot be written (a full disk), everything else continues: one
// event says that lines are missing, one that writing works again, and lost() counts the lines. Where a moved file cannot
// be created again, lines go on into the moved one, and one event says so.
// Threads: any.
#pragma once

#include <array>
#include <boost/json/object.hpp>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "bulkhead/clock.h"
#include "bulkhead/detail/std_mutex.h"

namespace bulkhead::control {

using WallTime = std::chrono::system_clock::time_point;
WallTime wall_time(TimePoint time, Clock& clock);  // rounded to milliseconds
double unix_seconds(WallTime time) noexcept;       // with milliseconds
std::string rfc3339(WallTime time);

struct JournalEntry {
  std::string kind{};      // "override", "revert", "expired", "breaker" ...; "denied"
  std::string bulkhead{};  // empty: all of them, or none
  std::string actor = "system";
  std::string text{};
  // Only of automatic events: when the condition began and, once it is over, ended; the highest value in between.
  bool automatic = false;
  WallTime began{}, ended{};
  double peak = 0;
  // Only of changes and denials:
  bool audit = false;
  std::string role{}, transport{}, action{}, reason{}, result = "ok";
  double ttl_s = 0;
  boost::json::value before{}, after{};
  std::uint64_t request = 0;
  // Filled in by the journal:
  std::uint64_t id = 0;
  WallTime at{};

  boost::json::object event() const;
  boost::json::object audited() const;
  boost::json::object all() const;  // both
};

boost::json::array events_json(const std::vector<JournalEntry>& entries);

class Journal {
 public:
  using Tell = std::function<void(std::string_view line)>;
  // std::system_error if the file cannot be opened.
  explicit Journal(const std::string& audit_file, Tell tell = nullptr);
  ~Journal();
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;

  void add(JournalEntry entry);
  // As add(), but at most twenty per second, because clients that are denied can send any number of requests. Of those at
  // most a thousand per hour are written to the file; report_suppressed() writes the number of the others.
  void deny(JournalEntry entry);
  // Once a second: adds one entry with the number of denials that deny() has left out, if there are any.
  // And once an hour: one with the number of entries that the file lacks because there were too many.
  void report_suppressed();

  struct Filter {
    std::uint64_t after = 0;  // ids above this
    std::size_t newest = 50;  // at most these
    bool audit_only = false;
  };
  std::vector<JournalEntry> list(const Filter& filter) const;  // oldest first
  std::uint64_t last_id() const noexcept;
  std::uint64_t lost() const noexcept;  // audit lines that the file lacks

 private:
  void keep(JournalEntry entry, bool to_disk) BULKHEAD_REQUIRES(mutex_);
  bool fits_file(const JournalEntry& entry) BULKHEAD_REQUIRES(mutex_);
  bool write(const JournalEntry& entry, bool to_disk)
      BULKHEAD_REQUIRES(mutex_);  // false: not in the file, see errno

  enum Ring : std::uint8_t { kOthers, kAutomatic, kDenials, kRings };
  static Ring ring_of(const JournalEntry& entry) noexcept;

  static constexpr std::array<std::size_t, kRings> kKept{1000, 1000, 200};
  static constexpr std::size_t kDenialsPerSecond = 20;
  mutable detail::StdMutex mutex_;
  std::array<std::deque<JournalEntry>, kRings> rings_
      BULKHEAD_GUARDED_BY(mutex_);  // each in the order of ids
  std::uint64_t last_id_ BULKHEAD_GUARDED_BY(mutex_) = 0;
  std::chrono::steady_clock::time_point denial_second_ BULKHEAD_GUARDED_BY(mutex_){};
  std::size_t denials_ BULKHEAD_GUARDED_BY(mutex_) = 0, suppressed_ BULKHEAD_GUARDED_BY(mutex_) = 0;
  // Denials and automatic events in the file, and those that are not, since file_hour_: they must not fill the disk.
  static constexpr std::size_t kFilePerHour = 1000;
  std::chrono::steady_clock::time_point file_hour_ BULKHEAD_GUARDED_BY(mutex_){};
  std::array<std::size_t, kRings> in_file_ BULKHEAD_GUARDED_BY(mutex_){}, not_in_file_
      BULKHEAD_GUARDED_BY(mutex_){};
  const std::string path_;
  int file_ BULKHEAD_GUARDED_BY(mutex_) = -1;
  bool unwritten_ BULKHEAD_GUARDED_BY(mutex_) =
      false;                                       // the last line is missing, incomplete or not on the disk
  bool torn_ BULKHEAD_GUARDED_BY(mutex_) = false;  // the file ends with an incomplete line
  int astray_ BULKHEAD_GUARDED_BY(mutex_) = 0;     // errno: the last line went into the file that was moved
  bool reported_astray_ BULKHEAD_GUARDED_BY(mutex_) = false;
  std::uint64_t lost_ BULKHEAD_GUARDED_BY(mutex_) = 0;
  const Tell tell_;
};

}  // namespace bulkhead::control
