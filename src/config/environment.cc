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
  constexpr std::string_view kOwn[] = {"ADMIN", "TOKEN", "STRESS_SECONDS", "UPDATE", "WRITE_GOLDEN", "PORT"};
  return std::ranges::find(kOwn, name) != std::end(kOwn) || name.starts_with("PORT_") ||
         name.starts_with("SERVICE_HOST") || name.starts_with("SERVICE_PORT");
}

bool can_be_given(config::Kind kind) {
  using config::Kind;
  return kind != Kind::words && kind != Kind::counts && kind != Kind::texts && kind != Kind::name &&
         kind != Kind::section && kind != Kind::map;
}

using Now = std::map<std::string, std::string, std::less<>>;

std::string says(const Now& now, std::string_view path) {
  const auto value = now.find(path);
  return value == now.end() ? "" : value->second;
}

// The paths of `section` with what `now` says of them. What is absent can be given to the control plane alone: elsewhere
// that would switch on a policy with all its defaults.
void list(std::vector<std::pair<std::string, std::string>>& all, const std::string& path,
          const config::Section& section, const Now& now) {
  for (const config::SettingRow* row : config::rows_of(section)) {
    const std::string at = join({path, ".", row->name});
    if (row->kind == config::Kind::section && (!row->optional || says(now, at) == "{}"))
      list(all, at, *row->section, now);
    if (!can_be_given(row->kind)) continue;
    all.emplace_back(at, says(now, at));
  }
}

std::vector<std::pair<std::string, std::string>> paths_of(const Config& config) {
  Now now;
  for (Setting& setting : settings(config)) now.emplace(std::move(setting.path), std::move(setting.value));
  std::vector<std::pair<std::string, std::string>> all;
  for (const config::SettingRow* row : config::rows_of(config::root_section())) {
    if (row->kind == config::Kind::section) list(all, std::string(row->name), *row->section, now);
    if (row->kind != config::Kind::map || row->name == "types") continue;  // types have been copied by now
    row->access.each(&config, [&](std::string_view name, const void*) {
      list(all, join({row->name, ".", name}), *row->section, now);
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
      config.positions[first->second] = {};  // given, but not by a line of the file
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
