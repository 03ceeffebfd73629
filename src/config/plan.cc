#include <set>

#include "base/text.h"
#include "bulkhead/live_config.h"
#include "config/running.h"

namespace bulkhead {
namespace {

using base::join;
using Effect = PlanLine::Effect;
using What = PlanLine::What;

// "20" and "10", "50%" and "40%"; what cannot be compared may be smaller.
bool is_smaller(std::string_view now, std::string_view before) {
  double a = 0, b = 0;
  if (!base::take_decimal(now, a) || !base::take_decimal(before, b) || now != before) return true;
  return a < b;
}

bool is_size(std::string_view setting) {
  constexpr std::string_view kSizes[] = {"max_concurrent", "max_queue",       "total", "guaranteed", "max",
                                         "max_tenants",    "adaptive.ceiling"};
  for (const std::string_view size : kSizes)
    if (setting == size) return true;
  return setting.starts_with("budgets.") && setting.ends_with(".max");
}

// "bulkheads.db.budgets.tokens" of a setting of that budget: an entry that is added or removed as a whole. Else nothing.
std::string_view part_of(std::string_view path) {
  constexpr std::string_view kBudgets = ".budgets.";
  const std::size_t at = path.find(kBudgets);
  return at == path.npos ? "" : path.substr(0, path.find('.', at + kBudgets.size()));
}

// Of "bulkheads.db.breaker.open_for": breaker.open_for.
std::string_view setting_of(std::string_view path, std::string_view entry) {
  return entry.empty() ? path : path.substr(entry.size() + 1);
}

Effect effect_of(const Config& running, const Setting& setting, std::string_view before) {
  if (!setting.live) return Effect::needs_restart;
  const std::string_view entry = config::entry_path(setting.path);
  const std::string_view name = setting_of(setting.path, entry);
  if (entry.starts_with("bulkheads.") && config::fixed_in_group(name)) {
    const BulkheadConfig* const b = running.find(entry.substr(entry.find('.') + 1));
    if (b && !b->group.empty()) return Effect::needs_restart;
  }
  return is_size(name) && is_smaller(setting.value, before) ? Effect::drains : Effect::live;
}

constexpr std::string_view text_of(Effect effect) {
  return effect == Effect::live ? "live" : effect == Effect::drains ? "drains" : "needs restart";
}

}  // namespace

ConfigPlan plan(const Config& running, const Config& wanted) {
  ConfigPlan plan;
  const std::vector<Setting> old_list = settings(running), new_list = settings(wanted);
  config::Values old;
  std::set<std::string_view> old_entries, new_entries;
  for (const Setting& s : old_list) {
    old.emplace(s.path, s);
    for (const std::string_view entry : {config::entry_path(s.path), part_of(s.path)})
      old_entries.insert(entry);
  }
  for (const Setting& s : new_list)
    for (const std::string_view entry : {config::entry_path(s.path), part_of(s.path)})
      new_entries.insert(entry);
  old_entries.insert("");
  new_entries.insert("");

  std::set<std::string_view> reported;
  for (const Setting& s : new_list) {
    const std::string_view entry = config::entry_path(s.path);
    if (!old_entries.contains(entry)) {
      if (reported.insert(entry).second)
        plan.lines.push_back({What::added, Effect::live, std::string(entry), "", "", wanted.where(entry)});
      continue;
    }
    if (const std::string_view part = part_of(s.path); !old_entries.contains(part)) {
      if (reported.insert(part).second)
        plan.lines.push_back({What::added, Effect::live, std::string(part), "", "", wanted.where(part)});
      continue;
    }
    const auto before = old.find(s.path);
    if (before == old.end()) {  // in a section that is new: what the file says of it
      if (s.given)
        plan.lines.push_back({What::added, s.live ? Effect::live : Effect::needs_restart, s.path, "", s.value,
                              wanted.where(s.path)});
    } else if (before->second.value != s.value) {
      plan.lines.push_back({What::changed, effect_of(running, s, before->second.value), s.path,
                            before->second.value, s.value, wanted.where(s.path)});
    }
  }
  for (const Setting& s : old_list) {
    std::string_view entry = config::entry_path(s.path);
    if (new_entries.contains(entry)) entry = part_of(s.path);
    if (new_entries.contains(entry) || !reported.insert(entry).second) continue;
    const bool drains = !entry.starts_with("types.") && !entry.starts_with("resources.");
    plan.lines.push_back(
        {What::removed, drains ? Effect::drains : Effect::live, std::string(entry), "", "", Position{}});
  }
  return plan;
}

std::vector<PlanLine> ConfigPlan::needing_restart() const {
  std::vector<PlanLine> some;
  for (const PlanLine& line : lines)
    if (line.effect == Effect::needs_restart) some.push_back(line);
  return some;
}

std::string to_text(const PlanLine& line) {
  const std::string_view sign = line.what == What::added ? "+ " : line.what == What::removed ? "- " : "~ ";
  std::string text = join({sign, line.path});
  if (line.what == What::changed)
    text += join({": ", line.before, " -> ", line.after});
  else if (!line.after.empty())
    text += join({": ", line.after});
  return line.effect == Effect::live ? text : join({text, " (", text_of(line.effect), ")"});
}

std::string to_text(const ConfigPlan& plan) {
  if (plan.empty()) return "no changes\n";
  std::string text;
  for (const PlanLine& line : plan.lines) text += to_text(line) + "\n";
  return text;
}

}  // namespace bulkhead
