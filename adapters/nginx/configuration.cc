#include "configuration.h"

#include <algorithm>
#include <string>
#include <utility>

namespace bulkhead::nginx {
namespace {

std::string known_names(const Config& config) {
  std::string all;
  const auto add = [&all](const std::string& name) { all += (all.empty() ? "" : ", ") + name; };
  for (const BulkheadConfig& b : config.bulkheads) add(b.options.name);
  for (const TenantsConfig& t : config.tenants) add(t.each.options.name + " (tenants)");
  return all.empty() ? "none" : all;
}

// What is wrong with a location's use of its name; empty: nothing.
std::string problem_of(const LocationConf& location, const Config& config) {
  const std::string name(view(location.name));
  const BulkheadConfig* const bulkhead = config.find(name);
  const TenantsConfig* const tenants = config.find_tenants(name);
  if (!bulkhead && !tenants)
    return "there is no bulkhead \"" + name + "\" in the file, which has: " + known_names(config);
  if (tenants && !location.tenant)
    return "\"" + name + "\" is a set of tenants: add bulkhead_tenant $variable";
  if (!tenants && location.tenant)
    return "bulkhead_tenant needs a set of tenants, and \"" + name +
           "\" is a bulkhead: move it to tenants: in the file";
  const BulkheadOptions& options = bulkhead ? bulkhead->options : tenants->each.options;
  if (const std::string_view budget = view(location.budget);
      !budget.empty() &&
      std::ranges::find(options.budgets, budget, &BudgetOptions::name) == options.budgets.end())
    return "\"" + name + "\" has no budget \"" + std::string(budget) +
           "\": add it to its budgets: in the file";
  if (options.isolation == Isolation::threads)
    return "\"" + name + "\" has isolation: threads, which nginx cannot use: write isolation: semaphore";
  return {};
}

// What no worker could apply, whether a location uses it or not; empty: nothing.
std::string problem_of(const Config& config) {
  for (const BulkheadConfig& b : config.bulkheads)
    if (b.options.scope == Scope::fleet ||
        std::ranges::find(b.options.budgets, Scope::fleet, &BudgetOptions::scope) != b.options.budgets.end())
      return '"' + b.options.name + "\" has scope: fleet, which nginx cannot use: write scope: host";
  return {};
}

}  // namespace

void* create_main_conf(ngx_conf_t* cf) {
  auto* const conf = static_cast<MainConf*>(ngx_pcalloc(cf->pool, sizeof(MainConf)));
  if (!conf || ngx_array_init(&conf->protected_locations, cf->pool, 8, sizeof(LocationConf*)) != NGX_OK)
    return nullptr;
  conf->watch = NGX_CONF_UNSET;
  conf->rate = conf->burst = conf->held = NGX_CONF_UNSET_UINT;
  conf->hold = NGX_CONF_UNSET_MSEC;
  return conf;
}

char* init_main_conf(ngx_conf_t*, void* of) {
  auto* const conf = static_cast<MainConf*>(of);
  ngx_conf_init_value(conf->watch, 1);
  ngx_conf_init_uint_value(conf->rate, 1000);
  ngx_conf_init_uint_value(conf->burst, 100);
  ngx_conf_init_uint_value(conf->held, 1024);
  ngx_conf_init_msec_value(conf->hold, 250);
  return NGX_CONF_OK;
}

void* create_location_conf(ngx_conf_t* cf) {
  auto* const conf = static_cast<LocationConf*>(ngx_pcalloc(cf->pool, sizeof(LocationConf)));
  if (!conf) return nullptr;
  conf->on = NGX_CONF_UNSET;
  conf->hold = NGX_CONF_UNSET_UINT;
  conf->body_first = NGX_CONF_UNSET;
  conf->has_fallback = NGX_CONF_UNSET;
  return conf;
}

char* merge_location_conf(ngx_conf_t* cf, void* parent, void* child) {
  const auto& from = *static_cast<const LocationConf*>(parent);
  auto& to = *static_cast<LocationConf*>(child);
  const bool inherits = to.on == NGX_CONF_UNSET;
  if (inherits) {
    to.name = from.name;
    to.said_in = from.said_in;
    to.said_at = from.said_at;
    // A page about a full bulkhead does not wait for it.
    to.on = from.on == NGX_CONF_UNSET || to.is_status ? 0 : from.on;
  }
  for (const auto member :
       {&LocationConf::priority, &LocationConf::flow, &LocationConf::cost, &LocationConf::deadline})
    if (!(to.*member)) to.*member = from.*member;
  if (!to.tenant && inherits) to.tenant = from.tenant;  // it belongs to the set of tenants
  if (to.budget.len == 0 && inherits) {                 // to the bulkhead
    to.budget = from.budget;
    to.budget_units = from.budget_units;
  }
  ngx_conf_merge_uint_value(to.hold, from.hold, until_upstream);
  ngx_conf_merge_value(to.body_first, from.body_first, 1);
  if (to.has_fallback == NGX_CONF_UNSET) {
    to.has_fallback = from.has_fallback == NGX_CONF_UNSET ? 0 : from.has_fallback;
    to.fallback_uri = from.fallback_uri;
    to.fallback_status = from.fallback_status;
    to.fallback_text = from.fallback_text;
    to.fallback_type = from.fallback_type;
  }
  if (to.on) {
    auto* const main =
        static_cast<MainConf*>(ngx_http_conf_get_module_main_conf(cf, ngx_http_bulkhead_module));
    auto* const place = static_cast<LocationConf**>(ngx_array_push(&main->protected_locations));
    if (!place) return static_cast<char*>(NGX_CONF_ERROR);
    *place = &to;
  }
  return NGX_CONF_OK;
}

// When all of nginx.conf is read: a location may come before bulkhead_config.
ngx_int_t check_names(ngx_conf_t* cf) {
  auto* const main = static_cast<MainConf*>(ngx_http_conf_get_module_main_conf(cf, ngx_http_bulkhead_module));
  auto* const all = static_cast<LocationConf**>(main->protected_locations.elts);
  for (ngx_uint_t i = 0; i < main->protected_locations.nelts; ++i) {
    LocationConf& location = *all[i];
    const std::string problem = main->loaded
                                    ? problem_of(location, main->loaded->config)
                                    : "no file says what it is: add \"bulkhead_config FILE;\" to http {}";
    if (problem.empty()) {
      location.tenants = main->loaded->config.find_tenants(std::string(view(location.name)));
      continue;
    }
    ngx_log_error(NGX_LOG_EMERG, cf->log, 0, "bulkhead \"%V\" in %V:%ui: %s%s%V", &location.name,
                  &location.said_in, location.said_at, problem.c_str(), main->loaded ? "; the file is " : "",
                  &main->file);
    return NGX_ERROR;
  }
  const std::string problem = main->loaded ? problem_of(main->loaded->config) : "";
  if (problem.empty()) return NGX_OK;
  ngx_log_error(NGX_LOG_EMERG, cf->log, 0, "bulkhead_config %V: %s", &main->file, problem.c_str());
  return NGX_ERROR;
}

std::vector<std::string> problems_of(const MainConf& main, const Config& config) {
  std::vector<std::string> problems;
  const auto add = [&problems](std::string problem) {
    if (!problem.empty() && std::ranges::find(problems, problem) == problems.end())
      problems.push_back(std::move(problem));
  };
  auto* const all = static_cast<const LocationConf* const*>(main.protected_locations.elts);
  for (ngx_uint_t i = 0; i < main.protected_locations.nelts; ++i) add(problem_of(*all[i], config));
  add(problem_of(config));
  return problems;
}

}  // namespace bulkhead::nginx
