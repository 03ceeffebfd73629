// verdict.h - says in one sentence what is wrong, since when, how bad, what is fine, and what to do next.
//
//   Verdict verdict = judge(seen);
//   verdict.sentence;     // "analytics rejects 98 % (queue_limit) since 04:58:18 UTC, 7 min; p99 11.6 s, was 45 ms. ..."
//
// judge() is a pure function. Its rules are symptoms(), a table; docs/operate/runbook.md has a section for each symptom.
// A bulkhead has at most one finding: the first rule that applies.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "journal.h"

namespace bulkhead::control {

enum class Severity : std::uint8_t { ok, note, warning, critical };
std::string_view to_string(Severity severity) noexcept;

struct SeenBulkhead;

// What an injected fault can cause: every symptom that a real fault of that kind causes.
enum class FaultCause : std::uint8_t { no, latency, any };

struct SymptomRow {
  std::string_view name;    // "slow-dependency": also the anchor in the runbook
  std::string_view when;    // the rule, for people
  std::string_view likely;  // the cause
  std::string_view action;  // what to do
  FaultCause fault = FaultCause::no;
  bool (*applies)(const SeenBulkhead&) = nullptr;  // null: not of a bulkhead
};
std::span<const SymptomRow> symptoms() noexcept;
const SymptomRow* find_symptom(std::string_view name) noexcept;  // null: unknown

// What an operator has done: who, why, and from when to when.
struct Author {
  std::string by{}, why{};
  WallTime since{}, until{};
};

// One bulkhead, over the last ten seconds.
struct SeenBulkhead {
  std::string name{};
  bool critical = false;
  bool measured = true;  // false: calls and times are not known
  std::uint32_t in_flight = 0, max_concurrent = 0, waiting = 0, max_queue = 0;
  double calls = 0, rejected = 0, failed = 0, ended = 0, would_reject = 0;  // per second
  double minute_share = 0;  // of the calls of the last minute that were rejected, 0 to 1
  std::string reason{};     // the most frequent one of the rejections
  bool full = false;        // hardly any unit was free
  bool rejecting = false;   // at least 1 % of the calls
  bool long_wait = false;   // the p99 of the wait is near max_wait
  bool stuck = false;       // a call runs far longer than usual
  bool closed = false, draining = false, shadow = false, enabled = true;
  bool has_breaker = false, breaker_rejects = false, breaker_forced = false;
  WallTime since{};          // of the condition that leads to its symptom; epoch: unknown
  WallTime failing_since{};  // of its failing calls
  double mean = -1, p50 = -1, p99 = -1, usual_p50 = -1, usual_p99 = -1;  // seconds per call; -1: not measured
  double wait_p99 = -1;
  double oldest = 0;             // seconds that the oldest call has run
  std::uint32_t abandoned = 0;   // threads whose caller has given up
  std::uint32_t guaranteed = 0;  // units of its group
  std::string borrower{};        // the member of the group that holds most of its units
  // What sets max_concurrent, as "its group"; empty: an override can.
  std::string sized_by{};
  std::string fleet{};         // not empty: why the store of the fleet cannot be reached
  std::string fault{};         // that an operator has injected: "latency 2s, error 10 %"
  bool fault_latency = false;  // the fault delays calls
  Author drain_by{}, breaker_by{}, fault_by{};
};

struct SeenPool {
  std::string name{}, error{};
  WallTime since{};
  bool down = false;
  std::uint32_t alive = 0, waiting = 0;
};

struct Seen {
  WallTime now{};
  std::vector<SeenBulkhead> bulkheads{};
  std::vector<SeenPool> pools{};
  bool config_valid = true;
  std::string config_file{}, config_error{};
  WallTime config_since{};
  std::size_t needs_restart = 0;
  struct Override {
    std::string bulkhead{}, field{};  // a setting, "breaker", "drain" or "fault"
  };
  std::vector<Override> overrides{};
  double calls = 0, rejected = 0;  // per second, each arriving call once
};

struct Finding {
  std::string symptom{}, subject{};  // subject: a bulkhead, several, a pool or the file
  bool of_bulkhead = false;          // the subject is one
  bool of_critical = false;          // its criticality is critical
  Severity severity = Severity::note;
  WallTime since{};
  double share = 0;      // of its calls that are rejected, 0 to 1
  std::string what{};    // "analytics rejects 98 % (queue_limit) since 04:58:18 UTC, 7 min"
  std::string likely{};  // "the dependency is slow (service time up 250x)"
  std::string next{};    // a command
};

struct Verdict {
  Severity severity = Severity::ok;
  std::vector<Finding> findings{};  // the worst first; then those of critical bulkheads that are critical
  std::vector<std::string> fine{};  // bulkheads without a finding that have calls
  std::string sentence{};
};

// `before` is the last verdict: a finding whose begin is not known is as old as there.
Verdict judge(const Seen& seen, const Verdict& before = {});
boost::json::object verdict_json(const Verdict& verdict);

std::string span_text(double seconds);  // "42 s", "7 min", "3 h 5 min", "2 d 4 h"

}  // namespace bulkhead::control
