// settings.h - the table of all settings: what may stand in a file, where, with which unit and bounds, what it means.
//
//   for (const Row& row : bulkhead_section().rows) print(row.name, row.says);
//
// Everything else comes from it: what decode() checks, what `bulkhead explain` says, the JSON Schema,
// docs/formats/config.md. A default is not written here: it is what the option structs begin with.
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
  word,      // one of Row::words
  flag,      // true, false
  text,
  name,     // of something else in the file
  words,    // a list of Row::words
  counts,   // a list of whole numbers
  texts,    // a list of text
  section,  // a map of the rows of Row::section
  map,      // a map of names, each a section
};

// A scalar or list that has been read; which member counts depends on the kind.
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

// How a row gets at its value. Targets are the structs of config.h and of the policies, each section's its own.
struct Access {
  void (*set)(void* target, const Value& value) = nullptr;
  Value (*get)(const void* target) = nullptr;
  // Sections: `enter` makes it if it is absent; `look` is null then; `clear` makes it absent.
  void* (*enter)(void* target) = nullptr;
  const void* (*look)(const void* target) = nullptr;
  void (*clear)(void* target) = nullptr;
  // Maps.
  void* (*add)(void* target, std::string_view name) = nullptr;
  void (*each)(const void* target, const std::function<void(std::string_view, const void*)>& visit) = nullptr;
};

struct Row {
  std::string_view name;
  Kind kind{};
  Access access{};
  double low = 0, high = 0;                   // of count, number, share, duration (ns), size (bytes), counts
  bool above = false, below = false;          // the bounds themselves are excluded
  bool forever = false;                       // a duration may be that
  std::span<const std::string_view> words{};  // of word and words
  const Section* section = nullptr;           // of section and map
  bool optional = false;                      // a section that is absent by default; "none" makes it so
  bool required = false;
  bool live = true;          // false: a change needs a restart
  std::string_view says;     // one sentence
  std::string_view example;  // a value, as YAML
};

struct Section {
  std::string_view name;  // of a map's element, for people: "bulkhead"
  std::string_view says;
  std::span<const Row> rows;
  const Section* base = nullptr;  // more rows, shared with others
  void* (*to_base)(void* target) = nullptr;
  const void* (*fresh)() = nullptr;  // a target with nothing but defaults
};

const Section& root_section();
const Section& common_section();  // what types, bulkheads and tenants have in common

std::string show(const Row& row, const Value& value);          // as YAML
std::string bounds(const Row& row);                            // "1 to 268435455", "above 0% to 100%"
std::string most(const Row& row);                              // "at most 744h"
std::string standard(const Row& row, const Section& section);  // the default as YAML; "" if there is none

// Rows of the section and of those it is based on, in the order of the documentation.
std::vector<const Row*> rows_of(const Section& section);
const Row* find_row(const Section& section, std::string_view name);

// Every row of the whole table under its path, with NAME for names: "bulkheads.NAME.breaker.open_for".
struct PathRow {
  std::string path;
  const Row* row;
  const Section* section;  // it is a row of
};
std::vector<PathRow> all_rows();

}  // namespace bulkhead::config
