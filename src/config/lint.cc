#include "config/lint.h"

#include <algorithm>
#include <map>

#include "base/text.h"
#include "bulkhead/config.h"
#include "config/decode.h"
#include "config/values.h"

namespace bulkhead {
namespace config {
namespace {

using base::join;
using std::chrono::nanoseconds;

constexpr double kBuffer = 0.1;  // the share of a resource that should stay unplanned
constexpr std::uint32_t kMinConcurrent =
    4;  // average max_concurrent below which bulkheads are too small to be useful
constexpr nanoseconds kFastCall = std::chrono::milliseconds(1);

constexpr Rule kRules[] = {
    {"too-many-bulkheads", "A resource is divided into bulkheads with a max_concurrent below 4 on average.",
     "Small bulkheads reject calls while others are idle: at half load a max_concurrent of 4 rejects 9.5 % "
     "of "
     "random arrivals, one of 20 rejects 0.2 %.",
     "Merge bulkheads of the same criticality, or put them into a group, which lends idle units."},
    {"same-size", "Three or more bulkheads all have the same size.",
     "Dependencies differ in rate and latency, so equal sizes are not measured sizes: some are too small and "
     "reject calls, others are too large and protect nothing.",
     "Size each bulkhead by its own numbers: bulkhead size --rate R --latency L --tolerated-wait W."},
    {"no-fallback", "The file does not say what callers get when this bulkhead rejects.",
     "Every bulkhead rejects at some time; without a fallback the caller shows an error.",
     "Give the calls a fallback and name it (fallback: yesterday's prices), or state that there is none "
     "(fallback: none)."},
    {"queue-too-deep", "The last call of a full queue cannot be admitted within max_wait.",
     "A queue longer than max_wait can serve only holds calls that time out anyway, and hides the overload.",
     "Make max_queue at most max_wait x max_concurrent / typical_latency, or raise max_wait."},
    {"queue-without-timeout", "Calls may wait in the queue forever.",
     "When the dependency hangs, the queue is full of calls whose callers no longer wait.",
     "Give max_wait: how long a caller accepts to wait rather than be rejected."},
    {"no-timeout", "Calls may run forever.",
     "A dependency that hangs holds one call after the other until max_concurrent is reached, and none ends.",
     "Give execution_timeout: a little more than the p99.9 in normal operation."},
    {"timeout-not-shorter", "Waiting and running may take as long as the caller's own timeout, or longer.",
     "The caller gives up first and retries while its first call is still in flight: the load doubles during "
     "an "
     "overload.",
     "Make max_wait + execution_timeout shorter than caller_timeout."},
    {"one-for-all", "There is only one bulkhead.",
     "If all calls share one bulkhead, slow calls to one dependency block the calls to all others.",
     "Give each dependency, or each kind of work, a bulkhead of its own."},
    {"threads-not-isolated",
     "Connections are divided between bulkheads, but the threads that use them are not.",
     "Callers of a slow database hold threads while they wait; when the threads of the service are used up, "
     "free connections do not help.",
     "Give these bulkheads isolation: threads, or declare the thread pool as a resource of kind threads and "
     "give its users bulkheads too."},
    {"over-capacity", "The bulkheads of a resource may together use more than its capacity.",
     "When all of them are busy, the resource fails instead of the bulkhead: the bulkheads do not isolate.",
     "Lower their sizes until the sum fits, or put them into a group with a hard total."},
    {"no-buffer", "The bulkheads of a resource may together use more than 90 % of it.",
     "Migrations, monitoring, a second instance during a deployment and connections that close slowly need "
     "some "
     "of it too.",
     "Keep 10 % of the capacity free."},
    {"slow-calls-uncounted", "The breaker's slow_call is not below the execution_timeout.",
     "A call times out before it counts as slow, so the breaker never opens for slow calls.",
     "Make slow_call clearly shorter than execution_timeout."},
    {"unfair-flows", "The queue should be fair between flows, and cannot be.",
     "Fairness acts on waiting calls: with max_queue 0 no call waits. And a flow that may use most of the "
     "queues "
     "leaves none to the others: with 64 queues and a flow_hand of 4, two flows share all their queues once "
     "in "
     "635 376 pairs; with 8 queues once in 70.",
     "Give max_queue, and flow_hand at most a quarter of flow_queues: 64 and 4 are good numbers."},
    {"budget-for-one", "One call may take more than half of a budget.",
     "While such a call runs no second one like it can, whatever max_concurrent says, and light calls wait "
     "behind it.",
     "Give per_call_max at most half of max, as high as calls need."},
    {"fleet-thin", "A limit of a fleet has fewer than 5 units per process, and calls cannot wait for one.",
     "In block mode each process admits from units of its own: with 5 of them 11 % of the calls are rejected "
     "at a load of 60 % while other processes have idle ones, with 1.25 of them 36 %. Waiting four times as "
     "long as a call takes makes up for it.",
     "Give max_queue and a max_wait of four times typical_latency, or fleet.mode: direct or auto with a "
     "max_queue, or a larger "
     "max_concurrent."},
    {"fleet-block", "Units are fetched ahead of the calls, where the store could carry every call.",
     "Units that one process holds idle are missing in another. The store carries 10 000 requests per second "
     "easily: two "
     "per call.",
     "Give fleet.mode: auto or direct."},
    {"not-enforced", "The bulkhead is not enabled, or is in shadow mode.",
     "It protects nothing, and trials are easily forgotten.",
     "Remove enabled: false or shadow: true when the trial is over."},
    {"anonymous-readers", "Clients on other hosts may read the control plane without a token.",
     "The configuration, the audit log and the metrics show names, limits and operators.",
     "Remove anonymous: viewer; the default admits no client on other hosts without a token."},
    {"unused", "A type, group or resource that nothing uses.",
     "Often a name is misspelt, and a bulkhead runs without the settings meant for it.",
     "Use it, or remove it."},
};

std::string_view word(ResourceConfig::Kind kind) {
  constexpr std::string_view kWords[] = {"connections", "threads", "units of memory", "units"};
  return kWords[static_cast<std::size_t>(kind)];
}

std::uint64_t demand(const BulkheadOptions& o) { return o.adaptive ? o.adaptive->ceiling : o.max_concurrent; }

bool allows(const std::vector<std::string>& allowed, std::string_view rule) {
  return std::ranges::find(allowed, rule) != allowed.end();
}

class Linter {
 public:
  explicit Linter(const Config& config) : config_(config) {}

