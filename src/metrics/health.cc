#include "metrics/health.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cmath>
#include <concepts>

#include "base/text.h"
#include "metrics/labels.h"
#include "metrics/resources.h"

namespace bulkhead::metrics {
namespace {

// Writes keys and values, with commas between them.
class Json {
 public:
  explicit Json(std::string& out) : out_(out) { out_.clear(); }

  void open(char bracket) {
    out_ += bracket;
    fresh_ = true;
  }
  void close(char bracket) {
    out_ += bracket;
    fresh_ = false;
  }
  void next() {
    if (!fresh_) out_ += ',';
    fresh_ = false;
  }
  void key(std::string_view name) {
    next();
    base::append_json(out_, name);
    out_ += ':';
  }
  void put(std::string_view name, std::string_view text) {
    key(name);
    base::append_json(out_, text);
  }
  void put(std::string_view name, bool value) {
    key(name);
    out_ += value ? "true" : "false";
  }
  void put(std::string_view name, std::unsigned_integral auto value) {
    key(name);
    number(std::uint64_t{value});
  }
  void put(std::string_view name, double value) {  // JSON has no infinity
    key(name);
    number(std::isfinite(value) ? value : 0.0);
  }

 private:
  template <class N>
  void number(N value) {
    std::array<char, 32> text;
    out_.append(text.data(), std::to_chars(text.data(), text.data() + text.size(), value).ptr);
  }

