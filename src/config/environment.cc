#include "bulkhead/environment.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/suggest.h"
#include "base/text.h"
#include "config/override.h"
#include "config/settings.h"

namespace bulkhead {
namespace {

using base::join;

constexpr std::string_view kPrefix = "BULKHEAD_";

// Ours, but no settings; and what Kubernetes tells every pod about a service of our name.
bool is_for_others(std::string_view name) {
  name.remove_prefix(kPrefix.size());
  constexpr std::string_view kOwn[] = {"ADMIN",  "TOKEN",        "CERTIFICATE", "STRESS_SECONDS",
                                       "UPDATE", "WRITE_GOLDEN", "PORT"};
  return std::ranges::find(kOwn, name) != std::end(kOwn) || name.starts_with("PORT_") ||
         name.starts_with("SERVICE_HOST") || name.starts_with("SERVICE_PORT");
}

bool can_be_given(config::Kind kind) {
  using config::Kind;
  return kind != Kind::words && kind != Kind::counts && kind != Kind::texts && kind != Kind::name &&
         kind != Kind::section && kind != Kind::map;
}

// As apply_environment() reads it: a text without the quotes of the file.
std::string value_of(const config::SettingRow& row, const void* target) {
  config::Value value = row.access.get(target);
  return row.kind == config::Kind::text ? std::move(value.text) : config::show(row, value);
}

using Paths = std::vector<std::pair<std::string, std::string>>;

// The paths of `section` with the values of `target`, which is null for a section that the file does not have. An absent
// optional section is left out: giving one of its settings would switch on a policy with all its defaults.
void list(Paths& all, const std::string& path, const config::Section& section, const void* target) {
  for (const config::Section* s = &section; s; s = s->base) {
    for (const config::SettingRow& row : s->rows) {
      const std::string at = join({path, ".", row.name});
      if (row.kind == config::Kind::section) {
        const void* const inner = target ? row.access.look(target) : nullptr;
        if (inner || !row.optional) list(all, at, *row.section, inner);
      }
      if (can_be_given(row.kind)) all.emplace_back(at, target ? value_of(row, target) : "");
    }
    // Only the type of the pointer is in the way: nothing is changed through it.
    if (s->base && target) target = s->to_base(const_cast<void*>(target));
  }
}

Paths paths_of(const Config& config) {
  Paths all;
  for (const config::SettingRow* row : config::rows_of(config::root_section())) {
    // The sections of the file, such as control, can be added by a variable.
    if (row->kind == config::Kind::section)
      list(all, std::string(row->name), *row->section, row->access.look(&config));
    if (row->kind != config::Kind::map || row->name == "types") continue;  // types have been copied by now
    row->access.each(&config, [&](std::string_view name, const void* one) {
      list(all, join({row->name, ".", name}), *row->section, one);
    });
  }
  return all;
}

}  // namespace

std::string variable_of(std::string_view path) {
  std::string name(kPrefix);
  for (const char c : path) {
    const bool lower = c >= 'a' && c <= 'z', kept = (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (c == '.')
      name += "__";
    else
      name += lower ? static_cast<char>(c - 'a' + 'A') : kept ? c : '_';
  }
  return name;
}

std::vector<Variable> variables_of(const Config& config) {
  std::vector<Variable> all;
  for (auto& [path, value] : paths_of(config)) all.push_back({variable_of(path), std::move(value)});
  return all;
}

std::vector<ConfigProblem> apply_environment(Config& config, const std::vector<Variable>& variables) {
  std::vector<ConfigProblem> problems;
  const auto complain = [&](const Variable& v, std::string message, std::string hint) {
    problems.push_back(
        {.file = "environment", .path = v.name, .message = std::move(message), .hint = std::move(hint)});
  };
  std::multimap<std::string, std::string, std::less<>> paths;
  for (auto& [path, value] : paths_of(config)) paths.emplace(variable_of(path), std::move(path));
  std::map<std::string, const Variable*, std::less<>> given;  // by path
  for (const Variable& v : variables) {
    if (!v.name.starts_with(kPrefix) || is_for_others(v.name)) continue;
    const auto [first, last] = paths.equal_range(v.name);
    if (first == last) {
      std::vector<std::string> known;
      for (const auto& [name, path] : paths) known.push_back(name);
      const std::string nearest = base::suggest(v.name, known);
      complain(v, "stands for no setting that can be given here",
               nearest.empty() ? "bulkhead env lists them" : join({"did you mean ", nearest, "?"}));
    } else if (std::next(first) != last) {
      complain(v, join({"stands for both ", first->second, " and ", std::next(first)->second}),
               "give these in the file");
    } else if (auto wrong = config::give_value(config, first->second, v.value); !wrong.empty()) {
      complain(v, std::move(wrong.front().message), std::move(wrong.front().hint));
    } else {
      // Given, and its sections with it, but not by a line of the file.
      const std::string& path = first->second;
      config.positions[path] = {};
      for (std::size_t dot = path.rfind('.'); dot != path.npos && dot > 0; dot = path.rfind('.', dot - 1))
        config.positions.try_emplace(path.substr(0, dot));
      given.emplace(first->second, &v);
    }
  }
  if (!problems.empty() || given.empty()) return problems;
  problems = config::check_all(config);
  for (ConfigProblem& p : problems) {
    p.file = "environment";
    if (const auto v = given.find(p.path); v != given.end()) p.path = v->second->name;
  }
  return problems;
}

}  // namespace bulkhead
