#include "bulkhead/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <stdexcept>
#include <thread>

#include "metrics/labels.h"
#include "metrics/rows.h"
#include "tests/metrics/sample_registry.h"

namespace bulkhead {
namespace {

using namespace std::chrono_literals;
using metrics::clean;
using testing::HasSubstr;
using testing::Not;
using tests::SampleRegistry;
using enum MetricsFormat;

std::string render(Metrics& metrics, const RegistrySnapshot& all, MetricsFormat format = prometheus,
                   const MetricsExtras& extras = {}) {
  std::string page;
  metrics.render(page, all, format, extras);
  return page;
}

// name{labels} -> value
std::map<std::string, std::string> samples(const std::string& page) {
  std::map<std::string, std::string> all;
  std::istringstream lines(page);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with('#')) continue;
    const std::size_t space = line.rfind(' ');
    EXPECT_TRUE(all.emplace(line.substr(0, space), line.substr(space + 1)).second) << "twice: " << line;
  }
  return all;
}

MetricsExtras known_extras() {
  return {
      .config = ConfigState{.last_reload_successful = false,
                            .last_success = std::chrono::system_clock::time_point(1'700'000'000'250ms),
                            .revision = "1f3a9c02",
                            .source = "/etc/bulkhead.yaml"},
      .overrides = {{"checkout", "max_concurrent",
                     std::chrono::system_clock::time_point(1'700'000'900'500ms)},
                    {"checkout", "max_queue", std::chrono::system_clock::time_point(1'700'000'900'500ms)}},
      .process = ProcessStats{.cpu_seconds = 1.25,
                              .start_time_seconds = 1.7e9,
                              .resident_bytes = 4096,
                              .virtual_bytes = 8192,
                              .open_fds = 9,
                              .max_fds = 1024,
                              .threads = 3}};
}

// The build differs from one to the other.
std::string without_build(std::string page) {
  const std::size_t at = page.find("bulkhead_build_info{");
  if (at != std::string::npos)
    page.replace(at, page.find('}', at) + 1 - at, R"(bulkhead_build_info{version="",compiler=""})");
  return page;
}

class Golden : public testing::TestWithParam<std::pair<const char*, MetricsFormat>> {};

// BULKHEAD_WRITE_GOLDEN=1 writes them anew; read the difference before you commit it.
TEST_P(Golden, APageIsWhatItWas) {
  const auto& [name, format] = GetParam();
  SampleRegistry sample;
  sample.load();
  Metrics metrics{{.top_tenants = 5}};
  const std::string page = without_build(render(metrics, sample.registry.snapshot(), format, known_extras()));
  const std::string path = std::string(BULKHEAD_ROOT "/tests/metrics/golden/") + name;
  if (std::getenv("BULKHEAD_WRITE_GOLDEN")) std::ofstream(path) << page;
  std::stringstream golden;
  golden << std::ifstream(path).rdbuf();
  EXPECT_EQ(page, golden.str()) << path;
}

INSTANTIATE_TEST_SUITE_P(Formats, Golden,
                         testing::Values(std::pair("page.prom", prometheus),
                                         std::pair("page.openmetrics", openmetrics),
                                         std::pair("health.json", json)),
                         [](const auto& one) {
                           return std::string(content_type(one.param.second).substr(0, 4) == "text"
                                                  ? "Prometheus"
                                              : one.param.second == openmetrics ? "OpenMetrics"
                                                                                : "Json");
                         });

TEST(Metrics, EverySeriesIsThereFromTheStartAtZero) {
  SampleRegistry sample;
  Metrics metrics;
  const auto fresh = samples(render(metrics, sample.registry.snapshot()));
  sample.load();
  const auto loaded = samples(render(metrics, sample.registry.snapshot()));
  for (const auto& [series, value] : loaded) EXPECT_TRUE(fresh.contains(series)) << series;
  EXPECT_EQ(fresh.size(), loaded.size());
  for (std::size_t i = 0; i < kRejectReasons; ++i)
    EXPECT_EQ(fresh.at("bulkhead_rejected_total{bulkhead=\"search\",criticality=\"normal\",reason=\"" +
                       std::string(to_string(static_cast<Reason>(i))) + "\"}"),
              "0");
}