  std::vector<ConfigProblem> run() {
    for (const BulkheadConfig& b : config_.bulkheads) bulkhead("bulkheads." + b.options.name, b);
    for (const TenantsConfig& t : config_.tenants) bulkhead("tenants." + t.each.options.name, t.each);
    sizes();
    one_for_all();
    for (const ResourceConfig& r : config_.resources) resource(r);
    control();
    unused();
    sort_by_position(found_);
    return std::move(found_);
  }

 private:
  void warn(std::string_view rule, std::string path, std::string message,
            const std::vector<std::string>& allowed) {
    if (allows(config_.lint_allow, rule) || allows(allowed, rule)) return;
    const Position at = config_.where(path);
    found_.push_back({.severity = ConfigProblem::Severity::warning,
                      .at = at,
                      .path = std::move(path),
                      .message = std::move(message),
                      .hint = std::string(find_rule(rule)->fix),
                      .rule = std::string(rule)});
  }

  void control() {
    if (!config_.control || config_.control->listen.empty()) return;
    const std::string& listen = config_.control->listen;
    const bool local =
        listen.starts_with("127.") || listen.starts_with("localhost:") || listen.starts_with("[::1]:");
    if (!local && config_.control->anonymous == ControlConfig::Anonymous::viewer)
      warn("anonymous-readers", "control.anonymous",
           join({"every client that reaches ", listen, " may read without a token"}), {});
  }

