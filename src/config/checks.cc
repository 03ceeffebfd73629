#include "config/checks.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/suggest.h"
#include "base/text.h"
#include "config/access.h"
#include "config/lint.h"
#include "config/values.h"

namespace bulkhead::config {
namespace {

using base::join;

constexpr std::uint32_t kMaxThreads = 65'536;

template <class T>
std::string near(std::string_view name, const std::vector<T>& all, std::string_view where) {
  std::vector<std::string> names;
  names.reserve(all.size());
  for (const T& one : all) names.push_back(name_of(one));
  if (const std::string nearest = base::suggest(name, names); !nearest.empty())
    return join({"did you mean ", nearest, "?"});
  return join({"define it in ", where});
}

void check_rules(const std::vector<std::string>& allowed, const std::string& path, const Checks& checks) {
  for (const std::string& rule : allowed) {
    if (find_rule(rule)) continue;
    std::vector<std::string> known;
    for (const Rule& r : rules()) known.emplace_back(r.name);
    const std::string nearest = base::suggest(rule, known);
    checks.complain(path, join({"unknown lint rule ", quoted(rule)}),
                    nearest.empty() ? "bulkhead explain lists them" : join({"did you mean ", nearest, "?"}));
  }
}

// The conditions of the constructor of RateLimiter.
void check_rate(const RateLimiterOptions& o, const std::string& path, const Checks& checks) {
  if (o.per / o.rate > std::chrono::hours(24))
    return checks.complain(
        path + ".rate",
        join({std::to_string(o.rate), " in ", show_duration(o.per), " is less than one per day"}),
        "give a shorter per");
  if (o.rate / 5 > o.per.count())
    return checks.complain(path + ".rate",
                           join({std::to_string(o.rate), " in ", show_duration(o.per), " is too fast"}),
                           "give at most 5 per nanosecond");
  const double days = static_cast<double>(o.burst) * static_cast<double>(o.per.count()) / o.rate / 86.4e12;
  if (days > 365)
    checks.complain(path + ".burst",
                    join({std::to_string(o.burst), " would take ", std::to_string(static_cast<long>(days)),
                          " days to fill"}),
                    "give a burst that fills within 365 days");
}

// Rules between the settings of `adaptive`; the table has checked each of them alone.
void check_adaptive(const LimiterOptions& o, const std::string& path, std::string_view start,
                    const Checks& checks) {
  if (o.floor > o.ceiling)
    checks.complain(path + ".floor",
                    join({std::to_string(o.floor), " is above ceiling: ", std::to_string(o.ceiling)}),
                    "give at most the ceiling");
  else if (o.initial != 0 && (o.initial < o.floor || o.initial > o.ceiling))
    checks.complain(path + ".initial",
                    join({std::to_string(o.initial), " is not between floor: ", std::to_string(o.floor),
                          " and ceiling: ", std::to_string(o.ceiling)}),
                    join({"give a value between them, or 0 for ", start}));
  if (o.knee.dip * o.knee.margin >= 1)
    checks.complain(
        path + ".knee.dip",
        join({show_number(o.knee.dip), " x margin: ", show_number(o.knee.margin), " is not below 1"}),
        "lower one of them");
  if (o.knee.max_window < o.knee.min_window)
    checks.complain(
        path + ".knee.max_window",
        join({show_duration(o.knee.max_window), " is below min_window: ", show_duration(o.knee.min_window)}),
        "give at least that");
}

// The conditions of Budgets::check(), and of the source of the units of a budget that processes share.
void check_budgets(const Config& config, const BulkheadOptions& o, const std::string& path,
                   const Checks& checks) {
  if (o.budgets.size() > kMostBudgets)
    checks.complain(path + ".budgets", join({"has ", std::to_string(o.budgets.size()), " entries"}),
                    join({"give at most ", std::to_string(kMostBudgets)}));
  for (const BudgetOptions& b : o.budgets) {
    const std::string at = join({path, ".budgets.", b.name});
    const bool plain = b.name.size() <= kMaxBudgetName && std::ranges::all_of(b.name, [](char c) {
                         return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                                c == '_' || c == '-';
                       });
    if (!plain)
      checks.complain(at, "is not the name of a budget",
                      join({"give 1 to ", std::to_string(kMaxBudgetName), " letters, digits, '_' and '-'"}));
    if (b.per_call_max > b.max)
      checks.complain(at + ".per_call_max",
                      join({std::to_string(b.per_call_max), " is above max: ", std::to_string(b.max)}),
                      "give at most max, or 0 for max");
    if (b.scope == Scope::process) continue;
    const bool fleet = b.scope == Scope::fleet;
    const std::string scope = join({"scope: ", to_string(b.scope)});
    if (!fleet && (!config.host || config.host->region.empty()))
      checks.complain(at + ".scope", "host needs a region of memory",
                      "add host: {region: /run/shop/bulkhead} to the file");
    if (fleet && (!config.fleet || config.fleet->store.empty()))
      checks.complain(at + ".scope", "fleet needs a store",
                      "add fleet: {store: \"redis://limits.internal:6379\"} to the file");
    if (o.fairness != Fairness::fifo)
      checks.complain(path + ".fairness", join({"does not go with ", scope, " of a budget"}),
                      "give fairness: fifo");
    if (fleet && o.critical_reserve > 0)
      checks.complain(path + ".critical_reserve", join({"does not go with ", scope, " of a budget"}),
                      "remove it: units are spread over processes");
    if (constexpr std::uint32_t kMost = 16'777'215; fleet && b.max > kMost)  // as in check_scope()
      checks.complain(
          at + ".max", join({std::to_string(b.max), " is too many for ", scope}),
          join({"give 1 to ", std::to_string(kMost), ": count in larger units, such as thousands"}));
  }
}

// The settings that types, bulkheads and tenants have in common.
void check_common(const Config& config, const BulkheadConfig& b, const std::string& path,
                  const Checks& checks) {
  const BulkheadOptions& o = b.options;
  const bool threads = o.isolation == Isolation::threads;
  const auto given = [&](std::string_view setting) {
    return config.positions.contains(join({path, ".", setting}));
  };
  if (given("lint_allow")) check_rules(b.lint_allow, path + ".lint_allow", checks);
  if (threads && o.max_concurrent > kMaxThreads)
    checks.complain(path + ".max_concurrent",
                    join({std::to_string(o.max_concurrent), " threads are too many"}),
                    join({"give 1 to ", std::to_string(kMaxThreads), ", or isolation: semaphore"}));
  if (threads && o.pool.min_threads > o.max_concurrent)
    checks.complain(path + ".pool.min_threads",
                    join({std::to_string(o.pool.min_threads),
                          " is above max_concurrent: ", std::to_string(o.max_concurrent)}),
                    "give at most that");
  if (!threads && given("pool"))
    checks.complain(path + ".pool", "has no effect without isolation: threads",
                    "add isolation: threads, or remove it");
  if (threads && given("fairness"))
    checks.complain(path + ".fairness", "has no effect with isolation: threads", "remove it");
  if (o.flow_queues == 0) {
    for (const std::string_view setting : {"flow_hand", "flow_seed"})
      if (given(setting))
        checks.complain(join({path, ".", setting}), "has no effect without flow_queues",
                        "add flow_queues: 64, or remove it");
  } else if (o.flow_hand > o.flow_queues) {
    checks.complain(
        path + ".flow_hand",
        join({std::to_string(o.flow_hand), " is above flow_queues: ", std::to_string(o.flow_queues)}),
        "give at most flow_queues; a quarter of it or less keeps flows apart");
  }
  check_budgets(config, o, path, checks);
  if (o.rate_limit) check_rate(*o.rate_limit, path + ".rate_limit", checks);
  if (o.holdback && o.holdback->best_effort_from > o.holdback->normal_from)
    checks.complain(path + ".holdback.best_effort_from",
                    join({show_number(100 * o.holdback->best_effort_from),
                          "% is above normal_from: ", show_number(100 * o.holdback->normal_from), "%"}),
                    "give at most that: best_effort calls are held back first");
  if (!o.adaptive) return;
  check_adaptive(*o.adaptive, path + ".adaptive", "max_concurrent", checks);
  if (threads && o.adaptive->ceiling > kMaxThreads)
    checks.complain(path + ".adaptive.ceiling",
                    join({std::to_string(o.adaptive->ceiling), " threads are too many"}),
                    join({"give at most ", std::to_string(kMaxThreads)}));
}

// A limit that reaches beyond this process: what the bulkhead's constructor and the source of its units ask for.
void check_scope(const Config& config, const BulkheadConfig& b, const std::string& path,
                 const Checks& checks) {
  const BulkheadOptions& o = b.options;
  if (o.scope == Scope::process) return;
  const bool fleet = o.scope == Scope::fleet;
  const std::uint32_t most = fleet ? 16'777'215 : 4096;  // as in src/shared and adapters/shm
  const std::string scope = join({"scope: ", to_string(o.scope)});
  const auto complain = [&](std::string_view setting, std::string_view fix) {
    checks.complain(join({path, ".", setting}), join({"does not go with ", scope}), std::string(fix));
  };
  if (!fleet && (!config.host || config.host->region.empty()))
    checks.complain(path + ".scope", "host needs a region of memory",
                    "add host: {region: /run/shop/bulkhead} to the file");
  if (fleet && (!config.fleet || config.fleet->store.empty()))
    checks.complain(path + ".scope", "fleet needs a store",
                    "add fleet: {store: \"redis://limits.internal:6379\"} to the file");
  if (o.isolation == Isolation::threads) complain("isolation", "give isolation: semaphore");
  if (o.fairness != Fairness::fifo) complain("fairness", "give fairness: fifo");
  if (o.adaptive) complain("adaptive", "remove it, or write adaptive: none");
  if (o.holdback) complain("holdback", "remove it, or write holdback: none");
  if (!b.group.empty()) complain("group", "remove it, or give scope: process");
  if (fleet && o.critical_reserve > 0)
    complain("critical_reserve", "remove it: units are spread over processes");
  if (fleet && config.fleet && config.fleet->mode == FleetMode::direct && o.max_queue == 0)
    checks.complain(path + ".max_queue", "fleet.mode: direct fetches units for calls that wait, and none can",
                    "give max_queue at least 1, or fleet.mode: block");
  if (o.max_concurrent > most)
    checks.complain(path + ".max_concurrent",
                    join({std::to_string(o.max_concurrent), " is too many for ", scope}),
                    join({"give 1 to ", std::to_string(most)}));
}

// The adapter looks closer; this is what can be said without it.
void check_fleet(const FleetSettings& f, const Checks& checks) {
  constexpr std::string_view schemes[] = {"redis://", "rediss://", "unix:///", "redis+sentinel://",
                                          "rediss+sentinel://"};
  if (std::ranges::none_of(schemes, [&](std::string_view s) { return f.store.starts_with(s); }))
    checks.complain(
        "fleet.store", "is not the address of a store",
        "write redis://host:6379, rediss://host:6380, unix:///path or redis+sentinel://host:26379/name");
  if (f.prefix.empty() || f.prefix.find_first_of("{}") != std::string::npos)
    checks.complain("fleet.prefix", join({quoted(f.prefix), " cannot begin a key"}),
                    "give a name without braces");
}

// References to other entries. Also checked for a bulkhead with other problems.
void check_names(const Config& config, const BulkheadConfig& b, const std::string& path,
                 const Checks& checks) {
  const auto missing = [&](std::string_view kind, const std::string& name, const auto& all,
                           std::string_view where) {
    if (name.empty() || std::ranges::any_of(all, [&](const auto& one) { return name_of(one) == name; }))
      return;
    checks.complain(join({path, ".", kind}), join({"unknown ", kind, " ", quoted(name)}),
                    near(name, all, where));
  };
  missing("type", b.type, config.types, "types");
  missing("group", b.group, config.groups, "groups");
  missing("resource", b.resource, config.resources, "resources");
}

void check_member(const Config& config, const BulkheadConfig& b, const std::string& path,
                  const Checks& checks) {
  const auto given = [&](std::string_view setting) {
    return config.positions.contains(join({path, ".", setting}));
  };
  if (b.group.empty()) {
    for (const std::string_view setting : {"guaranteed", "max"})
      if (given(setting))
        checks.complain(join({path, ".", setting}), "has no effect without a group",
                        "add group, or give max_concurrent instead");
    return;
  }
  if (given("max_concurrent"))
    checks.complain(path + ".max_concurrent", "has no effect in a group", "give guaranteed and max instead");
  if (b.options.isolation == Isolation::threads)
    checks.complain(path + ".isolation", "a member of a group cannot have threads of its own",
                    "give isolation: semaphore, or no group");
  if (b.options.adaptive)
    checks.complain(path + ".adaptive", "has no effect in a group, which sets the limit of its members",
                    join({"give groups.", b.group, ".adaptive, which moves the total, and ",
                          given("adaptive") ? "remove this" : "write adaptive: none here"}));
}

double exact(const Share& share, std::uint32_t total) {
  return share.percent != 0 ? share.percent / 100 * total : share.units;
}

// At its ceiling the total holds all guarantees. Below their sum they shrink.
void check_adaptive_group(const Config& config, const GroupConfig& g, const Checks& checks) {
  const std::string path = join({"groups.", g.options.name, ".adaptive"});
  check_adaptive(*g.adaptive, path, "the total", checks);
  double sum = 0;
  for (const BulkheadConfig& b : config.bulkheads)
    if (b.group == g.options.name) sum += exact(b.guaranteed, g.adaptive->ceiling);
  if (static_cast<std::uint64_t>(sum) > g.adaptive->ceiling)
    checks.complain(path + ".ceiling",
                    join({std::to_string(g.adaptive->ceiling), " is below the guarantees of its members, ",
                          std::to_string(static_cast<std::uint64_t>(sum))}),
                    "raise it, or lower the guarantees");
}

// The guarantees fit into the total, and each below its max. Rounds as group/shares.cc does.
void check_shares(const Config& config, const GroupConfig& g, const Checks& checks) {
  constexpr double kSlack = 1e-6;
  const std::string path = "groups." + g.options.name;
  double percent = 0;
  std::uint64_t units = 0;
  const std::uint32_t total = g.options.total;
  for (const BulkheadConfig& b : config.bulkheads) {
    if (b.group != g.options.name) continue;
    const std::string member = "bulkheads." + b.options.name;
    if (checks.broken(member)) return;
    if (b.guaranteed.percent != 0)
      percent += exact(b.guaranteed, total);
    else
      units += b.guaranteed.units;
    const double most =
        b.max.percent != 0 ? std::ceil(exact(b.max, total) - kSlack) : std::min(b.max.units, total);
    if (most < 1) {
      checks.complain(member + ".max", "is less than 1 unit", "give at least 1 unit");
    } else if (most + kSlack < std::floor(exact(b.guaranteed, total) + kSlack)) {
      checks.complain(member + ".max",
                      join({show_part(b.max), " is below guaranteed: ", show_part(b.guaranteed)}),
                      "give at least that");
    }
  }
  const std::uint64_t sum = units + static_cast<std::uint64_t>(percent + kSlack);
  if (sum > total)
    checks.complain(path + ".total",
                    join({"the guarantees of its members add up to ", std::to_string(sum), " of ",
                          std::to_string(total)}),
                    "lower them, or raise the total");
}

// "address:port"; `local`: only this host can reach the address.
bool split_listen(std::string_view listen, bool& local) {
  const std::size_t colon = listen.rfind(':');
  if (colon == listen.npos || colon == 0) return false;
  const std::string_view host = listen.substr(0, colon), port = listen.substr(colon + 1);
  std::uint16_t number = 0;
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), number);
  if (error != std::errc{} || end != port.data() + port.size()) return false;
  if (host.find(':') != host.npos && !(host.starts_with('[') && host.ends_with(']'))) return false;
  local = host == "localhost" || host == "[::1]" || host.starts_with("127.");
  return true;
}

