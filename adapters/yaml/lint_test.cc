// Each rule of the linter: a file that breaks it, and the nearest one that does not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "config/lint.h"
#include "yaml.h"

namespace bulkhead::yaml {
namespace {

std::set<std::string> rules_of(const std::string& text) {
  const Loaded file = parse(text);
  EXPECT_TRUE(file.ok()) << to_text(file.problems) << text;
  std::set<std::string> found;
  for (const ConfigProblem& w : file.warnings) {
    EXPECT_TRUE(w.at) << w.path;
    EXPECT_FALSE(w.source.empty()) << w.path;
    EXPECT_FALSE(w.hint.empty()) << w.rule;
    found.insert(w.rule);
  }
  return found;
}

// A bulkhead of nothing but virtues; `more` replaces some of them. The sibling keeps one-for-all quiet.
std::string bulkhead(const std::string& more) {
  return "version: 1\nbulkheads:\n  sibling: {max_concurrent: 7, execution_timeout: 1s, fallback: none}\n"
         "  db:\n    max_concurrent: 10\n    execution_timeout: 1s\n" +
         (more.find("fallback:") != std::string::npos ? "" : std::string("    fallback: none\n")) + more;
}

std::string control(const std::string& listen, const std::string& anonymous) {
  return "version: 1\nbulkheads: {a: {}, b: {}}\ncontrol: {listen: '" + listen +
         "', anonymous: " + anonymous + ", tokens_file: t, tls: {certificate: c, private_key: k}}\n";
}

std::string connections(const std::string& capacity, const std::string& bulkheads,
                        const std::string& more = "") {
  return "version: 1\nresources:\n  db: {capacity: " + capacity + "}\n" + more + "bulkheads:\n" + bulkheads;
}

std::string user(const std::string& name, const std::string& settings) {
  return "  " + name + ": {execution_timeout: 1s, fallback: none, resource: db, " + settings + "}\n";
}

const std::string kThreads = "  pool: {kind: threads, capacity: 50}\n";

struct Case {
  std::string rule, breaks, keeps;
};

const std::vector<Case> kCases{
    {"too-many-bulkheads", connections("7", user("a", "max_concurrent: 1") + user("b", "max_concurrent: 2")),
     connections("8", user("a", "max_concurrent: 1") + user("b", "max_concurrent: 2"))},
    {"same-size",
     "version: 1\nbulkheads: {a: {max_concurrent: 5}, b: {max_concurrent: 5}, c: {max_concurrent: 5}}\n",
     "version: 1\nbulkheads: {a: {max_concurrent: 5}, b: {max_concurrent: 5}, c: {max_concurrent: 6}}\n"},
    {"same-size",
     "version: 1\ngroups: {g: {total: 9}}\nbulkheads: {a: {group: g, guaranteed: 30%}, b: {group: g, "
     "guaranteed: 30%}, "
     "c: {group: g, guaranteed: 30%}}\n",
     "version: 1\ngroups: {g: {total: 9}}\nbulkheads: {a: {group: g, guaranteed: 30%}, b: {group: g, "
     "guaranteed: 30%}, "
     "c: {group: g, guaranteed: 40%}}\n"},
    {"no-fallback", bulkhead("    fallback: cached\n    fallback_on: []\n"),
     bulkhead("    fallback: none\n    fallback_on: []\n")},
    {"no-fallback", "version: 1\nbulkheads: {a: {execution_timeout: 1s}}\n",
     "version: 1\nbulkheads: {a: {execution_timeout: 1s, criticality: best_effort}}\n"},
    {"queue-too-deep",  // 10 places, 50 ms each: 200 a second, so 100 ms serve 20
     bulkhead("    max_queue: 21\n    max_wait: 100ms\n    typical_latency: 50ms\n"),
     bulkhead("    max_queue: 20\n    max_wait: 100ms\n    typical_latency: 50ms\n")},
    {"queue-too-deep", bulkhead("    max_queue: 1001\n    max_wait: 100ms\n"),
     bulkhead("    max_queue: 1000\n    max_wait: 100ms\n")},
    {"queue-without-timeout", bulkhead("    max_queue: 5\n"),
     bulkhead("    max_queue: 5\n    max_wait: 100ms\n")},
    {"no-timeout", "version: 1\nbulkheads: {a: {fallback: none}}\n",
     "version: 1\nbulkheads: {a: {fallback: none, execution_timeout: 1s}}\n"},
    {"timeout-not-shorter", bulkhead("    max_queue: 5\n    max_wait: 500ms\n    caller_timeout: 1500ms\n"),
     bulkhead("    max_queue: 5\n    max_wait: 500ms\n    caller_timeout: 1501ms\n")},
    {"timeout-not-shorter", bulkhead("    caller_timeout: 1s\n"), bulkhead("    caller_timeout: 1100ms\n")},
    {"one-for-all", "version: 1\nbulkheads: {a: {}}\n", "version: 1\nbulkheads: {a: {}, b: {}}\n"},
    {"one-for-all", "version: 1\nbulkheads: {a: {}}\n", "version: 1\nbulkheads: {a: {}}\ntenants: {t: {}}\n"},
    {"threads-not-isolated",
     connections("100", user("a", "max_concurrent: 10") + user("b", "max_concurrent: 20")),
     connections("100",
                 user("a", "max_concurrent: 10, isolation: threads") + user("b", "max_concurrent: 20"))},
    {"threads-not-isolated",
     connections("100", user("a", "max_concurrent: 10") + user("b", "max_concurrent: 20")),
     connections("100", user("a", "max_concurrent: 10") + user("b", "max_concurrent: 20"), kThreads)},
    {"over-capacity", connections("100", user("a", "max_concurrent: 50") + user("b", "max_concurrent: 51")),
     connections("100", user("a", "max_concurrent: 50") + user("b", "max_concurrent: 50"))},
    {"over-capacity",
     connections("100",
                 user("a", "max_concurrent: 50") + user("b", "max_concurrent: 5, adaptive: {ceiling: 51}")),
     connections("100",
                 user("a", "max_concurrent: 50") + user("b", "max_concurrent: 5, adaptive: {ceiling: 50}"))},
    {"over-capacity",
     "version: 1\nresources: {db: {capacity: 100}}\ntenants: {t: {resource: db, max_concurrent: 2, "
     "max_tenants: 51}}\n",
     "version: 1\nresources: {db: {capacity: 100}}\ntenants: {t: {resource: db, max_concurrent: 2, "
     "max_tenants: 50}}\n"},
    {"over-capacity",
     "version: 1\nresources: {db: {capacity: 100}}\ngroups: {g: {total: 20, resource: db, adaptive: "
     "{ceiling: "
     "101}}}\nbulkheads: {a: {group: g}}\n",
     "version: 1\nresources: {db: {capacity: 100}}\ngroups: {g: {total: 20, resource: db, adaptive: "
     "{ceiling: "
     "100}}}\nbulkheads: {a: {group: g}}\n"},
    {"no-buffer", connections("100", user("a", "max_concurrent: 50") + user("b", "max_concurrent: 41")),
     connections("100", user("a", "max_concurrent: 50") + user("b", "max_concurrent: 40"))},
    {"no-buffer",
     "version: 1\nresources: {db: {capacity: 100}}\ngroups: {g: {total: 91, resource: db}}\n"
     "bulkheads: {a: {group: g}, b: {group: g}}\n",
     "version: 1\nresources: {db: {capacity: 100}}\ngroups: {g: {total: 90, resource: db}}\n"
     "bulkheads: {a: {group: g}, b: {group: g}}\n"},
    {"slow-calls-uncounted", bulkhead("    breaker: {slow_call: 1s, slow_call_rate: 50%}\n"),
     bulkhead("    breaker: {slow_call: 500ms, slow_call_rate: 50%}\n")},
    {"unfair-flows", bulkhead("    flow_queues: 64\n"),
     bulkhead("    flow_queues: 64\n    max_queue: 5\n    max_wait: 100ms\n")},
    {"unfair-flows", bulkhead("    flow_queues: 15\n    max_queue: 5\n    max_wait: 100ms\n"),
     bulkhead("    flow_queues: 16\n    max_queue: 5\n    max_wait: 100ms\n")},
    {"budget-for-one", bulkhead("    budgets: {tokens: {max: 1000, per_call_max: 501}}\n"),
     bulkhead("    budgets: {tokens: {max: 1000, per_call_max: 500}}\n")},
    {"fleet-thin",
     "version: 1\nfleet: {store: 'redis://h', replicas: 40, mode: block}\nbulkheads: {a: {max_concurrent: "
     "199, scope: fleet}}\n",
     "version: 1\nfleet: {store: 'redis://h', replicas: 40, mode: block}\nbulkheads: {a: {max_concurrent: "
     "200, scope: fleet}}\n"},
    {"fleet-block",
     "version: 1\nfleet: {store: 'redis://h', mode: block}\n"
     "bulkheads: {a: {max_concurrent: 50, max_queue: 9, typical_latency: 10ms, scope: fleet}}\n",
     "version: 1\nfleet: {store: 'redis://h', mode: block}\n"
     "bulkheads: {a: {max_concurrent: 51, max_queue: 9, typical_latency: 10ms, scope: fleet}}\n"},
    {"timeout-not-shorter",
     "version: 1\nbulkheads: {a: {max_queue: 3, max_wait: 3s, caller_timeout: 2s}, b: {}}\n",
     "version: 1\nbulkheads: {a: {max_queue: 3, max_wait: 1s, caller_timeout: 2s}, b: {}}\n"},
    {"not-enforced", bulkhead("    shadow: true\n"), bulkhead("    shadow: false\n")},
    {"not-enforced", bulkhead("    enabled: false\n"), bulkhead("    enabled: true\n")},
    {"anonymous-readers", control("0.0.0.0:9920", "viewer"), control("0.0.0.0:9920", "automatic")},
    {"anonymous-readers", control("10.0.0.1:9920", "viewer"), control("127.0.0.1:9920", "viewer")},
    {"unused", "version: 1\ntypes: {t: {}}\nbulkheads: {a: {}, b: {}}\n",
     "version: 1\ntypes: {t: {}}\nbulkheads: {a: {type: t}, b: {}}\n"},
    {"unused",
     "version: 1\ngroups: {g: {total: 5}}\nresources: {r: {capacity: 9}}\nbulkheads: {a: {resource: r}}\n",
     "version: 1\ngroups: {g: {total: 5, resource: r}}\nresources: {r: {capacity: 9}}\nbulkheads: {a: "
     "{group: g}}\n"},
};

class LintRule : public testing::TestWithParam<Case> {};

TEST_P(LintRule, FindsWhatBreaksItAndNothingElse) {
  EXPECT_THAT(rules_of(GetParam().breaks), testing::Contains(GetParam().rule)) << GetParam().breaks;
  EXPECT_THAT(rules_of(GetParam().keeps), testing::Not(testing::Contains(GetParam().rule)))
      << GetParam().keeps;
}

TEST_P(LintRule, CanBeAllowedOnPurpose) {
  const std::string allowed = GetParam().breaks + "lint_allow: [" + GetParam().rule + "]\n";
  EXPECT_THAT(rules_of(allowed), testing::Not(testing::Contains(GetParam().rule)));
}

INSTANTIATE_TEST_SUITE_P(All, LintRule, testing::ValuesIn(kCases), [](const auto& one) {
  std::string name = one.param.rule;
  std::erase(name, '-');
  return name + std::to_string(one.index);
});

TEST(Lint, EveryRuleHasACase) {
  std::set<std::string_view> tested;
  for (const Case& c : kCases) tested.insert(c.rule);
  for (const config::Rule& rule : config::rules()) EXPECT_TRUE(tested.contains(rule.name)) << rule.name;
}

TEST(Lint, AVirtuousFileIsQuiet) { EXPECT_THAT(rules_of(bulkhead("")), testing::IsEmpty()); }

TEST(Lint, OneBulkheadMayBreakARuleOnPurposeAndOthersNot) {
  const Loaded file = parse(
      "version: 1\nbulkheads:\n  a: {fallback: none, lint_allow: [no-timeout]}\n  b: {fallback: none}\n");
  ASSERT_EQ(file.warnings.size(), 1U) << to_text(file.warnings);
  EXPECT_EQ(to_text(file.warnings),
            "config:4:3: bulkheads.b: warning: a call may run forever (lint: no-timeout)\n"
            "      b: {fallback: none}\n"
            "      ^\n"
            "  hint: Give execution_timeout: a little more than the p99.9 in normal operation.\n");
}

TEST(Lint, TheArithmeticIsShown) {
  const Loaded file = parse(kCases[5].breaks);
  ASSERT_EQ(file.warnings.size(), 1U);
  EXPECT_EQ(file.warnings[0].message,
            "21 waiting x 50ms / 10 concurrent = 105ms until the last is admitted, but max_wait is 100ms; at "
            "most 20 can be served in time");
}

}  // namespace
}  // namespace bulkhead::yaml
