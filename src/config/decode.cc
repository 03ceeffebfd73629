#include "config/decode.h"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "base/suggest.h"
#include "base/text.h"
#include "config/checks.h"
#include "config/settings.h"
#include "config/values.h"
#include "registry/types.h"

namespace bulkhead::config {
namespace {

using base::join;

// Names of the settings in other systems, for hints.
constexpr std::array<std::pair<std::string_view, std::string_view>, 22> kOtherNames{{
    {"limit", "max_concurrent"},
    {"concurrency", "max_concurrent"},
    {"max_concurrency", "max_concurrent"},
    {"maxConcurrent", "max_concurrent"},
    {"maxConcurrentCalls", "max_concurrent"},
    {"max_requests", "max_concurrent"},
    {"permits", "max_concurrent"},
    {"threads", "max_concurrent"},
    {"max_threads", "max_concurrent"},
    {"pool_size", "max_concurrent"},
    {"queue", "max_queue"},
    {"queue_size", "max_queue"},
    {"maxQueue", "max_queue"},
    {"queueCapacity", "max_queue"},
    {"max_pending_requests", "max_queue"},
    {"maxWaitDuration", "max_wait"},
    {"queue_timeout", "max_wait"},
    {"wait_timeout", "max_wait"},
    {"circuit_breaker", "breaker"},
    {"circuitBreaker", "breaker"},
    {"rate_limiter", "rate_limit"},
    {"priority", "criticality"},
}};

// Bounds the answer to a file with very many mistakes.
constexpr std::size_t kMostProblems = 200;

std::string child(std::string_view path, std::string_view name) {
  return path.empty() ? std::string(name) : join({path, ".", name});
}

class Decoder {
 public:
  Decoder(std::string_view file, std::string_view text) : file_(file), text_(text) {
    result_.config.types = built_in_types();
  }

  // The rules between settings run also after errors, so that one run reports all problems.
  Decoded run(const Node& root) {
    if (root.is_map()) {
      section(root_section(), &config(), root, "", root.at, true);
      check(config(), {.broken = [this](std::string_view path) { return is_broken(path); },
                       .complain =
                           [this](std::string path, std::string message, std::string hint) {
                             const Position at = config().where(path);
                             complain(at, std::move(path), std::move(message), std::move(hint));
                           }});
    } else {
      complain(root.at, "", join({"the file is ", kind_of(root), ", not a map of settings"}),
               "begin with version: 1");
    }
    sort_by_position(result_.problems);
    return std::move(result_);
  }

  bool run_part(const Node& root, std::string_view name, const Section& part, void* target, Decoded& result) {
    bool found = false;
    for (std::size_t i = 0; root.is_map() && i < root.keys.size(); ++i) {
      if (root.keys[i].text != name) continue;
      section(part, target, root.values[i], std::string(name), root.keys[i].at, true);
      found = true;
    }
    sort_by_position(result_.problems);
    result = std::move(result_);
    return found;
  }

 private:
  Config& config() { return result_.config; }

  // Keeps the path as broken, so that no later rule judges it. Bounded: a file of garbage has a problem on each line.
  void complain(Position at, std::string path, std::string message, std::string hint = "") {
    broken_.insert(path);
    path = printable(path);
    if (result_.problems.size() > kMostProblems) return;
    if (result_.problems.size() == kMostProblems) {
      at = {};
      path = hint = "";
      message = "there are more problems; only the first 200 are listed";
    }
    result_.problems.push_back({.file = std::string(file_),
                                .at = at,
                                .path = std::move(path),
                                .message = std::move(message),
                                .hint = std::move(hint),
                                .source = printable(line_of(text_, at.line))});
  }

  bool is_broken(std::string_view path) const {
    const auto first = broken_.lower_bound(path);
    return first != broken_.end() && first->starts_with(path) &&
           (first->size() == path.size() || (*first)[path.size()] == '.');
  }

