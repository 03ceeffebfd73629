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

constexpr std::uint32_t kMostThreads = 65'536;

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
    checks.complain(path, join({"the linter has no rule ", quoted(rule)}),
                    nearest.empty() ? "bulkhead explain lists them" : join({"did you mean ", nearest, "?"}));
  }
}

// What the constructor of a RateLimiter asks for.
void check_rate(const RateLimiterOptions& o, const std::string& path, const Checks& checks) {
  if (o.per / o.rate > std::chrono::hours(24))
    return checks.complain(
        path + ".rate",
        join({std::to_string(o.rate), " in ", show_duration(o.per), " is less than one a day"}),
        "give a shorter per");
  if (o.per.count() < static_cast<std::int64_t>(o.rate / 2))
    return checks.complain(path + ".rate",
                           join({std::to_string(o.rate), " in ", show_duration(o.per), " is too fast"}),
                           "give at most 2 per nanosecond");
  const double days = static_cast<double>(o.burst) * static_cast<double>(o.per.count()) / o.rate / 86.4e12;
  if (days > 365)
    checks.complain(path + ".burst",
                    join({std::to_string(o.burst), " would take ", std::to_string(static_cast<long>(days)),
                          " days to save up"}),
                    "give what is saved up within 365 days");
}

void check_adaptive(const LimiterOptions& o, const std::string& path, const Checks& checks) {
  if (o.floor > o.ceiling)
    checks.complain(path + ".floor",
                    join({std::to_string(o.floor), " is above ceiling: ", std::to_string(o.ceiling)}),
                    "give at most the ceiling");
  else if (o.initial != 0 && (o.initial < o.floor || o.initial > o.ceiling))
    checks.complain(path + ".initial",
                    join({std::to_string(o.initial), " is not between floor: ", std::to_string(o.floor),
                          " and ceiling: ", std::to_string(o.ceiling)}),
                    "give something between them, or 0 for max_concurrent");
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

// What types, bulkheads and tenants have in common.
void check_common(const Config& config, const BulkheadConfig& b, const std::string& path,
                  const Checks& checks) {
  const BulkheadOptions& o = b.options;
  const bool threads = o.isolation == Isolation::threads;
  const auto given = [&](std::string_view setting) {
    return config.positions.contains(join({path, ".", setting}));
  };
  if (given("lint_allow")) check_rules(b.lint_allow, path + ".lint_allow", checks);
  if (threads && o.max_concurrent > kMostThreads)
    checks.complain(path + ".max_concurrent",
                    join({std::to_string(o.max_concurrent), " threads are too many"}),
                    join({"give 1 to ", std::to_string(kMostThreads), ", or isolation: semaphore"}));
  if (threads && o.pool.min_threads > o.max_concurrent)
    checks.complain(path + ".pool.min_threads",
                    join({std::to_string(o.pool.min_threads),
                          " is above max_concurrent: ", std::to_string(o.max_concurrent)}),
                    "give at most that");
  if (!threads && given("pool"))
    checks.complain(path + ".pool", "has no effect without threads", "add isolation: threads, or remove it");
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
        "give at most that; a quarter of it or less keeps flows apart");
  }
  if (o.rate_limit) check_rate(*o.rate_limit, path + ".rate_limit", checks);
  if (!o.adaptive) return;
  check_adaptive(*o.adaptive, path + ".adaptive", checks);
  if (threads && o.adaptive->ceiling > kMostThreads)
    checks.complain(path + ".adaptive.ceiling",
                    join({std::to_string(o.adaptive->ceiling), " threads are too many"}),
                    join({"give at most ", std::to_string(kMostThreads)}));
}

