#include <charconv>
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
  const auto [a_end, a_error] = std::from_chars(now.data(), now.data() + now.size(), a);
  const auto [b_end, b_error] = std::from_chars(before.data(), before.data() + before.size(), b);
  const auto rest = [](const char* end, std::string_view text) {
    return text.substr(static_cast<std::size_t>(end - text.data()));
  };
  if (a_error != std::errc() || b_error != std::errc() || rest(a_end, now) != rest(b_end, before))
    return true;
  return a < b;
}

bool is_size(std::string_view setting) {
  constexpr std::string_view kSizes[] = {"max_concurrent", "max_queue",       "total", "guaranteed", "max",
                                         "max_tenants",    "adaptive.ceiling"};
  for (const std::string_view size : kSizes)
    if (setting == size) return true;
  return false;
}

// Of "bulkheads.db.breaker.open_for": breaker.open_for.
std::string_view setting_of(std::string_view path, std::string_view thing) {
  return thing.empty() ? path : path.substr(thing.size() + 1);
}

Effect effect_of(const Config& running, const Setting& setting, std::string_view before) {
  if (!setting.live) return Effect::needs_restart;
  const std::string_view thing = config::thing_of(setting.path);
  const std::string_view name = setting_of(setting.path, thing);
  if (thing.starts_with("bulkheads.") && config::fixed_in_group(name)) {
    const BulkheadConfig* const b = running.find(thing.substr(thing.find('.') + 1));
    if (b && !b->group.empty()) return Effect::needs_restart;
  }
  return is_size(name) && is_smaller(setting.value, before) ? Effect::drains : Effect::live;
}

constexpr std::string_view text_of(Effect effect) {
  return effect == Effect::live ? "live" : effect == Effect::drains ? "drains" : "needs restart";
}

}  // namespace

Plan plan(const Config& running, const Config& wanted) {
  Plan plan;
  const std::vector<Setting> old_list = settings(running), new_list = settings(wanted);
  config::Values old;
  std::set<std::string_view> old_things, new_things;
  for (const Setting& s : old_list) {
    old.emplace(s.path, s);
    old_things.insert(config::thing_of(s.path));
  }
  for (const Setting& s : new_list) new_things.insert(config::thing_of(s.path));

  std::set<std::string_view> told;
  for (const Setting& s : new_list) {
    const std::string_view thing = config::thing_of(s.path);
    if (!old_things.contains(thing)) {
      if (told.insert(thing).second)
        plan.lines.push_back({What::added, Effect::live, std::string(thing), "", "", wanted.where(thing)});
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
    const std::string_view thing = config::thing_of(s.path);
    if (new_things.contains(thing) || !told.insert(thing).second) continue;
    const bool drains = !thing.starts_with("types.") && !thing.starts_with("resources.");
    plan.lines.push_back(
        {What::removed, drains ? Effect::drains : Effect::live, std::string(thing), "", "", Position{}});
  }
  return plan;
}

std::vector<PlanLine> Plan::needing_restart() const {
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

std::string to_text(const Plan& plan) {
  if (plan.empty()) return "no changes\n";
  std::string text;
  for (const PlanLine& line : plan.lines) text += to_text(line) + "\n";
  return text;
}

}  // namespace bulkhead
