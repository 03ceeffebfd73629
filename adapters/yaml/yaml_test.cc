#include "yaml.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "bulkhead/live_config.h"

namespace bulkhead::yaml {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

std::string errors(const std::string& text) { return to_text(parse(text, "f").problems); }

constexpr const char* kWhole = R"(version: 1
types:
  partner:
    max_concurrent: 5
    execution_timeout: 3s
    breaker: {failure_rate: 20%, open_for: 5s}
    rate_limit: {rate: 100}
resources:
  db: {capacity: 100}
groups:
  orders-db: {total: 80, lend: revocable, resource: db}
bulkheads:
  checkout:
    group: orders-db
    guaranteed: 50%
    criticality: critical
  payments:
    type: partner
    max_queue: 20
    max_wait: 200ms
    rate_limit: {burst: 7}
  mail:
    type: partner
    breaker: none
    fallback_on: [rejection, execution_timeout]
  users:
    type: database
tenants:
  uploads: {type: cache, max_concurrent: 2, max_tenants: 10, at_bound: reject}
control:
  listen: 127.0.0.1:9920
  max_body: 64KiB
)";

TEST(Yaml, AWholeFileBecomesOptions) {
  const Loaded file = parse(kWhole);
  ASSERT_TRUE(file.ok()) << to_text(file.problems);
  const Config& c = file.config;
  const BulkheadConfig& checkout = *c.find("checkout");
  EXPECT_EQ(checkout.group, "orders-db");
  EXPECT_EQ(checkout.guaranteed.percent, 50);
  EXPECT_EQ(checkout.criticality, Priority::critical);
  EXPECT_EQ(c.find_group("orders-db")->options.total, 80U);
  EXPECT_EQ(c.find_group("orders-db")->options.lend.mode, Lend::Mode::revocable);
  EXPECT_EQ(c.find_tenants("uploads")->each.options.max_concurrent, 2U);
  EXPECT_EQ(c.find_tenants("uploads")->each.options.max_queue, 100U);
  EXPECT_EQ(c.find_tenants("uploads")->at_bound, TenantsConfig::AtBound::reject);
  EXPECT_EQ(c.control->max_body, 65536U);
  EXPECT_EQ(c.find("users")->options.max_concurrent, 20U);
}

TEST(Yaml, ABulkheadBeginsAsItsTypeAndReplacesSingleSettings) {
  const Config c = parse(kWhole).config;
  const BulkheadOptions& payments = c.find("payments")->options;
  EXPECT_EQ(payments.name, "payments");
  EXPECT_EQ(payments.max_concurrent, 5U);
  EXPECT_EQ(payments.max_queue, 20U);
  EXPECT_EQ(payments.execution_timeout, 3s);
  EXPECT_DOUBLE_EQ(payments.breaker->failure_rate, 0.2);
  EXPECT_EQ(payments.rate_limit->rate, 100U);
  EXPECT_EQ(payments.rate_limit->burst, 7U);
  const BulkheadOptions& mail = c.find("mail")->options;
  EXPECT_FALSE(mail.breaker);
  EXPECT_EQ(mail.fallback_on, FallbackOn::rejection | FallbackOn::execution_timeout);
  EXPECT_EQ(c.find_type("partner")->options.rate_limit->burst, 0U);
}

TEST(Yaml, EverySettingKnowsItsPlace) {
  const Config c = parse(kWhole).config;
  EXPECT_EQ(c.where("bulkheads.payments.max_queue"), (Position{19, 16}));
  EXPECT_EQ(c.where("bulkheads.payments.max_concurrent"), (Position{4, 21})) << "that of the type";
  EXPECT_EQ(c.where("bulkheads.checkout.max_wait"), (Position{13, 3})) << "the bulkhead itself";
  EXPECT_EQ(c.where("bulkheads.payments.breaker.open_for"), (Position{6, 44}));
}

TEST(Yaml, SettingsListsWhatIsInForce) {
  const auto value = [all = settings(parse(kWhole).config)](std::string_view path) -> std::string {
    for (const Setting& s : all)
      if (s.path == path) return s.value + (s.live ? "" : " restart") + (s.given ? " given" : "");
    return "absent";
  };
  EXPECT_EQ(value("bulkheads.payments.max_queue"), "20 given");
  EXPECT_EQ(value("bulkheads.payments.max_concurrent"), "5");
  EXPECT_EQ(value("bulkheads.payments.breaker"), "{}");
  EXPECT_EQ(value("bulkheads.payments.breaker.failure_rate"), "20%");
  EXPECT_EQ(value("bulkheads.mail.breaker"), "none given");
  EXPECT_EQ(value("bulkheads.mail.breaker.open_for"), "absent");
  EXPECT_EQ(value("bulkheads.users.isolation"), "semaphore restart");
  EXPECT_EQ(value("control.listen"), "\"127.0.0.1:9920\" restart given");
  EXPECT_EQ(value("tenants.uploads.max_tenants"), "10 given");
}