TEST(Metrics, CountersAreThoseOfTheBulkheads) {
  SampleRegistry sample;
  sample.load();
  Metrics metrics;
  const auto page = samples(render(metrics, sample.registry.snapshot()));
  const auto now = sample.at("payments").snapshot();
  const std::string payments = R"({bulkhead="payments",criticality="critical")";
  EXPECT_EQ(page.at("bulkhead_requests_total" + payments + "}"),
            std::to_string(now.gate.admitted + now.gate.rejected()));
  EXPECT_EQ(page.at("bulkhead_rejected_total" + payments + ",reason=\"breaker_open\"}"),
            std::to_string(now.gate.rejected(Reason::breaker_open)));
  EXPECT_EQ(page.at("bulkhead_rejected_total" + payments + ",reason=\"breaker_open\"}"), "4");
  EXPECT_EQ(page.at("bulkhead_timeout_total{bulkhead=\"payments\"}"), "1");
  EXPECT_EQ(page.at(R"(bulkhead_breaker_state{bulkhead="payments",state="open"})"), "1");
  EXPECT_EQ(page.at(R"(bulkhead_breaker_state{bulkhead="payments",state="closed"})"), "0");
  EXPECT_EQ(page.at(R"(bulkhead_breaker_transitions_total{bulkhead="payments",to="open"})"), "1");
  EXPECT_EQ(page.at(R"(bulkhead_service_seconds_count{bulkhead="payments"})"),
            std::to_string(now.service.count()));
  EXPECT_EQ(page.at(R"(bulkhead_in_flight{bulkhead="search"})"), "6");
  EXPECT_EQ(page.at(R"(bulkhead_active_calls{bulkhead="search"})"), "1");
  EXPECT_EQ(page.at(R"(bulkhead_group_loan_units{group="db",lender="checkout",borrower="search"})"), "2");
  EXPECT_EQ(page.at(R"(bulkhead_group_lent_units{group="db",bulkhead="checkout"})"),
            std::to_string(sample.registry.find_group("db")->snapshot().find("checkout")->lent));
  EXPECT_EQ(page.at(R"(bulkhead_occupancy_seconds_total{bulkhead="payments"})"), "4.2024");
  EXPECT_EQ(page.at(R"(bulkhead_saturated_seconds_total{bulkhead="payments"})"), "0.25");
  EXPECT_FALSE(page.contains(R"(bulkhead_occupancy_seconds_total{bulkhead="plain"})"))
      << "it does not measure";
  EXPECT_EQ(page.at(R"(bulkhead_admitted_total{bulkhead="orders"})"), "12")
      << "of living and retired tenants";
  EXPECT_EQ(page.at(R"(bulkhead_tenants_retired_total{bulkhead="orders"})"), "2");
}

TEST(Metrics, ACallThatIsStuckGrowsOldWhereHoldersAreTracked) {
  ManualClock clock;
  Registry registry;
  const auto db =
      registry.add({.options = {.name = "db", .max_concurrent = 2, .track_holders = true, .clock = &clock}});
  registry.add({.options = {.name = "cache", .max_concurrent = 2, .clock = &clock}});
  const auto stuck = db->try_acquire();
  clock.advance(std::chrono::minutes(6));
  Metrics metrics;
  const auto page = samples(render(metrics, registry.snapshot()));
  EXPECT_EQ(page.at("bulkhead_oldest_call_seconds{bulkhead=\"db\"}"), "360");
  EXPECT_FALSE(page.contains("bulkhead_oldest_call_seconds{bulkhead=\"cache\"}"));
}

TEST(Metrics, ABulkheadThatOnlyWatchesOrIsOffCountsItsRequestsToo) {
  RegistrySnapshot all;
  for (const bool shadow : {true, false}) {
    auto& entry = all.bulkheads.emplace_back();
    entry.name = shadow ? "shadow" : "off";
    entry.configured = {.name = entry.name, .max_queue = 1, .enabled = shadow, .shadow = shadow};
    const auto bulkhead = std::make_shared<Bulkhead>(entry.configured);
    std::vector<Call> calls;
    for (int i = 0; i < 4; ++i)
      calls.push_back(*bulkhead->acquire());  // 1 runs, 1 would wait, 2 would be rejected
    entry.now = bulkhead->snapshot();
    entry.bulkhead = bulkhead;
  }
  Metrics metrics;
  const auto page = samples(render(metrics, all));
  EXPECT_EQ(page.at(R"(bulkhead_requests_total{bulkhead="shadow",criticality="normal"})"), "4");
  EXPECT_EQ(page.at(R"(bulkhead_would_reject_total{bulkhead="shadow",reason="queue_limit"})"), "2");
  EXPECT_EQ(page.at(R"(bulkhead_requests_total{bulkhead="off",criticality="normal"})"), "4");
  EXPECT_EQ(page.at(R"(bulkhead_bypassed_total{bulkhead="off"})"), "4");
  EXPECT_EQ(page.at(R"(bulkhead_enabled{bulkhead="off"})"), "0");
}