  std::string& out_;
  bool fresh_ = true;
};

double seconds(std::uint64_t ns) { return static_cast<double>(ns) / 1e9; }
// Of what people read, two decimals of a per cent are enough.
double percent(double share) { return std::round(share * 1e4) / 1e2; }

void write_times(Json& json, std::string_view name, const HistogramCounts& counts) {
  json.key(name);
  json.open('{');
  json.put("mean", counts.mean() / 1e9);
  json.put("p50", seconds(counts.quantile(0.5)));
  json.put("p90", seconds(counts.quantile(0.9)));
  json.put("p99", seconds(counts.quantile(0.99)));
  json.close('}');
}

// The first that is true. What is neither well nor wrong has a word of its own.
std::string_view status(const BulkheadRow& row) {
  if (row.now->gate.closed) return "closed";
  if (row.now->draining) return "draining";
  if (!row.now->enabled) return "disabled";
  if (row.breakers[static_cast<std::size_t>(BreakerState::open)] > 0) return "breaker_open";
  // A member of a group may be allotted nothing while it needs nothing.
  if (row.now->gate.in_flight > 0 && row.now->gate.in_flight >= row.now->gate.max_concurrent)
    return "saturated";
  return "ok";
}

// Lifetime counters do not say what happens now: the last minute does.
void write_window(Json& json, const MetricsWindow& window) {
  json.key("last_minute");
  json.open('{');
  json.put("seconds", window.seconds);
  json.put("requests", window.requests);
  json.put("rejected", window.rejected);
  json.put("failed", window.failed);
  json.put("rejection_rate_percent", window.requests == 0 ? 0.0
                                                          : percent(static_cast<double>(window.rejected) /
                                                                    static_cast<double>(window.requests)));
  json.close('}');
  if (window.since != std::chrono::system_clock::time_point{})
    json.put("since", std::floor(std::chrono::duration<double>(window.since.time_since_epoch()).count()));
}

// A row is one bulkhead, or the sum of those beyond a bound, which has no type, group or settings.
void write_row(Json& json, const BulkheadRow& row, const std::vector<MetricsWindow>& windows) {
  const BulkheadSnapshot& now = *row.now;
  const Snapshot& gate = now.gate;
  json.next();
  json.open('{');
  json.put("name", row.name);
  json.put("status", status(row));
  json.put("criticality", to_string(row.criticality));
  if (row.entry) {
    json.put("type", clean(row.entry->type, row.entry->type.size() + 32));
    json.put("group", clean(row.entry->group, row.entry->group.size() + 32));
    json.put("isolation", std::string_view(now.isolation == Isolation::threads ? "threads" : "semaphore"));
  } else {
    json.put("members", row.members);
  }
  json.put("enabled", now.enabled);
  json.put("shadow", now.shadow);
  json.put("draining", now.draining);
  json.put("active_calls", gate.permits);
  json.put("in_flight", gate.in_flight);
  json.put("available_permits", gate.max_concurrent - std::min(gate.max_concurrent, gate.in_flight));
  json.put("max_concurrent", gate.max_concurrent);
  if (row.configured) json.put("configured_max_concurrent", *row.configured);
  json.put("waiting_calls", gate.waiting);
  json.put("max_queue", gate.max_queue);
  json.put("requests", requests(now));
  json.put("admitted", gate.admitted);
  json.put("succeeded", gate.succeeded);
  json.put("failed", gate.failed);
  json.put("timed_out", now.timed_out);
  json.put("rejected", gate.rejected());
  json.key("rejected_by_reason");
  json.open('{');
  for (std::size_t i = 0; i < kRejectReasons; ++i)
    json.put(to_string(static_cast<Reason>(i)), gate.rejected_by_reason[i]);
  json.close('}');
  json.put("rejection_rate_percent", percent(now.rejection_rate()));
  if (row.entry) {
    json.put("nested", row.entry->configured.nested);
    const auto window = std::ranges::lower_bound(windows, row.entry->name, {}, &MetricsWindow::bulkhead);
    if (window != windows.end() && window->bulkhead == row.entry->name) write_window(json, *window);
  }
  if (row.service) {
    json.put("occupancy_seconds", std::chrono::duration<double>(gate.occupancy).count());
    json.put("saturated_seconds", std::chrono::duration<double>(gate.saturated).count());
    json.put("average_execution_seconds", now.service.mean() / 1e9);
    write_times(json, "service_seconds", now.service);
    write_times(json, "queue_wait_seconds", now.wait);
  }
  if (now.breaker) {
    json.key("breaker");
    json.open('{');
    json.put("state", to_string(now.breaker->state));
    json.put("mode", to_string(now.breaker->mode));
    json.put("reason", to_string(now.breaker->reason));
    json.put("failure_rate_percent", percent(now.breaker->failure_rate()));
    json.close('}');
  }
  if (now.rate_limit) json.put("rate_limit_tokens", now.rate_limit->available);
  if (!now.budgets.empty()) {
    json.key("budgets");
    json.open('{');
    for (const BudgetSnapshot& budget : now.budgets) {
      json.key(budget.name);
      json.open('{');
      json.put("in_use", budget.in_use);
      json.put("max", budget.max);
      json.put("waiting_calls", budget.waiting);
      json.put("rejected", budget.rejected);
      json.close('}');
    }
    json.close('}');
  }
  if (now.adaptive) json.put("adaptive_limit", now.adaptive->settled);
  if (now.holdback) json.put("holdback_saturation_percent", percent(now.holdback->saturation));
  if (now.host_in_flight) json.put("host_in_flight", *now.host_in_flight);
  if (now.fleet) {
    json.key("fleet");
    json.open('{');
    json.put("state", to_string(now.fleet->state));
    json.put("held", now.fleet->held);
    json.put("needed", now.fleet->needed);
    json.put("members", now.fleet->members);
    json.put("lease_age_seconds", std::chrono::duration<double>(now.fleet->lease_age).count());
    json.close('}');
  }
  if (now.pool) {
    json.key("pool");
    json.open('{');
    json.put("threads", now.pool->threads);
    json.put("idle_threads", now.pool->idle);
    json.put("abandoned_threads", now.pool->abandoned);
    json.close('}');
  }
  json.close('}');
}

// A factory that fails is worse than a pool that is full.
std::string_view status(const ResourceSnapshot& now) {
  if (now.gate.closed) return "closed";
  if (now.failures > 0) return "failing";
  return now.gate.in_flight > 0 && now.gate.in_flight >= now.gate.max_concurrent ? "saturated" : "ok";
}

// A resource that is being cleaned counts as used: no call can have it.
void write_resource(Json& json, const ResourceRow& row, std::size_t max_label) {
  const ResourceSnapshot& now = row.resource->now;
  json.next();
  json.open('{');
  json.put("name", clean(row.resource->name, max_label));
  json.put("kind", clean(row.resource->kind, max_label));
  json.put("status", status(now));
  json.put("max", now.max);
  json.put("used", now.used + now.cleaning);
  json.put("idle", now.idle);
  json.put("opening", now.opening);
  json.put("closing", now.closing);
  json.put("waiting_calls", now.gate.waiting);
  json.put("max_queue", now.gate.max_queue);
  json.put("oldest_use_seconds", std::chrono::duration<double>(now.oldest_lease).count());
  json.put("rejected", now.gate.rejected());
  json.put("timeouts", timeouts(now));
  json.put("failing_calls", now.failing_calls);
  json.put("opened", now.opened);
  json.put("closed", now.closed);
  json.put("open_failures", now.open_failures);
  if (now.failures > 0) json.put("last_failure", clean(now.last_failure, 1024));
  if (now.histograms) {
    write_times(json, "wait_seconds", now.wait);
    write_times(json, "use_seconds", now.use);
  }
  json.close('}');
}

}  // namespace

void write_health(std::string& out, const Page& page) {
  Json json(out);
  json.open('{');
  bool well = !page.extras.config || page.extras.config->last_reload_successful;
  std::uint64_t active = 0, waiting = 0, calls = 0, rejected = 0;
  for (const BulkheadRow& row : page.rows) {
    well &= status(row) != "breaker_open";  // one that is full does its work
    active += row.now->gate.permits;
    waiting += row.now->gate.waiting;
    // A call of a nested bulkhead has already arrived at another one.
    if (!row.entry || !row.entry->configured.nested) calls += requests(*row.now);
    rejected += row.now->gate.rejected();
  }
  for (const ResourceRow& row : page.resources) well &= status(row.resource->now) != "failing";
  json.put("status", std::string_view(well ? "ok" : "degraded"));
  json.put("revision", page.all.revision);
  json.key("total");
  json.open('{');
  json.put("active_calls", active);
  json.put("waiting_calls", waiting);
  json.put("requests", calls);
  json.put("rejected", rejected);
  json.put("rejection_rate_percent",
           calls == 0 ? 0.0 : percent(static_cast<double>(rejected) / static_cast<double>(calls)));
  json.close('}');
  json.key("bulkheads");
  json.open('[');
  for (const BulkheadRow& row : page.rows) write_row(json, row, page.extras.windows);
  json.close(']');
  if (!page.resources.empty()) {
    json.key("pools");
    json.open('[');
    for (const ResourceRow& row : page.resources) write_resource(json, row, page.options.max_label_bytes);
    json.close(']');
  }
  if (const auto& config = page.extras.config) {
    json.key("config");
    json.open('{');
    json.put("last_reload_successful", config->last_reload_successful);
    json.put("revision", clean(config->revision, page.options.max_label_bytes));
    json.put("source", clean(config->source, page.options.max_label_bytes));
    json.put("overrides", page.extras.overrides.size());
    json.close('}');
  }
  json.close('}');
  out += '\n';
}

}  // namespace bulkhead::metrics
