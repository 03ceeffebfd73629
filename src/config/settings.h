// settings.h - the table of all settings: path, kind, unit, bounds and meaning of everything that a file may contain.
//
//   for (const PathRow& r : all_rows()) print(r.path, r.row->says);
//
// decode(), `bulkhead explain`, the JSON Schema and docs/formats/config.md are made from it. The table contains no defaults:
// they are those of the option structs.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bulkhead/config.h"

namespace bulkhead::config {

enum class Kind : std::uint8_t {
  count,     // 20
  number,    // 1.5
  share,     // 20%, 0.2
  part,      // 50%, 5
  duration,  // 250ms
  size,      // 64KiB
  word,      // one of SettingRow::words
  flag,      // true, false
  text,
  name,     // refers to another entry of the file
  words,    // a list of SettingRow::words
  counts,   // a list of whole numbers
  texts,    // a list of text
  section,  // a map of the rows of SettingRow::section
  map,      // a map of names, each a section
};

// A scalar or list that was read; the kind says which member is used.
struct Value {
  std::uint64_t whole = 0;  // count, size, the index of a word
  double number = 0;        // number, share
  bool flag = false;
  Share part{};
  std::chrono::nanoseconds span{};
  std::string text{};
  std::vector<std::uint64_t> list{};  // counts, the indices of words
  std::vector<std::string> texts{};
};

struct Section;

// How a row accesses its value. A target is the struct of its section: one of config.h or the options of a policy.
struct Access {
  void (*set)(void* target, const Value& value) = nullptr;
  Value (*get)(const void* target) = nullptr;
  // Sections: `enter` creates an absent one; `look` returns null if absent; `clear` removes it.
  void* (*enter)(void* target) = nullptr;
  const void* (*look)(const void* target) = nullptr;
  void (*clear)(void* target) = nullptr;
  // Maps.
  void* (*add)(void* target, std::string_view name) = nullptr;
  void (*each)(const void* target, const std::function<void(std::string_view, const void*)>& visit) = nullptr;
};

struct SettingRow {
  std::string_view name;
  Kind kind{};
  Access access{};
  double low = 0, high = 0;                   // of count, number, share, duration (ns), size (bytes), counts
  bool above = false, below = false;          // the bounds themselves are excluded
  bool forever = false;                       // a duration may be forever
  std::span<const std::string_view> words{};  // of word and words
  const Section* section = nullptr;           // of section and map
  bool optional = false;                      // a section that is absent by default, or by "none"
  bool required = false;
  bool live = true;          // false: a change needs a restart
  std::string_view says;     // one sentence
  std::string_view example;  // a value, as YAML
};

struct Section {
  std::string_view name;  // of an element of a map: "bulkhead"
  std::string_view says;
  std::span<const SettingRow> rows;
  const Section* base = nullptr;  // more rows, shared with others
  void* (*to_base)(void* target) = nullptr;
  const void* (*fresh)() = nullptr;  // a target with the defaults
};

const Section& root_section();
const Section& common_section();  // settings that types, bulkheads and tenants share

std::string show(const SettingRow& row, const Value& value);          // as YAML
std::string bounds(const SettingRow& row);                            // "1 to 268435455", "above 0% to 100%"
std::string most(const SettingRow& row);                              // "at most 744h"
std::string standard(const SettingRow& row, const Section& section);  // the default as YAML; "": none

// The rows of the section and of its base, in the order of the documentation.
std::vector<const SettingRow*> rows_of(const Section& section);
const SettingRow* find_row(const Section& section, std::string_view name);

// Every row of the whole table under its path, with NAME for names: "bulkheads.NAME.breaker.open_for".
struct PathRow {
  std::string path;
  const SettingRow* row;
  const Section* section;  // the section of the row
};
std::vector<PathRow> all_rows();
std::vector<PathRow> all_rows(const Section& root);

// The values of `target` under `path`, as settings() of config.h gives those of a file. `file` says which of them are given.
std::vector<Setting> settings_of(const Config& file, const std::string& path, const Section& section,
                                 const void* target);

}  // namespace bulkhead::config