TEST(Metrics, BucketsNeverMakeACallLookFasterThanItWas) {
  for (const auto& bound : metrics::kBounds)
    for (const double share : {0.5, 0.9, 0.999, 1.0, 1.001, 1.1, 2.0}) {
      Histogram histogram;
      const auto ns = static_cast<std::uint64_t>(static_cast<double>(bound.ns) * share);
      histogram.record(ns);
      const metrics::Times times = metrics::fold(histogram.counts());
      const std::size_t i = static_cast<std::size_t>(&bound - metrics::kBounds.data());
      EXPECT_LE(times.at_most[i], ns > bound.ns ? 0u : 1u) << bound.text << " of " << ns;
      EXPECT_GE(times.at_most[i], share <= 0.9 ? 1u : 0u) << bound.text << " of " << ns;
      EXPECT_EQ(times.count, 1u);
      EXPECT_EQ(times.sum_ns, ns);
    }
}

TEST(Metrics, WhoAsksForAFormatGetsIt) {
  struct Case {
    std::string_view accept;
    MetricsFormat format;
  };
  for (const auto& [accept, format] : std::initializer_list<Case>{
           {"", prometheus},
           {"*/*", prometheus},
           {"text/*", prometheus},
           {"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", prometheus},
           {"application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
            "text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
            openmetrics},  // Prometheus 2.42
           {"application/openmetrics-text; version=1.0.0; charset=utf-8", openmetrics},
           {"application/openmetrics-text;version=2.0.0,text/plain;version=0.0.4;q=0.5", prometheus},
           {"APPLICATION/OpenMetrics-Text; VERSION=\"1.0.0\"", openmetrics},
           {"text/plain;version=0.0.4, application/openmetrics-text;q=0.9", prometheus},
           {"application/openmetrics-text;q=0.3,text/plain;version=0.0.4;q=0.31", prometheus},
           {"application/openmetrics-text,text/plain", openmetrics},
           {"text/plain,application/openmetrics-text", prometheus},
           {"application/json", json},
           {"application/json;q=0, */*", prometheus},
           {"text/plain;q=0, application/json;q=0, */*;q=0.1", openmetrics},
           {"application/*", openmetrics},
           {"application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited,"
            "text/plain;version=0.0.4;q=0.2",
            prometheus},
           {"application/json;q=2", prometheus},
           {"application/json;q=0.x", prometheus},
           {",;,/;q=;;", prometheus},
           {"image/png", prometheus}})
    EXPECT_EQ(negotiate(accept), format) << accept;
}

