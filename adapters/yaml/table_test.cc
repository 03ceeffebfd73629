// Every row of the settings table, through a real file: its example is read, stored and shown, its bounds hold, and what
// is accepted can be made.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/settings.h"
#include "yaml.h"

namespace bulkhead::yaml {
namespace {

using config::Kind;
using config::PathRow;

// What a setting needs beside it to make sense.
const char* company(std::string_view path) {
  if (path.find(".pool.") != path.npos || path.ends_with(".pool"))
    return "isolation: threads, max_concurrent: 65536, ";
  if (path.find(".budgets.") != path.npos) {
    if (path.ends_with(".max")) return "";
    return path.ends_with(".scope") ? "max: 200000, " : "max: 268435455, ";
  }
  if (path.ends_with(".guaranteed") || path.ends_with(".max")) return "group: orders-db, ";
  if (path.ends_with(".flow_hand") || path.ends_with(".flow_seed")) return "flow_queues: 64, ";
  if (path.ends_with(".burst") || path.ends_with(".per")) return "rate: 9, ";
  if (path.ends_with(".initial")) return "ceiling: 200, ";
  if (path.ends_with(".certificate")) return "private_key: x, ";
  if (path.ends_with(".private_key")) return "certificate: x, ";
  if (path.ends_with(".client_authorities")) return "certificate: x, private_key: x, ";
  if (path.ends_with("tls") || path.ends_with("tokens_file")) return "listen: '127.0.0.1:1', ";
  return "";
}

// A file in which `path` is `value`; NAME becomes x.
std::string file_with(std::string path, const std::string& value) {
  std::string text =
      "lint_allow: [unused]\nresources: {db: {capacity: 5}}\ngroups: {orders-db: {total: 5}}\nversion: 1\n"
      "host: {region: /run/shop/bulkhead}\nfleet: {store: 'redis://limits:6379'}\n";
  for (std::size_t i = path.find("NAME"); i != path.npos; i = path.find("NAME")) path.replace(i, 4, "x");
  const std::string top = path.substr(0, path.find('.'));
  if (const std::size_t line = text.find(top + ": "); line != text.npos)
    text.erase(line, text.find('\n', line) + 1 - line);
  std::string open, close;
  const std::string company_of = company(path);
  const bool threads = company_of.starts_with("isolation") && path.find(".pool.") != path.npos;
  for (std::size_t dot = path.find('.'); dot != path.npos; dot = path.find('.')) {
    const std::string part = path.substr(0, dot);
    if (part == "pool" && threads) open += company_of;
    open += part + ": {";
    close += "}";
    path.erase(0, dot + 1);
    if (part == "control" && path.starts_with("tls."))
      open += "listen: '127.0.0.1:1', ";
    else if (part == "control" && path != "listen" && path != "unix_socket" &&
             !company_of.starts_with("listen"))
      open += "unix_socket: s, ";
    if (part == "fleet" && path != "store") open += "store: 'redis://limits:6379', ";
    if (part == "resources" || part == "groups") continue;
    if (part == "x" && top == "groups" && path != "total") open += "total: 5, ";
    if (part == "x" && top == "resources" && path != "capacity") open += "capacity: 5, ";
  }
  if (!threads) open += company_of;
  return text + open + path + ": " + value + close + "\n";
}

std::string without_quotes(std::string text) {
  std::erase(text, '"');
  return text;
}

TEST(Table, EveryExampleIsReadStoredAndShown) {
  for (const PathRow& r : config::all_rows()) {
    const std::string text = file_with(r.path, std::string(r.row->example));
    const Loaded file = parse(text);
    ASSERT_TRUE(file.ok()) << r.path << "\n" << to_text(file.problems) << text;
    if (r.row->section) continue;
    std::string path = r.path;
    for (std::size_t at = path.find("NAME"); at != path.npos; at = path.find("NAME"))
      path.replace(at, 4, "x");
    std::string shown = "nothing";
    for (const Setting& s : settings(file.config))
      if (s.path == path) shown = s.given ? s.value : "not given";
    EXPECT_EQ(without_quotes(shown), without_quotes(std::string(r.row->example))) << r.path;
  }
}

TEST(Table, EveryBoundHolds) {
  for (const PathRow& r : config::all_rows()) {
    const bool number = r.row->kind == Kind::count || r.row->kind == Kind::number;
    if (!number || r.row->low == r.row->high) continue;
    const auto verdict = [&](double value) {
      std::string text = std::to_string(value);
      if (r.row->kind == Kind::count) text.erase(text.find('.'));
      for (const ConfigProblem& p : parse(file_with(r.path, text)).problems)
        if (p.message.find("is out of range") != std::string::npos ||
            p.message.find("is not a") != std::string::npos)
          return "rejected";
      return "accepted";
    };
    const double step = r.row->kind == Kind::count ? 1 : 0.001;
    EXPECT_STREQ(verdict(r.row->high), r.row->below ? "rejected" : "accepted") << r.path;
    EXPECT_STREQ(verdict(r.row->high + step), "rejected") << r.path;
    EXPECT_STREQ(verdict(r.row->low), r.row->above ? "rejected" : "accepted") << r.path;
    EXPECT_STREQ(verdict(r.row->low - step), "rejected") << r.path;
  }
}

TEST(Table, NoSettingTakesAMapOrNothing) {
  for (const PathRow& r : config::all_rows()) {
    if (r.row->section) continue;
    for (const char* wrong : {"{}", "~", "{a: [b]}"}) {
      const Loaded file = parse(file_with(r.path, wrong));
      ASSERT_FALSE(file.ok()) << r.path << " took " << wrong;
      EXPECT_FALSE(to_text(file.problems).empty());
    }
  }
}

// The extremes of every setting of a bulkhead, one at a time: what the decoder lets through no constructor rejects.
TEST(Table, WhatIsAcceptedCanBeMade) {
  for (const PathRow& r : config::all_rows()) {
    if (!r.path.starts_with("bulkheads.NAME.") || r.row->section) continue;
    std::vector<std::string> values{std::string(r.row->example), "forever"};
    for (const double bound : {r.row->low, r.row->high}) {
      std::string whole = std::to_string(bound);
      whole.erase(whole.find('.'));
      values.insert(values.end(), {whole, std::to_string(bound), whole + "ns", whole + "B"});
    }
    for (const auto word : r.row->words) values.emplace_back(word);
    for (const std::string& value : values) {
      const Loaded file = parse(file_with(r.path, value));
      if (!file.ok()) continue;
      BulkheadOptions options = file.config.find("x")->options;
      options.pool.min_threads = 0;  // starts none
      options.track_holders = false;
      options.scope = Scope::process;  // beyond it, units come from an adapter
      for (BudgetOptions& budget : options.budgets) budget.scope = Scope::process;
      if (r.path.ends_with("max_concurrent") && options.max_concurrent > 1000) continue;  // much memory
      EXPECT_NO_THROW(Bulkhead made(options)) << r.path << ": " << value;
    }
  }
}

}  // namespace
}  // namespace bulkhead::yaml
