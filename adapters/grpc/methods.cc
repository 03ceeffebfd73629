#include "methods.h"

#include <algorithm>
#include <stdexcept>

namespace bulkhead::grpc {

TimePoint steady_deadline(std::chrono::system_clock::time_point deadline) noexcept {
  if (deadline == std::chrono::system_clock::time_point::max()) return no_deadline;
  return saturating_add(std::chrono::steady_clock::now(), deadline - std::chrono::system_clock::now());
}

void check_method_name(std::string_view name, std::string_view place) {
  const bool whole = name == "/";
  const std::size_t slash = name.find('/', 1);
  const bool method = name.starts_with('/') && slash != std::string_view::npos && slash > 1 &&
                      name.find('/', slash + 1) == std::string_view::npos;
  if (whole || method) return;
  throw std::invalid_argument(
      std::string(place) + ": \"" + std::string(name) +
      "\" names no gRPC method; write /package.Service/Method, /package.Service/ or /");
}

MethodCounters& Methods::of(std::string_view method, const ServerGuardOptions& options) {
  {
    const bulkhead::detail::SharedLock lock(mutex_);
    const auto found = all_.find(method);
    if (found != all_.end()) return *found->second;
  }
  const Method* const entry = match(options.methods, method);
  const auto exempt = std::find_if(options.exempt.begin(), options.exempt.end(),
                                   [&](const std::string& prefix) { return method.starts_with(prefix); });
  const bool is_exempt = exempt != options.exempt.end();
  const bulkhead::detail::MutexLock lock(mutex_);
  // Methods that share counters are those that are treated alike: under the name of what decides that.
  if (all_.size() >= kMost) {
    if (is_exempt)
      method = *exempt;
    else
      method = entry ? std::string_view(entry->name) : "/";
  }
  auto& counters = all_[std::string(method)];
  if (!counters) {
    counters = std::make_unique<MethodCounters>();
    counters->name = method;
    counters->exempt = is_exempt;
    counters->entry = entry;
  }
  return *counters;
}

// Each counter is read on its own, so they are of slightly different instants.
std::vector<MethodSnapshot> Methods::snapshot() const {
  constexpr auto relaxed = std::memory_order_relaxed;
  std::vector<MethodSnapshot> all;
  const bulkhead::detail::SharedLock lock(mutex_);
  for (const auto& [name, c] : all_) {
    if (c->started.load(relaxed) == 0) continue;
    MethodSnapshot& s = all.emplace_back();
    s.method = name;
    s.started = c->started.load(relaxed);
    s.admitted = c->admitted.load(relaxed);
    s.retries = c->retries.load(relaxed);
    s.in_flight = c->in_flight.load(relaxed);
    s.waiting = c->waiting.load(relaxed);
    s.ended_without_status = c->ended_without_status.load(relaxed);
    for (std::size_t i = 0; i < s.rejected.size(); ++i) s.rejected[i] = c->rejected[i].load(relaxed);
    for (std::size_t i = 0; i < s.ended.size(); ++i) s.ended[i] = c->ended[i].load(relaxed);
  }
  return all;
}

namespace {

constexpr std::array<std::string_view, 17> kCodes{
    "OK",        "CANCELLED",      "UNKNOWN",           "INVALID_ARGUMENT",   "DEADLINE_EXCEEDED",
    "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION",
    "ABORTED",   "OUT_OF_RANGE",   "UNIMPLEMENTED",     "INTERNAL",           "UNAVAILABLE",
    "DATA_LOSS", "UNAUTHENTICATED"};

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out;
}

class Page {
 public:
  void family(std::string_view name, std::string_view type, std::string_view help) {
    name_ = "bulkhead_grpc_server_" + std::string(name);
    text_ +=
        "# HELP " + name_ + " " + std::string(help) + "\n# TYPE " + name_ + " " + std::string(type) + "\n";
  }
  void row(const std::string& method, std::uint64_t value, std::string_view label = {},
           std::string_view is = {}) {
    text_ += name_ + "{grpc_method=\"" + escaped(method) + "\"";
    if (!label.empty()) text_.append(",").append(label).append("=\"").append(is).append("\"");
    text_ += "} " + std::to_string(value) + "\n";
  }
  std::string take() && { return std::move(text_); }

 private:
  std::string name_, text_;
};

}  // namespace

// Family by family, as the format requires. Status codes that never occurred are left out, except OK.
std::string to_prometheus(const std::vector<MethodSnapshot>& methods) {
  Page page;
  page.family("started_total", "counter", "RPCs that gRPC delivered.");
  for (const auto& m : methods) page.row(m.method, m.started);
  page.family("retries_total", "counter", "RPCs that a client's gRPC sent again.");
  for (const auto& m : methods) page.row(m.method, m.retries);
  page.family("admitted_total", "counter", "RPCs that went on to their handler.");
  for (const auto& m : methods) page.row(m.method, m.admitted);
  page.family("rejected_total", "counter", "RPCs that were rejected before their handler.");
  for (const auto& m : methods)
    for (std::size_t i = 0; i < m.rejected.size(); ++i)
      page.row(m.method, m.rejected[i], "reason", to_string(static_cast<Reason>(i)));
  page.family("ended_total", "counter", "Admitted RPCs that have ended, by the status that was sent.");
  for (const auto& m : methods) {
    for (std::size_t i = 0; i < m.ended.size(); ++i)
      if (i == 0 || m.ended[i] > 0) page.row(m.method, m.ended[i], "code", kCodes[i]);
    page.row(m.method, m.ended_without_status, "code", "none");
  }
  page.family("in_flight", "gauge", "RPCs that run now.");
  for (const auto& m : methods) page.row(m.method, m.in_flight);
  page.family("waiting", "gauge", "RPCs in line now.");
  for (const auto& m : methods) page.row(m.method, m.waiting);
  return std::move(page).take();
}

}  // namespace bulkhead::grpc
