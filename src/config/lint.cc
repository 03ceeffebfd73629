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

constexpr double kBuffer = 0.1;             // of a resource that nobody should plan with
constexpr std::uint32_t kFewestPlaces = 4;  // on average, below which compartments are too small to be of use
constexpr nanoseconds kFastCall = std::chrono::milliseconds(1);

constexpr Rule kRules[] = {
    {"too-many-bulkheads", "A resource is cut into compartments of fewer than four places on average.",
     "Small compartments refuse calls while their neighbours are idle: at half load one of 4 places refuses "
     "9.5 % of "
     "random arrivals, one of 20 places 0.2 %.",
     "Merge bulkheads of the same criticality, or put them into a group, which lends what is idle."},
    {"same-size", "Three or more bulkheads all have the same size.",
     "Dependencies differ in rate and latency, so equal sizes mean that nobody has measured: some are too "
     "small and "
     "reject, others are too large and protect nothing.",
     "Size each one by its own numbers: bulkhead size --rate R --latency L --tolerated-wait W."},
    {"no-fallback", "Nobody has said what callers get when this bulkhead rejects.",
     "A rejection is certain to come one day; without a fallback it becomes an error page there and then.",
     "Give the calls a fallback and name it (fallback: yesterday's prices), or say that there is none "
     "(fallback: none)."},
    {"queue-too-deep", "The last in a full line cannot get a place within max_wait.",
     "Places in line beyond what max_wait serves only let calls wait that time out anyway, and hide the "
     "overload.",
     "Make max_queue at most max_wait x max_concurrent / typical_latency, or raise max_wait."},
    {"queue-without-timeout", "Calls may wait in line for ever.",
     "When the dependency hangs, the line is full of callers that have long given up.",
     "Give max_wait: what a caller would rather wait than be told no."},
    {"no-timeout", "Calls may run for ever.",
     "A dependency that hangs takes place after place until none is left, and none comes back.",
     "Give execution_timeout: a little more than the p99.9 of a good day."},
    {"timeout-not-shorter", "Waiting and running may take as long as the caller's own timeout, or longer.",
     "The caller gives up first and retries, while its first call still holds a place: the load doubles just "
     "then.",
     "Make max_wait + execution_timeout shorter than caller_timeout."},
    {"one-for-all", "One bulkhead is all there is.",
     "If all calls go through one gate, slow calls to one dependency take the places of all others: that is "
     "what "
     "bulkheads are to prevent.",
     "Give each dependency, or each kind of work, a bulkhead of its own."},
    {"threads-not-isolated",
     "Connections are shared out between bulkheads, but the threads that use them are not.",
     "Callers of a slow database hold threads while they wait; when the threads of the service are used up, "
     "its "
     "connections that are still free help nobody.",
     "Give such bulkheads isolation: threads, or declare the thread pool as a resource of kind threads and "
     "give its "
     "users bulkheads too."},
    {"over-capacity", "The bulkheads of a resource together may use more than there is.",
     "When they all are busy the resource refuses instead of the bulkhead: the compartments are not "
     "watertight.",
     "Lower their sizes until the sum fits, or put them into a group with a hard total."},
    {"no-buffer", "The bulkheads of a resource together may use more than nine tenths of it.",
     "Migrations, monitoring, a second instance during a deployment and connections that die slowly need "
     "some too.",
     "Keep a tenth of the capacity free."},
    {"slow-calls-uncounted", "The breaker's slow_call is not below the execution_timeout.",
     "A call is cut off before it is slow enough to count, so the breaker never opens for slowness.",
     "Make slow_call clearly shorter than execution_timeout."},
    {"unfair-flows", "Its line is to be fair between flows, and cannot be.",
     "Fairness happens in the line: without max_queue nobody stands in one. And a flow that may stand in "
     "most of the queues leaves none to the others: of 64 queues and hands of 4, one noisy flow covers the "
     "whole hand of another once in 635 376; of 8 queues once in 70.",
     "Give max_queue, and flow_hand at most a quarter of flow_queues: 64 and 4 are good numbers."},
    {"not-enforced", "The bulkhead is switched off, or only watches.",
     "It protects nothing; trials tend to be forgotten.",
     "Remove enabled: false or shadow: true when the trial is over."},
    {"unused", "A type, group or resource that nothing uses.",
     "Mostly the name is misspelt somewhere, and a bulkhead runs without what was meant for it.",
     "Use it, or remove it."},
};

