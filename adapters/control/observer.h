// observer.h - looks at the bulkheads: what the snapshot, the stream and the history tell (docs/formats/stream.md).
//
// Threads: one, that of the event loop.
#pragma once

#include <array>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "changes.h"
#include "journal.h"

namespace bulkhead::control {

class Observer {
 public:
  Observer(Plant& plant, const Changes& changes, Journal& journal, const ServerOptions& options);

  void glance();  // ten times a second: peaks that a look once a second would not see
  void second();  // once a second: rates, history, the next frame

  boost::json::object snapshot(std::size_t events) const;     // of this moment, with the newest events
  boost::json::object bulkhead(std::string_view name) const;  // throws Problem
  boost::json::object history(std::size_t seconds, std::size_t step, const std::string* bulkhead) const;
  // The last frame of the stream; null before the first second is over.
  std::shared_ptr<const std::string> frame() const noexcept { return frame_; }
  std::uint64_t seq() const noexcept { return seq_; }

 private:
  static constexpr std::size_t kWindow = 10, kHistory = 3600;
  struct Counts {
    std::uint64_t admitted = 0, failed = 0;
    std::array<std::uint64_t, kReasons> rejected{};
    std::uint64_t calls() const noexcept;
  };
  struct Times {
    HistogramCounts wait, service;
  };
  struct Sample {  // of one second
    std::uint32_t used = 0, limit = 0, configured = 0, queue = 0, calls = 0, failed = 0;
    std::array<std::uint16_t, 3> wait{}, service{};  // buckets of p50, p90, p99; kNothing
    std::array<std::uint16_t, kReasons> rejected{};
    bool open = false;
  };
  static constexpr std::uint16_t kNothing = 0xffff;
  struct Row {
    std::weak_ptr<Bulkhead> bulkhead;
    std::uint32_t peak = 0, peak_waiting = 0;  // since the last second
    std::uint32_t peak_limit = 0;              // in force when `peak` was seen
    std::uint32_t last_peak = 0;               // of the last second
    std::chrono::nanoseconds saturated{};      // see Snapshot
    std::deque<Counts> counts;                 // the last kWindow + 1 seconds, the newest last
    Times last;                                // of the last second
    Times older, newer;                        // taken when the window was turned last but one, and last
    std::deque<Sample> history;                // the newest last
    std::uint64_t since_seq = 0;               // of the first sample
    std::optional<BreakerSnapshot> breaker;
    std::uint32_t told_limit = 0;
    bool seen = false;
  };

  static Counts counts_of(const BulkheadSnapshot& now);
  void observe(const RegistrySnapshot::Entry& entry, Row& row);
  void tell_changes(const RegistrySnapshot::Entry& entry, Row& row);
  boost::json::object entry_json(const RegistrySnapshot& all, const RegistrySnapshot::Entry& entry) const;
  std::uint32_t configured_limit(const RegistrySnapshot::Entry& entry) const;
  boost::json::array settings_json(const RegistrySnapshot::Entry& entry) const;
  boost::json::object frame_json(const RegistrySnapshot& all, const std::vector<Entry>& events) const;
  boost::json::object row_json(const std::string& name, const Row& row, std::size_t count, std::size_t step,
                               bool detail) const;

  Plant& plant_;
  const Changes& changes_;
  Journal& journal_;
  const ServerOptions& options_;
  const WallTime started_ = std::chrono::system_clock::now();
  WallTime last_second_ = started_;
  std::map<std::string, Row, std::less<>> rows_;
  std::shared_ptr<const std::string> frame_;
  std::uint64_t seq_ = 0, told_event_ = 0;
};

}  // namespace bulkhead::control
