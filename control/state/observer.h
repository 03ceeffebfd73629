// observer.h - samples the bulkheads for the snapshot, the stream, the history (docs/formats/stream.md) and the verdict.
//
// Begin and end of each trouble (rejecting, full, long waits, stuck calls, pools that cannot connect) become events.
// Threads: only that of the event loop.
#pragma once

#include <array>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <cmath>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "control/server.h"
#include "episode.h"
#include "journal.h"
#include "operations.h"
#include "verdict.h"

namespace bulkhead::control {

inline double round_to(double value, double steps) { return std::round(value * steps) / steps; }

inline constexpr std::uint16_t kNothing = 0xffff;             // instead of a bucket: no call
using Buckets = std::array<std::array<std::uint16_t, 3>, 2>;  // of wait and service: p50, p90, p99
inline constexpr Buckets kNoTimes{{{kNothing, kNothing, kNothing}, {kNothing, kNothing, kNothing}}};

class Observer {
 public:
  Observer(LiveConfig& live, const Operations& operations, Journal& journal, const ServerOptions& options);

  void glance();  // ten times a second: finds peaks between two seconds
  void second();  // once a second: rates, history, the next frame
  void stop();    // ends what has begun, at the end of the process

  boost::json::object snapshot(std::size_t events) const;     // of now, with the newest events
  boost::json::object bulkhead(std::string_view name) const;  // throws Problem
  boost::json::object history(std::size_t seconds, std::size_t step, const std::string* bulkhead) const;
  // The last frame of the stream; null before the first second is over.
  std::shared_ptr<const std::string> frame() const noexcept { return frame_; }
  boost::json::object status() const;          // the verdict, and the last minute of each bulkhead
  std::vector<MetricsWindow> windows() const;  // the last minute, for /health/bulkheads
  std::uint64_t seq() const noexcept { return seq_; }

 private:
  static constexpr std::size_t kWindow = 10, kHistory = 3600, kMinute = 60;
  struct Counts {
    std::uint64_t admitted = 0, bypassed = 0, released = 0, failed = 0, would_reject = 0;
    std::array<std::uint64_t, kReasons> rejected{};
    std::uint64_t calls() const noexcept;  // that arrived
    std::uint64_t all_rejected() const noexcept;
  };
  struct Times {
    HistogramCounts wait, service;
  };
  struct Sample {  // of one second
    std::uint32_t in_flight = 0, max_concurrent = 0, configured = 0, waiting = 0, calls = 0, failed = 0;
    float mean = 0;  // in flight on average over the second
    Buckets times = kNoTimes;
    std::array<std::uint16_t, kReasons> rejected{};
    bool open = false;
  };
  // An adaptive limit in the last event about it.
  struct Reported {
    std::uint32_t limit = 0;
    std::uint64_t at = 0;  // seq
  };
  struct Row {
    std::weak_ptr<Bulkhead> bulkhead;
    std::uint32_t peak = 0, peak_waiting = 0;           // since the last second
    std::uint32_t peak_max_concurrent = 0;              // in force at the peak
    std::uint32_t last_peak = 0;                        // of the last second
    std::chrono::nanoseconds saturated{}, occupancy{};  // see Snapshot
    std::uint32_t glanced = 0, glances = 0;             // in flight, added up over the glances of a second
    std::deque<Counts> counts;                          // the last kWindow + 1 seconds, the newest last
    Times last;                                         // of the last second
    Times older, newer;                                 // at the last two starts of a window
    std::deque<Sample> history;                         // the newest last
    std::uint64_t since_seq = 0;                        // of the first sample
    std::optional<BreakerSnapshot> breaker;
    Reported reported;
    bool seen = false, nested = false, critical = false, tenant = false;
    bool keeps_history = false;  // of an hour; otherwise of the last minute
    // What is wrong, and since when.
    Episode rejecting{{.begin = 2, .end = 10}}, full{{.begin = 3, .end = 10}};
    Episode long_wait{{.begin = 3, .end = 10}}, stuck{{.begin = 1, .end = 2}};
    Episode failing{{.begin = 2, .end = 10}}, cut_off{{.begin = 1, .end = 10}};
    Episode open{{.begin = 1, .end = 10}};  // the breaker: one that opens again and again is one episode
    std::uint64_t opened = 0, probed = 0;   // how often the breaker had done so when `open` began
    std::string reason;                     // the most frequent one of the rejections while `rejecting`
    std::string state = "ok";               // its symptom in the last verdict
    WallTime since{};                       // of that symptom
    // What a call usually takes: averages of the logarithm of the p50 and p99 of each second, without trouble.
    double usual_p50 = 0, usual_p99 = 0;
    std::uint32_t usual_seconds = 0;  // that these are made of
  };
  struct Minute {
    std::uint64_t calls = 0, rejected = 0, failed = 0;
    std::size_t seconds = 0;
  };

  RegistrySnapshot look() const;  // with at most listed_tenants tenants
  void make_rows(const RegistrySnapshot& all);
  void judge_all(const RegistrySnapshot& all);
  void observe(const RegistrySnapshot::Entry& entry, Row& row);
  void report_limit(Reported& last, std::uint32_t limit, const std::optional<LimiterSnapshot>& adaptive,
                    std::string_view name, std::string_view setting);
  // verdicts.cc
  void report_episodes(const RegistrySnapshot::Entry& entry, Row& row, const Sample& sample,
                       double saturated);
  void report_pools(const RegistrySnapshot& all);
  void report(Episode::Step step, const Episode& episode, std::string_view kind, std::string_view name,
              std::string begun, std::string ended);
  void report_breaker(const RegistrySnapshot::Entry& entry, Row& row, double share);
  void forget(std::string_view name, Row& row, std::string_view why);
  WallTime begin_of(const RegistrySnapshot::Entry& entry, const Row& row, const SeenBulkhead& b) const;
  Seen see(const RegistrySnapshot& all) const;
  SeenBulkhead see(const RegistrySnapshot& all, const RegistrySnapshot::Entry& entry) const;
  Minute last_minute(const Row& row) const;
  std::string_view reason_of(const Row& row) const;
  boost::json::object minute_json() const;
  static boost::json::value since_json(const Row& row);
  boost::json::object entry_json(const RegistrySnapshot& all, const RegistrySnapshot::Entry& entry) const;
  std::uint32_t configured_max_concurrent(const RegistrySnapshot::Entry& entry) const;
  boost::json::array settings_json(const RegistrySnapshot::Entry& entry) const;
  boost::json::object frame_json(const RegistrySnapshot& all, const std::vector<JournalEntry>& events) const;
  boost::json::object row_json(const std::string& name, const Row& row, std::size_t count, std::size_t step,
                               bool detail) const;

  LiveConfig& live_;
  Registry& registry_;
  const Operations& operations_;
  Journal& journal_;
  const ServerOptions& options_;
  const WallTime started_ = std::chrono::system_clock::now();
  WallTime last_second_ = started_;
  std::map<std::string, Row, std::less<>> rows_;
  std::map<std::string, Reported, std::less<>> groups_;
  std::map<std::string, Episode, std::less<>> pools_;  // that cannot connect, or lately could not
  Verdict verdict_;
  TimePoint taken_{};   // the last snapshot
  double elapsed_ = 0;  // seconds between the last two
  std::shared_ptr<const std::string> frame_;
  std::uint64_t seq_ = 0, reported_event_ = 0;
};

}  // namespace bulkhead::control