std::string_view word(ResourceConfig::Kind kind) {
  constexpr std::string_view words[] = {"connections", "threads", "units of memory", "units"};
  return words[static_cast<std::size_t>(kind)];
}

std::uint64_t demand(const BulkheadOptions& o) { return o.adaptive ? o.adaptive->ceiling : o.max_concurrent; }

bool allows(const std::vector<std::string>& allowed, std::string_view rule) {
  return std::ranges::find(allowed, rule) != allowed.end();
}

class Linter {
 public:
  explicit Linter(const Config& config) : config_(config) {}

  std::vector<Problem> run() {
    for (const BulkheadConfig& b : config_.bulkheads) bulkhead("bulkheads." + b.options.name, b);
    for (const TenantsConfig& t : config_.tenants) bulkhead("tenants." + t.each.options.name, t.each);
    sizes();
    one_for_all();
    for (const ResourceConfig& r : config_.resources) resource(r);
    unused();
    sort_by_position(found_);
    return std::move(found_);
  }

 private:
  void warn(std::string_view rule, std::string path, std::string message,
            const std::vector<std::string>& allowed) {
    if (allows(config_.lint_allow, rule) || allows(allowed, rule)) return;
    const Position at = config_.where(path);
    found_.push_back({.severity = Problem::Severity::warning,
                      .at = at,
                      .path = std::move(path),
                      .message = std::move(message),
                      .hint = std::string(find_rule(rule)->fix),
                      .rule = std::string(rule)});
  }

  void bulkhead(const std::string& path, const BulkheadConfig& b) {
    const BulkheadOptions& o = b.options;
    const auto found = [&](std::string_view rule, std::string_view setting, std::string message) {
      warn(rule, setting.empty() ? path : join({path, ".", setting}), std::move(message), b.lint_allow);
    };
    if (b.fallback.empty() && b.criticality != Priority::best_effort)
      found("no-fallback", "", "nobody has said what callers get when it rejects");
    else if (!b.fallback.empty() && b.fallback != "none" && o.fallback_on == FallbackOn::nothing)
      found("no-fallback", "fallback_on", "its fallback is never used");
    if (o.execution_timeout == wait_forever) found("no-timeout", "", "a call may run for ever");
    line(path, b, found);
    timeouts(b, found);
    if (o.breaker && o.breaker->slow_call_rate < 1 && o.breaker->slow_call >= o.execution_timeout)
      found("slow-calls-uncounted", "breaker.slow_call",
            join({"slow_call ", show_duration(o.breaker->slow_call), " is not below execution_timeout ",
                  show_duration(o.execution_timeout)}));
    if (o.flow_queues > 0 && o.max_queue == 0)
      found("unfair-flows", "flow_queues", "there is no line to be fair in: max_queue is 0");
    else if (o.flow_queues > 0 && o.flow_hand * 4 > o.flow_queues)
      found("unfair-flows", "flow_queues",
            join({"each flow may stand in ", std::to_string(o.flow_hand), " of ",
                  std::to_string(o.flow_queues), " queues: a noisy one is in everybody's way"}));
    if (!o.enabled)
      found("not-enforced", "enabled", "it is switched off");
    else if (o.shadow)
      found("not-enforced", "shadow", "it only watches");
  }