TEST(Yaml, JsonIsYaml) {
  const Loaded file = parse(
      "{\n\t\"version\": 1,\n\t\"bulkheads\": {\"db\": "
      "{\"max_concurrent\":20,\"max_wait\":\"50ms\",\"shadow\":false,"
      "\"max_queue\": 5, \"breaker\": {\"failure_rate\": 0.5}, \"fallback_on\": []}}\n}\n");
  ASSERT_TRUE(file.ok()) << to_text(file.problems);
  EXPECT_EQ(file.config.find("db")->options.max_wait, 50ms);
}

TEST(Yaml, AllMistakesAreReportedAtOnceInTheOrderOfTheFile) {
  EXPECT_EQ(errors("version: 1\nbulkheads:\n  db: {max_conc: 5, max_wait: 5}\n  pay: {shadow: yes}\n"),
            "f:3:8: bulkheads.db.max_conc: unknown setting\n"
            "      db: {max_conc: 5, max_wait: 5}\n"
            "           ^\n"
            "  hint: did you mean max_concurrent?\n"
            "f:3:31: bulkheads.db.max_wait: \"5\" has no unit\n"
            "      db: {max_conc: 5, max_wait: 5}\n"
            "                                  ^\n"
            "  hint: write 5s or 5ms; units are ns, us, ms, s, m, h, d\n"
            "f:4:17: bulkheads.pay.shadow: \"yes\" is not true or false\n"
            "      pay: {shadow: yes}\n"
            "                    ^\n"
            "  hint: write true\n");
}

TEST(Yaml, ColumnsCountCharacters) {
  EXPECT_THAT(errors("version: 1\nbulkheads: {db: {fallback: \"é€😀\", wrong: 1}}\n"), HasSubstr("f:2:35: "));
}

TEST(Yaml, WhatIsNoTextFileIsSaidToBeNone) {
  EXPECT_THAT(errors(""), HasSubstr("the file is empty"));
  EXPECT_THAT(errors("# nothing\n---\n"), HasSubstr("the file is empty"));
  EXPECT_THAT(errors("\xEF\xBB\xBFversion: 1\n"), HasSubstr("byte order mark"));
  EXPECT_THAT(errors(std::string("\xFF\xFEv\0", 4)), HasSubstr("UTF-16"));
  EXPECT_THAT(errors(std::string("version: 1\nx\0", 13)), HasSubstr("f:2:2: here is a NUL byte"));
  EXPECT_THAT(errors("version: \xFF\n"), HasSubstr("f:1:10: here is a byte that is not UTF-8"));
  EXPECT_THAT(errors("version: 1\x1b\n"), HasSubstr("control character"));
  EXPECT_THAT(errors(std::string(2'000'000, '#')), HasSubstr("larger than 1 MiB"));
}