  // The entries of a map without duplicates, each of which is a problem.
  std::vector<std::size_t> unique_entries(const Node& map, std::string_view path) {
    std::vector<std::size_t> unique;
    std::map<std::string_view, Position> seen;
    for (std::size_t i = 0; i < map.keys.size(); ++i) {
      const Node& key = map.keys[i];
      const auto [first, is_new] = seen.emplace(key.text, key.at);
      if (is_new)
        unique.push_back(i);
      else
        complain(key.at, child(path, key.text), "is given twice",
                 join({"the first is in line ", std::to_string(first->second.line), ": keep one of them"}));
    }
    return unique;
  }

  // `at` is the position of the section's name. `fresh`: no type has set any of its settings.
  void section(const Section& section, void* target, const Node& node, const std::string& path, Position at,
               bool fresh) {
    if (!node.is_map()) {
      const bool nothing = node.kind == Node::Kind::null;
      complain(nothing ? at : node.at, path,
               nothing ? "has no settings" : join({"is ", kind_of(node), ", not a map of settings"}),
               nothing                                    ? "write {} for the defaults, or remove the line"
               : node.text.find(':') != std::string::npos ? "write a space after the colon"
                                                          : "");
      return;
    }
    std::map<std::string_view, std::size_t> given;
    for (const std::size_t i : unique_entries(node, path)) {
      if (find_row(section, node.keys[i].text))
        given.emplace(node.keys[i].text, i);
      else if (!path.empty() || std::ranges::find(kOtherParts, node.keys[i].text) == std::end(kOtherParts))
        unknown(section, node.keys[i], path);
    }
    for (const Section* s = &section; s; s = s->base) {
      for (const SettingRow& r : s->rows) {
        const auto entry = given.find(r.name);
        if (entry != given.end())
          row(r, target, node.keys[entry->second], node.values[entry->second], child(path, r.name));
        else if (r.required && fresh)
          complain(at, child(path, r.name), "is missing", join({"add ", r.name, ": ", r.example}));
      }
      if (s->base) target = s->to_base(target);
    }
  }

  // For the hint it tries a similar name, the name in other libraries, and sections that have this setting.
  void unknown(const Section& section, const Node& key, std::string_view path) {
    if (result_.problems.size() >= kMostProblems) return complain(key.at, child(path, key.text), "");
    std::vector<std::string> known;
    for (const SettingRow* r : rows_of(section)) known.emplace_back(r->name);
    std::string hint;
    if (const std::string nearest = base::suggest(key.text, known); !nearest.empty()) {
      hint = join({"did you mean ", nearest, "?"});
    } else if (const std::string_view ours = other_name(section, key.text); !ours.empty()) {
      hint = join({"here it is called ", ours});
    } else if (key.text == "timeout" && find_row(section, "execution_timeout")) {
      hint = "there are two: max_wait for the queue, execution_timeout for the call";
    } else if (key.text == "<<") {
      hint = "merge keys are not supported: put common settings into types";
    } else {
      for (const SettingRow* r : rows_of(section))
        if (r->kind == Kind::section && find_row(*r->section, key.text)) {
          hint = join({"it is a setting of ", r->name, ": write it there"});
          break;
        }
      if (hint.empty()) hint = "bulkhead explain lists the settings";
    }
    complain(key.at, child(path, key.text), "unknown setting", hint);
  }

  static std::string_view other_name(const Section& section, std::string_view name) {
    for (const auto& [theirs, ours] : kOtherNames)
      if (theirs == name && find_row(section, ours)) return ours;
    return "";
  }

  void row(const SettingRow& r, void* target, const Node& key, const Node& value, const std::string& path) {
    config().positions[path] = value.at;
    if (r.kind == Kind::map) return names(r, target, value, path);
    if (r.kind != Kind::section &&
        value.kind == Node::Kind::null)  // a missing value has no position: use that of its name
      return scalar(r, target, {.kind = Node::Kind::null, .at = key.at}, path);
    if (r.kind != Kind::section) return scalar(r, target, value, path);
    config().positions[path] = key.at;
    if (r.optional && value.is_scalar()) {
      if (value.text == "none") return r.access.clear(target);
      return complain(value.at, path, join({quoted(value.text), " is not a map of settings"}),
                      "write {} for the defaults, or none");
    }
    const bool fresh = !r.access.look(target);
    void* const inner = r.access.enter(target);
    section(*r.section, inner, value, path, key.at, fresh);
  }