  // The rules about one bulkhead. Those about a resource that several share are in resource().
  void bulkhead(const std::string& path, const BulkheadConfig& b) {
    const BulkheadOptions& o = b.options;
    const auto found = [&](std::string_view rule, std::string_view setting, std::string message) {
      warn(rule, setting.empty() ? path : join({path, ".", setting}), std::move(message), b.lint_allow);
    };
    if (b.fallback.empty() && b.criticality != Priority::best_effort)
      found("no-fallback", "", "the file does not say what callers get when it rejects");
    else if (!b.fallback.empty() && b.fallback != "none" && o.fallback_on == FallbackOn::nothing)
      found("no-fallback", "fallback_on", "its fallback is never used");
    if (o.execution_timeout == wait_forever) found("no-timeout", "", "a call may run forever");
    line(path, b, found);
    timeouts(b, found);
    if (o.breaker && o.breaker->slow_call_rate < 1 && o.breaker->slow_call >= o.execution_timeout)
      found("slow-calls-uncounted", "breaker.slow_call",
            join({"slow_call ", show_duration(o.breaker->slow_call), " is not below execution_timeout ",
                  show_duration(o.execution_timeout)}));
    if (o.flow_queues > 0 && o.max_queue == 0)
      found("unfair-flows", "flow_queues", "max_queue is 0: there is no queue to be fair");
    else if (o.flow_queues > 0 && o.flow_hand * 4 > o.flow_queues)
      found("unfair-flows", "flow_queues",
            join({"each flow may use ", std::to_string(o.flow_hand), " of ", std::to_string(o.flow_queues),
                  " queues: a noisy flow delays all others"}));
    for (const BudgetOptions& budget : o.budgets)
      if (const std::uint32_t most = budget.per_call_max != 0 ? budget.per_call_max : budget.max;
          most > budget.max / 2 && o.max_concurrent > 1)
        found(
            "budget-for-one", join({"budgets.", budget.name}),
            join({"one call may take ", std::to_string(most), " of ", std::to_string(budget.max), " units"}));
    if (o.scope == Scope::fleet && config_.fleet) fleet(b, *config_.fleet, found);
    if (!o.enabled)
      found("not-enforced", "enabled", "the bulkhead is not enabled");
    else if (o.shadow)
      found("not-enforced", "shadow", "the bulkhead is in shadow mode and rejects nothing");
  }

  template <class Found>
  void line(const std::string&, const BulkheadConfig& b, const Found& found) {
    const BulkheadOptions& o = b.options;
    if (o.max_queue == 0) return;
    if (o.max_wait == wait_forever)
      return found("queue-without-timeout", "max_queue", "calls may wait in the queue forever");
    const std::uint64_t places = places_of(b);
    if (b.typical_latency > nanoseconds(0)) {
      const double wait = static_cast<double>(o.max_queue) * static_cast<double>(b.typical_latency.count()) /
                          static_cast<double>(places);
      if (wait <= static_cast<double>(o.max_wait.count())) return;
      const auto fits =
          static_cast<std::uint64_t>(static_cast<double>(o.max_wait.count()) * static_cast<double>(places) /
                                     static_cast<double>(b.typical_latency.count()));
      return found("queue-too-deep", "max_queue",
                   join({std::to_string(o.max_queue), " waiting x ", show_duration(b.typical_latency), " / ",
                         std::to_string(places), " concurrent = ", rounded(wait),
                         " until the last is admitted, but max_wait is ", show_duration(o.max_wait),
                         "; at most ", std::to_string(fits), " can be served in time"}));
    }
    // The duration of a call is unknown: warn only if no real call could be fast enough.
    const double latency =
        static_cast<double>(o.max_wait.count()) * static_cast<double>(places) / o.max_queue;
    if (latency < static_cast<double>(kFastCall.count()))
      found("queue-too-deep", "max_queue",
            join({"the last of ", std::to_string(o.max_queue), " waiting calls is admitted within ",
                  show_duration(o.max_wait), " only if calls take less than ", rounded(latency)}));
  }

  // The numbers are those by which the fleet itself chooses its mode, see FleetMode::automatic.
  template <class Found>
  static void fleet(const BulkheadConfig& b, const FleetSettings& f, const Found& found) {
    const BulkheadOptions& o = b.options;
    const double latency = static_cast<double>(b.typical_latency.count()) * 1e-9;
    const bool store_could = o.max_queue > 0 && latency > 0 && 2 * o.max_concurrent / latency <= 10'000;
    if (f.mode == FleetMode::block && store_could)
      found("fleet-block", "scope",
            join({"at most 2 x ", std::to_string(o.max_concurrent), " / ", show_duration(b.typical_latency),
                  " = ", std::to_string(static_cast<std::uint64_t>(2 * o.max_concurrent / latency)),
                  " requests per second"}));
    const bool direct = f.mode == FleetMode::direct || (f.mode == FleetMode::automatic && store_could);
    const bool waits =
        o.max_queue > 0 && b.typical_latency.count() > 0 && o.max_wait / 4 >= b.typical_latency;
    if (!direct && !waits && o.max_concurrent < std::uint64_t{5} * f.replicas)
      found("fleet-thin", "max_concurrent",
            join({std::to_string(o.max_concurrent), " for ", std::to_string(f.replicas), " processes"}));
  }