// An address that other hosts can reach needs TLS and tokens, because the control plane changes the process.
void check_control(const ControlConfig& c, const Checks& checks) {
  if (c.unix_socket.empty() && c.listen.empty())
    checks.complain("control", "has neither unix_socket nor listen", "add one of them, or remove control");
  if (c.unix_socket.size() > 107)
    checks.complain("control.unix_socket", "is longer than the path of a socket may be",
                    "give at most 107 bytes");
  const bool octal = c.unix_socket_mode.size() >= 3 && c.unix_socket_mode.size() <= 4 &&
                     c.unix_socket_mode.find_first_not_of("01234567") == c.unix_socket_mode.npos;
  if (!octal)
    checks.complain("control.unix_socket_mode", join({quoted(c.unix_socket_mode), " is not an octal mode"}),
                    "write \"0660\", with quotes");
  if (c.listen.empty()) {
    if (c.tls) checks.complain("control.tls", "has no effect without listen", "add listen, or remove it");
    if (!c.tokens_file.empty())
      checks.complain("control.tokens_file", "has no effect without listen", "add listen, or remove it");
    return;
  }
  bool local = false;
  if (!split_listen(c.listen, local))
    return checks.complain("control.listen", join({quoted(c.listen), " is not an address and a port"}),
                           "write 127.0.0.1:9920 or [::1]:9920");
  if (!local && (!c.tls || c.tokens_file.empty()))
    checks.complain("control.listen", join({quoted(c.listen), " can be reached from other hosts"}),
                    "add tls and tokens_file, or listen on 127.0.0.1");
}

}  // namespace