  void names(const SettingRow& r, void* target, const Node& map, const std::string& path) {
    if (map.kind == Node::Kind::null) return;  // a name without a value
    if (!map.is_map()) {
      complain(map.at, path, join({"is ", kind_of(map), ", not a map"}),
               join({"write the name of each ", r.section->name, ", a colon, and its settings"}));
      return;
    }
    for (const std::size_t i : unique_entries(map, path)) {
      const Node& key = map.keys[i];
      const std::string inner = child(path, key.text);
      if (auto name = read_name(key); !name) {
        complain(key.at, inner, std::move(name.error().message), std::move(name.error().hint));
        continue;
      }
      config().positions[inner] = key.at;
      bool known = false;  // a part that the type of the bulkhead has
      r.access.each(target, [&](std::string_view name, const void*) { known |= name == key.text; });
      void* const one = r.access.add(target, key.text);
      const bool part = path.find('.') != path.npos;  // of a bulkhead, not of the file
      const bool copied = part ? known : r.section->base && copy_type(*r.section, one, map.values[i]);
      section(*r.section, one, map.values[i], inner, key.at, !copied);
    }
  }

  // A bulkhead starts as a copy of its type.
  bool copy_type(const Section& section, void* one, const Node& body) {
    if (!find_row(section, "type") || !body.is_map()) return false;
    for (std::size_t i = 0; i < body.keys.size(); ++i) {
      if (body.keys[i].text != "type") continue;
      const BulkheadConfig* type = config().find_type(body.values[i].text);
      if (!type) return false;
      auto* bulkhead = static_cast<BulkheadConfig*>(section.to_base(one));
      std::string name = std::move(bulkhead->options.name);
      *bulkhead = *type;
      bulkhead->options.name = std::move(name);
      return true;
    }
    return false;
  }

  template <class T>
  bool take(Read<T> read, T& to, const Node& node, const std::string& path) {
    if (read) {
      to = std::move(*read);
      return true;
    }
    complain(node.at, path, std::move(read.error().message), std::move(read.error().hint));
    return false;
  }

  void scalar(const SettingRow& r, void* target, const Node& node, const std::string& path) {
    Value value;
    if (!read(r, node, path, value)) return;
    r.access.set(target, value);
  }

  // The kind of the row chooses the reader; bounds are those of the row. False: a problem is reported.
  bool read(const SettingRow& r, const Node& node, const std::string& path, Value& value) {
    switch (r.kind) {
      case Kind::count:
        return take(read_count(node), value.whole, node, path) &&
               within(r, static_cast<double>(value.whole), node, path);
      case Kind::number:
        return take(read_number(node), value.number, node, path) && within(r, value.number, node, path);
      case Kind::share:
        return take(read_share(node), value.number, node, path) && within(r, value.number, node, path);
      case Kind::part:
        return take(read_part(node), value.part, node, path);
      case Kind::duration:
        return take(read_duration(node, r.forever), value.span, node, path) &&
               (value.span == wait_forever || within(r, static_cast<double>(value.span.count()), node, path));
      case Kind::size:
        return take(read_size(node), value.whole, node, path) &&
               within(r, static_cast<double>(value.whole), node, path);
      case Kind::flag:
        return take(read_flag(node), value.flag, node, path);
      case Kind::text:
        return take(read_text(node), value.text, node, path);
      case Kind::name:
        return take(read_name(node), value.text, node, path);
      case Kind::word:
        return word(r, node, path, value.whole);
      default:
        return list(r, node, path, value);
    }
  }

  bool within(const SettingRow& r, double value, const Node& node, const std::string& path) {
    const bool low = r.above ? value > r.low : value >= r.low;
    const bool high = r.below ? value < r.high : value <= r.high;
    if (low && high) return true;
    complain(node.at, path, join({node.text, " is out of range"}),
             join({"give ", high ? bounds(r) : most(r)}));
    return false;
  }