// Names of other things. Also of a bulkhead that has other faults.
void check_names(const Config& config, const BulkheadConfig& b, const std::string& path,
                 const Checks& checks) {
  const auto missing = [&](std::string_view kind, const std::string& name, const auto& all,
                           std::string_view where) {
    if (name.empty() || std::ranges::any_of(all, [&](const auto& one) { return name_of(one) == name; }))
      return;
    checks.complain(join({path, ".", kind}), join({"there is no ", kind, " ", quoted(name)}),
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
    checks.complain(path + ".max_concurrent", "has no effect in a group, which gives the places",
                    "give guaranteed and max instead");
  if (b.options.isolation == Isolation::threads)
    checks.complain(path + ".isolation", "a member of a group has no threads of its own",
                    "give isolation: semaphore, or no group");
  if (b.options.adaptive)
    checks.complain(path + ".adaptive",
                    "cannot move the limit of a member of a group, which does that itself",
                    given("adaptive") ? "remove it" : "write adaptive: none");
}

double exact(const Share& share, std::uint32_t total) {
  return share.percent != 0 ? share.percent / 100 * total : share.units;
}

// Guarantees fit into the total, and below each max. The same rounding as in group/shares.cc.
void check_shares(const Config& config, const GroupConfig& g, const Checks& checks) {
  constexpr double slack = 1e-6;
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
        b.max.percent != 0 ? std::ceil(exact(b.max, total) - slack) : std::min(b.max.units, total);
    if (most < 1) {
      checks.complain(member + ".max", "is nothing at all", "give at least 1 unit");
    } else if (most + slack < std::floor(exact(b.guaranteed, total) + slack)) {
      checks.complain(member + ".max",
                      join({show_part(b.max), " is below guaranteed: ", show_part(b.guaranteed)}),
                      "give at least that");
    }
  }
  const std::uint64_t sum = units + static_cast<std::uint64_t>(percent + slack);
  if (sum > total)
    checks.complain(path + ".total",
                    join({"the guarantees of its members add up to ", std::to_string(sum), " of ",
                          std::to_string(total)}),
                    "lower them, or raise the total");
}

// "address:port"; whether the address is of this host only.
bool split_listen(std::string_view listen, bool& local) {
  const std::size_t colon = listen.rfind(':');
  if (colon == listen.npos || colon == 0) return false;
  const std::string_view host = listen.substr(0, colon), port = listen.substr(colon + 1);
  std::uint16_t number = 0;
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), number);
  if (error != std::errc{} || end != port.data() + port.size()) return false;
  if (host.contains(':') && !(host.starts_with('[') && host.ends_with(']'))) return false;
  local = host == "localhost" || host == "[::1]" || host.starts_with("127.");
  return true;
}

void check_control(const ControlConfig& c, const Checks& checks) {
  if (c.unix_socket.empty() && c.listen.empty())
    checks.complain("control", "has neither unix_socket nor listen", "add one of them, or remove control");
  if (c.unix_socket.size() > 107)
    checks.complain("control.unix_socket", "is longer than a socket's path can be", "give 107 bytes at most");
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

void check(const Config& config, const Checks& checks) {
  const auto each = [&](std::string_view kind, const BulkheadConfig& b, bool member) {
    const std::string path = join({kind, ".", b.options.name});
    const bool clear = !checks.broken(path) && (b.type.empty() || !checks.broken("types." + b.type));
    check_names(config, b, path, checks);
    if (!clear) return;
    check_common(config, b, path, checks);
    if (member) check_member(config, b, path, checks);
  };
  for (const BulkheadConfig& t : config.types) each("types", t, false);
  for (const BulkheadConfig& b : config.bulkheads) each("bulkheads", b, true);
  for (const TenantsConfig& t : config.tenants) each("tenants", t.each, false);
  for (const GroupConfig& g : config.groups) {
    const std::string path = "groups." + g.options.name;
    if (!g.resource.empty() && !config.find_resource(g.resource))
      checks.complain(path + ".resource", join({"there is no resource ", quoted(g.resource)}),
                      near(g.resource, config.resources, "resources"));
    check_rules(g.lint_allow, path + ".lint_allow", checks);
    if (!checks.broken(path)) check_shares(config, g, checks);
  }
  for (const ResourceConfig& r : config.resources)
    check_rules(r.lint_allow, "resources." + r.name + ".lint_allow", checks);
  check_rules(config.lint_allow, "lint_allow", checks);
  if (config.control && !checks.broken("control")) check_control(*config.control, checks);
}

}  // namespace bulkhead::config