// A part whose settings were not readable is left out: its values are defaults, and errors about them would mislead.
void check(const Config& config, const Checks& checks) {
  const auto each = [&](std::string_view kind, const BulkheadConfig& b, bool member) {
    const std::string path = join({kind, ".", b.options.name});
    const bool clear = !checks.broken(path) && (b.type.empty() || !checks.broken("types." + b.type));
    check_names(config, b, path, checks);
    if (!clear) return;
    check_common(config, b, path, checks);
    if (!member) return;
    check_scope(config, b, path, checks);
    check_member(config, b, path, checks);
  };
  for (const BulkheadConfig& t : config.types) each("types", t, false);
  for (const BulkheadConfig& b : config.bulkheads) each("bulkheads", b, true);
  for (const TenantsConfig& t : config.tenants) each("tenants", t.each, false);
  for (const GroupConfig& g : config.groups) {
    const std::string path = "groups." + g.options.name;
    if (!g.resource.empty() && !config.find_resource(g.resource))
      checks.complain(path + ".resource", join({"unknown resource ", quoted(g.resource)}),
                      near(g.resource, config.resources, "resources"));
    check_rules(g.lint_allow, path + ".lint_allow", checks);
    if (checks.broken(path)) continue;
    check_shares(config, g, checks);
    if (g.adaptive) check_adaptive_group(config, g, checks);
  }
  for (const ResourceConfig& r : config.resources)
    check_rules(r.lint_allow, "resources." + r.name + ".lint_allow", checks);
  check_rules(config.lint_allow, "lint_allow", checks);
  if (config.fleet && !checks.broken("fleet")) check_fleet(*config.fleet, checks);
  if (config.control && !checks.broken("control")) check_control(*config.control, checks);
}

}  // namespace bulkhead::config
