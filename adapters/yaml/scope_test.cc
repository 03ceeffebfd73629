// Settings of limits that reach beyond the process: what is accepted, and what a wrong one is told.
#include <gmock/gmock.h>

#include <chrono>
#include <string>

#include "adapters/yaml/yaml.h"

namespace bulkhead::yaml {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr const char* kHead = "version: 1\nlint_allow: [unused]\nhost: {region: /run/shop/bulkhead}\n";

std::string problems(const std::string& text) { return to_text(parse(text).problems); }

TEST(Scope, ABulkheadOfTheHostIsRead) {
  const Loaded file =
      parse(std::string(kHead) + "bulkheads: {gpu: {max_concurrent: 4, scope: host}, db: {}}\n");
  ASSERT_TRUE(file.ok()) << to_text(file.problems);
  EXPECT_EQ(file.config.find("gpu")->options.scope, Scope::host);
  EXPECT_EQ(file.config.find("db")->options.scope, Scope::process);
  EXPECT_EQ(file.config.host->region, "/run/shop/bulkhead");
}

TEST(Scope, ABulkheadOfTheFleetIsRead) {
  const Loaded file = parse(
      "version: 1\nbulkheads: {pay: {max_concurrent: 50, max_queue: 9, max_wait: 1s, scope: fleet}}\n"
      "fleet: {store: \"rediss://limits:6380\", lease: 2s, grace: 100ms, when_cut_off: closed, cut_off_for: "
      "1m, mode: direct, "
      "max_share: 25%, weight: 3, version: 4, prefix: shop, ca_file: /ca, password_file: /pw, replicas: "
      "40}\n");
  ASSERT_TRUE(file.ok()) << to_text(file.problems);
  EXPECT_EQ(file.config.find("pay")->options.scope, Scope::fleet);
  using namespace std::chrono_literals;
  const FleetSettings wanted{.store = "rediss://limits:6380",
                             .lease = 2s,
                             .grace = 100ms,
                             .when_cut_off = WhenCutOff::closed,
                             .cut_off_for = 1min,
                             .mode = FleetMode::direct,
                             .weight = 3,
                             .max_share = 0.25,
                             .version = 4,
                             .prefix = "shop",
                             .ca_file = "/ca",
                             .password_file = "/pw",
                             .replicas = 40};
  EXPECT_EQ(*file.config.fleet, wanted);
}

TEST(Scope, TheFleetNeedsAStoreAndALine) {
  EXPECT_THAT(problems("version: 1\nbulkheads: {pay: {scope: fleet}}\n"),
              AllOf(HasSubstr("bulkheads.pay.scope"), HasSubstr("fleet needs a store"),
                    HasSubstr("add fleet: {store")));
  EXPECT_THAT(problems("version: 1\nfleet: {store: limits}\nbulkheads: {pay: {scope: fleet}}\n"),
              AllOf(HasSubstr("fleet.store"), HasSubstr("redis://host:6379")));
  EXPECT_THAT(
      problems("version: 1\nfleet: {store: \"redis://h\", mode: direct}\nbulkheads: {pay: {scope: fleet}}\n"),
      AllOf(HasSubstr("bulkheads.pay.max_queue"), HasSubstr("direct")));
  EXPECT_THAT(problems("version: 1\nfleet: {store: \"redis://h\"}\nbulkheads: {pay: {scope: fleet, "
                       "critical_reserve: 10%}}\n"),
              HasSubstr("does not go with scope: fleet"));
  EXPECT_THAT(
      problems("version: 1\nfleet: {store: \"redis://h\", lease: 1ms}\nbulkheads: {pay: {scope: fleet}}\n"),
      HasSubstr("fleet.lease"));
}

TEST(Scope, TheLinterKnowsWhatAFleetLoses) {
  const auto warnings = [](const std::string& fleet, const std::string& bulkhead) {
    const Loaded file = parse("version: 1\nfleet: {store: \"redis://h\", replicas: 40, " + fleet +
                              "}\nbulkheads: {pay: {scope: fleet, " + bulkhead + "}}\n");
    EXPECT_TRUE(file.ok()) << to_text(file.problems);
    std::string rules;
    for (const ConfigProblem& w : lint(file.config)) rules += w.rule + " ";
    return rules;
  };
  using testing::Not;
  EXPECT_THAT(warnings("mode: block", "max_concurrent: 50"), HasSubstr("fleet-thin"));
  EXPECT_THAT(warnings("mode: block", "max_concurrent: 500"), Not(HasSubstr("fleet-thin")));
  const std::string waits = "max_concurrent: 50, max_queue: 9, max_wait: 400ms, typical_latency: 100ms";
  EXPECT_THAT(warnings("mode: block", waits), AllOf(Not(HasSubstr("fleet-thin")), HasSubstr("fleet-block")));
  EXPECT_THAT(warnings("mode: auto", waits),
              AllOf(Not(HasSubstr("fleet-thin")), Not(HasSubstr("fleet-block"))));
  EXPECT_THAT(
      warnings("mode: auto", "max_concurrent: 150, max_queue: 9, max_wait: 1ms, typical_latency: 5ms"),
      HasSubstr("fleet-thin"));
}

TEST(Scope, TheHostNeedsARegion) {
  EXPECT_THAT(problems("version: 1\nbulkheads: {gpu: {scope: host}}\n"),
              AllOf(HasSubstr("bulkheads.gpu.scope"), HasSubstr("host needs a region"),
                    HasSubstr("host: {region: /run/shop/bulkhead}")));
}

TEST(Scope, WhatDoesNotGoWithItIsNamed) {
  for (const char* setting : {"isolation: threads", "fairness: barging", "adaptive: {ceiling: 9}"}) {
    const std::string name(setting, std::string(setting).find(':'));
    EXPECT_THAT(problems(std::string(kHead) + "bulkheads: {gpu: {scope: host, " + setting + "}}\n"),
                AllOf(HasSubstr("bulkheads.gpu." + name), HasSubstr("does not go with scope: host")));
  }
  EXPECT_THAT(problems(std::string(kHead) + "bulkheads: {gpu: {scope: host, max_concurrent: 5000}}\n"),
              HasSubstr("give 1 to 4096"));
  EXPECT_THAT(
      problems(std::string(kHead) + "groups: {g: {total: 5}}\nbulkheads: {gpu: {scope: host, group: g}}\n"),
      HasSubstr("bulkheads.gpu.group"));
}

}  // namespace
}  // namespace bulkhead::yaml
