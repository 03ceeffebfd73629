#include "settings.h"

#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <string>

#include "message.h"

namespace bulkhead::control {
namespace json = boost::json;
namespace {

std::string text(std::chrono::nanoseconds d) {
  if (d == wait_forever) return "forever";
  const auto ns = d.count();
  constexpr std::pair<std::int64_t, const char*> units[] = {
      {60'000'000'000, "m"}, {1'000'000'000, "s"}, {1'000'000, "ms"}, {1'000, "us"}};
  for (const auto& [size, unit] : units)
    if (ns >= size && ns % size == 0) return std::to_string(ns / size) + unit;
  return std::to_string(ns) + "ns";
}
std::string text(std::uint32_t n) { return std::to_string(n); }
std::string text(double n) { return text_of(n); }
std::string text(bool b) { return b ? "true" : "false"; }
std::string text(std::string_view s) { return std::string(s); }

}  // namespace

json::array settings_json(const BulkheadOptions& o) {
  json::array list;
  const auto add = [&](const char* name, const auto& value) {
    list.push_back(json::object{{"name", name}, {"value", text(value)}});
  };
  add("isolation", std::string_view(o.isolation == Isolation::threads ? "threads" : "semaphore"));
  add("max_concurrent", o.max_concurrent);
  add("max_queue", o.max_queue);
  add("max_wait", o.max_wait);
  add("execution_timeout", o.execution_timeout);
  add("critical_reserve", o.critical_reserve);
  add("enabled", o.enabled);
  add("shadow", o.shadow);
  add("histograms", o.histograms);
  if (o.breaker) {
    add("breaker.failure_rate", o.breaker->failure_rate);
    add("breaker.minimum_calls", o.breaker->minimum_calls);
    add("breaker.window_calls", o.breaker->window_calls);
    add("breaker.slow_call", o.breaker->slow_call);
    add("breaker.slow_call_rate", o.breaker->slow_call_rate);
    add("breaker.open_for", o.breaker->open_for);
    add("breaker.half_open_calls", o.breaker->half_open_calls);
  }
  if (o.rate_limit) {
    add("rate_limit.rate", o.rate_limit->rate);
    add("rate_limit.per", o.rate_limit->per);
    add("rate_limit.burst", o.rate_limit->burst);
  }
  if (o.adaptive) {
    add("adaptive.algorithm", to_string(o.adaptive->algorithm));
    add("adaptive.floor", o.adaptive->floor);
    add("adaptive.ceiling", o.adaptive->ceiling);
  }
  return list;
}

}  // namespace bulkhead::control
