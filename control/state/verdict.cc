#include "verdict.h"

#include <algorithm>
#include <array>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <optional>
#include <tuple>

namespace bulkhead::control {
namespace json = boost::json;
namespace {

constexpr double kSlowFactor = 2, kFailingShare = 0.2, kCriticalShare = 0.01, kWarningShare = 0.05;

template <class... Args>
std::string print(const char* format, Args... args) {
  std::array<char, 256> text{};
  std::snprintf(text.data(), text.size(), format, args...);
  return text.data();
}

std::string percent(double share) {
  if (share > 0.995 && share < 1) return "over 99 %";
  if (share > 0 && share < 0.01) return print("%.1f %%", std::max(0.1, 100 * share));
  return print("%.0f %%", 100 * share);
}

// "1 call", "2 calls"
std::string counted(std::uint32_t n, std::string_view what) {
  return std::to_string(n) + ' ' + std::string(what) + (n == 1 ? "" : "s");
}

std::string time_text(double s) {
  if (s >= 9.95) return print("%.0f s", s);
  if (s >= 0.9995) return print("%.1f s", s);
  if (s >= 0.00995) return print("%.0f ms", s * 1e3);
  return s >= 0.0009995 ? print("%.1f ms", s * 1e3) : print("%.0f us", s * 1e6);
}

double seconds_between(WallTime from, WallTime to) {
  return std::max(0.0, std::chrono::duration<double>(to - from).count());
}

std::string clock_text(WallTime time) {
  const std::time_t t = std::chrono::system_clock::to_time_t(time);
  std::tm utc{};
  ::gmtime_r(&t, &utc);
  return print("%02d:%02d:%02d UTC", utc.tm_hour, utc.tm_min, utc.tm_sec);
}

std::string since_text(WallTime since, WallTime now) {
  if (since == WallTime{}) return "";
  return " since " + clock_text(since) + ", " + span_text(seconds_between(since, now));
}

// A name as an argument of a shell command.
std::string quoted(std::string_view name) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:@%+=";
  if (!name.empty() && name.find_first_not_of(kPlain) == name.npos && name.front() != '-')
    return std::string(name);
  std::string text = "'";
  for (const char c : name) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + '\'';
}

void replace(std::string& text, std::string_view from, std::string_view to) {
  for (std::size_t at = text.find(from); at != text.npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
}

double share_of(const SeenBulkhead& b) {
  const double arrived = std::max(b.calls, b.rejected);
  return arrived > 0 ? b.rejected / arrived : 0;
}

// How many times as long as usual a call takes; 0: unknown. Without any call that ended it is at least twice.
double slowdown(const SeenBulkhead& b) {
  if (b.usual_p50 <= 0) return 0;
  if (b.p50 < 0) return b.ended == 0 && b.in_flight > 0 ? kSlowFactor : 0;
  return std::max(b.p50 / b.usual_p50, b.usual_p99 > 0 && b.p99 > 0 ? b.p99 / b.usual_p99 : 0);
}

// The share of rejected calls from which a bulkhead is not fine.
double bound_of(const SeenBulkhead& b) { return b.critical ? kCriticalShare : kWarningShare; }

bool rejects_now(const SeenBulkhead& b) { return b.rejecting || share_of(b) >= bound_of(b); }

// Bursts: too few seconds in a row for an episode, but too many calls.
bool rejects(const SeenBulkhead& b) { return rejects_now(b) || b.minute_share >= bound_of(b); }

bool is_closed(const SeenBulkhead& b) { return b.closed; }
bool is_drained(const SeenBulkhead& b) { return b.draining; }
bool breaker_rejects(const SeenBulkhead& b) { return b.breaker_rejects; }
bool is_cut_off(const SeenBulkhead& b) { return !b.fleet.empty(); }
bool has_stuck_calls(const SeenBulkhead& b) { return b.stuck || b.abandoned > 0; }
bool is_rate_limited(const SeenBulkhead& b) { return rejects(b) && b.reason == "rate_limit"; }
bool is_starved(const SeenBulkhead& b) {
  return b.waiting > 0 && b.guaranteed > 0 && b.in_flight < b.guaranteed && !b.borrower.empty();
}
bool is_full(const SeenBulkhead& b) { return b.full && (rejects_now(b) || b.long_wait || b.waiting > 0); }
bool is_slow(const SeenBulkhead& b) { return is_full(b) && slowdown(b) >= kSlowFactor; }
bool is_too_small(const SeenBulkhead& b) { return is_full(b) && slowdown(b) > 0; }
bool waits_for_reserve(const SeenBulkhead& b) {
  return b.waiting > 0 && b.in_flight < b.max_concurrent && (rejects_now(b) || b.long_wait);
}
bool fails(const SeenBulkhead& b) {
  return b.calls > 0 && b.ended > 0 && b.failed >= kFailingShare * b.ended;
}
bool has_fault(const SeenBulkhead& b) { return !b.fault.empty(); }
bool is_switched_off(const SeenBulkhead& b) { return !b.enabled; }
bool would_reject(const SeenBulkhead& b) { return b.shadow && b.would_reject > 0; }

// A bulkhead has the first symptom that applies to it. runbook.md lists them in the same order.
// clang-format off
constexpr SymptomRow kSymptoms[] = {
    {"config-invalid", "the configuration file on disk is not valid", "the file was saved with a mistake; the previous configuration stays in force", "bulkhead diff"},
    {"pool-down", "a pool of connections cannot open one", "the server is down, or the network or the credentials are wrong", "bulkhead status"},
    {"closed", "the bulkhead is closed and rejects everything", "the program is shutting down", "bulkhead events", FaultCause::no, is_closed},
    {"drained", "an operator drains the bulkhead", "maintenance", "bulkhead drain NAME --resume", FaultCause::no, is_drained},
    {"breaker-open", "the breaker rejects calls", "the dependency fails; the breaker probes it and closes by itself", "bulkhead status NAME", FaultCause::any, breaker_rejects},
    {"fleet-cut-off", "the store of a shared limit cannot be reached", "the store or the network is down; the local share is in force", "bulkhead status NAME", FaultCause::no, is_cut_off},
    {"stuck-calls", "a call runs far longer than usual, or a thread is left behind by a caller that gave up", "calls without an execution_timeout hang and hold their units", "bulkhead status NAME", FaultCause::latency, has_stuck_calls},
    {"rate-limited", "most rejections have the reason rate_limit", "the callers exceed the rate limit; capacity is not the cause", "bulkhead status NAME", FaultCause::no, is_rate_limited},
    {"lender-starved", "calls wait although the bulkhead uses less than its guaranteed units", "another member of the group holds borrowed units and returns them slowly", "bulkhead drain BORROWER --for 5m --reason \"return units\"", FaultCause::no, is_starved},
    {"slow-dependency", "full, and calls take at least twice as long as usual", "the dependency is slow", "bulkhead breaker open NAME --for 10m --reason \"slow dependency\"", FaultCause::latency, is_slow},
    {"too-small", "full, and calls take as long as usual", "there is more demand than max_concurrent allows", "bulkhead set NAME --max-concurrent N --for 30m --reason \"more demand\"", FaultCause::no, is_too_small},
    {"full", "full, and it is not known how long calls usually take", "the dependency is slow, or max_concurrent is too small", "bulkhead status NAME", FaultCause::latency, is_full},
    {"reserve", "calls wait although units are free", "the free units are reserved for critical calls (critical_reserve), or the next call costs more than is free", "bulkhead status NAME", FaultCause::latency, waits_for_reserve},
    {"rejecting", "calls are rejected although the bulkhead is not full: now, or 5 % (critical bulkheads: 1 %) of those of the last minute", "bursts, or callers whose deadline is too short", "bulkhead status NAME", FaultCause::latency, rejects},
    {"failing", "at least a fifth of the calls fail", "the dependency fails", "bulkhead status NAME", FaultCause::any, fails},
    {"fault-injected", "an operator injects latency or errors, and the bulkhead copes", "a rehearsal; it ends by itself", "bulkhead fault NAME --end", FaultCause::no, has_fault},
    {"switched-off", "the bulkhead is switched off and protects nothing", "enabled is false", "bulkhead status NAME", FaultCause::no, is_switched_off},
    {"shadow-only", "a bulkhead in shadow mode would have rejected calls", "it only observes; its limit would be reached", "bulkhead status NAME", FaultCause::no, would_reject},
    {"out-of-sync", "the file and the process differ: a setting needs a restart", "a setting of the file changes only with a restart", "bulkhead diff"},
    {"overridden", "operators have overridden settings", "a temporary change; it ends by itself", "bulkhead events"},
};
// clang-format on

const SymptomRow* symptom_of(const SeenBulkhead& b) {
  const auto found =
      std::ranges::find_if(kSymptoms, [&](const SymptomRow& row) { return row.applies && row.applies(b); });
  return found == std::end(kSymptoms) ? nullptr : &*found;
}

Severity severity_of(const SeenBulkhead& b, std::string_view symptom, double share) {
  if (symptom == "shadow-only" || symptom == "switched-off" || symptom == "fault-injected")
    return Severity::note;
  if (symptom == "drained" && !b.critical) return Severity::note;
  return share >= bound_of(b) ? Severity::critical : Severity::warning;
}

// " by ann (upgrade), ends in 5 min": of what an operator did
std::string author_text(const Author& author, WallTime now) {
  std::string text;
  if (!author.by.empty()) text += " by " + author.by;
  if (!author.why.empty()) text += " (" + author.why + ')';
  if (author.until > now) text += ", ends in " + span_text(seconds_between(now, author.until));
  return text;
}

std::string fault_text(const SeenBulkhead& b, WallTime now) {
  return " an injected fault (" + b.fault + ')' + author_text(b.fault_by, now);
}

// Injected latency and errors cause the same symptoms as real ones.
bool fault_explains(const SeenBulkhead& b, const SymptomRow& row) {
  if (b.fault.empty() || (row.name == "breaker-open" && b.breaker_forced)) return false;
  return row.fault == FaultCause::any || (row.fault == FaultCause::latency && b.fault_latency);
}

// The other operations in force on the same bulkhead: a finding has one symptom, so its text lists them.
std::string also_text(const SeenBulkhead& b, const SymptomRow& row, WallTime now) {
  std::string text;
  if (b.breaker_forced && row.name != "breaker-open")
    text += "; its breaker is forced open" + author_text(b.breaker_by, now);
  if (!b.fault.empty() && row.name != "fault-injected" && !fault_explains(b, row))
    text += "; it also has" + fault_text(b, now);
  return text;
}

std::string headline(const SeenBulkhead& b, std::string_view symptom, double share, WallTime since,
                     WallTime now) {
  std::string text = b.name;
  if (symptom == "fault-injected") return text + " has" + fault_text(b, now);
  if (symptom == "drained" || (symptom == "breaker-open" && b.breaker_forced)) {
    text += symptom == "drained" ? " is drained" : "'s breaker is forced open";
    text += author_text(symptom == "drained" ? b.drain_by : b.breaker_by, now);
    if (share > 0) text += "; rejects " + percent(share);
    return text;
  }
  if (symptom == "breaker-open") {
    text += "'s breaker is open";
  } else if (symptom == "closed") {
    text += " is closed";
  } else if (symptom == "stuck-calls") {
    text += b.abandoned > 0 ? " has " + counted(b.abandoned, "thread") +
                                  (b.abandoned == 1 ? " that still works" : " that still work") +
                                  " for callers that gave up"
                            : " has a call that has run for " + span_text(b.oldest);
  } else if (symptom == "lender-starved") {
    text += " has " + counted(b.waiting, "waiting call") +
            print(" with %u of %u guaranteed units", b.in_flight, b.guaranteed);
  } else if (symptom == "fleet-cut-off") {
    text += " is cut off from its fleet";
  } else if (symptom == "switched-off") {
    return text + " is switched off";
  } else if (symptom == "shadow-only") {
    return text + print(" would reject %.1f calls/s (shadow mode)", b.would_reject);
  } else if (symptom == "failing") {
    text += "'s calls fail (" + percent(b.failed / b.ended) + ')';
  } else if (symptom == "rejecting" || symptom == "rate-limited") {
    if (!rejects_now(b)) {
      text += " rejected " + percent(b.minute_share) + " of the calls of the last minute";
      if (!b.reason.empty()) text += " (" + b.reason + ')';
      return text + since_text(since, now);
    }
  } else if (!rejects_now(b)) {
    text += b.full ? print(" is full (%u/%u), %u waiting", b.in_flight, b.max_concurrent, b.waiting)
                   : " has " + counted(b.waiting, "waiting call") +
                         print(" with %u/%u in flight", b.in_flight, b.max_concurrent);
  }
  if (share > 0) {
    text += text == b.name ? " rejects " : "; rejects ";
    text += percent(share);
    if (!b.reason.empty()) text += " (" + b.reason + ')';
  }
  text += since_text(since, now);
  if (b.p99 >= 0)
    text += "; p99 " + time_text(b.p99);
  else if (symptom == "slow-dependency")
    text += "; no call has ended in the last 10 s";
  if (b.usual_p99 > 0 && slowdown(b) >= kSlowFactor) text += ", was " + time_text(b.usual_p99);
  return text;
}

// The number of units that the arrivals need (Little's law), with half as many again.
double needed_units(const SeenBulkhead& b) { return std::ceil(b.calls * std::max(b.mean, 0.0) * 1.5); }

// What to try: at most twice as many as now. Bursts need more units than their average: a quarter more.
std::uint32_t next_units(const SeenBulkhead& b) {
  const double now = b.max_concurrent, needed = needed_units(b);
  return static_cast<std::uint32_t>(needed > now ? std::min(needed, 2 * now + 1) : std::ceil(1.25 * now));
}

// A command that has an effect: the server would reject some of them, depending on the bulkhead.
std::string next_command(const SeenBulkhead& b, const SymptomRow& row) {
  constexpr std::string_view kLook = "bulkhead status NAME";
  std::string next(row.action);
  if (row.name == "slow-dependency" && !b.has_breaker)
    next = b.max_queue > 0 ? "bulkhead set NAME --max-queue 0 --for 10m --reason \"slow dependency\"" : kLook;
  if (row.name == "too-small" && !b.sized_by.empty()) next = kLook;
  if (row.name == "breaker-open" && b.breaker_forced) next = "bulkhead breaker auto NAME";
  if (fault_explains(b, row)) next = "bulkhead fault NAME --end";
  replace(next, "BORROWER", quoted(b.borrower));
  replace(next, "NAME", quoted(b.name));
  replace(next, "--max-concurrent N", "--max-concurrent " + std::to_string(next_units(b)));
  return next;
}

std::string likely_cause(const SeenBulkhead& b, const SymptomRow& row, WallTime now) {
  std::string text(row.likely);
  if (row.name == "slow-dependency")
    text += b.p50 < 0
                ? " (in flight full, no call ends)"
                : print(" (in flight full, service time up %.*fx)", slowdown(b) < 10 ? 1 : 0, slowdown(b));
  if (row.name == "too-small" && !b.sized_by.empty())
    text = "there is more demand than " + b.sized_by + " allows";
  if (row.name == "too-small" && needed_units(b) > b.max_concurrent)
    text +=
        print(" (%.0f calls/s x %s x 1.5 = about %.0f)", b.calls, time_text(b.mean).c_str(), needed_units(b));
  if (row.name == "lender-starved") text = b.borrower + " holds borrowed units and returns them slowly";
  if (row.name == "fleet-cut-off") text += " (" + b.fleet + ')';
  if (row.name == "breaker-open" && b.breaker_forced) text = "an operator has forced it open";
  if (fault_explains(b, row))
    text = "the rehearsal:" + fault_text(b, now);  // and not what the symptom usually means
  return text;
}

WallTime since_in(const Verdict& before, std::string_view symptom, std::string_view subject) {
  for (const Finding& f : before.findings)
    if (f.symptom == symptom && f.subject == subject) return f.since;
  return {};
}

// Its begin if that is known, or else the first verdict with it.
WallTime since_of(const SeenBulkhead& b, const SymptomRow& row, const Verdict& before, WallTime now) {
  WallTime since = row.name == "drained"                            ? b.drain_by.since
                   : row.name == "breaker-open" && b.breaker_forced ? b.breaker_by.since
                   : row.name == "fault-injected"                   ? b.fault_by.since
                   : row.name == "failing"                          ? b.failing_since
                                                                    : WallTime{};
  // These two are no condition of its calls.
  const bool of_settings = row.name == "switched-off" || row.name == "shadow-only";
  if (since == WallTime{} && !of_settings) since = b.since;
  if (since == WallTime{}) since = since_in(before, row.name, b.name);
  return since == WallTime{} ? now : since;
}

std::optional<Finding> finding_of(const SeenBulkhead& b, const Verdict& before, WallTime now) {
  const SymptomRow* const row = symptom_of(b);
  if (!row) return std::nullopt;
  const double share = share_of(b);
  const WallTime since = since_of(b, *row, before, now);
  return Finding{.symptom = std::string(row->name),
                 .subject = b.name,
                 .of_bulkhead = true,
                 .of_critical = b.critical,
                 .severity = severity_of(b, row->name, share),
                 .since = since,
                 .share = share,
                 .what = headline(b, row->name, share, since, now) + also_text(b, *row, now),
                 .likely = likely_cause(b, *row, now),
                 .next = next_command(b, *row)};
}

Finding of_process(std::string_view symptom, std::string subject, Severity severity, std::string what,
                   WallTime since, WallTime now) {
  const SymptomRow& row = *find_symptom(symptom);
  return {.symptom = std::string(symptom),
          .subject = std::move(subject),
          .severity = severity,
          .since = since,
          .what = std::move(what) + since_text(since, now),
          .likely = std::string(row.likely),
          .next = std::string(row.action)};
}

// "a, b and 3 more"
std::string names(const std::vector<std::string>& list, std::size_t most) {
  std::string text;
  const std::size_t n = std::min(list.size(), most);
  for (std::size_t i = 0; i < n; ++i) text += (i == 0 ? "" : ", ") + list[i];
  if (list.size() > n) text += " and " + std::to_string(list.size() - n) + " more";
  return text;
}

// The overrides that no other finding names: a drain, a fault and a breaker that is forced open are named.
std::optional<Finding> overrides_of(const Seen& seen) {
  const auto is_forced_open = [&](std::string_view name) {
    const auto b = std::ranges::find(seen.bulkheads, name, &SeenBulkhead::name);
    return b != seen.bulkheads.end() && b->breaker_forced;
  };
  std::size_t count = 0;
  std::vector<std::string> bulkheads;
  for (const Seen::Override& o : seen.overrides) {
    if (o.field == "drain" || o.field == "fault") continue;
    if (o.field == "breaker" && is_forced_open(o.bulkhead)) continue;
    ++count;
    if (std::ranges::find(bulkheads, o.bulkhead) == bulkheads.end()) bulkheads.push_back(o.bulkhead);
  }
  if (count == 0) return std::nullopt;
  const std::string subject = names(bulkheads, 3);
  return of_process("overridden", subject, Severity::note,
                    print("%zu override%s in force: ", count, count == 1 ? " is" : "s are") + subject, {},
                    seen.now);
}

// The worst finding in full; the others are named and counted.
std::string sentence_of(const Verdict& v, const Seen& seen) {
  const std::size_t n = seen.bulkheads.size();
  const std::string count = std::to_string(n) + (n == 1 ? " bulkhead" : " bulkheads");
  if (v.findings.empty()) {
    if (n == 0) return "There is no bulkhead yet.";
    if (seen.calls == 0) return "Idle: no calls in the last 10 s; " + count + " ready.";
    return print("All is well: %s, %.0f calls/s, ", count.c_str(), seen.calls) +
           (seen.rejected > 0 ? percent(seen.rejected / seen.calls) + " rejected." : "none rejected.");
  }
  const Finding& worst = v.findings.front();
  std::string text = worst.what + ". ";
  if (v.findings.size() > 1) {
    std::vector<std::string> others;
    for (std::size_t i = 1; i < v.findings.size(); ++i)
      others.push_back(v.findings[i].subject + " (" + v.findings[i].symptom + ')');
    text += "Also: " + names(others, 3) + ". ";
  }
  if (!v.fine.empty()) text += names(v.fine, 4) + (v.fine.size() == 1 ? " is fine. " : " are fine. ");
  text += "Likely: " + worst.likely + ". ";
  return text + "Next: " + worst.next + ", or runbook#" + worst.symptom;
}

}  // namespace

std::string_view to_string(Severity severity) noexcept {
  constexpr std::string_view kNames[] = {"ok", "note", "warning", "critical"};
  return kNames[static_cast<std::size_t>(severity)];
}

std::span<const SymptomRow> symptoms() noexcept { return kSymptoms; }

const SymptomRow* find_symptom(std::string_view name) noexcept {
  const auto found = std::ranges::find(kSymptoms, name, &SymptomRow::name);
  return found == std::end(kSymptoms) ? nullptr : &*found;
}

std::string span_text(double s) {
  const auto whole = static_cast<long long>(s + 0.5);
  if (whole < 120) return print("%lld s", whole);
  if (whole < 7200) return print("%lld min", whole / 60);
  const long long big = whole >= 172'800 ? 86'400 : 3600, small = big == 3600 ? 60 : 3600;
  return print(big == 3600 ? "%lld h %lld min" : "%lld d %lld h", whole / big, whole % big / small);
}

Verdict judge(const Seen& seen, const Verdict& before) {
  Verdict v;
  if (!seen.config_valid) {
    WallTime since = since_in(before, "config-invalid", seen.config_file);  // the first of several mistakes
    if (since == WallTime{}) since = seen.config_since;
    v.findings.push_back(of_process("config-invalid", seen.config_file, Severity::warning,
                                    seen.config_file + " is not valid: " + seen.config_error, since,
                                    seen.now));
  }
  for (const SeenPool& pool : seen.pools)
    if (pool.down)
      v.findings.push_back(
          of_process("pool-down", pool.name, pool.alive == 0 ? Severity::critical : Severity::warning,
                     "pool " + pool.name + " cannot connect: " + pool.error, pool.since, seen.now));
  for (const SeenBulkhead& b : seen.bulkheads) {
    if (auto finding = finding_of(b, before, seen.now))
      v.findings.push_back(std::move(*finding));
    else if (b.measured && (b.calls > 0 || b.in_flight > 0))
      v.fine.push_back(b.name);
  }
  if (seen.needs_restart > 0)
    v.findings.push_back(
        of_process("out-of-sync", seen.config_file, Severity::note,
                   print("%zu setting%s of the file need%s a restart", seen.needs_restart,
                         seen.needs_restart == 1 ? "" : "s", seen.needs_restart == 1 ? "s" : ""),
                   {}, seen.now));
  if (auto overridden = overrides_of(seen)) v.findings.push_back(std::move(*overridden));
  for (Finding& f : v.findings) {
    if (f.since == WallTime{}) f.since = since_in(before, f.symptom, f.subject);
    if (f.since == WallTime{}) f.since = seen.now;
  }
  // A pool that cannot connect is the cause of what the bulkheads around it show.
  const auto is_cause = [](const Finding& f) { return f.symptom == "pool-down"; };
  std::ranges::sort(v.findings, [&](const Finding& x, const Finding& y) {
    return std::tuple(y.severity, is_cause(y), y.of_bulkhead, y.share, std::string_view(x.subject)) <
           std::tuple(x.severity, is_cause(x), x.of_bulkhead, x.share, std::string_view(y.subject));
  });
  // The sentence names few of the others: a critical bulkhead must be among them. Moved up one by one, so that the order stays
  // (std::stable_partition calls a function of libstdc++ that Clang reports as deprecated).
  auto next = v.findings.begin() + std::min<std::ptrdiff_t>(1, std::ssize(v.findings));
  for (auto f = next; f != v.findings.end(); ++f)
    if (f->severity == Severity::critical && (f->of_critical || !f->of_bulkhead))
      std::rotate(next++, f, f + 1);
  if (!v.findings.empty()) v.severity = v.findings.front().severity;
  v.sentence = sentence_of(v, seen);
  return v;
}

json::object verdict_json(const Verdict& v) {
  json::array findings, fine;
  for (const Finding& f : v.findings) {
    json::object o{{"symptom", f.symptom},
                   {"subject", f.subject},
                   {"severity", to_string(f.severity)},
                   {"since", nullptr},
                   {"rejected_percent", std::round(f.share * 1000) / 10},
                   {"what", f.what},
                   {"likely", f.likely},
                   {"next", f.next},
                   {"runbook", "runbook#" + f.symptom}};
    if (f.since != WallTime{}) o["since"] = unix_seconds(f.since);
    findings.push_back(std::move(o));
  }
  for (const std::string& name : v.fine) fine.push_back(json::string(name));
  return {{"severity", to_string(v.severity)},
          {"sentence", v.sentence},
          {"findings", std::move(findings)},
          {"fine", std::move(fine)}};
}

}  // namespace bulkhead::control
