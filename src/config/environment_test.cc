#include "bulkhead/environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "config/override.h"

namespace bulkhead {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using testing::IsEmpty;

Config shop() {
  Config c;
  c.bulkheads.push_back({.options = {.name = "db", .max_concurrent = 10, .max_queue = 20}});
  c.bulkheads.push_back(
      {.options = {.name = "external-api", .max_concurrent = 5, .breaker = BreakerOptions{}}});
  c.groups.push_back({.options = {.name = "pool", .total = 9}});
  c.resources.push_back({.name = "conns", .capacity = 50});
  c.tenants.push_back({});
  c.tenants.back().each.options.name = "orders";
  return c;
}

std::string problems(const std::vector<Variable>& variables) {
  Config c = shop();
  return to_text(apply_environment(c, variables));
}

TEST(Environment, AVariableStandsAboveTheFile) {
  Config c = shop();
  EXPECT_THAT(apply_environment(c, {{"BULKHEAD_BULKHEADS__DB__MAX_CONCURRENT", "7"},
                                    {"BULKHEAD_BULKHEADS__EXTERNAL_API__MAX_WAIT", "250ms"},
                                    {"BULKHEAD_BULKHEADS__EXTERNAL_API__BREAKER__OPEN_FOR", "5s"},
                                    {"BULKHEAD_BULKHEADS__DB__ISOLATION", "threads"},
                                    {"BULKHEAD_BULKHEADS__DB__CRITICAL_RESERVE", "20%"},
                                    {"BULKHEAD_GROUPS__POOL__TOTAL", "11"},
                                    {"BULKHEAD_RESOURCES__CONNS__CAPACITY", "60"},
                                    {"BULKHEAD_TENANTS__ORDERS__MAX_TENANTS", "99"},
                                    {"BULKHEAD_TENANTS__ORDERS__MAX_QUEUE", "3"},
                                    {"BULKHEAD_CONTROL__LISTEN", "127.0.0.1:9999"},
                                    {"HOME", "/root"}}),
              IsEmpty());
  EXPECT_EQ(c.find("db")->options.max_concurrent, 7U);
  EXPECT_EQ(c.find("db")->options.isolation, Isolation::threads);
  EXPECT_EQ(c.find("db")->options.critical_reserve, 0.2);
  EXPECT_EQ(c.find("db")->options.max_queue, 20U);
  EXPECT_EQ(c.find("external-api")->options.max_wait, 250ms);
  EXPECT_EQ(c.find("external-api")->options.breaker->open_for, 5s);
  EXPECT_EQ(c.find_group("pool")->options.total, 11U);
  EXPECT_EQ(c.find_resource("conns")->capacity, 60U);
  EXPECT_EQ(c.find_tenants("orders")->max_tenants, 99U);
  EXPECT_EQ(c.find_tenants("orders")->each.options.max_queue, 3U);
  EXPECT_EQ(c.control->listen, "127.0.0.1:9999");
}

TEST(Environment, OneThatStandsForNothingIsAProblem) {
  EXPECT_EQ(problems({{"BULKHEAD_CONTROL_LISTEN", "x"}}),
            "environment: BULKHEAD_CONTROL_LISTEN: stands for no setting that can be given here\n"
            "  hint: did you mean BULKHEAD_CONTROL__LISTEN?\n");
  EXPECT_THAT(problems({{"BULKHEAD_BULKHEADS__DBB__MAX_QUEUE", "5"}}),
              HasSubstr("did you mean BULKHEAD_BULKHEADS__DB__MAX_QUEUE?"));
  EXPECT_THAT(problems({{"BULKHEAD_NONSENSE_AND_MORE_OF_IT", "5"}}), HasSubstr("bulkhead env lists them"));
  // A policy is switched on in the file, and lists and names are given there.
  for (const char* name :
       {"BULKHEAD_BULKHEADS__DB__BREAKER__OPEN_FOR", "BULKHEAD_BULKHEADS__DB__RATE_LIMIT__BURST",
        "BULKHEAD_BULKHEADS__DB__GROUP", "BULKHEAD_BULKHEADS__DB__LINT_ALLOW",
        "BULKHEAD_CONTROL__TLS__CERTIFICATE", "BULKHEAD_TYPES__CACHE__MAX_QUEUE", "BULKHEAD_VERSION"})
    EXPECT_THAT(problems({{name, "1"}}), HasSubstr("stands for no setting")) << name;
}

TEST(Environment, ThoseOfTheProgramAndOfKubernetesAreNone) {
  EXPECT_EQ(problems({{"BULKHEAD_ADMIN", "x"},
                      {"BULKHEAD_TOKEN", "x"},
                      {"BULKHEAD_CERTIFICATE", "x"},
                      {"BULKHEAD_PORT", "tcp://10.0.0.1:9920"},
                      {"BULKHEAD_PORT_9920_TCP_ADDR", "10.0.0.1"},
                      {"BULKHEAD_SERVICE_HOST", "10.0.0.1"},
                      {"BULKHEAD_SERVICE_PORT_HTTP", "9920"}}),
            "");
}

TEST(Environment, ValuesAreReadAsInTheFileAndTheWholeIsChecked) {
  EXPECT_EQ(problems({{"BULKHEAD_BULKHEADS__DB__MAX_WAIT", "5"}}),
            "environment: BULKHEAD_BULKHEADS__DB__MAX_WAIT: \"5\" has no unit\n"
            "  hint: write 5s or 5ms; units are ns, us, ms, s, m, h, d\n");
  EXPECT_THAT(problems({{"BULKHEAD_BULKHEADS__DB__MAX_CONCURRENT", "0"}}), HasSubstr("out of range"));
  EXPECT_THAT(problems({{"BULKHEAD_BULKHEADS__DB__FAIRNESS", "fair"}}),
              HasSubstr("hint: give fifo, barging or adaptive"));
  EXPECT_THAT(
      problems({{"BULKHEAD_CONTROL__LISTEN", "0.0.0.0:80"}}),
      HasSubstr("environment: BULKHEAD_CONTROL__LISTEN: \"0.0.0.0:80\" can be reached from other hosts"));
  EXPECT_THAT(problems({{"BULKHEAD_BULKHEADS__DB__FLOW_QUEUES", "2"}}),
              HasSubstr("4 is above flow_queues: 2"));
}

TEST(Environment, AllProblemsAreToldAtOnce) {
  Config c = shop();
  EXPECT_EQ(apply_environment(c, {{"BULKHEAD_X", "1"}, {"BULKHEAD_BULKHEADS__DB__SHADOW", "yes"}}).size(),
            2U);
}

TEST(Environment, ANameThatIsNotCertainIsRejected) {
  Config c = shop();
  c.bulkheads.push_back({.options = {.name = "external_api"}});
  const auto wrong = apply_environment(c, {{"BULKHEAD_BULKHEADS__EXTERNAL_API__MAX_QUEUE", "1"}});
  ASSERT_EQ(wrong.size(), 1U);
  EXPECT_THAT(wrong[0].message, HasSubstr("stands for both bulkheads.external"));
}

// What is listed can be given: each with the value it has.
TEST(Environment, WhatIsListedCanBeGivenAndChangesNothing) {
  Config c = shop();
  c.control = ControlConfig{.listen = "127.0.0.1:1"};
  const auto before = settings(c);
  std::vector<Variable> listed = variables_of(c);
  EXPECT_GT(listed.size(), 100U);
  std::erase_if(listed, [](const Variable& v) { return v.value.empty(); });
  // Without effect here, which is an error as it is in the file.
  for (const std::string_view end : {"__FLOW_HAND", "__FLOW_SEED", "__GUARANTEED", "__MAX"})
    std::erase_if(listed, [&](const Variable& v) { return v.name.ends_with(end); });
  std::erase_if(listed, [](const Variable& v) { return v.name.find("__POOL__") != std::string::npos; });
  EXPECT_EQ(to_text(apply_environment(c, listed)), "");
  const auto after = settings(c);
  ASSERT_EQ(after.size(), before.size());
  for (std::size_t i = 0; i < after.size(); ++i) EXPECT_EQ(after[i].value, before[i].value) << after[i].path;
}

TEST(Environment, ATextIsListedAsItIsGiven) {
  Config c = shop();
  const std::string path = "/run/a \"quoted\" name/" + std::string(70, 'x') + "/admin.sock";
  c.control = ControlConfig{.audit_file = path};
  const std::vector<Variable> all = variables_of(c);
  const auto listed = std::ranges::find(all, "BULKHEAD_CONTROL__AUDIT_FILE", &Variable::name);
  ASSERT_NE(listed, all.end());
  EXPECT_EQ(listed->value, path);
}

// What has no effect is an error, as it is in the file.
TEST(Environment, ASettingOfASectionGivesTheSection) {
  EXPECT_EQ(problems({{"BULKHEAD_BULKHEADS__DB__POOL__NICE", "5"}}),
            "environment: bulkheads.db.pool: has no effect without isolation: threads\n"
            "  hint: add isolation: threads, or remove it\n");
  EXPECT_EQ(problems({{"BULKHEAD_BULKHEADS__DB__POOL__NICE", "5"},
                      {"BULKHEAD_BULKHEADS__DB__ISOLATION", "threads"}}),
            "");
}

}  // namespace
}  // namespace bulkhead
