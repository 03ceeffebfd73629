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
  for (const Row& row : page.rows) out.sample(row.labels, kEnd, number(std::invoke(get, *row.now)));
}
template <auto get>
void gate(Writer& out, const Page& page) {
  for (const Row& row : page.rows) out.sample(row.labels, kEnd, number(std::invoke(get, row.now->gate)));
}
template <auto get>  // of bulkheads that measure time
void over_time(Writer& out, const Page& page) {
  for (const Row& row : page.rows)
    if (row.wait) out.seconds(row.labels, kEnd, count(std::invoke(get, row.now->gate)));
}
template <auto which, auto get>  // of bulkheads that have such a part
void part(Writer& out, const Page& page) {
  for (const Row& row : page.rows)
    if (const auto& has = row.now->*which) out.sample(row.labels, kEnd, number(std::invoke(get, *has)));
}
template <auto get>
void of_group(Writer& out, const Page& page) {
  for (const GroupRow& row : page.groups) out.sample(row.labels, kEnd, number(std::invoke(get, *row.group)));
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

void write_info(Writer& out, const Page& page) {
  std::string more;
  for (const Row& row : page.rows) {
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
  for (const Row& row : page.rows)
    for (std::size_t i = 0; i < kReasons; ++i)
      out.sample(row.critical_labels, reason_texts()[i], row.now->gate.rejected_by_reason[i]);
}

void write_would_reject(Writer& out, const Page& page) {
  for (const Row& row : page.rows)
    for (std::size_t i = 0; i < kReasons; ++i)
      out.sample(row.labels, reason_texts()[i], row.now->would_reject[i]);
}

void write_waiting(Writer& out, const Page& page) {
  static const auto priorities = label_texts<Priority, kPriorities>("priority");
  for (const Row& row : page.rows)
    for (std::size_t i = 0; i < kPriorities; ++i)
      out.sample(row.labels, priorities[i], std::uint64_t{row.now->gate.waiting_by_priority[i]});
}

void write_completions(Writer& out, const Page& page) {
  for (const Row& row : page.rows) {
    out.sample(row.labels, R"(,outcome="success"} )", row.now->gate.succeeded);
    out.sample(row.labels, R"(,outcome="failure"} )", row.now->gate.failed);
  }
}

void write_errors(Writer& out, const Page& page) {
  for (const Row& row : page.rows) {
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
  for (const Row& row : page.rows) {
    if (row.entry ? !row.now->breaker : row.breakers == decltype(row.breakers){}) continue;
    for (std::size_t i = 0; i < states.size(); ++i)
      out.sample(row.labels, states[i], std::uint64_t{row.breakers[i]});
  }
}

void write_breaker_transitions(Writer& out, const Page& page) {
  static const auto states = label_texts<BreakerState, 3>("to");
  for (const Row& row : page.rows)
    if (row.now->breaker)
      for (std::size_t i = 0; i < states.size(); ++i)
        out.sample(row.labels, states[i], row.now->breaker->entered[i]);
}

// Every pair that could be, as long as they are few; of more, those that are.
void write_loans(Writer& out, const Page& page) {
  constexpr std::size_t few = 16;
  constexpr std::string_view nobody = "(unguaranteed)";
  std::string more;
  for (const GroupRow& row : page.groups) {
    const GroupSnapshot& group = *row.group;
    const auto write = [&](std::string_view lender, std::string_view borrower, std::uint32_t units) {
      more = ",";
      append_label(more, "lender", lender.empty() ? nobody : lender, page.options.max_label_bytes);
      more += ",";
      append_label(more, "borrower", borrower, page.options.max_label_bytes);
      more += kEnd;
      out.sample(row.labels, more, std::uint64_t{units});
    };
    if (group.members.size() > few) {
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
  constexpr std::string_view compiler = "clang " __clang_version__;
#else
  constexpr std::string_view compiler = "gcc " __VERSION__;
#endif
  std::string labels = "{version=\"" BULKHEAD_VERSION "\",";
  append_label(labels, "compiler", compiler, 64);
  out.sample(labels, kEnd, std::uint64_t{1});
}

void write_overflow(Writer& out, const Page& page) {
  for (std::size_t i = 0; i < kOverflowLabels.size(); ++i)
    out.sample(base::join({"{label=\"", kOverflowLabels[i], "\""}), kEnd, page.overflow[i]);
}

using B = const BulkheadSnapshot&;
using R = const ResourceSnapshot&;
using Member = GroupSnapshot::Member;

constexpr Descriptor kCatalogue[] = {
    // What a bulkhead is asked, and what it says.
    {{"bulkhead_requests_total", counter, "bulkhead, criticality",
      "Calls that came, each when it was decided about: admitted, rejected, let through or only watched."},
     [](Writer& out, const Page& page) {
       for (const Row& row : page.rows) out.sample(row.critical_labels, kEnd, requests(*row.now));
     }},
    {{"bulkhead_rejected_total", counter, "bulkhead, criticality, reason",
      "Calls that were not admitted, by why."},
     write_rejected},
    {{"bulkhead_admitted_total", counter, "bulkhead", "Calls that got their place."},
     gate<&Snapshot::admitted>},
    {{"bulkhead_completions_total", counter, "bulkhead, outcome",
      "Calls that gave their place back, by how they ended."},
     write_completions},
    {{"bulkhead_timeout_total", counter, "bulkhead",
      "Admitted calls that took longer than their execution timeout; waits that took too long are "
      "rejections."},
     own<&BulkheadSnapshot::timed_out>},
    {{"bulkhead_fallback_total", counter, "bulkhead, cause", "Fallbacks that were used, by why."},
     [](Writer& out, const Page& page) {
       for (const Row& row : page.rows)
         for (std::size_t i = 0; i < std::size(kCauses); ++i)
           out.sample(row.labels, kCauses[i], row.now->fallbacks[i]);
     }},
    {{"bulkhead_bypassed_total", counter, "bulkhead",
      "Calls that went straight through while it was not enabled."},
     own<&BulkheadSnapshot::bypassed>},
    {{"bulkhead_would_reject_total", counter, "bulkhead, reason",
      "Shadow mode: calls that would have been rejected."},
     write_would_reject},
    {{"bulkhead_would_wait_total", counter, "bulkhead", "Shadow mode: calls that would have waited in line."},
     own<&BulkheadSnapshot::would_wait>},
    {{"bulkhead_errors_total", counter, "bulkhead, kind",
      "Mistakes of the code around it: handlers, hooks and fallbacks that threw, permits given back twice."},
     write_errors},

    // How full it is.
    {{"bulkhead_active_calls", gauge, "bulkhead", "Calls running now."}, gate<&Snapshot::permits>},
    {{"bulkhead_in_flight", gauge, "bulkhead",
      "Units of cost in use now; the calls running, unless some cost more than 1."},
     gate<&Snapshot::in_flight>},
    {{"bulkhead_oldest_call_seconds", gauge, "bulkhead",
      "How long the call that has held its place for longest has done so, where track_holders is on."},
     [](Writer& out, const Page& page) {
       for (const Row& row : page.rows)
         if (const auto& oldest = row.now->gate.oldest_hold) out.seconds(row.labels, kEnd, count(*oldest));
     }},
    {{"bulkhead_available_permits", gauge, "bulkhead", "Units of cost that are free now."},
     own<[](B b) { return b.gate.max_concurrent - std::min(b.gate.max_concurrent, b.gate.in_flight); }>},
    {{"bulkhead_max_concurrent", gauge, "bulkhead", "The limit in force for units of cost."},
     gate<&Snapshot::max_concurrent>},
    {{"bulkhead_configured_max_concurrent", gauge, "bulkhead",
      "The limit as configured, which an adaptive limit may have moved; a group has shares instead."},
     [](Writer& out, const Page& page) {
       for (const Row& row : page.rows)
         if (row.configured) out.sample(row.labels, kEnd, *row.configured);
     }},
    {{"bulkhead_waiting_calls", gauge, "bulkhead, priority", "Calls in line now."}, write_waiting},
    {{"bulkhead_max_queue", gauge, "bulkhead", "How many calls may be in line."}, gate<&Snapshot::max_queue>},
    {{"bulkhead_beyond_calls", gauge, "bulkhead",
      "Shadow mode: calls running now that would be in line or rejected."},
     own<&BulkheadSnapshot::beyond>},
    {{"bulkhead_closed", gauge, "bulkhead", "1 once it is closed for good."}, gate<&Snapshot::closed>},
    {{"bulkhead_draining", gauge, "bulkhead", "1 while an operator lets it admit nobody."},
     own<&BulkheadSnapshot::draining>},
    {{"bulkhead_enabled", gauge, "bulkhead", "0 while calls go straight through."},
     own<&BulkheadSnapshot::enabled>},
    {{"bulkhead_shadow", gauge, "bulkhead", "1 while it only watches."}, own<&BulkheadSnapshot::shadow>},
    {{"bulkhead_info", info, "bulkhead, criticality, type, group, isolation",
      "What a bulkhead is; always 1."},
     write_info},

    {{"bulkhead_occupancy_seconds_total", counter, "bulkhead",
      "Units of cost in use, summed over time: its rate is how many were in use on average."},
     over_time<&Snapshot::occupancy>},
    {{"bulkhead_saturated_seconds_total", counter, "bulkhead",
      "Time without a unit for calls that are not critical: its rate is the share of time it was full."},
     over_time<&Snapshot::saturated>},

    // How long things take.
    {{"bulkhead_queue_wait_seconds", histogram, "bulkhead, criticality",
      "Time in line of the calls that were admitted; 0 for those that need not wait."},
     [](Writer& out, const Page& page) {
       for (const Row& row : page.rows)
         if (row.wait) out.histogram(row.critical_labels, *row.wait);
     }},
    {{"bulkhead_service_seconds", histogram, "bulkhead", "Time that admitted calls ran."},
     [](Writer& out, const Page& page) {
       for (const Row& row : page.rows)
         if (row.service) out.histogram(row.labels, *row.service);
     }},

    // Circuit breakers.
    {{"bulkhead_breaker_state", gauge, "bulkhead, state",
      "1 for the state its breaker is in, 0 for the others; of a sum, how many are."},
     write_breaker_states},
    {{"bulkhead_breaker_mode", gauge, "bulkhead, mode",
      "1 for the mode its breaker is in, 0 for the others."},
     [](Writer& out, const Page& page) {
       static const auto modes = label_texts<BreakerMode, 5>("mode");
       for (const Row& row : page.rows)
         if (row.now->breaker)
           for (std::size_t i = 0; i < modes.size(); ++i)
             out.sample(row.labels, modes[i],
                        std::uint64_t{static_cast<std::size_t>(row.now->breaker->mode) == i});
     }},
    {{"bulkhead_breaker_transitions_total", counter, "bulkhead, to",
      "Changes of its breaker's state, by the new state."},
     write_breaker_transitions},
    {{"bulkhead_breaker_failure_ratio", gauge, "bulkhead",
      "Share of failures among the calls its breaker looks back at."},
     part<&BulkheadSnapshot::breaker, &BreakerSnapshot::failure_rate>},
    {{"bulkhead_breaker_slow_call_ratio", gauge, "bulkhead",
      "Share of slow calls among the calls its breaker looks back at."},
     part<&BulkheadSnapshot::breaker, &BreakerSnapshot::slow_call_rate>},

    // Rate limits and adaptive limits.
    {{"bulkhead_rate_limit_per_second", gauge, "bulkhead", "Tokens its rate limit gets every second."},
     part<&BulkheadSnapshot::rate_limit,
          [](const RateLimiterSnapshot& r) {
            return static_cast<double>(r.rate) / std::chrono::duration<double>(r.per).count();
          }>},
    {{"bulkhead_rate_limit_burst", gauge, "bulkhead", "Tokens its rate limit can save up."},
     part<&BulkheadSnapshot::rate_limit, &RateLimiterSnapshot::burst>},
    {{"bulkhead_rate_limit_tokens", gauge, "bulkhead", "Tokens that are there now."},
     part<&BulkheadSnapshot::rate_limit, &RateLimiterSnapshot::available>},
    {{"bulkhead_adaptive_limit", gauge, "bulkhead",
      "The limit that adaptation has settled on; a probe may try another for a while."},
     part<&BulkheadSnapshot::adaptive, &LimiterSnapshot::settled>},
    {{"bulkhead_adaptive_floor", gauge, "bulkhead", "The lowest limit adaptation may choose."},
     part<&BulkheadSnapshot::adaptive, &LimiterSnapshot::floor>},
    {{"bulkhead_adaptive_ceiling", gauge, "bulkhead", "The highest limit adaptation may choose."},
     part<&BulkheadSnapshot::adaptive, &LimiterSnapshot::ceiling>},
    {{"bulkhead_adaptive_held", gauge, "bulkhead", "1 while adaptation is told to keep its limit."},
     part<&BulkheadSnapshot::adaptive, &LimiterSnapshot::held>},
    {{"bulkhead_adaptive_changes_total", counter, "bulkhead, verdict", "Changes of the settled limit."},
     [](Writer& out, const Page& page) {
       for (const Row& row : page.rows)
         if (const auto& l = row.now->adaptive) {
           out.sample(row.labels, R"(,verdict="raised"} )", l->raised);
           out.sample(row.labels, R"(,verdict="lowered"} )", l->lowered);
         }
     }},
    {{"bulkhead_adaptive_windows_total", counter, "bulkhead", "Windows that adaptation has looked at."},
     part<&BulkheadSnapshot::adaptive, &LimiterSnapshot::windows>},

    // Threads of its own.
    {{"bulkhead_pool_threads", gauge, "bulkhead", "Threads its pool has now."},
     part<&BulkheadSnapshot::pool, &PoolSnapshot::threads>},
    {{"bulkhead_pool_idle_threads", gauge, "bulkhead", "Threads of its pool that have nothing to do."},
     part<&BulkheadSnapshot::pool, &PoolSnapshot::idle>},
    {{"bulkhead_pool_abandoned_threads", gauge, "bulkhead",
      "Threads of its pool that run work whose caller has given up."},
     part<&BulkheadSnapshot::pool, &PoolSnapshot::abandoned>},
    {{"bulkhead_pool_oldest_abandoned_seconds", gauge, "bulkhead",
      "How long ago the caller of such work gave up, at most."},
     [](Writer& out, const Page& page) {
       for (const Row& row : page.rows)
         if (row.now->pool) out.seconds(row.labels, kEnd, count(row.now->pool->oldest_abandoned));
     }},
    {{"bulkhead_pool_abandoned_total", counter, "bulkhead", "Work whose caller gave up while it ran."},
     part<&BulkheadSnapshot::pool, &PoolSnapshot::abandoned_total>},
    {{"bulkhead_pool_caller_runs_total", counter, "bulkhead",
      "Work that found no place and ran on its caller's thread."},
     part<&BulkheadSnapshot::pool, &PoolSnapshot::caller_runs>},
    {{"bulkhead_pool_threads_started_total", counter, "bulkhead", "Threads its pool has started."},
     part<&BulkheadSnapshot::pool, &PoolSnapshot::threads_started>},

    // Groups that share one total.
    {{"bulkhead_group_units", gauge, "group", "Units of cost that a group shares."},
     of_group<&GroupSnapshot::total>},
    {{"bulkhead_group_in_flight", gauge, "group", "Units in use now, of all members."},
     of_group<&GroupSnapshot::in_flight>},
    {{"bulkhead_group_free_units", gauge, "group", "Units that are allotted to nobody."},
     of_group<&GroupSnapshot::free>},
    {{"bulkhead_group_guaranteed_units", gauge, "group, bulkhead", "Units that are a member's own."},
     of_member<&Member::guaranteed>},
    {{"bulkhead_group_allotted_units", gauge, "group, bulkhead", "Units a member may use now."},
     of_member<&Member::allotted>},
    {{"bulkhead_group_max_units", gauge, "group, bulkhead",
      "Units a member may have at most, with what it borrows."},
     of_member<&Member::max>},
    {{"bulkhead_group_borrowed_units", gauge, "group, bulkhead", "Units a member uses beyond its own."},
     of_member<&Member::borrowed>},
    {{"bulkhead_group_lent_units", gauge, "group, bulkhead", "A member's own units that others have."},
     of_member<&Member::lent>},
    {{"bulkhead_group_called_back_units", gauge, "group, bulkhead", "Units a member has to give back."},
     of_member<&Member::called_back>},
    {{"bulkhead_group_loan_units", gauge, "group, lender, borrower", "Who has units from whom."},
     write_loans},
    {{"bulkhead_group_revoked_total", counter, "group, bulkhead",
      "Borrowed permits of a member that were told to stop."},
     of_member<&Member::revoked>},
    {{"bulkhead_group_lender_waits_total", counter, "group, bulkhead",
      "How often a member had to wait for its own units."},
     of_member<&Member::waits>},
    {{"bulkhead_group_lender_wait_seconds_total", counter, "group, bulkhead",
      "How long a member waited for its own units, in all."},
     [](Writer& out, const Page& page) {
       for (const GroupRow& group : page.groups)
         for (const MemberRow& row : group.members)
           out.seconds(row.labels, kEnd, count(row.member->total_wait));
     }},

    // Tenants.
    {{"bulkhead_tenants_live", gauge, "bulkhead", "Tenants that have a bulkhead now."},
     of_tenants<&RegistrySnapshot::Tenants::live>},
    {{"bulkhead_tenants_max", gauge, "bulkhead", "Tenants that may have one at once."},
     of_tenants<&RegistrySnapshot::Tenants::max>},
    {{"bulkhead_tenants_created_total", counter, "bulkhead", "Bulkheads made for tenants."},
     of_tenants<&RegistrySnapshot::Tenants::created>},
    {{"bulkhead_tenants_retired_total", counter, "bulkhead",
      "Bulkheads of tenants that were idle, and were taken away."},
     of_tenants<&RegistrySnapshot::Tenants::retired>},
    {{"bulkhead_tenants_overflowed_total", counter, "bulkhead",
      "Look-ups that found no room, and got the bulkhead all such share."},
     of_tenants<&RegistrySnapshot::Tenants::overflowed>},
    {{"bulkhead_tenants_refused_total", counter, "bulkhead",
      "Look-ups that found no room, and were refused."},
     of_tenants<&RegistrySnapshot::Tenants::refused>},
    {{"bulkhead_tenants_invalid_total", counter, "bulkhead",
      "Of these two, look-ups with an id that cannot be a name."},
     of_tenants<&RegistrySnapshot::Tenants::invalid>},
    {{"bulkhead_tenant_requests_total", counter, "bulkhead, tenant, decision",
      "Calls of the tenants in front, and of all others together; only with MetricsOptions::top_tenants."},
     write_tenant_requests},
    {{"bulkhead_tenant_active_calls", gauge, "bulkhead, tenant", "Calls of the same that run now."},
     [](Writer& out, const Page& page) {
       for (const TenantsRow& row : page.tenants)
         for (const auto& [labels, line] : row.lines) out.sample(labels, kEnd, line.active_calls);
     }},

    // Pools of things: PostgreSQL's connections, and all others.
    {{"bulkhead_pg_connections", gauge, "pool, state",
      "Connections a pool has, by what they are doing; those being cleaned count as used."},
     write_states<true>},
    {{"bulkhead_pg_connections_max", gauge, "pool", "Connections a pool may have."},
     of_resource<true, &ResourceSnapshot::max>},
    {{"bulkhead_pg_pending_requests", gauge, "pool", "Calls that wait for a connection."},
     of_resource<true, [](R r) { return r.gate.waiting; }>},
    {{"bulkhead_pg_oldest_use_seconds", gauge, "pool",
      "How long the connection that is on loan for longest has been."},
     write_oldest<true>},
    {{"bulkhead_pg_rejected_total", counter, "pool, reason", "Calls that got no connection, by why."},
     write_lease_rejected<true>},
    {{"bulkhead_pg_timeouts_total", counter, "pool",
      "Calls that waited in vain, in line or for a connection to be connected."},
     of_resource<true, timeouts>},
    {{"bulkhead_pg_connect_failures_total", counter, "pool", "Connections that could not be made."},
     of_resource<true, &ResourceSnapshot::open_failures>},
    {{"bulkhead_pg_opened_total", counter, "pool", "Connections that were opened."},
     of_resource<true, &ResourceSnapshot::opened>},
    {{"bulkhead_pg_closed_total", counter, "pool, cause", "Connections that were closed, by why."},
     write_closed<true>},
    {{"bulkhead_pg_wait_seconds", histogram, "pool", "How long calls waited for a connection."},
     write_lease_times<true, &ResourceRow::wait>},
    {{"bulkhead_pg_use_seconds", histogram, "pool", "How long connections were on loan."},
     write_lease_times<true, &ResourceRow::use>},
    {{"bulkhead_resource_things", gauge, "pool, kind, state",
      "Things a pool has, by what they are doing; those being cleaned count as used."},
     write_states<false>},
    {{"bulkhead_resource_things_max", gauge, "pool, kind", "Things a pool may have."},
     of_resource<false, &ResourceSnapshot::max>},
    {{"bulkhead_resource_pending_requests", gauge, "pool, kind", "Calls that wait for a thing."},
     of_resource<false, [](R r) { return r.gate.waiting; }>},
    {{"bulkhead_resource_oldest_use_seconds", gauge, "pool, kind",
      "How long the thing that is on loan for longest has been."},
     write_oldest<false>},
    {{"bulkhead_resource_rejected_total", counter, "pool, kind, reason", "Calls that got no thing, by why."},
     write_lease_rejected<false>},
    {{"bulkhead_resource_timeouts_total", counter, "pool, kind",
      "Calls that waited in vain, in line or for a thing to be opened."},
     of_resource<false, timeouts>},
    {{"bulkhead_resource_open_failures_total", counter, "pool, kind", "Things that could not be opened."},
     of_resource<false, &ResourceSnapshot::open_failures>},
    {{"bulkhead_resource_opened_total", counter, "pool, kind", "Things that were opened."},
     of_resource<false, &ResourceSnapshot::opened>},
    {{"bulkhead_resource_closed_total", counter, "pool, kind, cause", "Things that were closed, by why."},
     write_closed<false>},
    {{"bulkhead_resource_wait_seconds", histogram, "pool, kind", "How long calls waited for a thing."},
     write_lease_times<false, &ResourceRow::wait>},
    {{"bulkhead_resource_use_seconds", histogram, "pool, kind", "How long things were on loan."},
     write_lease_times<false, &ResourceRow::use>},

    // Configuration.
    {{"bulkhead_config_last_reload_successful", gauge, "",
      "0 if the file could not be used, and what was in force still is."},
     of_config<&ConfigState::last_reload_successful>},
    {{"bulkhead_config_last_reload_success_timestamp_seconds", gauge, "",
      "When a file was last taken over, since 1970."},
     [](Writer& out, const Page& page) {
       if (page.extras.config)
         out.seconds("", " ", count(page.extras.config->last_success.time_since_epoch()));
     }},
    {{"bulkhead_config_overrides", gauge, "", "Settings that were changed at run time, until they expire."},
     [](Writer& out, const Page& page) { out.sample("", " ", std::uint64_t{page.extras.overrides.size()}); }},
    {{"bulkhead_override_expiry_timestamp_seconds", gauge, "bulkhead, field",
      "When a setting that was changed at run time goes back by itself, since 1970."},
     write_overrides},
    {{"bulkhead_config_info", info, "revision, source", "What configuration is in force; always 1."},
     write_config_info},
    {{"bulkhead_registry_revision", gauge, "",
      "Grows with every bulkhead that is added, changed or removed."},
     [](Writer& out, const Page& page) { out.sample("", " ", page.all.revision); }},

    // The page and the process.
    {{"bulkhead_build_info", info, "version, compiler", "What is running; always 1."}, write_build_info},
    {{"process_cpu_seconds_total", counter, "", "Processor time used, by user and system."},
     of_process<&ProcessStats::cpu_seconds>},
    {{"process_resident_memory_bytes", gauge, "", "Memory in use."},
     of_process<&ProcessStats::resident_bytes>},
    {{"process_virtual_memory_bytes", gauge, "", "Address space in use."},
     of_process<&ProcessStats::virtual_bytes>},
    {{"process_open_fds", gauge, "", "Files and sockets open."}, of_process<&ProcessStats::open_fds>},
    {{"process_max_fds", gauge, "", "Files and sockets that may be open."},
     of_process<&ProcessStats::max_fds>},
    {{"process_threads", gauge, "", "Threads of the process."}, of_process<&ProcessStats::threads>},
    {{"process_start_time_seconds", gauge, "", "When it began, since 1970."},
     of_process<&ProcessStats::start_time_seconds>},
    // Last, because it counts what the others had no room for.
    {{"bulkhead_label_overflow_total", counter, "label",
      "Label values that had no room on a page, counted on every page; what they count is in other."},
     write_overflow},
};

}  // namespace

std::span<const Descriptor> catalogue() noexcept { return kCatalogue; }

const std::array<std::string, kReasons>& reason_texts() {
  static const auto reasons = label_texts<Reason, kReasons>("reason");
  return reasons;
}

}  // namespace bulkhead::metrics
