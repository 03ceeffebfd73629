#include "bulkhead/config.h"

#include <algorithm>

#include "base/text.h"
#include "config/access.h"
#include "config/settings.h"

namespace bulkhead {
namespace {

using namespace config;

template <class T>
const T* find_in(const std::vector<T>& all, std::string_view name) noexcept {
  for (const T& one : all)
    if (name_of(one) == name) return &one;
  return nullptr;
}

void list(std::vector<Setting>& all, const Config& config, const std::string& path, const Section& section,
          const void* target) {
  const auto add = [&](std::string at, std::string value, bool live) {
    const bool given = config.positions.contains(at);
    all.push_back({std::move(at), std::move(value), live, given});
  };
  for (const Section* s = &section; s; s = s->base) {
    for (const SettingRow& row : s->rows) {
      std::string at = path.empty() ? std::string(row.name) : base::join({path, ".", row.name});
      if (row.kind == Kind::map) {
        row.access.each(target, [&](std::string_view name, const void* one) {
          list(all, config, base::join({at, ".", name}), *row.section, one);
        });
      } else if (row.kind == Kind::section) {
        const void* const inner = row.access.look(target);
        if (row.optional) add(at, inner ? "{}" : "none", row.live);
        if (inner) list(all, config, at, *row.section, inner);
      } else {
        add(std::move(at), show(row, row.access.get(target)), row.live);
      }
    }
    // Only the type of the pointer is in the way: nothing is changed through it.
    if (s->base) target = s->to_base(const_cast<void*>(target));
  }
}

// The column of a caret under `source`: tabs stay tabs, so that the two lines agree whatever their width.
std::string up_to(std::string_view source, std::uint32_t column) {
  std::string blank;
  std::uint32_t at = 1;
  for (const char c : source) {
    if ((static_cast<unsigned char>(c) & 0xC0) == 0x80) continue;
    if (at++ >= column) break;
    blank += c == '\t' ? '\t' : ' ';
  }
  while (at++ < column) blank += ' ';
  return blank;
}

}  // namespace

// A setting that the file does not contain has the position of its type; if that lacks it, of the nearest section.
Position Config::where(std::string_view path) const {
  const std::string_view whole = path;
  for (bool first = true; !path.empty(); first = false) {
    if (const auto found = positions.find(path); found != positions.end()) return found->second;
    if (first) {
      for (const auto& [prefix, of] :
           {std::pair<std::string_view, const BulkheadConfig*(*)(const Config&, std::string_view)>{
                "bulkheads.", [](const Config& c, std::string_view n) { return c.find(n); }},
            {"tenants.", [](const Config& c, std::string_view n) {
               const TenantsConfig* t = c.find_tenants(n);
               return t ? &t->each : nullptr;
             }}}) {
        if (!whole.starts_with(prefix)) continue;
        const std::string_view rest = whole.substr(prefix.size());
        const std::size_t dot = rest.find('.');
        const BulkheadConfig* b = dot == rest.npos ? nullptr : of(*this, rest.substr(0, dot));
        if (!b || b->type.empty()) continue;
        const auto found = positions.find(base::join({"types.", b->type, rest.substr(dot)}));
        if (found != positions.end()) return found->second;
      }
    }
    const std::size_t dot = path.rfind('.');
    path = dot == path.npos ? "" : path.substr(0, dot);
  }
  return {1, 1};
}

const BulkheadConfig* Config::find(std::string_view bulkhead) const noexcept {
  return find_in(bulkheads, bulkhead);
}
const BulkheadConfig* Config::find_type(std::string_view name) const noexcept { return find_in(types, name); }
const GroupConfig* Config::find_group(std::string_view name) const noexcept { return find_in(groups, name); }
const ResourceConfig* Config::find_resource(std::string_view name) const noexcept {
  return find_in(resources, name);
}
const TenantsConfig* Config::find_tenants(std::string_view name) const noexcept {
  return find_in(tenants, name);
}

std::vector<Setting> settings(const Config& config) {
  return settings_of(config, "", root_section(), &config);
}

std::vector<Setting> config::settings_of(const Config& file, const std::string& path, const Section& section,
                                         const void* target) {
  std::vector<Setting> all;
  list(all, file, path, section, target);
  return all;
}

std::string to_text(const ConfigProblem& p) {
  std::string text = p.file;
  if (p.at) text += base::join({":", std::to_string(p.at.line), ":", std::to_string(p.at.column)});
  text += ": ";
  if (!p.path.empty()) text += p.path + ": ";
  if (p.severity == ConfigProblem::Severity::warning) text += "warning: ";
  text += p.message;
  if (!p.rule.empty()) text += base::join({" (lint: ", p.rule, ")"});
  text += '\n';
  if (p.at && !p.source.empty())
    text += base::join({"    ", p.source, "\n    ", up_to(p.source, p.at.column), "^\n"});
  if (!p.hint.empty()) text += base::join({"  hint: ", p.hint, "\n"});
  return text;
}

std::string to_text(const std::vector<ConfigProblem>& problems) {
  std::string text;
  for (const ConfigProblem& p : problems) text += to_text(p);
  return text;
}

}  // namespace bulkhead
