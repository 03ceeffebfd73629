#include "verdict.h"

#include <gtest/gtest.h>

#include <set>

#include "episode.h"

namespace bulkhead::control {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;

// 04:58:18 UTC on some day, and seven minutes later.
const WallTime kBegan{seconds(1'700'024'298)};
const WallTime kNow = kBegan + minutes(7);

SeenBulkhead calm(std::string name) {
  return {.name = std::move(name),
          .in_flight = 3,
          .max_concurrent = 20,
          .max_queue = 50,
          .calls = 100,
          .ended = 100,
          .mean = 0.02,
          .p50 = 0.02,
          .p99 = 0.045,
          .usual_p50 = 0.02,
          .usual_p99 = 0.045};
}

SeenBulkhead full(std::string name) {
  SeenBulkhead b = calm(std::move(name));
  b.in_flight = 20;
  b.waiting = 50;
  b.rejected = 98;
  b.full = b.rejecting = true;
  b.reason = "queue_limit";
  b.since = kBegan;
  return b;
}

SeenBulkhead slow(std::string name) {
  SeenBulkhead b = full(std::move(name));
  b.p50 = 5;
  b.p99 = 11.6;
  return b;
}

Verdict judge_one(SeenBulkhead b) { return judge({.now = kNow, .bulkheads = {std::move(b)}, .calls = 100}); }

// The symptom and the command of the only finding.
std::string found(const Verdict& v) {
  if (v.findings.size() != 1) return std::to_string(v.findings.size()) + " findings";
  return v.findings[0].symptom + ": " + v.findings[0].next;
}

TEST(Verdict, NamesTheTroubleItsBeginItsSizeTheOthersAndTheNextCommand) {
  SeenBulkhead analytics = slow("analytics");
  analytics.has_breaker = true;
  const Verdict v =
      judge({.now = kNow, .bulkheads = {calm("admin"), analytics, calm("browse"), calm("checkout")}});
  EXPECT_EQ(v.severity, Severity::critical);
  EXPECT_EQ(v.sentence,
            "analytics rejects 98 % (queue_limit) since 04:58:18 UTC, 7 min; p99 12 s, was 45 ms. "
            "admin, browse, checkout are fine. "
            "Likely: the dependency is slow (in flight full, service time up 258x). "
            "Next: bulkhead breaker open analytics --for 10m --reason \"slow dependency\", or "
            "runbook#slow-dependency");
}

TEST(Verdict, ADependencyWithoutAnyAnswerIsSlow) {
  SeenBulkhead b = full("db");
  b.p50 = b.p99 = -1;
  b.ended = 0;
  const Verdict v = judge_one(b);
  EXPECT_EQ(found(v),
            "slow-dependency: bulkhead set db --max-queue 0 --for 10m --reason \"slow dependency\"");
  EXPECT_NE(v.sentence.find("no call has ended in the last 10 s"), std::string::npos) << v.sentence;
}

TEST(Verdict, FullAndFastIsTooSmallAndSaysHowManyAreNeeded) {
  SeenBulkhead b = full("db");
  b.calls = 1000;
  b.rejected = 100;
  const Verdict v = judge_one(b);  // 1000/s of 20 ms are 20, and half as many again
  EXPECT_EQ(found(v), "too-small: bulkhead set db --max-concurrent 30 --for 30m --reason \"more demand\"");
  EXPECT_NE(v.sentence.find("(1000 calls/s x 20 ms x 1.5 = about 30)"), std::string::npos) << v.sentence;
}

TEST(Verdict, TheNumberOfUnitsToTryIsBounded) {
  SeenBulkhead b = full("db");  // 100 calls/s of 20 ms need 3 of its 20: bursts
  EXPECT_EQ(found(judge_one(b)),
            "too-small: bulkhead set db --max-concurrent 25 --for 30m --reason \"more demand\"");
  EXPECT_EQ(judge_one(b).findings[0].likely, "there is more demand than max_concurrent allows");
  b.calls = 10'000;
  EXPECT_EQ(found(judge_one(b)),
            "too-small: bulkhead set db --max-concurrent 41 --for 30m --reason \"more demand\"");
  EXPECT_NE(judge_one(b).findings[0].likely.find("x 1.5 = about 300)"), std::string::npos);
}

TEST(Verdict, ASettingBeganWhenItWasChanged) {
  SeenBulkhead b = calm("db");
  b.since = kBegan;  // it rejected a few calls before
  b.enabled = false;
  EXPECT_EQ(judge_one(b).findings[0].since, kNow);
  b.enabled = true;
  b.failed = 30;
  b.failing_since = kBegan + seconds(5);
  EXPECT_EQ(judge_one(b).findings[0].since, kBegan + seconds(5));
}

TEST(Verdict, TheCommandIsOneThatTheServerDoesNotReject) {
  SeenBulkhead b = full("db");
  b.sized_by = "its group";
  EXPECT_EQ(found(judge_one(b)), "too-small: bulkhead status db")
      << "an override of max_concurrent is a conflict";
  EXPECT_EQ(judge_one(b).findings[0].likely, "there is more demand than its group allows");
  b = slow("db");
  b.max_queue = 0;
  EXPECT_EQ(found(judge_one(b)), "slow-dependency: bulkhead status db") << "there is no queue to take away";
}

TEST(Verdict, FullWithoutAnUsualTimeSaysBothPossibilities) {
  SeenBulkhead b = full("db");
  b.usual_p50 = b.usual_p99 = -1;
  EXPECT_EQ(found(judge_one(b)), "full: bulkhead status db");
}

TEST(Verdict, FullIsNoTroubleWhileNoCallWaits) {
  SeenBulkhead b = calm("db");
  b.full = true;
  b.in_flight = 20;
  EXPECT_EQ(judge_one(b).severity, Severity::ok);
}

TEST(Verdict, WaitingWithoutFullIsTheReserve) {
  SeenBulkhead b = calm("db");
  b.in_flight = 18;
  b.waiting = 4;
  b.long_wait = true;
  EXPECT_EQ(found(judge_one(b)), "reserve: bulkhead status db");
}

TEST(Verdict, AnOpenBreakerComesBeforeItsRejections) {
  SeenBulkhead b = full("pay");
  b.breaker_rejects = b.has_breaker = true;
  b.reason = "breaker_open";
  const Verdict v = judge_one(b);
  EXPECT_EQ(found(v), "breaker-open: bulkhead status pay");
  EXPECT_EQ(v.findings[0].what.substr(0, 55), "pay's breaker is open; rejects 98 % (breaker_open) sinc");
  b.breaker_forced = true;
  b.breaker_by = {.by = "ann", .why = "provider is down", .until = kNow + minutes(5)};
  EXPECT_EQ(found(judge_one(b)), "breaker-open: bulkhead breaker auto pay");
  EXPECT_EQ(judge_one(b).findings[0].what,
            "pay's breaker is forced open by ann (provider is down), ends in 5 min; rejects 98 %");
}

TEST(Verdict, ARateLimitIsNoLackOfCapacity) {
  SeenBulkhead b = full("api");
  b.reason = "rate_limit";
  EXPECT_EQ(found(judge_one(b)), "rate-limited: bulkhead status api");
}

TEST(Verdict, ADrainSaysByWhomAndForHowLong) {
  SeenBulkhead b = calm("db");
  b.draining = true;
  b.drain_by = {.by = "ann", .why = "upgrade", .since = kBegan, .until = kNow + minutes(20)};
  const Verdict v = judge_one(b);
  EXPECT_EQ(found(v), "drained: bulkhead drain db --resume");
  EXPECT_EQ(v.findings[0].what, "db is drained by ann (upgrade), ends in 20 min");
  EXPECT_EQ(v.findings[0].since, kBegan);
  EXPECT_EQ(v.severity, Severity::note) << "on purpose";
}

void inject(SeenBulkhead& b) {
  b.fault = "latency 2 s";
  b.fault_latency = true;
  b.fault_by = {.by = "ann", .why = "drill", .since = kBegan, .until = kNow + minutes(1)};
}

TEST(Verdict, ARehearsalIsNamedAsTheCauseOfWhatItCauses) {
  SeenBulkhead b = calm("db");
  inject(b);
  EXPECT_EQ(found(judge_one(b)), "fault-injected: bulkhead fault db --end");
  EXPECT_EQ(judge_one(b).findings[0].what,
            "db has an injected fault (latency 2 s) by ann (drill), ends in 60 s");
  EXPECT_EQ(judge_one(b).severity, Severity::note);
  b = slow("db");
  inject(b);
  const Verdict v = judge_one(b);
  EXPECT_EQ(found(v), "slow-dependency: bulkhead fault db --end");
  EXPECT_EQ(v.findings[0].likely,
            "the rehearsal: an injected fault (latency 2 s) by ann (drill), ends in 60 s");
}

TEST(Verdict, AFaultIsNotTheCauseOfWhatItCannotCause) {
  SeenBulkhead closed = calm("db"), limited = calm("db"), cut_off = calm("db"), failing = calm("db");
  closed.closed = true;
  limited.rejecting = true, limited.reason = "rate_limit", limited.rejected = 30;
  cut_off.fleet = "connection refused";
  failing.failed = 30;
  for (SeenBulkhead* b : {&closed, &limited, &cut_off, &failing}) inject(*b);
  EXPECT_EQ(found(judge_one(closed)), "closed: bulkhead events");
  EXPECT_EQ(judge_one(closed).findings[0].likely, "the program is shutting down");
  EXPECT_EQ(found(judge_one(limited)), "rate-limited: bulkhead status db");
  EXPECT_EQ(found(judge_one(cut_off)), "fleet-cut-off: bulkhead status db");
  EXPECT_TRUE(judge_one(cut_off).findings[0].what.ends_with(
      "; it also has an injected fault (latency 2 s) by ann (drill), ends in 60 s"))
      << judge_one(cut_off).findings[0].what;
  EXPECT_EQ(found(judge_one(failing)), "failing: bulkhead fault db --end");
  SeenBulkhead errors = slow("db");
  inject(errors);
  errors.fault = "error 10 %", errors.fault_latency = false;
  EXPECT_EQ(found(judge_one(errors)),
            "slow-dependency: bulkhead set db --max-queue 0 --for 10m --reason \"slow dependency\"")
      << "errors make no call slow";
}

TEST(Verdict, AFaultAndAForcedBreakerKeepTheirAuthors) {
  SeenBulkhead b = calm("pay");
  inject(b);
  b.has_breaker = b.breaker_rejects = b.breaker_forced = true;
  b.breaker_by = {.by = "bob", .why = "provider is down", .since = kBegan, .until = kNow + minutes(5)};
  const Verdict v =
      judge({.now = kNow,
             .bulkheads = {b},
             .overrides = {{.bulkhead = "pay", .field = "breaker"}, {.bulkhead = "pay", .field = "fault"}}});
  EXPECT_EQ(found(v), "breaker-open: bulkhead breaker auto pay");
  EXPECT_EQ(v.findings[0].what,
            "pay's breaker is forced open by bob (provider is down), ends in 5 min; it also has an injected "
            "fault (latency 2 s) by ann (drill), ends in 60 s");
  EXPECT_EQ(v.findings[0].likely, "an operator has forced it open");
  EXPECT_EQ(v.findings[0].since, kBegan);
  b.draining = true;
  b.drain_by = {.by = "cid"};
  EXPECT_EQ(judge_one(b).findings[0].what,
            "pay is drained by cid; its breaker is forced open by bob (provider is down), ends in 5 min; it "
            "also has an injected fault (latency 2 s) by ann (drill), ends in 60 s");
}

TEST(Verdict, OverridesAreNamedAndCounted) {
  SeenBulkhead drained = calm("c");
  drained.draining = true;
  const Verdict v = judge({.now = kNow,
                           .bulkheads = {calm("a"), calm("b"), drained, calm("d")},
                           .overrides = {{.bulkhead = "a", .field = "max_queue"},
                                         {.bulkhead = "b", .field = "max_concurrent"},
                                         {.bulkhead = "b", .field = "max_queue"},
                                         {.bulkhead = "c", .field = "drain"},
                                         {.bulkhead = "c", .field = "max_queue"},
                                         {.bulkhead = "d", .field = "breaker"}}});
  ASSERT_EQ(v.findings.size(), 2u);
  EXPECT_EQ(v.findings[1].subject, "a, b, c and 1 more");
  EXPECT_EQ(v.findings[1].what, "5 overrides are in force: a, b, c and 1 more");
  EXPECT_NE(v.sentence.find("Also: a, b, c and 1 more (overridden). "), std::string::npos) << v.sentence;
  EXPECT_NE(v.sentence.find("a, b, d are fine. "), std::string::npos) << v.sentence;
}

// A rejecting bulkhead whose bursts are too short for an episode.
TEST(Verdict, ABulkheadThatRejectsIsNotFine) {
  SeenBulkhead checkout = calm("checkout");
  checkout.critical = true;
  checkout.rejected = 2;
  checkout.reason = "queue_limit";
  checkout.since = kBegan;
  const Verdict v = judge({.now = kNow, .bulkheads = {calm("admin"), checkout}, .calls = 200});
  EXPECT_EQ(found(v), "rejecting: bulkhead status checkout");
  EXPECT_EQ(v.severity, Severity::critical);
  EXPECT_EQ(v.fine, std::vector<std::string>{"admin"});
  EXPECT_EQ(v.findings[0].what, "checkout rejects 2 % (queue_limit) since 04:58:18 UTC, 7 min; p99 45 ms");
  checkout.critical = false;
  EXPECT_EQ(judge_one(checkout).severity, Severity::ok) << "below the bound of others";
  checkout.rejected = 0;
  checkout.minute_share = 0.06;
  EXPECT_EQ(judge_one(checkout).severity, Severity::warning) << "it does not reject now";
  EXPECT_EQ(judge_one(checkout).findings[0].what,
            "checkout rejected 6 % of the calls of the last minute (queue_limit) since 04:58:18 UTC, 7 min");
  checkout.minute_share = 0.04;
  EXPECT_TRUE(judge_one(checkout).findings.empty());
  checkout.measured = false;
  EXPECT_TRUE(judge_one(checkout).fine.empty()) << "nothing is known of it";
}

TEST(Verdict, TheFirstRuleOfTheTableThatAppliesIsTheSymptom) {
  SeenBulkhead b = slow("db");  // everything at once
  b.closed = b.draining = b.breaker_rejects = b.stuck = b.shadow = true;
  b.fleet = "connection refused", b.borrower = "reports";
  b.guaranteed = 30;
  b.would_reject = 1, b.failed = 100;
  b.fault = "error 1 %";
  b.enabled = false;
  b.reason = "rate_limit";
  const std::pair<std::string_view, void (*)(SeenBulkhead&)> steps[] = {
      {"closed", [](SeenBulkhead& x) { x.closed = false; }},
      {"drained", [](SeenBulkhead& x) { x.draining = false; }},
      {"breaker-open", [](SeenBulkhead& x) { x.breaker_rejects = false; }},
      {"fleet-cut-off", [](SeenBulkhead& x) { x.fleet = ""; }},
      {"stuck-calls", [](SeenBulkhead& x) { x.stuck = false; }},
      {"rate-limited", [](SeenBulkhead& x) { x.reason = "queue_limit"; }},
      {"lender-starved", [](SeenBulkhead& x) { x.guaranteed = 0; }},
      {"slow-dependency", [](SeenBulkhead& x) { x.p50 = 0.02, x.p99 = 0.045; }},
      {"too-small", [](SeenBulkhead& x) { x.usual_p50 = -1; }},
      {"full", [](SeenBulkhead& x) { x.in_flight = 10, x.full = false; }},
      {"reserve", [](SeenBulkhead& x) { x.waiting = 0; }},
      {"rejecting", [](SeenBulkhead& x) { x.rejecting = false, x.rejected = 0; }},
      {"failing", [](SeenBulkhead& x) { x.failed = 0; }},
      {"fault-injected", [](SeenBulkhead& x) { x.fault = ""; }},
      {"switched-off", [](SeenBulkhead& x) { x.enabled = true; }},
      {"shadow-only", [](SeenBulkhead& x) { x.would_reject = 0; }}};
  auto row = symptoms().begin();
  for (const auto& [name, cure] : steps) {
    ASSERT_EQ(judge_one(b).findings.size(), 1u) << name;
    EXPECT_EQ(judge_one(b).findings[0].symptom, name);
    while (row != symptoms().end() && row->name != name) ++row;
    EXPECT_NE(row, symptoms().end()) << name << " is in the table after the ones before";
    cure(b);
  }
  EXPECT_TRUE(judge_one(b).findings.empty());
}

TEST(Verdict, AFindingWithoutAKnownBeginIsAsOldAsInTheLastVerdict) {
  SeenBulkhead b = calm("db");
  b.closed = true;
  Seen seen{.now = kBegan, .bulkheads = {b}, .needs_restart = 1};
  const Verdict first = judge(seen);
  seen.now = kNow;
  const Verdict then = judge(seen, first);
  ASSERT_EQ(then.findings.size(), 2u);
  for (const Finding& f : then.findings) EXPECT_EQ(f.since, kBegan) << f.symptom;
  EXPECT_NE(then.findings[0].what.find("db is closed since 04:58:18 UTC, 7 min"), std::string::npos);
}

TEST(Verdict, AStuckCallIsNamedBeforeTheFullBulkheadItCauses) {
  SeenBulkhead b = full("db");
  b.stuck = true;
  b.oldest = 480;
  const Verdict v = judge_one(b);
  EXPECT_EQ(found(v), "stuck-calls: bulkhead status db");
  EXPECT_EQ(v.findings[0].what.substr(0, 37), "db has a call that has run for 8 min;");
  b.stuck = false;
  b.abandoned = 2;
  EXPECT_EQ(found(judge_one(b)), "stuck-calls: bulkhead status db");
}

TEST(Verdict, APoolThatCannotConnectIsCriticalOnceItHasNoConnection) {
  Seen seen{.now = kNow,
            .pools = {{.name = "orders", .error = "no route to host", .since = kBegan, .down = true}}};
  const Verdict v = judge(seen);
  EXPECT_EQ(v.severity, Severity::critical);
  EXPECT_EQ(v.findings[0].what, "pool orders cannot connect: no route to host since 04:58:18 UTC, 7 min");
  seen.bulkheads = {slow("checkout")};
  EXPECT_EQ(judge(seen).findings[0].symptom, "pool-down") << "the cause leads";
  seen.bulkheads.clear();
  seen.pools[0].alive = 3;
  EXPECT_EQ(judge(seen).severity, Severity::warning);
}

TEST(Verdict, ALenderThatWaitsNamesTheBorrower) {
  SeenBulkhead b = calm("checkout");
  b.waiting = 4;
  b.guaranteed = 10;
  b.borrower = "reports";
  const Verdict v = judge_one(b);
  EXPECT_EQ(found(v), "lender-starved: bulkhead drain reports --for 5m --reason \"return units\"");
  EXPECT_EQ(v.findings[0].likely, "reports holds borrowed units and returns them slowly");
}

TEST(Verdict, ShadowSwitchedOffFailingClosedAndFleet) {
  SeenBulkhead b = calm("db");
  b.shadow = true;
  b.would_reject = 3;
  EXPECT_EQ(found(judge_one(b)), "shadow-only: bulkhead status db");
  EXPECT_EQ(judge_one(b).severity, Severity::note);
  b = calm("db");
  b.enabled = false;
  EXPECT_EQ(found(judge_one(b)), "switched-off: bulkhead status db");
  b = calm("db");
  b.failed = 30;
  EXPECT_EQ(found(judge_one(b)), "failing: bulkhead status db");
  b = calm("db");
  b.closed = true;
  EXPECT_EQ(found(judge_one(b)), "closed: bulkhead events");
  b = calm("db");
  b.fleet = "connection refused";
  EXPECT_EQ(found(judge_one(b)), "fleet-cut-off: bulkhead status db");
  b = calm("db");
  b.rejecting = true;
  b.rejected = 2;
  b.reason = "deadline";
  EXPECT_EQ(found(judge_one(b)), "rejecting: bulkhead status db");
}

TEST(Verdict, TheFileIsPartOfIt) {
  Seen seen{.now = kNow,
            .bulkheads = {calm("db")},
            .config_valid = false,
            .config_file = "b.yaml",
            .config_error = "line 3: unknown setting",
            .config_since = kBegan};
  EXPECT_EQ(found(judge(seen)), "config-invalid: bulkhead diff");
  EXPECT_EQ(judge(seen).findings[0].what,
            "b.yaml is not valid: line 3: unknown setting since 04:58:18 UTC, 7 min");
  seen.config_valid = true;
  seen.needs_restart = 2;
  EXPECT_EQ(found(judge(seen)), "out-of-sync: bulkhead diff");
  EXPECT_EQ(judge(seen).findings[0].what, "2 settings of the file need a restart");
  seen.needs_restart = 0;
  seen.overrides = {{.bulkhead = "db", .field = "max_queue"}};
  EXPECT_EQ(judge(seen).findings[0].what, "1 override is in force: db");
  seen.overrides = {{.bulkhead = "db", .field = "drain"}};
  seen.bulkheads[0].draining = true;
  EXPECT_EQ(found(judge(seen)), "drained: bulkhead drain db --resume") << "the drain is the override";
}

TEST(Verdict, TheWorstComesFirstAndTheOthersAreNamed) {
  SeenBulkhead small = full("critical");
  small.critical = true;
  small.rejected = 2;
  SeenBulkhead warning = full("batch");
  warning.rejected = 3;
  const Verdict v = judge({.now = kNow, .bulkheads = {warning, small, slow("reports")}});
  ASSERT_EQ(v.findings.size(), 3u);
  EXPECT_EQ(v.findings[0].subject, "reports");
  EXPECT_EQ(v.findings[1].subject, "critical") << "2 % are critical for a critical bulkhead";
  EXPECT_EQ(v.findings[2].severity, Severity::warning) << "3 % are not, for others";
  EXPECT_NE(v.sentence.find("Also: critical (too-small), batch (too-small). "), std::string::npos)
      << v.sentence;
}

TEST(Verdict, ACriticalBulkheadIsNamedAmongTheOthers) {
  SeenBulkhead checkout = full("checkout");
  checkout.critical = true;
  checkout.rejected = 2;
  const Verdict v =
      judge({.now = kNow, .bulkheads = {slow("a"), slow("b"), slow("c"), slow("d"), slow("e"), checkout}});
  EXPECT_NE(v.sentence.find("Also: checkout (too-small), "), std::string::npos) << v.sentence;
  EXPECT_NE(v.sentence.find(" and 2 more. "), std::string::npos) << v.sentence;
}

TEST(Verdict, SaysThatAllIsWellOrIdle) {
  EXPECT_EQ(judge({.now = kNow}).sentence, "There is no bulkhead yet.");
  EXPECT_EQ(judge_one(calm("db")).sentence, "All is well: 1 bulkhead, 100 calls/s, none rejected.");
  EXPECT_EQ(judge({.now = kNow, .bulkheads = {{.name = "db"}, {.name = "c"}}}).sentence,
            "Idle: no calls in the last 10 s; 2 bulkheads ready.");
}

TEST(Verdict, ANameIsQuotedForTheShell) {
  SeenBulkhead b = slow("it's a \"db\"; rm -rf /");
  EXPECT_EQ(
      found(judge_one(b)),
      "slow-dependency: bulkhead set 'it'\\''s a \"db\"; rm -rf /' --max-queue 0 --for 10m --reason \"slow "
      "dependency\"");
}

TEST(Verdict, EverySymptomHasItsOwnNameAndAllItsWords) {
  std::set<std::string_view> names;
  for (const SymptomRow& row : symptoms()) {
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    EXPECT_EQ(row.name.find_first_not_of("abcdefghijklmnopqrstuvwxyz-"), row.name.npos) << "an anchor";
    EXPECT_FALSE(row.when.empty() || row.likely.empty());
    EXPECT_TRUE(row.action.starts_with("bulkhead ")) << row.action;
  }
}

TEST(Verdict, TimesAreWrittenAsPeopleSayThem) {
  EXPECT_EQ(span_text(42), "42 s");
  EXPECT_EQ(span_text(119), "119 s");
  EXPECT_EQ(span_text(385), "6 min");
  EXPECT_EQ(span_text(71'940), "19 h 59 min");
  EXPECT_EQ(span_text(187'200), "2 d 4 h");
}

TEST(Episode, ComesAndGoesAsOne) {
  Episode e({.begin = 2, .end = 3});
  WallTime now{seconds(100)};
  std::string steps;
  for (const char c : std::string("x.xx.x..x...xx")) {
    const Episode::Step step = e.second(c == 'x', c == 'x' ? 0.5 : 0, now);
    steps += step == Episode::Step::begun ? 'b' : step == Episode::Step::ended ? 'e' : '-';
    now += seconds(1);
  }
  EXPECT_EQ(steps, "---b-------e-b");
}

TEST(Episode, RemembersItsFirstSecondItsLastAndItsPeak) {
  Episode e({.begin = 2, .end = 2});
  const WallTime start{seconds(100)};
  e.second(true, 0.2, start);
  e.second(true, 0.9, start + seconds(1));
  e.second(true, 0.4, start + seconds(2));
  EXPECT_TRUE(e.active());
  e.second(false, 0, start + seconds(3));
  e.second(false, 0, start + seconds(4));
  EXPECT_FALSE(e.active());
  EXPECT_EQ(e.since(), start);
  EXPECT_EQ(e.until(), start + seconds(2));
  EXPECT_EQ(e.peak(), 0.9);
  e.second(true, 0.1, start + seconds(9));
  e.second(true, 0.1, start + seconds(10));
  EXPECT_EQ(e.peak(), 0.1) << "another one";
  EXPECT_EQ(e.since(), start + seconds(9));
}

}  // namespace
}  // namespace bulkhead::control
