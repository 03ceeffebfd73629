#include "values.h"

#include <algorithm>

#include "bulkhead/http_hints.h"
#include "http/cost.h"

namespace bulkhead::nginx {

std::string_view read_text(ngx_http_request_t* r, ngx_http_complex_value_t* value) noexcept {
  ngx_str_t text = ngx_null_string;
  if (!value || ngx_http_complex_value(r, value, &text) != NGX_OK) return {};
  return view(text);
}

// Most locations have none of these values: each is then its default without a look.
Priority read_priority(ngx_http_request_t* r, const LocationConf& location) noexcept {
  if (!location.priority) return Priority::normal;
  const std::string_view text = read_text(r, location.priority);
  if (text.empty()) return Priority::normal;
  for (const Priority priority : {Priority::critical, Priority::normal, Priority::best_effort})
    if (text == to_string(priority)) return priority;
  return http::parse_priority(text, Priority::normal);
}

namespace {
std::uint32_t read_number(ngx_http_request_t* r, ngx_http_complex_value_t* value) noexcept {
  return value ? http::as_cost(http::whole_number(read_text(r, value)).value_or(1)) : 1;
}
}  // namespace

std::uint32_t read_cost(ngx_http_request_t* r, const LocationConf& location) noexcept {
  return read_number(r, location.cost);
}
std::uint32_t read_units(ngx_http_request_t* r, const LocationConf& location) noexcept {
  return read_number(r, location.budget_units);
}

std::uint64_t read_flow(ngx_http_request_t* r, const LocationConf& location) noexcept {
  if (!location.flow) return 0;
  const std::string_view text = read_text(r, location.flow);
  return text.empty() ? 0 : flow_of(text);
}

TimePoint read_deadline(ngx_http_request_t* r, const LocationConf& location, const Clock& clock) noexcept {
  if (!location.deadline) return no_deadline;
  const std::string_view text = read_text(r, location.deadline);
  if (text.empty()) return no_deadline;
  // nginx keeps the time of day at which a request began; 0 if the clock has been set back since.
  const volatile ngx_time_t* const today = ngx_cached_time;
  const std::chrono::milliseconds took(
      (today->sec - r->start_sec) * 1000 +
      (static_cast<ngx_msec_int_t>(today->msec) - static_cast<ngx_msec_int_t>(r->start_msec)));
  const TimePoint began = clock.now() - std::max(took, std::chrono::milliseconds(0));
  if (const auto ms = http::parse_milliseconds(text)) return saturating_add(began, *ms);
  if (const auto grpc = http::parse_grpc_timeout(text)) return saturating_add(began, *grpc);
  return no_deadline;
}

}  // namespace bulkhead::nginx
