// journal.h - what happened: events for people, and the audit log of changes and denials.
//
// The last thousand are kept in memory; audit entries also go to a file, as JSON lines, if there is one, and all to `tell`. A
// file that was moved away, as log rotation does, is begun anew.
// Threads: any.
#pragma once

#include <boost/json/object.hpp>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace bulkhead::control {

using WallTime = std::chrono::system_clock::time_point;
double unix_seconds(WallTime time) noexcept;  // with milliseconds
std::string rfc3339(WallTime time);

struct Entry {
  std::string kind{};      // "override", "revert", "expired", "breaker" ...; "denied"
  std::string bulkhead{};  // empty: it concerns all, or none
  std::string actor = "system";
  std::string text{};
  // Of changes and denials:
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
  boost::json::object all() const;  // of both, what there is
};

class Journal {
 public:
  using Tell = std::function<void(std::string_view line)>;
  // std::system_error if it cannot be opened.
  explicit Journal(const std::string& audit_file, Tell tell = nullptr);
  ~Journal();
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;

  void add(Entry entry);
  // As add(), but at most twenty a second: who is denied can ask as often as he likes.
  void deny(Entry entry);

  struct Filter {
    std::uint64_t after = 0;  // ids above this
    std::size_t limit = 50;   // the newest of them
    bool audit_only = false;
  };
  std::vector<Entry> list(const Filter& filter) const;  // oldest first
  std::uint64_t last_id() const noexcept;

 private:
  void keep(Entry entry, bool to_disk);          // under mutex_
  bool write(const Entry& entry, bool to_disk);  // false: errno says why it is not in the file

  static constexpr std::size_t kKept = 1000, kDenialsPerSecond = 20;
  // Invariants: under mutex_. entries_ is in the order of ids, without gaps.
  mutable std::mutex mutex_;
  std::deque<Entry> entries_;
  std::uint64_t last_id_ = 0;
  std::chrono::steady_clock::time_point denial_second_{};
  std::size_t denials_ = 0, suppressed_ = 0;
  const std::string path_;
  int file_ = -1;
  bool unwritten_ = false;  // the last line is not in the file, or not whole
  const Tell tell_;
};

}  // namespace bulkhead::control