  // `index` is the place of the word in the row, which is also its value in the enum.
  bool word(const SettingRow& r, const Node& node, const std::string& path, std::uint64_t& index) {
    const std::string what = one_of(r.words);
    if (!node.is_scalar()) {
      const bool nothing = node.kind == Node::Kind::null;
      complain(node.at, path, nothing ? "has no value" : join({"is ", kind_of(node), ", not a single word"}),
               join({"give ", what}));
      return false;
    }
    for (index = 0; index < r.words.size(); ++index)
      if (r.words[index] == node.text) return true;
    const std::vector<std::string> known(r.words.begin(), r.words.end());
    const std::string nearest = base::suggest(base::lower(node.text), known);
    complain(node.at, path, join({quoted(node.text), " is not ", what}),
             nearest.empty() ? "" : join({"did you mean ", nearest, "?"}));
    return false;
  }

  // Reads on after an element that is wrong, so that all wrong ones are reported.
  bool list(const SettingRow& r, const Node& node, const std::string& path, Value& value) {
    if (!node.is_list()) {
      complain(node.at, path,
               node.kind == Node::Kind::null ? std::string("has no value")
                                             : join({"is ", kind_of(node), ", not a list"}),
               node.is_scalar() ? join({"write [", printable(node.text), "]"}) : join({"write ", r.example}));
      return false;
    }
    bool good = true;
    for (const Node& item : node.values) {
      std::uint64_t number = 0;
      std::string text;
      if (r.kind == Kind::words) {
        if (!word(r, item, path, number)) good = false;
      } else if (r.kind == Kind::counts) {
        if (!take(read_count(item), number, item, path) ||
            !within(r, static_cast<double>(number), item, path))
          good = false;
      } else if (!take(read_text(item), text, item, path)) {
        good = false;
      }
      const bool again = r.kind == Kind::texts ? std::ranges::find(value.texts, text) != value.texts.end()
                                               : std::ranges::find(value.list, number) != value.list.end();
      if (good && again) {
        complain(item.at, path, join({quoted(item.text), " is in the list twice"}), "keep one of them");
        good = false;
      }
      if (r.kind == Kind::texts)
        value.texts.push_back(std::move(text));
      else
        value.list.push_back(number);
    }
    return good;
  }

  const std::string_view file_, text_;
  Decoded result_;
  std::set<std::string, std::less<>> broken_;
};

}  // namespace

Decoded decode(const Node& root, std::string_view file, std::string_view text) {
  return Decoder(file, text).run(root);
}

bool decode_part(const Node& root, std::string_view name, const Section& section, void* target,
                 std::string_view file, std::string_view text, Decoded& result) {
  return Decoder(file, text).run_part(root, name, section, target, result);
}

std::vector<BulkheadConfig> built_in_types() {
  std::vector<BulkheadConfig> types;
  for (auto& [name, defaults] : registry::built_in_types()) {
    types.push_back({.options = std::move(defaults)});
    types.back().options.name = std::move(name);
  }
  return types;
}

std::string_view line_of(std::string_view text, std::uint32_t line) noexcept {
  if (line == 0) return "";
  for (; line > 1; --line) {
    const std::size_t end = text.find('\n');
    if (end == text.npos) return "";
    text.remove_prefix(end + 1);
  }
  text = text.substr(0, text.find('\n'));
  if (text.ends_with('\r')) text.remove_suffix(1);
  return text;
}

// Stable. Not std::stable_sort: it calls a function of libstdc++ that Clang reports as deprecated.
void sort_by_position(std::vector<ConfigProblem>& problems) {
  std::vector<std::pair<Position, std::size_t>> order;
  order.reserve(problems.size());
  for (const ConfigProblem& p : problems)
    order.emplace_back(p.at ? p.at : Position{UINT32_MAX, 0}, order.size());
  std::ranges::sort(order);
  std::vector<ConfigProblem> sorted;
  sorted.reserve(problems.size());
  for (const auto& [at, i] : order) sorted.push_back(std::move(problems[i]));
  problems = std::move(sorted);
}

}  // namespace bulkhead::config
