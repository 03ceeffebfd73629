// values.h - what the variables of a location say about a request.
#pragma once

#include <cstdint>
#include <string_view>

#include "bulkhead/gate.h"
#include "configuration.h"

namespace bulkhead::nginx {

// In the request's pool; empty: no such directive, or an empty value.
std::string_view read_text(ngx_http_request_t* r, ngx_http_complex_value_t* value) noexcept;
// critical, normal, best_effort, or as RFC 9218 has it (u=0 to u=7); anything else is normal.
Priority read_priority(ngx_http_request_t* r, const LocationConf& location) noexcept;
std::uint32_t read_units(ngx_http_request_t* r,
                         const LocationConf& location) noexcept;  // of its budget; the same
std::uint32_t read_cost(ngx_http_request_t* r,
                        const LocationConf& location) noexcept;  // no number: 1; too large: the largest
std::uint64_t read_flow(ngx_http_request_t* r, const LocationConf& location) noexcept;
// Milliseconds since the request began, or as grpc-timeout has it ("250m"); anything else is no deadline.
TimePoint read_deadline(ngx_http_request_t* r, const LocationConf& location, const Clock& clock) noexcept;

}  // namespace bulkhead::nginx