TEST(Metrics, ALabelValueIsShortValidAndStillItself) {
  EXPECT_EQ(clean("db", 32), "db");
  EXPECT_EQ(clean("Z\xC3\xBCrich", 32), "Z\xC3\xBCrich");
  EXPECT_EQ(clean("a\nb", 32), "a\nb");
  EXPECT_EQ(clean(std::string(32, 'x'), 32), std::string(32, 'x'));
  const std::string one = clean(std::string(200, 'x') + "1", 32),
                    two = clean(std::string(200, 'x') + "2", 32);
  EXPECT_NE(one, two);
  EXPECT_THAT(one, testing::MatchesRegex("x+~[0-9a-f]+"));
  for (const std::string_view bad :
       {"\xFF", "\xC0\xAF", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xE2\x82", "a\x80z"})
    EXPECT_THAT(clean(bad, 32), HasSubstr("\xEF\xBF\xBD")) << "with its hash: " << clean(bad, 32);
  EXPECT_NE(clean("\xFE", 32), clean("\xFF", 32));
  // Cut between characters, not inside one.
  for (std::size_t size = 32; size < 40; ++size) {
    std::string euros;
    for (int i = 0; i < 50; ++i) euros += "\xE2\x82\xAC";
    const std::string cut = clean(euros, size);
    EXPECT_LE(cut.size(), size);
    EXPECT_EQ(cut.find('~') % 3, 0u) << cut;
  }
}

TEST(Metrics, NoNamesMakeMoreSeriesThanAllowed) {
  RegistrySnapshot all;
  for (int i = 0; i < 500; ++i) {
    auto& entry = all.bulkheads.emplace_back();
    entry.name = i == 17 ? "other" : "b" + std::to_string(1000 + i);
    entry.configured.max_concurrent = 2;
    entry.now.gate.max_concurrent = 2;
    entry.now.gate.admitted = 1;
    if (i == 499) entry.criticality = Priority::critical;
  }
  all.tenants.emplace_back().name = "other";  // even this is no series twice
  Metrics metrics{{.max_series = 1000}};
  const auto page = samples(render(metrics, all));
  std::map<std::string, int> families;
  long admitted = 0;
  for (const auto& [series, value] : page) {
    ++families[series.substr(0, series.find('{'))];
    if (series.starts_with("bulkhead_admitted_total")) admitted += std::stol(value);
  }
  EXPECT_EQ(admitted, 500) << "what is left out is in other";
  EXPECT_LE(families["bulkhead_queue_wait_seconds_bucket"] + families["bulkhead_queue_wait_seconds_sum"] +
                families["bulkhead_queue_wait_seconds_count"],
            1000);
  EXPECT_TRUE(page.contains(R"(bulkhead_admitted_total{bulkhead="b1499"})")) << "the critical one is shown";
  EXPECT_EQ(std::stol(page.at(R"(bulkhead_label_overflow_total{label="bulkhead"})")) + 1,
            std::stol(page.at(R"(bulkhead_admitted_total{bulkhead="other"})")))
      << "those left out, and the one that is called so";
  EXPECT_EQ(page.at(R"(bulkhead_label_overflow_total{label="group"})"), "0");
}

TEST(Metrics, AnAdaptiveGroupShowsItsTotalAndItsBounds) {
  RegistrySnapshot all;
  auto& group = all.groups.emplace_back();
  group.name = "db";
  group.total = 34;
  group.configured = 20;
  Metrics metrics;
  auto page = samples(render(metrics, all));
  EXPECT_EQ(page.at(R"(bulkhead_group_configured_units{group="db"})"), "20");
  EXPECT_FALSE(page.contains(R"(bulkhead_group_adaptive_limit{group="db"})"));
  group.adaptive =
      LimiterSnapshot{.limit = 34, .settled = 40, .floor = 4, .ceiling = 90, .windows = 7, .raised = 3};
  page = samples(render(metrics, all));
  EXPECT_EQ(page.at(R"(bulkhead_group_units{group="db"})"), "34");
  EXPECT_EQ(page.at(R"(bulkhead_group_adaptive_limit{group="db"})"), "40");
  EXPECT_EQ(page.at(R"(bulkhead_group_adaptive_floor{group="db"})"), "4");
  EXPECT_EQ(page.at(R"(bulkhead_group_adaptive_ceiling{group="db"})"), "90");
  EXPECT_EQ(page.at(R"(bulkhead_group_adaptive_windows_total{group="db"})"), "7");
  EXPECT_EQ(page.at(R"(bulkhead_group_adaptive_changes_total{group="db",verdict="raised"})"), "3");
}

TEST(Metrics, AGroupOfManyMembersCannotFloodAPage) {
  RegistrySnapshot all;
  auto& group = all.groups.emplace_back();
  group.name = "db";
  for (int i = 0; i < 1500; ++i) group.members.emplace_back().name = "m" + std::to_string(i);
  Metrics metrics{{.max_series = 1000}};
  const auto page = samples(render(metrics, all));
  EXPECT_EQ(std::ranges::count_if(
                page, [](const auto& s) { return s.first.starts_with("bulkhead_group_lent_units"); }),
            1000);
  EXPECT_NE(page.at(R"(bulkhead_label_overflow_total{label="group"})"), "0");
}

TEST(Metrics, WrongOptionsAreNamed) {
  const auto message = [](const MetricsOptions& options) -> std::string {
    try {
      Metrics metrics(options);
    } catch (const std::invalid_argument& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_EQ(message({.top_tenants = 51}), "metrics: top_tenants is 51: choose 0 to 50");
  EXPECT_EQ(message({.max_series = 10}), "metrics: max_series is 10: choose 1000 or more");
  EXPECT_EQ(message({.max_label_bytes = 8}), "metrics: max_label_bytes is 8: choose 32 or more");
  EXPECT_EQ(message({.tenant_stays = 0s}), "metrics: tenant_stays is 0 ns: choose more than 0");
}

TEST(Metrics, ThePagesMemoryIsUsedAgain) {
  SampleRegistry sample;
  Metrics metrics;
  std::string page;
  metrics.render(page, sample.registry.snapshot(), prometheus);
  const char* const memory = page.data();
  const std::string first = page;
  metrics.render(page, sample.registry.snapshot(), prometheus);
  EXPECT_EQ(page.data(), memory);
  EXPECT_EQ(page, first);
}

TEST(Metrics, APoolThatCannotOpenWhatItLendsIsADegradedProcess) {
  Registry registry;
  ResourceSnapshot now;
  Attached attached = registry.attach({.name = "db", .kind = "postgres", .snapshot = [&] { return now; }});
  Metrics metrics;
  EXPECT_THAT(render(metrics, registry.snapshot(), MetricsFormat::json), HasSubstr(R"({"status":"ok")"));
  now.failures = 2, now.last_failure = "connection \"refused\"";
  const std::string page = render(metrics, registry.snapshot(), MetricsFormat::json);
  EXPECT_THAT(page, HasSubstr(R"({"status":"degraded")"));
  EXPECT_THAT(page, HasSubstr(R"("name":"db","kind":"postgres","status":"failing")"));
  EXPECT_THAT(page, HasSubstr(R"("last_failure":"connection \"refused\"")"));
  attached.detach();
  EXPECT_THAT(render(metrics, registry.snapshot(), MetricsFormat::json), Not(HasSubstr("pools")));
  EXPECT_THROW(static_cast<void>(registry.attach({.name = "db"})), std::invalid_argument) << "nobody to ask";
}

TEST(Metrics, PagesAreMadeWhileCallsGoOnAndFromSeveralThreads) {
  SampleRegistry sample;
  Metrics metrics{{.top_tenants = 3}};
  std::jthread calls([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) static_cast<void>(sample.at("search").execute([] {}));
  });
  std::vector<std::jthread> scrapes;
  for (int i = 0; i < 2; ++i)
    scrapes.emplace_back([&] {
      std::uint64_t last = 0;
      for (int n = 0; n < 20; ++n) {
        const auto page =
            samples(render(metrics, sample.registry.snapshot(), n % 2 ? prometheus : openmetrics));
        const std::uint64_t now = std::stoull(page.at("bulkhead_admitted_total{bulkhead=\"search\"}"));
        EXPECT_GE(now, last);
        last = now;
      }
    });
}

// docs/formats/metrics.md has a table that is made here, between two marks.
TEST(Metrics, TheDocumentedTableIsThatOfTheFamilies) {
  std::string table = "| Name | Type | Labels | Meaning |\n|---|---|---|---|\n";
  for (const auto& family : metric_families())
    table += "| `" + std::string(family.name) + "` | " + std::string(to_string(family.type)) + " | " +
             std::string(family.labels) + " | " + std::string(family.help) + " |\n";
  const std::string path = BULKHEAD_ROOT "/docs/formats/metrics.md";
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  const std::string begin = "<!-- families: made by metrics_test -->\n", end = "<!-- end of families -->\n";
  std::string page = text.str();
  const std::size_t from = page.find(begin), to = page.find(end);
  ASSERT_NE(from, std::string::npos);
  ASSERT_NE(to, std::string::npos);
  if (std::getenv("BULKHEAD_WRITE_GOLDEN"))
    std::ofstream(path) << page.substr(0, from) + begin + table + page.substr(to);
  else
    EXPECT_EQ(page.substr(from + begin.size(), to - from - begin.size()), table);
}

// OpenMetrics drops suffixes from the names of families, and no two may then be the same.
TEST(Metrics, NamesFollowTheRules) {
  std::set<std::string> names;
  for (const auto& family : metric_families()) {
    std::string name(family.name);
    EXPECT_TRUE(name.starts_with("bulkhead_") || name.starts_with("process_")) << name;
    EXPECT_EQ(name.ends_with("_total"), family.type == MetricType::counter) << name;
    EXPECT_EQ(name.ends_with("_info"), family.type == MetricType::info) << name;
    for (const std::string suffix : {"_total", "_info"})
      if (name.ends_with(suffix)) name.resize(name.size() - suffix.size());
    EXPECT_TRUE(names.insert(name).second) << name;
    EXPECT_EQ(family.help.find_first_of("\"\\\n"), std::string_view::npos) << "needs no escape: " << name;
    EXPECT_TRUE(family.help.ends_with('.')) << name;
  }
}

}  // namespace
}  // namespace bulkhead
