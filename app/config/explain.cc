#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>

#include "app/cli/command_line.h"
#include "app/cli/json.h"
#include "app/cli/terminal.h"
#include "app/cli/text.h"
#include "app/config/commands.h"
#include "app/config/reasons.h"
#include "app/config/words.h"
#include "app/gateway/gateway.h"
#include "base/suggest.h"
#include "config/lint.h"
#include "control/state/verdict.h"

namespace bulkhead::config {
namespace {

constexpr const char* kAbout =
    "Explain a setting, a lint rule, a reason or a symptom\n"
    "\n"
    "Examples:\n"
    "  bulkhead explain                              list everything, one line each\n"
    "  bulkhead explain max_queue\n"
    "  bulkhead explain bulkheads.db.breaker.open_for\n"
    "  bulkhead explain queue-too-deep               a rule of bulkhead check\n"
    "  bulkhead explain queue_limit                  a reason of a rejection\n"
    "  bulkhead explain slow-dependency              a symptom of bulkhead status\n"
    "  bulkhead explain --schema > bulkhead.schema.json    for your editor";

constexpr std::size_t kColumns = 96;

struct Options {
  std::string topic;
  bool json = false, schema = false, markdown = false;
};

// A row of the settings table, and all its paths.
struct Topic {
  const SettingRow* row;
  const Section* section;
  std::vector<std::string> paths;
};

std::vector<Topic> topics() {
  std::vector<Topic> all;
  for (PathRow& r : all_rows(gateway::root())) {
    const auto known = std::ranges::find(all, r.row, &Topic::row);
    if (known == all.end())
      all.push_back({r.row, r.section, {std::move(r.path)}});
    else
      known->paths.push_back(std::move(r.path));
  }
  for (Topic& t : all) {  // the path of bulkheads first
    const auto is_bulkhead = [](const std::string& path) { return path.starts_with("bulkheads."); };
    const auto first = std::ranges::find_if(t.paths, is_bulkhead);
    if (first != t.paths.end()) std::rotate(t.paths.begin(), first, first + 1);
  }
  return all;
}

std::vector<std::string_view> parts(std::string_view path) {
  std::vector<std::string_view> parts;
  for (std::size_t dot = path.find('.'); dot != path.npos; dot = path.find('.')) {
    parts.push_back(path.substr(0, dot));
    path.remove_prefix(dot + 1);
  }
  parts.push_back(path);
  return parts;
}

// The end of `path` is `asked`; NAME is any name.
bool ends_with(std::string_view path, std::string_view asked) {
  const auto have = parts(path), want = parts(asked);
  if (want.size() > have.size()) return false;
  for (std::size_t i = 0; i < want.size(); ++i) {
    const std::string_view part = have[have.size() - want.size() + i];
    if (part != want[i] && (part != "NAME" || i + 1 == want.size())) return false;
  }
  return true;
}

std::vector<Topic> find_topics(std::string_view asked) {
  std::vector<Topic> found;
  for (const Topic& t : topics())
    if (std::ranges::any_of(t.paths, [&](const std::string& path) { return ends_with(path, asked); }))
      found.push_back(t);
  return found;
}

const ReasonText* find_reason(std::string_view asked) {
  for (const ReasonText& r : reasons())
    if (to_string(r.reason) == asked) return &r;
  return nullptr;
}

void line(std::string_view label, const std::string& text) {
  if (!text.empty()) fmt::print("  {:<9}{}\n", label, text);
}

std::string change(const SettingRow& row) {
  return row.live ? "takes effect immediately" : "needs a restart";
}

void print(const Topic& t) {
  fmt::print("{}\n{}\n", t.paths.front(), cli::wrap(t.row->says, kColumns, "  "));
  line("values", values_words(*t.row));
  line("default", standard(*t.row, *t.section));
  if (t.row->required) line("default", "none, required");
  line("change", change(*t.row));
  line("example", fmt::format("{}: {}", t.row->name, t.row->example));
  for (std::size_t i = 1; i < t.paths.size(); ++i) line(i == 1 ? "also" : "", t.paths[i]);
}

void print(const Rule& rule) {
  fmt::print("{} (lint rule)\n{}\n", rule.name, cli::wrap(rule.what, kColumns, "  "));
  fmt::print("  why\n{}\n  fix\n{}\n", cli::wrap(rule.why, kColumns, "    "),
             cli::wrap(rule.fix, kColumns, "    "));
  fmt::print("  allow it on purpose: lint_allow: [{}]\n", rule.name);
}

void print(const ReasonText& r) {
  fmt::print("{} (reason of a rejection)\n{}\n", to_string(r.reason), cli::wrap(r.means, kColumns, "  "));
  fmt::print("  what to do\n{}\n", cli::wrap(r.what_to_do, kColumns, "    "));
}

void print(const control::SymptomRow& s) {
  fmt::print("{} (symptom in bulkhead status)\n{}\n", s.name, cli::wrap(s.when, kColumns, "  "));
  fmt::print("  likely\n{}\n", cli::wrap(s.likely, kColumns, "    "));
  fmt::print("  next\n{}\n", cli::wrap(s.action, kColumns, "    "));
  fmt::print("  more: docs/operate/runbook.md#{}\n", s.name);
}

void add(cli::JsonWriter& json, const Topic& t) {
  json.open().field("kind", "setting").field("path", t.paths.front()).field("says", t.row->says);
  json.field("values", values_words(*t.row)).field("default", standard(*t.row, *t.section));
  json.field("required", t.row->required).field("live", t.row->live).field("example", t.row->example);
  json.list("paths");
  for (const std::string& path : t.paths) json.field("", path);
  json.close().close();
}

void add(cli::JsonWriter& json, const Rule& r) {
  json.open()
      .field("kind", "rule")
      .field("name", r.name)
      .field("says", r.what)
      .field("why", r.why)
      .field("fix", r.fix);
  json.close();
}

void add(cli::JsonWriter& json, const ReasonText& r) {
  json.open().field("kind", "reason").field("name", to_string(r.reason)).field("says", r.means);
  json.field("what_to_do", r.what_to_do).close();
}

void add(cli::JsonWriter& json, const control::SymptomRow& s) {
  json.open().field("kind", "symptom").field("name", s.name).field("says", s.when);
  json.field("likely", s.likely).field("what_to_do", s.action).close();
}

void print_json(const std::vector<Topic>& settings, std::span<const Rule> some_rules,
                std::span<const ReasonText> some_reasons,
                std::span<const control::SymptomRow> some_symptoms) {
  cli::JsonWriter json;
  json.open().list("topics");
  for (const Topic& t : settings) add(json, t);
  for (const Rule& r : some_rules) add(json, r);
  for (const ReasonText& r : some_reasons) add(json, r);
  for (const control::SymptomRow& s : some_symptoms) add(json, s);
  cli::say(json.close().close().text());
}

int list(const Options& o) {
  if (o.json) {
    print_json(topics(), rules(), reasons(), control::symptoms());
    return 0;
  }
  fmt::print("Settings (NAME is any name):\n");
  for (const Topic& t : topics())
    fmt::print("  {:<42}  {}\n", t.paths.front(),
               t.row->section ? std::string(t.row->says) : values_words(*t.row));
  fmt::print("\nLint rules of bulkhead check:\n");
  for (const Rule& r : rules()) fmt::print("  {:<22}  {}\n", r.name, r.what);
  fmt::print("\nReasons of a rejection:\n");
  for (const ReasonText& r : reasons()) fmt::print("  {:<22}  {}\n", to_string(r.reason), r.means);
  fmt::print("\nSymptoms in bulkhead status:\n");
  for (const control::SymptomRow& s : control::symptoms()) fmt::print("  {:<22}  {}\n", s.name, s.when);
  return 0;
}

int unknown(const std::string& topic) {
  std::vector<std::string> known;
  for (const Topic& t : topics()) {
    known.emplace_back(t.row->name);
    known.insert(known.end(), t.paths.begin(), t.paths.end());
  }
  for (const Rule& r : rules()) known.emplace_back(r.name);
  for (const ReasonText& r : reasons()) known.emplace_back(to_string(r.reason));
  for (const control::SymptomRow& s : control::symptoms()) known.emplace_back(s.name);
  std::string nearest = base::suggest(topic, known);
  if (nearest.empty())  // perhaps only the last part of a path is wrong
    nearest = base::suggest(parts(topic).back(), known);
  fmt::print(stderr, "bulkhead explain: unknown topic \"{}\"{}\nTry: bulkhead explain\n", topic,
             nearest.empty() ? "" : fmt::format("; did you mean \"{}\"?", nearest));
  return cli::kUsage;
}

// A word may be a setting, a lint rule, a reason or a symptom; all that match are shown.
int run(const Options& o) {
  if (o.schema || o.markdown) {
    cli::say(o.schema ? schema_text() : markdown_text());
    return 0;
  }
  if (o.topic.empty()) return list(o);
  const std::vector<Topic> settings = find_topics(o.topic);
  const Rule* rule = find_rule(o.topic);
  const ReasonText* reason = find_reason(o.topic);
  const control::SymptomRow* symptom = control::find_symptom(o.topic);
  if (settings.empty() && !rule && !reason && !symptom) return unknown(o.topic);
  if (o.json) {
    print_json(settings, {rule, rule ? 1U : 0U}, {reason, reason ? 1U : 0U}, {symptom, symptom ? 1U : 0U});
    return 0;
  }
  bool first = true;
  const auto each = [&](const auto& topic) {
    if (!std::exchange(first, false)) fmt::print("\n");
    print(topic);
  };
  for (const Topic& t : settings) each(t);
  if (rule) each(*rule);
  if (reason) each(*reason);
  if (symptom) each(*symptom);
  return 0;
}

}  // namespace

// The kind of a value, in words.
std::string kind_words(const SettingRow& row) {
  const auto words = [&] {
    std::string text;
    for (const std::string_view word : row.words) text.append(text.empty() ? "" : ", ").append(word);
    return text;
  };
  switch (row.kind) {
    case Kind::count:
      return "whole number";
    case Kind::number:
      return "number";
    case Kind::share:
      return "share";
    case Kind::part:
      return "percentage or units";
    case Kind::duration:
      return "duration";
    case Kind::size:
      return "size";
    case Kind::word:
      return "one of " + words();
    case Kind::flag:
      return "true or false";
    case Kind::text:
      return "text";
    case Kind::name:
      return "a name";
    case Kind::words:
      return "list of " + words();
    case Kind::counts:
      return "list of whole numbers";
    case Kind::texts:
      return "list of texts";
    case Kind::section:
      return row.optional ? "a map of settings, or none" : "a map of settings";
    case Kind::map:
      return "a map of names";
  }
  return "";
}

std::string values_words(const SettingRow& row) {
  std::string text = kind_words(row);
  if (const std::string b = bounds(row); !b.empty()) text += ", " + b;
  return row.forever ? text + ", or forever" : text;
}

std::function<int()> add_explain(CLI::App& app) {
  auto o = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("explain", kAbout);
  auto* topic =
      command->add_option("TOPIC", o->topic, "A setting, a lint rule, a reason or a symptom")->type_name("");
  auto* json = command->add_flag("--json", o->json, "Print one JSON document and nothing else");
  auto* schema = command->add_flag("--schema", o->schema, "Print the JSON Schema of configuration files")
                     ->excludes(topic);
  command->add_flag("--markdown", o->markdown, "Print the reference, docs/formats/config.md")
      ->excludes(topic)
      ->excludes(json)
      ->excludes(schema);
  schema->excludes(json);
  return [o] { return run(*o); };
}

}  // namespace bulkhead::config
