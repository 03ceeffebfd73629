#include "config/override.h"

#include <utility>

#include "base/suggest.h"
#include "base/text.h"
#include "config/checks.h"
#include "config/running.h"
#include "config/settings.h"
#include "config/values.h"

namespace bulkhead::config {
namespace {

using base::join;

Read<Value> wrong(std::string message, std::string hint = "") {
  return Unexpected(Complaint{std::move(message), std::move(hint)});
}

template <class T>
Read<Value> as_value(Read<T> read, T Value::* member) {
  if (!read) return Unexpected(std::move(read.error()));
  Value value;
  value.*member = std::move(*read);
  return value;
}

Read<Value> within(const SettingRow& row, Read<Value> value, double number, std::string_view text) {
  if (!value) return value;
  const bool low = row.above ? number > row.low : number >= row.low;
  const bool high = row.below ? number < row.high : number <= row.high;
  if (low && high) return value;
  return wrong(join({text, " is out of range"}), join({"give ", bounds(row)}));
}

enum class When : std::uint8_t { running, starting };

// The text is read as a scalar of the file, by the same functions.
Read<Value> read(const SettingRow& row, std::string_view text, When when) {
  const Node node{.kind = Node::Kind::scalar, .text = std::string(text)};
  switch (row.kind) {
    case Kind::count:
    case Kind::size: {
      auto value = as_value(row.kind == Kind::count ? read_count(node) : read_size(node), &Value::whole);
      return within(row, value, value ? static_cast<double>(value->whole) : 0, text);
    }
    case Kind::number:
    case Kind::share: {
      auto value = as_value(row.kind == Kind::number ? read_number(node) : read_share(node), &Value::number);
      return within(row, value, value ? value->number : 0, text);
    }
    case Kind::duration: {
      auto value = as_value(read_duration(node, row.forever), &Value::span);
      if (value && value->span == wait_forever) return value;
      return within(row, value, value ? static_cast<double>(value->span.count()) : 0, text);
    }
    case Kind::part:
      return as_value(read_part(node), &Value::part);
    case Kind::flag:
      return as_value(read_flag(node), &Value::flag);
    case Kind::word:
      for (std::size_t i = 0; i < row.words.size(); ++i)
        if (row.words[i] == text) return Value{.whole = i};
      return wrong(join({quoted(text), " is none of its words"}), join({"give ", one_of(row.words)}));
    case Kind::text:
      if (when == When::starting) return as_value(read_text(node), &Value::text);
      [[fallthrough]];
    default:
      return wrong("cannot be changed by itself at run time",
                   "override a number, a duration, a share, a flag or a word; change this one in the file");
  }
}

// The row of that name, and the struct it is about.
const SettingRow* find(const Section& section, std::string_view name, void*& target) {
  for (const Section* s = &section; s; s = s->base) {
    for (const SettingRow& row : s->rows)
      if (row.name == name) return &row;
    if (s->base) target = s->to_base(target);
  }
  return nullptr;
}

std::string_view take_part(std::string_view& path) {
  const std::size_t dot = path.find('.');
  const std::string_view part = path.substr(0, dot);
  path = dot == path.npos ? "" : path.substr(dot + 1);
  return part;
}

// The bulkhead, group or set of tenants that a path begins with; its section.
Read<const Section*> find_entry(Config& config, std::string_view map, std::string_view name, void*& target) {
  std::vector<std::string> names;
  const SettingRow* const row = find_row(root_section(), map);
  row->access.each(&config, [&](std::string_view each, const void* one) {
    names.emplace_back(each);
    if (each == name) target = const_cast<void*>(one);  // config is not const
  });
  if (target) return row->section;
  const std::string nearest = base::suggest(name, names);
  return Unexpected(Complaint{join({"there is no ", row->section->name, " ", quoted(name)}),
                              nearest.empty() ? "" : join({"did you mean ", nearest, "?"})});
}

// Walks the path through the settings table. At the start of the process more can be set than while it runs.
Read<Value> set(Config& config, std::string_view path, std::string_view text, When when) {
  const std::string_view map = take_part(path);
  void* target = nullptr;
  const Section* section = nullptr;
  const bool starting = when == When::starting;
  if (map == "bulkheads" || map == "groups" || map == "tenants" || (starting && map == "resources")) {
    const std::string_view name = take_part(path);
    auto found = find_entry(config, map, name, target);
    if (!found) return Unexpected(std::move(found.error()));
    section = *found;
    const BulkheadConfig* const bulkhead = map == "bulkheads" ? config.find(name) : nullptr;
    if (!starting && bulkhead && !bulkhead->group.empty() && fixed_in_group(path))
      return wrong("of a member of a group needs a restart", "change it in the file");
  } else if (starting && map == "control") {
    const SettingRow* const row = find_row(root_section(), map);
    target = row->access.enter(&config);
    section = row->section;
  } else {
    return wrong("cannot be overridden",
                 "give a setting of bulkheads, groups or tenants, as bulkheads.db.max_queue");
  }
  const SettingRow* row = nullptr;
  for (;;) {
    const std::string_view part = take_part(path);
    row = find(*section, part, target);
    if (!row) {
      std::vector<std::string> known;
      for (const SettingRow* r : rows_of(*section)) known.emplace_back(r->name);
      const std::string nearest = base::suggest(part, known);
      return wrong(join({"there is no setting ", quoted(part)}),
                   nearest.empty() ? "bulkhead explain lists them" : join({"did you mean ", nearest, "?"}));
    }
    if (!starting && !row->live) return wrong("needs a restart", "change it in the file");
    if (row->kind == Kind::map && !path.empty()) {
      const std::string_view name = take_part(path);
      bool found = false;
      row->access.each(target, [&](std::string_view each, const void*) { found |= each == name; });
      if (!found)
        return wrong(join({"there is no ", row->section->name, " ", quoted(name)}), "add it in the file");
      target = row->access.add(target, name);
      section = row->section;
      if (path.empty())
        return wrong("cannot be changed as a whole",
                     join({"give one of its settings, as ", part, ".", name, ".max"}));
      continue;
    }
    if (row->kind != Kind::section || path.empty()) break;
    if (!row->access.look(target)) return wrong(join({"there is no ", part}), "add it in the file");
    target = row->access.enter(target);
    section = row->section;
  }
  if (!path.empty()) return wrong(join({"there is nothing below ", row->name}));
  Read<Value> value = read(*row, text, when);
  if (value) row->access.set(target, *value);
  return value;
}

std::vector<ConfigProblem> problems_of(std::string_view path, Read<Value> done) {
  if (done) return {};
  return {{.path = std::string(path),
           .message = std::move(done.error().message),
           .hint = std::move(done.error().hint)}};
}

}  // namespace

std::vector<ConfigProblem> set_value(Config& config, std::string_view path, std::string_view value) {
  return problems_of(path, set(config, path, value, When::running));
}

std::vector<ConfigProblem> give_value(Config& config, std::string_view path, std::string_view value) {
  return problems_of(path, set(config, path, value, When::starting));
}

std::vector<ConfigProblem> check_all(const Config& config) {
  std::vector<ConfigProblem> problems;
  check(config, {.broken = [](std::string_view) { return false; },
                 .complain =
                     [&](std::string path, std::string message, std::string hint) {
                       problems.push_back(
                           {.path = std::move(path), .message = std::move(message), .hint = std::move(hint)});
                     }});
  return problems;
}

}  // namespace bulkhead::config
