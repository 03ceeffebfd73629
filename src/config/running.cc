#include "config/running.h"

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "config/settings.h"

namespace bulkhead::config {
namespace {

void* to_base(const Section& section, const void* target) {
  return section.to_base(const_cast<void*>(target));  // whose type alone is in the way
}

// Makes the settings in `now` those in `old`: all of them, or those that are not live.
void copy(const Section& section, const void* old, void* now, bool all) {
  for (const Section* s = &section; s; s = s->base) {
    for (const SettingRow& row : s->rows) {
      const bool taken = all || !row.live;
      if (row.kind == Kind::map) {  // entries that both have; those of one alone are live
        row.access.each(old, [&](std::string_view name, const void* was) {
          bool both = false;
          row.access.each(now, [&](std::string_view other, const void*) { both |= other == name; });
          if (both || taken) copy(*row.section, was, row.access.add(now, name), taken);
        });
        continue;
      }
      if (row.kind != Kind::section) {
        if (taken) row.access.set(now, row.access.get(old));
        continue;
      }
      const void* const inner = row.access.look(old);
      if (!inner && taken) {
        row.access.clear(now);
      } else if (inner && (taken || row.access.look(now))) {
        copy(*row.section, inner, row.access.enter(now), taken);
      }
    }
    if (s->base) {
      old = to_base(*s, old);
      now = to_base(*s, now);
    }
  }
}

const Section& section_of(std::string_view map) { return *find_row(root_section(), map)->section; }

template <class T, class Find>
void keep_fixed(std::vector<T>& wanted, std::string_view map, const Find& find) {
  for (T& one : wanted)
    if (const T* const old = find(one)) copy(section_of(map), old, &one, false);
}

Registration registration(const BulkheadConfig& b) {
  return {.options = b.options,
          .type = b.type,
          .group = b.group,
          .guaranteed = b.guaranteed,
          .max = b.max,
          .criticality = b.criticality};
}

TenantOptions tenant_options(const TenantsConfig& t) {
  TenantOptions o{
      .name = t.each.options.name,
      .each = t.each.options,
      .max_tenants = t.max_tenants,
      .at_bound = t.at_bound == TenantsConfig::AtBound::reject ? AtBound::reject : AtBound::overflow,
      .idle_after = t.idle_after,
      .max_id_length = t.max_id_length,
      .criticality = t.each.criticality};
  o.each.name.clear();
  return o;
}

// Whether two entries are equal in every setting.
bool same(const Values& a, const Values& b, const std::string& entry) {
  const std::string prefix = entry + ".";
  auto i = a.lower_bound(prefix), j = b.lower_bound(prefix);
  for (;; ++i, ++j) {
    const bool more = i != a.end() && i->first.starts_with(prefix);
    const bool too = j != b.end() && j->first.starts_with(prefix);
    if (!more || !too) return more == too;
    if (i->first != j->first || i->second.value != j->second.value) return false;
  }
}

}  // namespace

Values values_of(const Config& config) {
  Values values;
  for (Setting& setting : settings(config)) {
    std::string path = setting.path;
    values.emplace(std::move(path), std::move(setting));
  }
  return values;
}

std::string_view entry_path(std::string_view path) noexcept {
  const std::size_t dot = path.find('.');
  if (dot == path.npos) return "";
  const SettingRow* const row = find_row(root_section(), path.substr(0, dot));
  if (!row || row->kind != Kind::map) return "";
  return path.substr(0, path.find('.', dot + 1));
}

bool fixed_in_group(std::string_view setting) noexcept { return setting == "max_wait"; }

Config without_restart(const Config& running, Config wanted) {
  keep_fixed(wanted.groups, "groups",
             [&](const GroupConfig& g) { return running.find_group(g.options.name); });
  keep_fixed(wanted.tenants, "tenants",
             [&](const TenantsConfig& t) { return running.find_tenants(t.each.options.name); });
  for (BulkheadConfig& b : wanted.bulkheads) {
    const BulkheadConfig* const old = running.find(b.options.name);
    if (!old) continue;
    const bool moved = b.group != old->group;
    copy(section_of("bulkheads"), old, &b, false);
    if (!old->group.empty()) b.options.max_wait = old->options.max_wait;
    if (!moved) continue;
    // Its shares were meant for another group, which it is not in; and the one it is in must stay.
    b.guaranteed = old->guaranteed;
    b.max = old->max;
    if (!b.group.empty() && !wanted.find_group(b.group))
      wanted.groups.push_back(*running.find_group(b.group));
  }
  wanted.control = running.control;
  return wanted;
}

// Names decide what is added, updated or removed: a bulkhead that was renamed is removed and added.
RegistryChange changes(const Config& from, const Config& to) {
  RegistryChange change;
  const Values old = values_of(from), now = values_of(to);
  const auto differs = [&](std::string_view map, const std::string& name) {
    return !same(old, now, base::join({map, ".", name}));
  };
  for (const BulkheadConfig& type : to.types)
    if (!from.find_type(type.options.name) || differs("types", type.options.name))
      change.types.emplace_back(type.options.name, type.options);
  for (const GroupConfig& g : to.groups) {
    const GroupConfig* const before = from.find_group(g.options.name);
    if (!before)
      change.add_groups.push_back(g.options);
    else if (before->options.total != g.options.total)
      change.resize_groups.emplace_back(g.options.name, g.options.total);
    if (g.adaptive != (before ? before->adaptive : std::nullopt))
      change.adapt_groups.emplace_back(g.options.name, g.adaptive);
  }
  for (const GroupConfig& g : from.groups)
    if (!to.find_group(g.options.name)) change.remove_groups.push_back(g.options.name);
  for (const BulkheadConfig& b : to.bulkheads) {
    if (!from.find(b.options.name))
      change.add.push_back(registration(b));
    else if (differs("bulkheads", b.options.name))
      change.update.push_back(registration(b));
  }
  for (const BulkheadConfig& b : from.bulkheads)
    if (!to.find(b.options.name)) change.remove.push_back(b.options.name);
  for (const TenantsConfig& t : to.tenants) {
    if (!from.find_tenants(t.each.options.name))
      change.add_tenants.push_back(tenant_options(t));
    else if (differs("tenants", t.each.options.name))
      change.update_tenants.push_back(tenant_options(t));
  }
  for (const TenantsConfig& t : from.tenants)
    if (!to.find_tenants(t.each.options.name)) change.remove_tenants.push_back(t.each.options.name);
  return change;
}

}  // namespace bulkhead::config