TEST(Yaml, DepthAndNumberOfValuesAreBounded) {
  EXPECT_THAT(errors(std::string(100'000, '[')), HasSubstr("levels deep"));
  EXPECT_THAT(errors(std::string(40, '[') + std::string(40, ']')), HasSubstr("32 levels deep"));
  std::string many = "[";
  for (int i = 0; i < 100'001; ++i) many += "1,";
  EXPECT_THAT(errors(many + "1]"), HasSubstr("more than 100000 values"));
}

TEST(Yaml, AnchorsAliasesTagsAndSecondDocumentsAreRejected) {
  EXPECT_THAT(errors("version: &one 1\n"), HasSubstr("anchors are not supported"));
  EXPECT_THAT(errors("a: &a [x]\nb: [*a, *a]\n"), HasSubstr("f:2:5: aliases are not supported"));
  EXPECT_THAT(errors("version: !!str 1\n"), HasSubstr("tags are not supported"));
  EXPECT_THAT(errors("version: 1\n---\nversion: 1\n"), HasSubstr("f:3:1: a second document"));
}

TEST(Yaml, ATabInTheIndentationIsCalledThat) {
  EXPECT_THAT(errors("version: 1\nbulkheads:\n\tdb: {}\n"),
              HasSubstr("f:3:1: here is a tab in the indentation"));
  EXPECT_THAT(errors("version: 1\nbulkheads:\n  db:\n  \tmax_queue: 5\n"),
              HasSubstr("tab in the indentation"));
}

TEST(Yaml, ATypeWithAFaultIsBlamedOnce) {
  EXPECT_EQ(parse("version: 1\ntypes: {t: {adaptive: {floor: 9, ceiling: 3}}}\n"
                  "bulkheads: {a: {type: t}, b: {type: t}}\n")
                .problems.size(),
            1U);
}

// From the file to the gate: eight of a noisy flow stand in line when a quiet one comes, which is served first or second.
TEST(Yaml, AFlowSettingReachesTheGate) {
  const std::string text =
      "version: 1\ngroups: {g: {total: 1}}\nbulkheads:\n"
      "  alone: {max_concurrent: 1, max_queue: 20, flow_queues: 64, flow_hand: 1, flow_seed: 7}\n"
      "  member: {group: g, max_queue: 20, flow_queues: 64, flow_hand: 1, flow_seed: 7}\n"
      "  plain: {max_concurrent: 1, max_queue: 20}\n";
  Registry registry;
  LiveConfig live(registry, {.read = [&] { return config_text(parse(text)); }});
  ASSERT_TRUE(live.reload().ok()) << to_text(parse(text).problems);
  EXPECT_EQ(registry.find("alone")->options().flow_seed, 7U);
  const auto place_of_quiet = [&](std::string_view name) {
    Gate& gate = registry.find(name)->gate();
    std::vector<std::string> served;
    auto held = gate.try_acquire();
    EXPECT_TRUE(held);
    const auto wait = [&](std::string who) {
      gate.async_acquire({.flow = flow_of(who)}, [&served, who](const Result<Permit>& permit) {
        if (permit) served.push_back(who);
      });
    };
    for (int i = 0; i < 8; ++i) wait("noisy");
    wait("quiet");
    held->release();
    return std::ranges::find(served, "quiet") - served.begin();
  };
  EXPECT_LE(place_of_quiet("alone"), 1);
  EXPECT_LE(place_of_quiet("member"), 1);
  EXPECT_EQ(place_of_quiet("plain"), 8);
  const ReloadResult again = live.reload(config_text(
      parse("version: 1\ngroups: {g: {total: 1}}\nbulkheads:\n"
            "  alone: {max_concurrent: 1, max_queue: 20, flow_queues: 32, flow_hand: 1, flow_seed: 7}\n"
            "  member: {group: g, max_queue: 20, flow_queues: 64, flow_hand: 1, flow_seed: 7}\n"
            "  plain: {max_concurrent: 1, max_queue: 20}\n")));
  EXPECT_EQ(to_text(again.plan), "~ bulkheads.alone.flow_queues: 64 -> 32 (needs restart)\n");
  EXPECT_EQ(registry.find("alone")->options().flow_queues, 64U);
}

TEST(Yaml, FilesAreReadFromDisk) {
  const std::filesystem::path path = std::filesystem::path(testing::TempDir()) / "bulkhead_yaml_test.yaml";
  std::ofstream(path) << kWhole;
  EXPECT_TRUE(load(path).ok());
  std::filesystem::remove(path);
  EXPECT_EQ(to_text(load(path).problems), path.string() + ": cannot read it: No such file or directory\n");
  EXPECT_EQ(to_text(load(testing::TempDir()).problems),
            testing::TempDir() + ": cannot read it: Is a directory\n");
}

TEST(Yaml, BudgetsAreReadAndThoseOfATypeAreReplacedOneByOne) {
  const Loaded file = parse(R"(version: 1
types:
  llm: {budgets: {tokens: {max: 200000, per_call_max: 32000}}}
bulkheads:
  model: {type: llm, budgets: {tokens: {per_call_max: 16000}, images: {max: 40}}}
)");
  ASSERT_TRUE(file.ok()) << to_text(file.problems);
  const auto& budgets = file.config.find("model")->options.budgets;
  ASSERT_EQ(budgets.size(), 2u);
  EXPECT_EQ(budgets[0], (BudgetOptions{.name = "tokens", .max = 200000, .per_call_max = 16000}));
  EXPECT_EQ(budgets[1], (BudgetOptions{.name = "images", .max = 40}));
}

TEST(Yaml, MistakesInBudgetsAreNamed) {
  const auto problems = [](const std::string& budgets) {
    return to_text(parse("version: 1\nbulkheads: {model: {budgets: {" + budgets + "}}}\n").problems);
  };
  const std::pair<const char*, const char*> cases[] = {
      {"tokens: {}", "model.budgets.tokens.max: is missing"},
      {"tokens: {max: 5, per_cal_max: 3}", "model.budgets.tokens.per_cal_max: unknown setting"},
      {"tokens: {max: 100, per_call_max: 200}", "budgets.tokens.per_call_max: 200 is above max: 100"},
      {"a b: {max: 5}", "budgets.a b: \"a b\" is not a name"},
      {"a-name-of-twenty-four-let: {max: 5}", "is not the name of a budget"},
      {"a: {max: 1}, b: {max: 1}, c: {max: 1}, d: {max: 1}, e: {max: 1}", "model.budgets: has 5 entries"},
      {"tokens: {max: 5, scope: host}", "budgets.tokens.scope: host needs a region of memory"},
      {"tokens: {max: 16777216, scope: fleet}", "budgets.tokens.max: 16777216 is too many for scope: fleet"}};
  for (const auto& [budgets, says] : cases)
    EXPECT_NE(problems(budgets).find(says), std::string::npos) << problems(budgets);
}

}  // namespace
}  // namespace bulkhead::yaml
