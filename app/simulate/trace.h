// trace.h - recorded calls: read from CSV, and made from access logs of nginx.
//
//   time,bulkhead,duration,outcome,priority,tenant
//   0.000,checkout,0.045,ok,critical,acme
//
// `time` and `duration` are seconds; time may be of any epoch. The other columns may be left out.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "app/simulate/load.h"
#include "bulkhead/config.h"

namespace bulkhead::simulate {

struct Trace {
  struct OfBulkhead {
    std::string bulkhead;
    std::vector<sim::RecordedCall> calls;  // in the order of time, from 0
  };
  std::vector<OfBulkhead> bulkheads;
  std::uint64_t calls = 0;
  Nanos length = 0;
  std::vector<ConfigProblem> problems;
  bool readable = true;
  bool ok() const noexcept { return problems.empty(); }
};
Trace read_trace(const std::string& path, const Config& config);
Trace parse_trace(std::string_view text, const std::string& file, const Config& config);

// The recorded calls arrive instead of those that the load describes. What the load says about a bulkhead's dependency,
// clients and events stays.
void apply(const Trace& trace, Load& load);

// Lines of an access log as a trace. `format`: as log_format of nginx; it has to contain a time ($msec, $time_iso8601 or
// $time_local), a request ($request, $request_uri or $uri) and a duration ($upstream_response_time or $request_time).
struct Converted {
  std::string csv;
  std::uint64_t calls = 0, skipped = 0;  // skipped: lines that do not match the format
  std::string first_skipped;             // "access.log:12: ..."
  std::string problem;                   // not empty: nothing could be converted
};
inline constexpr const char* kCombinedWithTime =
    "$remote_addr - $remote_user [$time_local] \"$request\" $status $body_bytes_sent \"$http_referer\" "
    "\"$http_user_agent\" $request_time";
// `routes`: "/shop/pay=checkout", the longest prefix counts; without one, the first part of the path is the bulkhead.
Converted convert_log(std::string_view log, const std::string& file, const std::string& format,
                      const std::vector<std::string>& routes);

}  // namespace bulkhead::simulate
