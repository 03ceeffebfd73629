// What can be asked of the rows of the settings table.
#include <algorithm>

#include "base/text.h"
#include "config/table.h"
#include "config/values.h"

namespace bulkhead::config {
namespace {

std::string list(std::span<const std::string> items) {
  std::string text = "[";
  for (const std::string& item : items) text.append(text.size() > 1 ? ", " : "").append(item);
  return text + "]";
}

std::string show_bound(const SettingRow& row, double bound) {
  switch (row.kind) {
    case Kind::duration:
      return show_duration(std::chrono::nanoseconds(static_cast<std::int64_t>(bound)));
    case Kind::size:
      return show_size(static_cast<std::uint64_t>(bound));
    case Kind::share:
      return show_share(bound);
    default:
      return show_number(bound);
  }
}

void collect(std::vector<PathRow>& rows, const std::string& prefix, const Section& section) {
  for (const SettingRow* row : rows_of(section)) {
    const std::string path = prefix.empty() ? std::string(row->name) : base::join({prefix, ".", row->name});
    rows.push_back({path, row, &section});
    if (row->kind == Kind::section) collect(rows, path, *row->section);
    if (row->kind == Kind::map) collect(rows, path + ".NAME", *row->section);
  }
}

}  // namespace

// The inverse of reading: a file with this text has this value. Plans compare these texts.
std::string show(const SettingRow& row, const Value& value) {
  std::vector<std::string> items;
  switch (row.kind) {
    case Kind::count:
      return std::to_string(value.whole);
    case Kind::number:
      return show_number(value.number);
    case Kind::share:
      return show_share(value.number);
    case Kind::part:
      return show_part(value.part);
    case Kind::duration:
      return show_duration(value.span);
    case Kind::size:
      return show_size(value.whole);
    case Kind::word:
      return std::string(row.words[value.whole]);
    case Kind::flag:
      return value.flag ? "true" : "false";
    case Kind::text:
    case Kind::name:
      return show_text(value.text);
    case Kind::words:
      for (const std::uint64_t i : value.list) items.emplace_back(row.words[i]);
      return list(items);
    case Kind::counts:
      for (const std::uint64_t i : value.list) items.push_back(std::to_string(i));
      return list(items);
    case Kind::texts:
      for (const std::string& text : value.texts) items.push_back(show_text(text));
      return list(items);
    case Kind::section:
    case Kind::map:
      break;
  }
  return "";
}

std::string bounds(const SettingRow& row) {
  if (row.low == row.high) return row.high == 0 ? "" : show_bound(row, row.high);
  if (row.kind == Kind::duration && row.high == kLongest) {  // the upper bound is not worth mentioning
    if (row.low == 0) return row.above ? "more than 0s" : "0s or more";
    return show_bound(row, row.low) + " or more";
  }
  if (row.high == kMostCount && row.low <= 1) return show_bound(row, row.low) + " or more";
  return base::join({row.above ? "above " : "", show_bound(row, row.low), row.below ? " to below " : " to ",
                     show_bound(row, row.high)});
}

std::string most(const SettingRow& row) {
  const bool told = bounds(row).ends_with(show_bound(row, row.high));
  return told ? bounds(row) : "at most " + show_bound(row, row.high);
}

std::string standard(const SettingRow& row, const Section& section) {
  if (row.required || row.kind == Kind::map) return "";
  if (row.kind == Kind::section) return row.optional ? "none" : "";
  const auto has = [&row](const Section& one) {
    return std::ranges::any_of(one.rows, [&row](const SettingRow& r) { return &r == &row; });
  };
  const Section* owner = &section;
  while (owner->base && !has(*owner)) owner = owner->base;
  const Value value = row.access.get(owner->fresh());
  if ((row.kind == Kind::text || row.kind == Kind::name) && value.text.empty()) return "";
  return show(row, value);
}

std::vector<const SettingRow*> rows_of(const Section& section) {
  std::vector<const SettingRow*> rows;
  for (const Section* s = &section; s; s = s->base)
    for (const SettingRow& row : s->rows) rows.push_back(&row);
  return rows;
}

const SettingRow* find_row(const Section& section, std::string_view name) {
  for (const Section* s = &section; s; s = s->base)
    for (const SettingRow& row : s->rows)
      if (row.name == name) return &row;
  return nullptr;
}

std::vector<PathRow> all_rows() { return all_rows(root_section()); }

std::vector<PathRow> all_rows(const Section& root) {
  std::vector<PathRow> rows;
  collect(rows, "", root);
  return rows;
}

}  // namespace bulkhead::config
