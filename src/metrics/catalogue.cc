#include "metrics/catalogue.h"

#include <algorithm>
#include <chrono>
#include <concepts>
#include <functional>

#include "base/text.h"
#include "metrics/labels.h"
#include "metrics/resources.h"

namespace bulkhead::metrics {
namespace {

using enum MetricType;

template <class E, std::size_t n>
std::array<std::string, n> label_texts(std::string_view label) {
  std::array<std::string, n> texts;
  for (std::size_t i = 0; i < n; ++i)
    texts[i] = base::join({",", label, "=\"", to_string(static_cast<E>(i)), "\"} "});
  return texts;
}

constexpr std::string_view kCauses[] = {R"(,cause="rejected"} )", R"(,cause="timed_out"} )",
                                        R"(,cause="failed"} )"};

std::uint64_t count(std::chrono::nanoseconds span) {
  return span.count() > 0 ? static_cast<std::uint64_t>(span.count()) : 0;
}

// Counters and gauges are whole numbers, but for shares and rates.
auto number(std::floating_point auto value) { return double{value}; }
auto number(std::integral auto value) { return static_cast<std::uint64_t>(value); }

// One sample of each bulkhead, group, member ...: what `get` gives of it.
template <auto get>
void own(Writer& out, const Page& page) {
  for (const BulkheadRow& row : page.rows) out.sample(row.labels, kEnd, number(std::invoke(get, *row.now)));
}
template <auto get>
void gate(Writer& out, const Page& page) {
  for (const BulkheadRow& row : page.rows)
    out.sample(row.labels, kEnd, number(std::invoke(get, row.now->gate)));
}
template <auto get>  // of bulkheads that measure time
void over_time(Writer& out, const Page& page) {
  for (const BulkheadRow& row : page.rows)
    if (row.wait) out.seconds(row.labels, kEnd, count(std::invoke(get, row.now->gate)));
}
template <auto which, auto get>  // of bulkheads that have such a part
void part(Writer& out, const Page& page) {
  for (const BulkheadRow& row : page.rows)
    if (const auto& has = row.now->*which) out.sample(row.labels, kEnd, number(std::invoke(get, *has)));
}
std::string budget_label(const BudgetSnapshot& budget) {
  return base::join({",budget=\"", budget.name, "\"} "});
}
template <auto get>
void budget(Writer& out, const Page& page) {
  for (const BulkheadRow& row : page.rows)
    for (const BudgetSnapshot& one : row.now->budgets)
      out.sample(row.labels, budget_label(one), number(std::invoke(get, one)));
}
template <auto get>  // of bulkheads that measure time
void budget_time(Writer& out, const Page& page) {
  for (const BulkheadRow& row : page.rows)
    for (const BudgetSnapshot& one : row.now->budgets)
      if (row.wait) out.seconds(row.labels, budget_label(one), count(std::invoke(get, one)));
}
template <auto get>
void of_group(Writer& out, const Page& page) {
  for (const GroupRow& row : page.groups) out.sample(row.labels, kEnd, number(std::invoke(get, *row.group)));
}
template <auto get>
void of_adaptive_group(Writer& out, const Page& page) {
  for (const GroupRow& row : page.groups)
    if (row.group->adaptive) out.sample(row.labels, kEnd, number(std::invoke(get, *row.group->adaptive)));
}
template <auto get>
void of_member(Writer& out, const Page& page) {
  for (const GroupRow& group : page.groups)
    for (const MemberRow& row : group.members)
      out.sample(row.labels, kEnd, number(std::invoke(get, *row.member)));
}
template <auto get>
void of_tenants(Writer& out, const Page& page) {
  for (const TenantsRow& row : page.tenants)
    out.sample(row.labels, kEnd, number(std::invoke(get, *row.tenants)));
}
template <auto get>
void of_config(Writer& out, const Page& page) {
  if (page.extras.config) out.sample("", " ", number(std::invoke(get, *page.extras.config)));
}
template <auto get>
void of_process(Writer& out, const Page& page) {
  if (page.extras.process) out.sample("", " ", number(std::invoke(get, *page.extras.process)));
}

// Always 1: the labels are the information.
void write_info(Writer& out, const Page& page) {
  std::string more;
  for (const BulkheadRow& row : page.rows) {
    const bool sum = !row.entry;
    const std::string_view isolation = sum                                        ? ""
                                       : row.now->isolation == Isolation::threads ? "threads"
                                                                                  : "semaphore";
    more = ",";
    append_label(more, "type", sum ? "" : row.entry->type, page.options.max_label_bytes);
    more += ",";
    append_label(more, "group", sum ? "" : row.entry->group, page.options.max_label_bytes);
    more += base::join({",isolation=\"", isolation, "\"} "});
    out.sample(row.critical_labels, more, std::uint64_t{1});
  }
}

void write_rejected(Writer& out, const Page& page) {
  for (const BulkheadRow& row : page.rows)
    for (std::size_t i = 0; i < kRejectReasons; ++i)
      out.sample(row.critical_labels, reason_texts()[i], row.now->gate.rejected_by_reason[i]);
}

void write_would_reject(Writer& out, const Page& page) {
  for (const BulkheadRow& row : page.rows)
    for (std::size_t i = 0; i <= static_cast<std::size_t>(Reason::execution_timeout);
         ++i)  // no injected faults
      out.sample(row.labels, reason_texts()[i], row.now->would_reject[i]);
}

void write_waiting(Writer& out, const Page& page) {
  static const auto priorities = label_texts<Priority, kPriorities>("priority");
  for (const BulkheadRow& row : page.rows)
    for (std::size_t i = 0; i < kPriorities; ++i)
      out.sample(row.labels, priorities[i], std::uint64_t{row.now->gate.waiting_by_priority[i]});
}

void write_completions(Writer& out, const Page& page) {
  for (const BulkheadRow& row : page.rows) {
    out.sample(row.labels, R"(,outcome="success"} )", row.now->gate.succeeded);
    out.sample(row.labels, R"(,outcome="failure"} )", row.now->gate.failed);
  }
}

void write_errors(Writer& out, const Page& page) {
  for (const BulkheadRow& row : page.rows) {
    const Snapshot& gate = row.now->gate;
    out.sample(row.labels, R"(,kind="handler"} )", row.now->handler_errors);
    out.sample(row.labels, R"(,kind="hook"} )", gate.hook_errors);
    out.sample(row.labels, R"(,kind="fallback"} )", row.now->fallback_failures);
    out.sample(row.labels, R"(,kind="double_release"} )", gate.double_releases);
    out.sample(row.labels, R"(,kind="underflow"} )", gate.underflows);
  }
}

void write_breaker_states(Writer& out, const Page& page) {
  static const auto states = label_texts<BreakerState, 3>("state");
  for (const BulkheadRow& row : page.rows) {
    if (row.entry ? !row.now->breaker : row.breakers == decltype(row.breakers){}) continue;
    for (std::size_t i = 0; i < states.size(); ++i)
      out.sample(row.labels, states[i], std::uint64_t{row.breakers[i]});
  }
}

void write_breaker_transitions(Writer& out, const Page& page) {
  static const auto states = label_texts<BreakerState, 3>("to");
  for (const BulkheadRow& row : page.rows)
    if (row.now->breaker)
      for (std::size_t i = 0; i < states.size(); ++i)
        out.sample(row.labels, states[i], row.now->breaker->entered[i]);
}

// Every pair that could be, as long as they are few; of more, those that are.
void write_loans(Writer& out, const Page& page) {
  constexpr std::size_t kFew = 16;
  constexpr std::string_view kNobody = "(unguaranteed)";
  std::string more;
  for (const GroupRow& row : page.groups) {
    const GroupSnapshot& group = *row.group;
    const auto write = [&](std::string_view lender, std::string_view borrower, std::uint32_t units) {
      more = ",";
      append_label(more, "lender", lender.empty() ? kNobody : lender, page.options.max_label_bytes);
      more += ",";
      append_label(more, "borrower", borrower, page.options.max_label_bytes);
      more += kEnd;
      out.sample(row.labels, more, std::uint64_t{units});
    };
    if (group.members.size() > kFew) {
      for (const auto& loan : group.loans) write(loan.lender, loan.borrower, loan.units);
      continue;
    }
    const auto units = [&](std::string_view lender, std::string_view borrower) {
      std::uint32_t sum = 0;
      for (const auto& loan : group.loans)
        if (loan.lender == lender && loan.borrower == borrower) sum += loan.units;
      return sum;
    };
    for (const auto& borrower : group.members) {
      write("", borrower.name, units("", borrower.name));
      for (const auto& lender : group.members)
        if (lender.name != borrower.name)
          write(lender.name, borrower.name, units(lender.name, borrower.name));
    }
  }
}

void write_tenant_requests(Writer& out, const Page& page) {
  for (const TenantsRow& row : page.tenants)
    for (const auto& [labels, line] : row.lines) {
      out.sample(labels, R"(,decision="admitted"} )", line.admitted);
      out.sample(labels, R"(,decision="rejected"} )", line.rejected);
    }
}

void write_audit_lost(Writer& out, const Page& page) {
  if (page.extras.audit_lost) out.sample("", " ", *page.extras.audit_lost);
}

void write_config_info(Writer& out, const Page& page) {
  if (!page.extras.config) return;
  std::string labels = "{";
  append_label(labels, "revision", page.extras.config->revision, page.options.max_label_bytes);
  labels += ",";
  append_label(labels, "source", page.extras.config->source, page.options.max_label_bytes);
  out.sample(labels, kEnd, std::uint64_t{1});
}

void write_overrides(Writer& out, const Page& page) {
  for (const OverrideState& one : page.extras.overrides) {
    std::string labels = "{";
    append_label(labels, "bulkhead", one.bulkhead, page.options.max_label_bytes);
    labels += ",";
    append_label(labels, "field", one.field, page.options.max_label_bytes);
    out.seconds(labels, kEnd, count(one.expires.time_since_epoch()));
  }
}

void write_build_info(Writer& out, const Page&) {
#if defined(__clang__)
  constexpr std::string_view kCompiler = "clang " __clang_version__;
#else
  constexpr std::string_view kCompiler = "gcc " __VERSION__;
#endif
  std::string labels = "{version=\"" BULKHEAD_VERSION "\",";
  append_label(labels, "compiler", kCompiler, 64);
  out.sample(labels, kEnd, std::uint64_t{1});
}

void write_overflow(Writer& out, const Page& page) {
  for (std::size_t i = 0; i < kOverflowLabels.size(); ++i)
    out.sample(base::join({"{label=\"", kOverflowLabels[i], "\""}), kEnd, page.overflow[i]);
}

// Of the list of a fleet's members: those with a lease, and those that have lapsed.
template <auto Leased, auto Lapsed>
void by_lease(Writer& out, const Page& page) {
  for (const BulkheadRow& row : page.rows)
    if (row.now->fleet && row.now->fleet->list) {
      out.sample(row.labels, R"(,state="leased"} )", std::uint64_t{(*row.now->fleet->list).*Leased});
      out.sample(row.labels, R"(,state="lapsed"} )", std::uint64_t{(*row.now->fleet->list).*Lapsed});
    }
}

using B = const BulkheadSnapshot&;
using R = const ResourceSnapshot&;
using Member = GroupSnapshot::Member;

constexpr Descriptor kCatalogue[] = {
    // Calls and decisions.
    {{"bulkhead_requests_total", counter, "bulkhead, criticality",
      "Calls that were decided: admitted, rejected, bypassed while not enabled, or counted in shadow mode."},
     [](Writer& out, const Page& page) {
       for (const BulkheadRow& row : page.rows) out.sample(row.critical_labels, kEnd, requests(*row.now));
     }},
    {{"bulkhead_rejected_total", counter, "bulkhead, criticality, reason",
      "Calls that were not admitted, by reason."},
     write_rejected},
    {{"bulkhead_admitted_total", counter, "bulkhead", "Calls that were admitted."},
     gate<&Snapshot::admitted>},
    {{"bulkhead_completions_total", counter, "bulkhead, outcome",
      "Admitted calls that have ended, by outcome."},
     write_completions},
    {{"bulkhead_timeout_total", counter, "bulkhead",
      "Admitted calls that ran longer than their execution_timeout; calls that waited too long are "
      "rejections."},
     own<&BulkheadSnapshot::timed_out>},
    {{"bulkhead_fallback_total", counter, "bulkhead, cause", "Fallbacks that were used, by cause."},
     [](Writer& out, const Page& page) {
       for (const BulkheadRow& row : page.rows)
         for (std::size_t i = 0; i < std::size(kCauses); ++i)
           out.sample(row.labels, kCauses[i], row.now->fallbacks[i]);
     }},
    {{"bulkhead_bypassed_total", counter, "bulkhead", "Calls that ran while the bulkhead was not enabled."},
     own<&BulkheadSnapshot::bypassed>},
    {{"bulkhead_would_reject_total", counter, "bulkhead, reason",
      "Shadow mode: calls that would have been rejected."},
     write_would_reject},
    {{"bulkhead_would_wait_total", counter, "bulkhead",
      "Shadow mode: calls that would have waited in the queue."},
     own<&BulkheadSnapshot::would_wait>},
    {{"bulkhead_errors_total", counter, "bulkhead, kind",
      "Errors of the calling code: handlers, hooks and fallbacks that threw, permits that were released "
      "twice."},
     write_errors},

    // Concurrency and queue.
    {{"bulkhead_active_calls", gauge, "bulkhead", "Calls in flight."}, gate<&Snapshot::permits>},
    {{"bulkhead_in_flight", gauge, "bulkhead",
      "Units of cost in flight; the same as bulkhead_active_calls unless calls cost more than 1."},
     gate<&Snapshot::in_flight>},
    {{"bulkhead_oldest_call_seconds", gauge, "bulkhead",
      "Age of the oldest call in flight; only with track_holders."},
     [](Writer& out, const Page& page) {
       for (const BulkheadRow& row : page.rows)
         if (const auto& oldest = row.now->gate.oldest_hold) out.seconds(row.labels, kEnd, count(*oldest));
     }},
    {{"bulkhead_available_permits", gauge, "bulkhead",
      "Units of cost that are free: max_concurrent minus in_flight."},
     own<[](B b) { return b.gate.max_concurrent - std::min(b.gate.max_concurrent, b.gate.in_flight); }>},
    {{"bulkhead_max_concurrent", gauge, "bulkhead", "max_concurrent in force, in units of cost."},
     gate<&Snapshot::max_concurrent>},
    {{"bulkhead_configured_max_concurrent", gauge, "bulkhead",
      "max_concurrent as configured; adaptive limits and overrides change the one in force. Not for members "
      "of a group."},
     [](Writer& out, const Page& page) {
       for (const BulkheadRow& row : page.rows)
         if (row.configured) out.sample(row.labels, kEnd, *row.configured);
     }},
    {{"bulkhead_waiting_calls", gauge, "bulkhead, priority", "Calls waiting in the queue."}, write_waiting},
    {{"bulkhead_max_queue", gauge, "bulkhead", "max_queue: the maximum number of waiting calls."},
     gate<&Snapshot::max_queue>},
    {{"bulkhead_over_limit_calls", gauge, "bulkhead",
      "Shadow mode: calls in flight that would have been rejected or queued."},
     own<&BulkheadSnapshot::over_limit>},
    {{"bulkhead_closed", gauge, "bulkhead", "1 once the bulkhead is closed; this is final."},
     gate<&Snapshot::closed>},
    {{"bulkhead_draining", gauge, "bulkhead", "1 while an operator drains the bulkhead."},
     own<&BulkheadSnapshot::draining>},
    {{"bulkhead_enabled", gauge, "bulkhead", "0 while the bulkhead is not enabled and only counts calls."},
     own<&BulkheadSnapshot::enabled>},
    {{"bulkhead_shadow", gauge, "bulkhead", "1 in shadow mode."}, own<&BulkheadSnapshot::shadow>},
    {{"bulkhead_info", info, "bulkhead, criticality, type, group, isolation",
      "Labels that describe a bulkhead; always 1."},
     write_info},

    {{"bulkhead_occupancy_seconds_total", counter, "bulkhead",
      "Units of cost in flight, integrated over time: the rate is the average number in flight."},
     over_time<&Snapshot::occupancy>},
    {{"bulkhead_saturated_seconds_total", counter, "bulkhead",
      "Time during which no unit was free for calls that are not critical: the rate is the share of time."},
     over_time<&Snapshot::saturated>},

    // Times.
    {{"bulkhead_queue_wait_seconds", histogram, "bulkhead, criticality",
      "Time that admitted calls waited in the queue; 0 for calls that did not wait."},
     [](Writer& out, const Page& page) {
       for (const BulkheadRow& row : page.rows)
         if (row.wait) out.histogram(row.critical_labels, *row.wait);
     }},
    {{"bulkhead_service_seconds", histogram, "bulkhead", "Time that admitted calls ran."},
     [](Writer& out, const Page& page) {
       for (const BulkheadRow& row : page.rows)
         if (row.service) out.histogram(row.labels, *row.service);
     }},

    // Circuit breakers.
    {{"bulkhead_breaker_state", gauge, "bulkhead, state",
      "1 for the current state of the breaker, 0 for the others; for tenants, the number of breakers in the "
      "state."},
     write_breaker_states},
    {{"bulkhead_breaker_mode", gauge, "bulkhead, mode",
      "1 for the current mode of the breaker, 0 for the others."},
     [](Writer& out, const Page& page) {
       static const auto modes = label_texts<BreakerMode, 5>("mode");
       for (const BulkheadRow& row : page.rows)
         if (row.now->breaker)
           for (std::size_t i = 0; i < modes.size(); ++i)
             out.sample(row.labels, modes[i],
                        std::uint64_t{static_cast<std::size_t>(row.now->breaker->mode) == i});
     }},
    {{"bulkhead_breaker_transitions_total", counter, "bulkhead, to",
      "Changes of the state of the breaker, by new state."},
     write_breaker_transitions},
    {{"bulkhead_breaker_failure_ratio", gauge, "bulkhead",
      "Share of failed calls in the window of the breaker."},
     part<&BulkheadSnapshot::breaker, &BreakerSnapshot::failure_rate>},
    {{"bulkhead_breaker_slow_call_ratio", gauge, "bulkhead",
      "Share of slow calls in the window of the breaker."},
     part<&BulkheadSnapshot::breaker, &BreakerSnapshot::slow_call_rate>},

    // Rate limits, limits of a fleet and adaptive limits.
    {{"bulkhead_rate_limit_per_second", gauge, "bulkhead", "Tokens that the rate limit adds per second."},
     part<&BulkheadSnapshot::rate_limit,
          [](const RateLimiterSnapshot& r) {
            return static_cast<double>(r.rate) / std::chrono::duration<double>(r.per).count();
          }>},
    {{"bulkhead_rate_limit_burst", gauge, "bulkhead", "Maximum number of tokens of the rate limit."},
     part<&BulkheadSnapshot::rate_limit, &RateLimiterSnapshot::burst>},
    {{"bulkhead_rate_limit_tokens", gauge, "bulkhead", "Tokens that are available."},
     part<&BulkheadSnapshot::rate_limit, &RateLimiterSnapshot::available>},
    {{"bulkhead_budget_in_use", gauge, "bulkhead, budget", "Units of the budget that calls hold."},
     budget<&BudgetSnapshot::in_use>},
    {{"bulkhead_budget_max", gauge, "bulkhead, budget", "Maximum number of units of the budget in use."},
     budget<&BudgetSnapshot::max>},
    {{"bulkhead_budget_waiting_calls", gauge, "bulkhead, budget", "Calls that wait for units of the budget."},
     budget<&BudgetSnapshot::waiting>},
    {{"bulkhead_budget_admitted_total", counter, "bulkhead, budget", "Calls that got units of the budget."},
     budget<&BudgetSnapshot::admitted>},
    {{"bulkhead_budget_rejected_total", counter, "bulkhead, budget",
      "Calls that were rejected in the line of the budget, or because it had too few units."},
     budget<&BudgetSnapshot::rejected>},
    {{"bulkhead_budget_occupancy_seconds_total", counter, "bulkhead, budget",
      "Units of the budget in use, integrated over time: its rate is the average."},
     budget_time<&BudgetSnapshot::occupancy>},
    {{"bulkhead_budget_saturated_seconds_total", counter, "bulkhead, budget",
      "Time during which no unit of the budget was available."},
     budget_time<&BudgetSnapshot::saturated>},
    {{"bulkhead_host_in_flight", gauge, "bulkhead",
      "scope: host, or fleet with host.region: units that all processes of this host hold."},
     [](Writer& out, const Page& page) {
       for (const BulkheadRow& row : page.rows)
         if (row.now->host_in_flight) out.sample(row.labels, kEnd, number(*row.now->host_in_flight));
     }},
    {{"bulkhead_fleet_state", gauge, "bulkhead, state",
      "scope: fleet: 1 for the current state of the lease (joining, leased, learning, degraded), 0 for the "
      "others."},
     [](Writer& out, const Page& page) {
       static const auto states = label_texts<FleetState, 4>("state");
       for (const BulkheadRow& row : page.rows)
         if (row.now->fleet)
           for (std::size_t i = 0; i < states.size(); ++i)
             out.sample(row.labels, states[i],
                        std::uint64_t{static_cast<std::size_t>(row.now->fleet->state) == i});
     }},
    {{"bulkhead_fleet_held", gauge, "bulkhead", "scope: fleet: units that this process may use now."},
     part<&BulkheadSnapshot::fleet, &FleetSnapshot::held>},
    {{"bulkhead_fleet_needed", gauge, "bulkhead",
      "scope: fleet: units that this process needs, by its calls."},
     part<&BulkheadSnapshot::fleet, &FleetSnapshot::needed>},
    {{"bulkhead_fleet_members", gauge, "bulkhead",
      "scope: fleet: processes that share the limit, or hosts with host.region."},
     part<&BulkheadSnapshot::fleet, &FleetSnapshot::members>},
    {{"bulkhead_fleet_direct", gauge, "bulkhead", "scope: fleet: 1 in mode direct, 0 in mode block."},
     part<&BulkheadSnapshot::fleet, &FleetSnapshot::direct>},
    {{"bulkhead_fleet_lease_age_seconds", gauge, "bulkhead",
      "scope: fleet: time since the lease was last renewed."},
     part<&BulkheadSnapshot::fleet,
          [](const FleetSnapshot& f) { return std::chrono::duration<double>(f.lease_age).count(); }>},
    {{"bulkhead_fleet_degraded_seconds", gauge, "bulkhead",
      "scope: fleet: time since the lease ended; 0 while it is valid."},
     part<&BulkheadSnapshot::fleet,
          [](const FleetSnapshot& f) { return std::chrono::duration<double>(f.degraded_for).count(); }>},
    {{"bulkhead_fleet_pooling_loss_ratio", gauge, "bulkhead",
      "scope: fleet, mode block: predicted share of calls that find no unit in this process, if none waits."},
     part<&BulkheadSnapshot::fleet, &FleetSnapshot::pooling_loss>},
    {{"bulkhead_fleet_listed_members", gauge, "bulkhead, state",
      "scope: fleet: members, as the store has last listed them; lapsed: the lease has ended. With "
      "host.region in one process."},
     by_lease<&FleetList::leased, &FleetList::lapsed>},
    {{"bulkhead_fleet_listed_held", gauge, "bulkhead, state",
      "scope: fleet: units that all members hold, by the state of their lease."},
     by_lease<&FleetList::held, &FleetList::lapsed_held>},
    {{"bulkhead_fleet_listed_needed", gauge, "bulkhead",
      "scope: fleet: units that all members with a lease need."},
     [](Writer& out, const Page& page) {
       for (const BulkheadRow& row : page.rows)
         if (row.now->fleet && row.now->fleet->list)
           out.sample(row.labels, kEnd, row.now->fleet->list->needed);
     }},
    {{"bulkhead_fleet_list_age_seconds", gauge, "bulkhead",
      "scope: fleet: time since the store listed the members."},
     [](Writer& out, const Page& page) {
       for (const BulkheadRow& row : page.rows)
         if (row.now->fleet && row.now->fleet->list)
           out.sample(row.labels, kEnd, std::chrono::duration<double>(row.now->fleet->list_age).count());
     }},
    {{"bulkhead_fleet_requests_total", counter, "bulkhead", "scope: fleet: requests to the store."},
     part<&BulkheadSnapshot::fleet, &FleetSnapshot::requests>},
    {{"bulkhead_adaptive_limit", gauge, "bulkhead",
      "The limit that adaptation has settled on; a probe may use another one for a short time."},
     part<&BulkheadSnapshot::adaptive, &LimiterSnapshot::settled>},
    {{"bulkhead_adaptive_floor", gauge, "bulkhead", "The lowest limit that adaptation may choose."},
     part<&BulkheadSnapshot::adaptive, &LimiterSnapshot::floor>},
    {{"bulkhead_adaptive_ceiling", gauge, "bulkhead", "The highest limit that adaptation may choose."},
     part<&BulkheadSnapshot::adaptive, &LimiterSnapshot::ceiling>},
    {{"bulkhead_adaptive_held", gauge, "bulkhead", "1 while adaptation is held and keeps its limit."},
     part<&BulkheadSnapshot::adaptive, &LimiterSnapshot::held>},
    {{"bulkhead_adaptive_changes_total", counter, "bulkhead, verdict", "Changes of the settled limit."},
     [](Writer& out, const Page& page) {
       for (const BulkheadRow& row : page.rows)
         if (const auto& l = row.now->adaptive) {
           out.sample(row.labels, R"(,verdict="raised"} )", l->raised);
           out.sample(row.labels, R"(,verdict="lowered"} )", l->lowered);
         }
     }},
    {{"bulkhead_adaptive_windows_total", counter, "bulkhead", "Windows that adaptation has evaluated."},
     part<&BulkheadSnapshot::adaptive, &LimiterSnapshot::windows>},

    {{"bulkhead_holdback_saturation_ratio", gauge, "bulkhead",
      "The saturation that holdback decides by, with hysteresis and headroom; 1 is full."},
     part<&BulkheadSnapshot::holdback, &HoldbackSnapshot::saturation>},
    {{"bulkhead_holdback_gauges_ratio", gauge, "bulkhead",
      "The highest of the further gauges of holdback: age of the line, pressure, a function."},
     part<&BulkheadSnapshot::holdback, &HoldbackSnapshot::gauges>},
    {{"bulkhead_holdback_held_total", counter, "bulkhead, priority",
      "Calls that holdback has held back; in its shadow mode, would have."},
     [](Writer& out, const Page& page) {
       for (const BulkheadRow& row : page.rows)
         if (const auto& h = row.now->holdback) {
           out.sample(row.labels, R"(,priority="normal"} )", h->held[1]);
           out.sample(row.labels, R"(,priority="best_effort"} )", h->held[2]);
         }
     }},

    // Thread pools of bulkheads with isolation: threads.
    {{"bulkhead_pool_threads", gauge, "bulkhead", "Threads of the pool."},
     part<&BulkheadSnapshot::pool, &PoolSnapshot::threads>},
    {{"bulkhead_pool_idle_threads", gauge, "bulkhead", "Threads of the pool that are idle."},
     part<&BulkheadSnapshot::pool, &PoolSnapshot::idle>},
    {{"bulkhead_pool_abandoned_threads", gauge, "bulkhead",
      "Threads of the pool that run work whose caller has returned."},
     part<&BulkheadSnapshot::pool, &PoolSnapshot::abandoned>},
    {{"bulkhead_pool_oldest_abandoned_seconds", gauge, "bulkhead",
      "Longest time since the caller of such work returned."},
     [](Writer& out, const Page& page) {
       for (const BulkheadRow& row : page.rows)
         if (row.now->pool) out.seconds(row.labels, kEnd, count(row.now->pool->oldest_abandoned));
     }},
    {{"bulkhead_pool_abandoned_total", counter, "bulkhead",
      "Work whose caller returned before the work ended."},
     part<&BulkheadSnapshot::pool, &PoolSnapshot::abandoned_total>},
    {{"bulkhead_pool_caller_runs_total", counter, "bulkhead",
      "Work that found the queue full and ran on the thread of its caller."},
     part<&BulkheadSnapshot::pool, &PoolSnapshot::caller_runs>},
    {{"bulkhead_pool_threads_started_total", counter, "bulkhead", "Threads that the pool has started."},
     part<&BulkheadSnapshot::pool, &PoolSnapshot::threads_started>},

    // Groups that share one total.
    {{"bulkhead_group_units", gauge, "group", "Units of cost that the members of the group share."},
     of_group<&GroupSnapshot::total>},
    {{"bulkhead_group_configured_units", gauge, "group",
      "The total as configured; an adaptive limit changes the one in force."},
     of_group<&RegistrySnapshot::Group::configured>},
    {{"bulkhead_group_adaptive_limit", gauge, "group",
      "The total that adaptation has settled on; a probe may use another one for a short time."},
     of_adaptive_group<&LimiterSnapshot::settled>},
    {{"bulkhead_group_adaptive_floor", gauge, "group", "The lowest total that adaptation may choose."},
     of_adaptive_group<&LimiterSnapshot::floor>},
    {{"bulkhead_group_adaptive_ceiling", gauge, "group", "The highest total that adaptation may choose."},
     of_adaptive_group<&LimiterSnapshot::ceiling>},
    {{"bulkhead_group_adaptive_changes_total", counter, "group, verdict",
      "Changes of the total that adaptation has settled on."},
     [](Writer& out, const Page& page) {
       for (const GroupRow& row : page.groups)
         if (const auto& l = row.group->adaptive) {
           out.sample(row.labels, R"(,verdict="raised"} )", l->raised);
           out.sample(row.labels, R"(,verdict="lowered"} )", l->lowered);
         }
     }},
    {{"bulkhead_group_adaptive_windows_total", counter, "group", "Windows that adaptation has evaluated."},
     of_adaptive_group<&LimiterSnapshot::windows>},
    {{"bulkhead_group_in_flight", gauge, "group", "Units in flight, of all members."},
     of_group<&GroupSnapshot::in_flight>},
    {{"bulkhead_group_free_units", gauge, "group", "Units that are allotted to no member."},
     of_group<&GroupSnapshot::free>},
    {{"bulkhead_group_guaranteed_units", gauge, "group, bulkhead", "Units that the member is guaranteed."},
     of_member<&Member::guaranteed>},
    {{"bulkhead_group_allotted_units", gauge, "group, bulkhead", "Units that the member may use now."},
     of_member<&Member::allotted>},
    {{"bulkhead_group_max_units", gauge, "group, bulkhead",
      "Maximum number of units of the member, guaranteed and borrowed."},
     of_member<&Member::max>},
    {{"bulkhead_group_borrowed_units", gauge, "group, bulkhead",
      "Units that the member borrows from others."},
     of_member<&Member::borrowed>},
    {{"bulkhead_group_lent_units", gauge, "group, bulkhead",
      "Guaranteed units of the member that others borrow."},
     of_member<&Member::lent>},
    {{"bulkhead_group_called_back_units", gauge, "group, bulkhead",
      "Units in flight that the member must return."},
     of_member<&Member::called_back>},
    {{"bulkhead_group_loan_units", gauge, "group, lender, borrower", "Units lent, by lender and borrower."},
     write_loans},
    {{"bulkhead_group_revoked_total", counter, "group, bulkhead",
      "Borrowed permits of the member whose stop_token was triggered."},
     of_member<&Member::revoked>},
    {{"bulkhead_group_lender_waits_total", counter, "group, bulkhead",
      "How often the member had to wait for its guaranteed units."},
     of_member<&Member::waits>},
    {{"bulkhead_group_lender_wait_seconds_total", counter, "group, bulkhead",
      "Total time the member waited for its guaranteed units."},
     [](Writer& out, const Page& page) {
       for (const GroupRow& group : page.groups)
         for (const MemberRow& row : group.members)
           out.seconds(row.labels, kEnd, count(row.member->total_wait));
     }},

    // Tenants.
    {{"bulkhead_tenants_live", gauge, "bulkhead", "Tenants with a bulkhead."},
     of_tenants<&RegistrySnapshot::Tenants::live>},
    {{"bulkhead_tenants_max", gauge, "bulkhead",
      "max_tenants: the maximum number of tenants with a bulkhead."},
     of_tenants<&RegistrySnapshot::Tenants::max>},
    {{"bulkhead_tenants_created_total", counter, "bulkhead", "Bulkheads created for tenants."},
     of_tenants<&RegistrySnapshot::Tenants::created>},
    {{"bulkhead_tenants_retired_total", counter, "bulkhead", "Bulkheads of idle tenants that were removed."},
     of_tenants<&RegistrySnapshot::Tenants::retired>},
    {{"bulkhead_tenants_overflowed_total", counter, "bulkhead",
      "Lookups above max_tenants that got the shared overflow bulkhead."},
     of_tenants<&RegistrySnapshot::Tenants::overflowed>},
    {{"bulkhead_tenants_rejected_total", counter, "bulkhead",
      "Lookups above max_tenants that were rejected."},
     of_tenants<&RegistrySnapshot::Tenants::rejected>},
    {{"bulkhead_tenants_invalid_total", counter, "bulkhead",
      "Lookups with an id that is not a valid tenant id; also counted as overflowed or rejected."},
     of_tenants<&RegistrySnapshot::Tenants::invalid>},
    {{"bulkhead_tenant_requests_total", counter, "bulkhead, tenant, decision",
      "Calls of the most active tenants, and of all others together; only with MetricsOptions::top_tenants."},
     write_tenant_requests},
    {{"bulkhead_tenant_active_calls", gauge, "bulkhead, tenant", "Calls in flight of the same tenants."},
     [](Writer& out, const Page& page) {
       for (const TenantsRow& row : page.tenants)
         for (const auto& [labels, line] : row.lines) out.sample(labels, kEnd, line.active_calls);
     }},

    // Resource pools: PostgreSQL connections, and all others.
    {{"bulkhead_pg_connections", gauge, "pool, state",
      "Connections of the pool, by state; connections that are being cleaned count as used."},
     write_states<true>},
    {{"bulkhead_pg_connections_max", gauge, "pool", "Maximum number of connections of the pool."},
     of_resource<true, &ResourceSnapshot::max>},
    {{"bulkhead_pg_waiting_calls", gauge, "pool", "Calls waiting for a connection."},
     of_resource<true, [](R r) { return r.gate.waiting; }>},
    {{"bulkhead_pg_oldest_use_seconds", gauge, "pool", "Longest time that a connection has been in use."},
     write_oldest<true>},
    {{"bulkhead_pg_rejected_total", counter, "pool, reason", "Calls that were rejected, by reason."},
     write_lease_rejected<true>},
    {{"bulkhead_pg_timeouts_total", counter, "pool",
      "Calls rejected because they waited too long, in the queue or for a connection to be opened."},
     of_resource<true, timeouts>},
    {{"bulkhead_pg_failing_calls_total", counter, "pool",
      "Calls without a connection because opening one failed: the server is down, or accepts no "
      "connections."},
     of_resource<true, &ResourceSnapshot::failing_calls>},
    {{"bulkhead_pg_connect_failures_total", counter, "pool", "Connections that could not be opened."},
     of_resource<true, &ResourceSnapshot::open_failures>},
    {{"bulkhead_pg_opened_total", counter, "pool", "Connections that were opened."},
     of_resource<true, &ResourceSnapshot::opened>},
    {{"bulkhead_pg_closed_total", counter, "pool, cause", "Connections that were closed, by cause."},
     write_closed<true>},
    {{"bulkhead_pg_wait_seconds", histogram, "pool", "How long calls waited for a connection."},
     write_lease_times<true, &ResourceRow::wait>},
    {{"bulkhead_pg_use_seconds", histogram, "pool", "How long connections were in use."},
     write_lease_times<true, &ResourceRow::use>},
    {{"bulkhead_resources", gauge, "pool, kind, state",
      "Resources of the pool, by state; resources that are being cleaned count as used."},
     write_states<false>},
    {{"bulkhead_resources_max", gauge, "pool, kind", "Maximum number of resources of the pool."},
     of_resource<false, &ResourceSnapshot::max>},
    {{"bulkhead_resource_waiting_calls", gauge, "pool, kind", "Calls waiting for a resource."},
     of_resource<false, [](R r) { return r.gate.waiting; }>},
    {{"bulkhead_resource_oldest_use_seconds", gauge, "pool, kind",
      "Longest time that a resource has been in use."},
     write_oldest<false>},
    {{"bulkhead_resource_rejected_total", counter, "pool, kind, reason",
      "Calls that were rejected, by reason."},
     write_lease_rejected<false>},
    {{"bulkhead_resource_timeouts_total", counter, "pool, kind",
      "Calls rejected because they waited too long, in the queue or for a resource to be opened."},
     of_resource<false, timeouts>},
    {{"bulkhead_resource_failing_calls_total", counter, "pool, kind",
      "Calls without a resource because opening one failed."},
     of_resource<false, &ResourceSnapshot::failing_calls>},
    {{"bulkhead_resource_open_failures_total", counter, "pool, kind", "Resources that could not be opened."},
     of_resource<false, &ResourceSnapshot::open_failures>},
    {{"bulkhead_resource_opened_total", counter, "pool, kind", "Resources that were opened."},
     of_resource<false, &ResourceSnapshot::opened>},
    {{"bulkhead_resource_closed_total", counter, "pool, kind, cause",
      "Resources that were closed, by cause."},
     write_closed<false>},
    {{"bulkhead_resource_wait_seconds", histogram, "pool, kind", "How long calls waited for a resource."},
     write_lease_times<false, &ResourceRow::wait>},
    {{"bulkhead_resource_use_seconds", histogram, "pool, kind", "How long resources were in use."},
     write_lease_times<false, &ResourceRow::use>},

    // Configuration.
    {{"bulkhead_config_last_reload_successful", gauge, "",
      "0 if the last file was rejected; the configuration before it is still in force."},
     of_config<&ConfigState::last_reload_successful>},
    {{"bulkhead_config_last_reload_success_timestamp_seconds", gauge, "",
      "Unix time of the last successful reload."},
     [](Writer& out, const Page& page) {
       if (page.extras.config)
         out.seconds("", " ", count(page.extras.config->last_success.time_since_epoch()));
     }},
    {{"bulkhead_config_overrides", gauge, "", "Overrides in force."},
     [](Writer& out, const Page& page) { out.sample("", " ", std::uint64_t{page.extras.overrides.size()}); }},
    {{"bulkhead_override_expiry_timestamp_seconds", gauge, "bulkhead, field",
      "Unix time at which an override expires."},
     write_overrides},
    {{"bulkhead_audit_lost_total", counter, "",
      "Audit lines that could not be written to the audit file of the control plane."},
     write_audit_lost},
    {{"bulkhead_config_info", info, "revision, source",
      "Labels that describe the configuration in force; always 1."},
     write_config_info},
    {{"bulkhead_registry_revision", gauge, "", "Increases when a bulkhead is added, changed or removed."},
     [](Writer& out, const Page& page) { out.sample("", " ", page.all.revision); }},

    // The page and the process.
    {{"bulkhead_build_info", info, "version, compiler", "Version and compiler of the library; always 1."},
     write_build_info},
    {{"process_cpu_seconds_total", counter, "", "Processor time used, by user and system."},
     of_process<&ProcessStats::cpu_seconds>},
    {{"process_resident_memory_bytes", gauge, "", "Memory in use."},
     of_process<&ProcessStats::resident_bytes>},
    {{"process_virtual_memory_bytes", gauge, "", "Address space in use."},
     of_process<&ProcessStats::virtual_bytes>},
    {{"process_open_fds", gauge, "", "Open files and sockets."}, of_process<&ProcessStats::open_fds>},
    {{"process_max_fds", gauge, "", "Maximum number of open files and sockets."},
     of_process<&ProcessStats::max_fds>},
    {{"process_threads", gauge, "", "Threads of the process."}, of_process<&ProcessStats::threads>},
    {{"process_start_time_seconds", gauge, "", "Unix time at which the process started."},
     of_process<&ProcessStats::start_time_seconds>},
    // Last: it counts the label values that did not fit into the families before it.
    {{"bulkhead_label_overflow_total", counter, "label",
      "Label values that did not fit on a page, counted on every page; their numbers are added up in other."},
     write_overflow},
};

}  // namespace

std::span<const Descriptor> catalogue() noexcept { return kCatalogue; }

const std::array<std::string, kReasons>& reason_texts() {
  static const auto reasons = label_texts<Reason, kReasons>("reason");
  return reasons;
}

}  // namespace bulkhead::metrics
