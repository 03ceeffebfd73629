#include "bulkhead/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "config/decode.h"
#include "config/lint.h"
#include "config/settings.h"
#include "config/values.h"

namespace bulkhead::config {
namespace {

using namespace std::chrono_literals;

Node scalar(std::string text, bool quoted = false) {
  return {.kind = Node::Kind::scalar, .at = {1, 1}, .quoted = quoted, .text = std::move(text)};
}

TEST(Values, DurationsNeedUnitsAndMeanWhatTheySay) {
  EXPECT_EQ(*read_duration(scalar("250ms"), false), 250ms);
  EXPECT_EQ(*read_duration(scalar("1.5s"), false), 1500ms);
  EXPECT_EQ(*read_duration(scalar("1m30s"), false), 90s);
  EXPECT_EQ(*read_duration(scalar("10us", true), false), 10us);
  EXPECT_EQ(*read_duration(scalar("10µs"), false), 10us);
  EXPECT_EQ(*read_duration(scalar("0s"), false), 0s);
  EXPECT_EQ(*read_duration(scalar("1d"), false), 24h);
  EXPECT_EQ(*read_duration(scalar("forever"), true), wait_forever);
  for (const char* wrong : {"5", "0", "", "s", "5 s", "5S", "5sec", "1s1m", "1s1s", "-1s", "1e3s", "forever",
                            ".5s", "999999999999d", "5ms3", "1_000ms", "0x10s"})
    EXPECT_FALSE(read_duration(scalar(wrong), false)) << wrong;
}

TEST(Values, CountsAreDecimalAndPlain) {
  EXPECT_EQ(*read_count(scalar("0")), 0U);
  EXPECT_EQ(*read_count(scalar("18446744073709551615")), UINT64_MAX);
  for (const char* wrong : {"010", "0x10", "0b1", "0o7", "1e3", "1.0", "-1", "+1", "1_000", "1,000", "",
                            "18446744073709551616", "ten", "5 6"})
    EXPECT_FALSE(read_count(scalar(wrong))) << wrong;
  EXPECT_FALSE(read_count(scalar("5", true)));
  EXPECT_EQ(read_count(scalar("010")).error().hint, "write 10, or 8 if you mean octal");
  EXPECT_EQ(read_count(scalar("089")).error().hint, "write 89");
  EXPECT_EQ(read_count(scalar("1_000")).error().hint, "write 1000");
}

TEST(Values, SharesPartsAndSizes) {
  EXPECT_DOUBLE_EQ(*read_share(scalar("7%")), 0.07);
  EXPECT_DOUBLE_EQ(*read_share(scalar("0.2")), 0.2);
  EXPECT_DOUBLE_EQ(*read_share(scalar("1")), 1);
  for (const char* wrong : {"50", "%", "5 %", "-1%", "half", "nan", "inf", "05%"})
    EXPECT_FALSE(read_share(scalar(wrong))) << wrong;
  EXPECT_EQ(read_part(scalar("33.3%"))->percent, 33.3);
  EXPECT_EQ(read_part(scalar("5"))->units, 5U);
  for (const char* wrong : {"101%", "5.5", "-5", "007", "all"})
    EXPECT_FALSE(read_part(scalar(wrong))) << wrong;
  EXPECT_EQ(*read_size(scalar("64KiB")), 65536U);
  EXPECT_EQ(*read_size(scalar("1.5kB")), 1500U);
  for (const char* wrong : {"64", "64K", "64kb", "-1B", "64 KiB"})
    EXPECT_FALSE(read_size(scalar(wrong))) << wrong;
}

TEST(Values, WhatIsShownReadsBackAsTheSame) {
  for (const auto span :
       std::vector<std::chrono::nanoseconds>{0ns, 1ns, 1500us, 100ms, 90s, 2min, 36h, wait_forever})
    EXPECT_EQ(*read_duration(scalar(show_duration(span)), true), span) << show_duration(span);
  for (const double share : {0.0, 0.07, 0.333, 0.5, 1.0})
    EXPECT_DOUBLE_EQ(*read_share(scalar(show_share(share))), share);
  for (const std::uint64_t bytes : {0ULL, 1ULL, 1000ULL, 65536ULL, 1ULL << 30U})
    EXPECT_EQ(*read_size(scalar(show_size(bytes))), bytes);
}

TEST(Values, SwitchesOfOtherReadersAreNeverText) {
  for (const char* odd : {"yes", "No", "ON", "off", "y", "N", "True", "false"}) {
    EXPECT_FALSE(read_text(scalar(odd))) << odd;
    EXPECT_TRUE(read_text(scalar(odd, true))) << odd;
  }
  EXPECT_EQ(*read_flag(scalar("true")), true);
  for (const char* odd : {"yes", "True", "on", "1", "TRUE"}) EXPECT_FALSE(read_flag(scalar(odd))) << odd;
  EXPECT_FALSE(read_flag(scalar("true", true)));
}

TEST(Settings, EachRowIsWhole) {
  std::set<std::string> paths;
  for (const PathRow& r : all_rows()) {
    EXPECT_TRUE(paths.insert(r.path).second) << r.path << " stands in the table twice";
    EXPECT_FALSE(r.row->says.empty()) << r.path;
    EXPECT_TRUE(r.row->says.ends_with('.')) << r.path;
    EXPECT_FALSE(r.row->example.empty()) << r.path;
    const bool scalar = r.row->kind != Kind::section && r.row->kind != Kind::map;
    EXPECT_EQ(scalar, r.row->access.set != nullptr) << r.path;
    EXPECT_EQ(scalar, r.row->section == nullptr) << r.path;
    const bool has_words = r.row->kind == Kind::word || r.row->kind == Kind::words;
    EXPECT_EQ(has_words, !r.row->words.empty()) << r.path;
  }
  EXPECT_TRUE(paths.contains("bulkheads.NAME.adaptive.knee.margin"));
}

TEST(Settings, DefaultsAreThoseOfTheOptionStructs) {
  const SettingRow* row = find_row(common_section(), "max_concurrent");
  EXPECT_EQ(standard(*row, common_section()), std::to_string(BulkheadOptions{}.max_concurrent));
  EXPECT_EQ(standard(*find_row(common_section(), "max_wait"), common_section()), "forever");
  EXPECT_EQ(standard(*find_row(common_section(), "fallback_on"), common_section()),
            "[rejection, execution_timeout, failure]");
}

TEST(Settings, DefaultsAreWithinTheirBounds) {
  for (const PathRow& r : all_rows()) {
    if (r.row->low == r.row->high || r.row->required) continue;
    const std::string text = standard(*r.row, *r.section);
    if (text.empty() || text == "forever" || text.starts_with('[')) continue;
    double value = 0;
    const Node node = scalar(text);
    if (r.row->kind == Kind::duration) value = static_cast<double>(read_duration(node, false)->count());
    if (r.row->kind == Kind::size) value = static_cast<double>(*read_size(node));
    if (r.row->kind == Kind::share) value = *read_share(node);
    if (r.row->kind == Kind::count) value = static_cast<double>(*read_count(node));
    if (r.row->kind == Kind::number) value = *read_number(node);
    EXPECT_TRUE(r.row->above ? value > r.row->low : value >= r.row->low) << r.path << " = " << text;
    EXPECT_TRUE(r.row->below ? value < r.row->high : value <= r.row->high) << r.path << " = " << text;
  }
}

TEST(Settings, BoundsAreInWords) {
  const auto of = [](std::string_view name) { return bounds(*find_row(common_section(), name)); };
  EXPECT_EQ(of("max_concurrent"), "1 to 268435455");
  EXPECT_EQ(of("critical_reserve"), "0% to below 100%");
  EXPECT_EQ(of("execution_timeout"), "more than 0s");
}

TEST(Decode, OneHugeFileOfMistakesGetsABoundedAnswer) {
  Node root{.kind = Node::Kind::map, .at = {1, 1}};
  for (int i = 0; i < 5000; ++i) {
    root.keys.push_back(scalar("wrong" + std::to_string(i)));
    root.values.push_back(scalar("1"));
  }
  const Decoded decoded = decode(root, "f", "");
  EXPECT_EQ(decoded.problems.size(), 201U);
  EXPECT_EQ(decoded.problems.back().message, "there are more problems; only the first 200 are listed");
}

TEST(ConfigProblem, ShowsLineCaretAndHint) {
  const ConfigProblem p{.file = "f.yaml",
                        .at = {3, 4},
                        .path = "bulkheads.db.max_wait",
                        .message = "\"5\" has no unit",
                        .hint = "write 5s",
                        .source = "\té: 5"};
  EXPECT_EQ(to_text(p),
            "f.yaml:3:4: bulkheads.db.max_wait: \"5\" has no unit\n"
            "    \té: 5\n"
            "    \t  ^\n"
            "  hint: write 5s\n");
}

TEST(Lint, EveryRuleIsExplained) {
  std::set<std::string_view> names;
  for (const Rule& rule : rules()) {
    EXPECT_TRUE(names.insert(rule.name).second);
    for (const auto text : {rule.what, rule.why, rule.fix}) EXPECT_TRUE(text.ends_with('.')) << rule.name;
  }
  EXPECT_EQ(find_rule("nonsense"), nullptr);
}

}  // namespace
}  // namespace bulkhead::config