  template <class Found>
  void line(const std::string&, const BulkheadConfig& b, const Found& found) {
    const BulkheadOptions& o = b.options;
    if (o.max_queue == 0) return;
    if (o.max_wait == wait_forever)
      return found("queue-without-timeout", "max_queue", "calls may wait in line for ever");
    const std::uint64_t places = places_of(b);
    if (b.typical_latency > nanoseconds(0)) {
      const double wait = static_cast<double>(o.max_queue) * static_cast<double>(b.typical_latency.count()) /
                          static_cast<double>(places);
      if (wait <= static_cast<double>(o.max_wait.count())) return;
      const auto fits =
          static_cast<std::uint64_t>(static_cast<double>(o.max_wait.count()) * static_cast<double>(places) /
                                     static_cast<double>(b.typical_latency.count()));
      return found("queue-too-deep", "max_queue",
                   join({std::to_string(o.max_queue), " in line x ", show_duration(b.typical_latency), " / ",
                         std::to_string(places), " places = ", rounded(wait),
                         " until the last has a place, but max_wait is ", show_duration(o.max_wait),
                         "; at most ", std::to_string(fits), " can be served in time"}));
    }
    // Nobody said how long a call takes: then only what no call can be is wrong.
    const double latency =
        static_cast<double>(o.max_wait.count()) * static_cast<double>(places) / o.max_queue;
    if (latency < static_cast<double>(kFastCall.count()))
      found("queue-too-deep", "max_queue",
            join({"the last of ", std::to_string(o.max_queue), " in line gets a place within ",
                  show_duration(o.max_wait), " only if calls take less than ", rounded(latency)}));
  }

  template <class Found>
  void timeouts(const BulkheadConfig& b, const Found& found) {
    const BulkheadOptions& o = b.options;
    if (b.caller_timeout == wait_forever || o.execution_timeout == wait_forever) return;
    const nanoseconds wait = o.max_queue == 0 ? nanoseconds(0) : o.max_wait;
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
    std::map<std::string, std::vector<const BulkheadConfig*>> by_group;  // "" for those in none
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
    warn("one-for-all", "bulkheads." + only.options.name,
         "it is the only bulkhead: everything goes through it", only.lint_allow);
  }

  struct User {
    std::string name;
    std::uint64_t units;
  };

  // Who uses a resource: bulkheads, groups as a whole, and sets of tenants.
  std::vector<User> users(const ResourceConfig& r, std::uint64_t& compartments, bool& threads) const {
    std::vector<User> users;
    for (const GroupConfig& g : config_.groups)
      if (g.resource == r.name) users.push_back({g.options.name, g.options.total});
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
    if (!one_group && compartments > 1 && r.capacity / compartments < kFewestPlaces)
      warn("too-many-bulkheads", path,
           join({std::to_string(compartments), " bulkheads share ", std::to_string(r.capacity), " ",
                 word(r.kind), ": fewer than ", std::to_string(kFewestPlaces), " each"}),
           r.lint_allow);
    if (sum > r.capacity)
      warn("over-capacity", path + ".capacity",
           join({terms, " = ", std::to_string(sum), " of ", std::to_string(r.capacity), " ", word(r.kind)}),
           r.lint_allow);
    else if (static_cast<double>(sum) > (1 - kBuffer) * r.capacity)
      warn("no-buffer", path + ".capacity",
           join({terms, " = ", std::to_string(sum), " of ", std::to_string(r.capacity), " ", word(r.kind),
                 ": less than a tenth is left"}),
           r.lint_allow);
    const bool knows_threads = std::ranges::any_of(
        config_.resources, [](const ResourceConfig& o) { return o.kind == ResourceConfig::Kind::threads; });
    if (r.kind == ResourceConfig::Kind::connections && compartments > 1 && !threads && !knows_threads)
      warn("threads-not-isolated", path,
           join({std::to_string(compartments),
                 " bulkheads share out its connections, but all run on their callers' threads"}),
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
  std::vector<Problem> found_;
};

}  // namespace

std::span<const Rule> rules() { return kRules; }

const Rule* find_rule(std::string_view name) {
  for (const Rule& rule : kRules)
    if (rule.name == name) return &rule;
  return nullptr;
}

}  // namespace config

std::vector<Problem> lint(const Config& config) { return config::Linter(config).run(); }

}  // namespace bulkhead
