#include <string>
#include <vector>

#include "app/cli/json.h"
#include "app/config/commands.h"
#include "app/gateway/gateway.h"
#include "config/settings.h"

namespace bulkhead::config {
namespace {

using cli::JsonWriter;

constexpr std::string_view kName = "^[A-Za-z][A-Za-z0-9_-]{0,99}$";
constexpr std::string_view kPercent = "^[0-9]+([.][0-9]+)?%$";
constexpr std::string_view kDuration = "^([0-9]+([.][0-9]+)?(ns|us|µs|ms|s|m|h|d))+$";
constexpr std::string_view kDurationOrForever = "^([0-9]+([.][0-9]+)?(ns|us|µs|ms|s|m|h|d))+$|^forever$";
constexpr std::string_view kSize = "^[0-9]+([.][0-9]+)?(B|KiB|MiB|GiB|kB|MB|GB)$";

void add_bounds(JsonWriter& json, const SettingRow& row) {
  if (row.low == row.high && row.high == 0) return;
  json.field(row.above ? "exclusiveMinimum" : "minimum", row.low);
  json.field(row.below ? "exclusiveMaximum" : "maximum", row.high);
}

void add_words(JsonWriter& json, const SettingRow& row) {
  json.list("enum");
  for (const std::string_view word : row.words) json.field("", word);
  json.close();
}

void add_pattern(JsonWriter& json, std::string_view pattern) {
  json.field("type", "string").field("pattern", pattern);
}

// "x: 5" or "x: 20%".
void add_number_or_percent(JsonWriter& json, const SettingRow& row, std::string_view type) {
  json.list("anyOf").open().field("type", type);
  if (row.kind == Kind::share)
    add_bounds(json, row);
  else
    json.field("minimum", 0U);
  json.close().open();
  add_pattern(json, kPercent);
  json.close().close();
}

void add_ref(JsonWriter& json, const Section& section) {
  json.field("$ref", std::string("#/$defs/").append(section.name));
}

// JSON Schema has no durations and shares: patterns and alternatives stand for them.
void add_type(JsonWriter& json, const SettingRow& row) {
  switch (row.kind) {
    case Kind::count:
      json.field("type", "integer");
      return add_bounds(json, row);
    case Kind::number:
      json.field("type", "number");
      return add_bounds(json, row);
    case Kind::share:
      return add_number_or_percent(json, row, "number");
    case Kind::part:
      return add_number_or_percent(json, row, "integer");
    case Kind::duration:
      return add_pattern(json, row.forever ? kDurationOrForever : kDuration);
    case Kind::size:
      return add_pattern(json, kSize);
    case Kind::word:
      return add_words(json, row);
    case Kind::flag:
      json.field("type", "boolean");
      return;
    case Kind::text:
      json.field("type", "string").field("minLength", 1U);
      return;
    case Kind::name:
      return add_pattern(json, kName);
    case Kind::words:
    case Kind::counts:
    case Kind::texts:
      json.field("type", "array").field("uniqueItems", true).open("items");
      if (row.kind == Kind::words) {
        add_words(json, row);
      } else if (row.kind == Kind::counts) {
        json.field("type", "integer");
        add_bounds(json, row);
      } else {
        json.field("type", "string").field("minLength", 1U);
      }
      json.close();
      return;
    case Kind::section:
      if (!row.optional) return add_ref(json, *row.section);
      json.list("anyOf").open();
      add_ref(json, *row.section);
      json.close().open().field("const", "none").close().close();
      return;
    case Kind::map:
      json.list("type").field("", "object").field("", "null").close();
      json.open("propertyNames").field("pattern", kName).close();
      json.open("additionalProperties");
      add_ref(json, *row.section);
      json.close();
      return;
  }
}

// A default as JSON: what is no number, flag or list there is text.
void add_default(JsonWriter& json, const SettingRow& row, const Section& section) {
  const std::string text = standard(row, section);
  if (text.empty()) return;
  if (row.kind == Kind::count || row.kind == Kind::number) {
    json.field("default", std::stod(text));
  } else if (row.kind == Kind::flag) {
    json.field("default", text == "true");
  } else if (row.kind == Kind::words) {
    json.list("default");
    for (const std::uint64_t i : row.access.get(common_section().fresh()).list) json.field("", row.words[i]);
    json.close();
  } else if (row.kind != Kind::counts && row.kind != Kind::texts) {
    json.field("default", text);
  }
}

// `inherited`: a type may have given what is required.
void add_section(JsonWriter& json, const Section& section, bool inherited) {
  json.field("type", "object").field("description", section.says).field("additionalProperties", false);
  std::vector<std::string_view> required;
  json.open("properties");
  for (const SettingRow* row : rows_of(section)) {
    json.open(row->name).field("description", row->says);
    add_type(json, *row);
    add_default(json, *row, section);
    json.close();
    if (row->required && !inherited) required.push_back(row->name);
  }
  json.close();
  if (required.empty()) return;
  json.list("required");
  for (const std::string_view name : required) json.field("", name);
  json.close();
}

struct Definition {
  const Section* section;
  bool inherited;
};

void collect(std::vector<Definition>& all, const Section& section, bool inherited) {
  for (const SettingRow* row : rows_of(section)) {
    if (!row->section) continue;
    bool known = false;
    for (const Definition& d : all) known = known || d.section == row->section;
    if (known) continue;
    const bool below = inherited || section.base != nullptr;
    all.push_back({row->section, below});
    collect(all, *row->section, below);
  }
}

}  // namespace

std::string schema_text() {
  std::vector<Definition> definitions;
  collect(definitions, gateway::root(), false);
  JsonWriter json;
  json.open()
      .field("$schema", "https://json-schema.org/draft/2020-12/schema")
      .field("$id", "https://bulkhead.invalid/bulkhead.schema.json")
      .field("title", "Bulkhead configuration");
  add_section(json, gateway::root(), false);
  json.open("$defs");
  for (const Definition& d : definitions) {
    json.open(d.section->name);
    add_section(json, *d.section, d.inherited);
    json.close();
  }
  return json.close().close().text();
}

}  // namespace bulkhead::config