  template <class Found>
  void timeouts(const BulkheadConfig& b, const Found& found) {
    const BulkheadOptions& o = b.options;
    if (b.caller_timeout == wait_forever) return;
    const nanoseconds wait = o.max_queue == 0 ? nanoseconds(0) : o.max_wait;
    if (o.execution_timeout == wait_forever) {  // another rule asks for one; the wait alone may be too long
      if (wait != wait_forever && wait >= b.caller_timeout)
        found("timeout-not-shorter", "caller_timeout",
              join({"max_wait ", show_duration(wait), " alone is not below caller_timeout ",
                    show_duration(b.caller_timeout)}));
      return;
    }
    if (wait == wait_forever || wait + o.execution_timeout >= b.caller_timeout)
      found(
          "timeout-not-shorter", "caller_timeout",
          join({"max_wait ", show_duration(wait), " + execution_timeout ", show_duration(o.execution_timeout),
                " is not below caller_timeout ", show_duration(b.caller_timeout)}));
  }

  static std::string rounded(double ns) {
    const double unit = ns >= 1e9 ? 1e7 : ns >= 1e6 ? 1e4 : ns >= 1e3 ? 1e1 : 1;  // three figures or so
    return show_duration(nanoseconds(static_cast<std::int64_t>(ns / unit) * static_cast<std::int64_t>(unit)));
  }

  std::uint64_t places_of(const BulkheadConfig& b) const {
    const GroupConfig* g = b.group.empty() ? nullptr : config_.find_group(b.group);
    if (!g) return b.options.max_concurrent;
    const double most = b.max.percent != 0 ? b.max.percent / 100 * g->options.total : b.max.units;
    return std::max<std::uint64_t>(1, static_cast<std::uint64_t>(most));
  }

  void sizes() {
    std::map<std::string, std::vector<const BulkheadConfig*>> by_group;  // "": no group
    for (const BulkheadConfig& b : config_.bulkheads) by_group[b.group].push_back(&b);
    for (const auto& [group, members] : by_group) {
      if (members.size() < 3) continue;
      const BulkheadConfig& first = *members.front();
      const bool same = std::ranges::all_of(members, [&](const BulkheadConfig* b) {
        return group.empty() ? b->options.max_concurrent == first.options.max_concurrent &&
                                   b->options.max_queue == first.options.max_queue && !b->options.adaptive
                             : b->guaranteed.percent == first.guaranteed.percent &&
                                   b->guaranteed.units == first.guaranteed.units;
      });
      if (!same) continue;
      const std::string size = group.empty()
                                   ? join({"max_concurrent ", std::to_string(first.options.max_concurrent),
                                           ", max_queue ", std::to_string(first.options.max_queue)})
                                   : join({"guaranteed ", show_part(first.guaranteed)});
      const GroupConfig* g = config_.find_group(group);
      warn("same-size", group.empty() ? "bulkheads" : "groups." + group,
           join({"all ", std::to_string(members.size()), group.empty() ? " bulkheads" : " members",
                 " have the same size: ", size}),
           g ? g->lint_allow : std::vector<std::string>{});
    }
  }

  void one_for_all() {
    if (config_.bulkheads.size() != 1 || !config_.tenants.empty()) return;
    const BulkheadConfig& only = config_.bulkheads.front();
    warn("one-for-all", "bulkheads." + only.options.name, "it is the only bulkhead: all calls share it",
         only.lint_allow);
  }

  struct User {
    std::string name;
    std::uint64_t units;
  };

  // The users of a resource: bulkheads, groups as a whole, and sets of tenants.
  std::vector<User> users(const ResourceConfig& r, std::uint64_t& compartments, bool& threads) const {
    std::vector<User> users;
    for (const GroupConfig& g : config_.groups)
      if (g.resource == r.name)
        users.push_back({g.options.name, g.adaptive ? g.adaptive->ceiling : g.options.total});
    for (const BulkheadConfig& b : config_.bulkheads) {
      const GroupConfig* g = b.group.empty() ? nullptr : config_.find_group(b.group);
      const bool through_group = g && g->resource == r.name;
      if (!through_group && b.resource != r.name) continue;
      ++compartments;
      threads = threads || b.options.isolation == Isolation::threads;
      if (!through_group) users.push_back({b.options.name, g ? places_of(b) : demand(b.options)});
    }
    for (const TenantsConfig& t : config_.tenants) {
      if (t.each.resource != r.name) continue;
      ++compartments;
      threads = threads || t.each.options.isolation == Isolation::threads;
      users.push_back({t.each.options.name, demand(t.each.options) * t.max_tenants});
    }
    return users;
  }

  // Adds up what all users of a resource may take at once, and compares the sum with its capacity.
  void resource(const ResourceConfig& r) {
    const std::string path = "resources." + r.name;
    std::uint64_t compartments = 0, sum = 0;
    bool threads = false;
    std::string terms;
    for (const User& user : users(r, compartments, threads)) {
      sum += user.units;
      terms += join({terms.empty() ? "" : " + ", user.name, " ", std::to_string(user.units)});
    }
    const bool one_group =
        std::ranges::any_of(config_.groups, [&](const GroupConfig& g) { return g.resource == r.name; });
    if (!one_group && compartments > 1 && r.capacity / compartments < kMinConcurrent)
      warn("too-many-bulkheads", path,
           join({std::to_string(compartments), " bulkheads share ", std::to_string(r.capacity), " ",
                 word(r.kind), ": fewer than ", std::to_string(kMinConcurrent), " each"}),
           r.lint_allow);
    if (sum > r.capacity)
      warn("over-capacity", path + ".capacity",
           join({terms, " = ", std::to_string(sum), " of ", std::to_string(r.capacity), " ", word(r.kind)}),
           r.lint_allow);
    else if (static_cast<double>(sum) > (1 - kBuffer) * r.capacity)
      warn("no-buffer", path + ".capacity",
           join({terms, " = ", std::to_string(sum), " of ", std::to_string(r.capacity), " ", word(r.kind),
                 ": less than 10 % is left"}),
           r.lint_allow);
    const bool knows_threads = std::ranges::any_of(
        config_.resources, [](const ResourceConfig& o) { return o.kind == ResourceConfig::Kind::threads; });
    if (r.kind == ResourceConfig::Kind::connections && compartments > 1 && !threads && !knows_threads)
      warn("threads-not-isolated", path,
           join({std::to_string(compartments),
                 " bulkheads share its connections, but all run on the threads of their callers"}),
           r.lint_allow);
  }

  void unused() {
    const auto used = [&](auto member, std::string_view name) {
      return std::ranges::any_of(config_.bulkheads,
                                 [&](const BulkheadConfig& b) { return member(b) == name; }) ||
             std::ranges::any_of(config_.tenants,
                                 [&](const TenantsConfig& t) { return member(t.each) == name; });
    };
    const auto report = [&](std::string path, std::string_view what,
                            const std::vector<std::string>& allowed) {
      if (!config_.positions.contains(path)) return;  // built in
      warn("unused", std::move(path), join({"nothing uses this ", what}), allowed);
    };
    for (const BulkheadConfig& t : config_.types)
      if (!used([](const BulkheadConfig& b) -> const std::string& { return b.type; }, t.options.name))
        report("types." + t.options.name, "type", t.lint_allow);
    for (const GroupConfig& g : config_.groups)
      if (!used([](const BulkheadConfig& b) -> const std::string& { return b.group; }, g.options.name))
        report("groups." + g.options.name, "group", g.lint_allow);
    for (const ResourceConfig& r : config_.resources) {
      const bool by_group =
          std::ranges::any_of(config_.groups, [&](const GroupConfig& g) { return g.resource == r.name; });
      if (!by_group &&
          !used([](const BulkheadConfig& b) -> const std::string& { return b.resource; }, r.name))
        report("resources." + r.name, "resource", r.lint_allow);
    }
  }

  const Config& config_;
  std::vector<ConfigProblem> found_;
};

}  // namespace

std::span<const Rule> rules() { return kRules; }

const Rule* find_rule(std::string_view name) {
  for (const Rule& rule : kRules)
    if (rule.name == name) return &rule;
  return nullptr;
}

}  // namespace config

std::vector<ConfigProblem> lint(const Config& config) { return config::Linter(config).run(); }

}  // namespace bulkhead
