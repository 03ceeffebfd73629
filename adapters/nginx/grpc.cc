#include "grpc.h"

#include <charconv>
#include <string>

#include "passing.h"

namespace bulkhead::nginx {
namespace {

enum Code : int {
  cancelled = 1,
  unknown = 2,
  deadline_exceeded = 4,
  resource_exhausted = 8,
  unimplemented = 12,
  internal = 13,
  unavailable = 14,
  data_loss = 15
};

// As grpc::StatusFor by default.
int code_of(Reason reason, bool late) noexcept {
  switch (reason) {
    case Reason::timeout:
    case Reason::deadline:
    case Reason::budget_limit:
      return late ? deadline_exceeded : resource_exhausted;
    case Reason::execution_timeout:
      return deadline_exceeded;
    case Reason::cancelled:
      return cancelled;
    case Reason::breaker_open:
    case Reason::draining:
    case Reason::shutdown:
    case Reason::injected_fault:
      return unavailable;
    default:
      return resource_exhausted;
  }
}

std::optional<int> find_status(const ngx_list_t& headers) noexcept {
  for (const ngx_list_part_t* part = &headers.part; part; part = part->next) {
    const auto* const all = static_cast<const ngx_table_elt_t*>(part->elts);
    for (ngx_uint_t i = 0; i < part->nelts; ++i) {
      if (view(all[i].key) != "grpc-status") continue;
      const std::string_view text = view(all[i].value);
      int code = unknown;
      std::from_chars(text.data(), text.data() + text.size(), code);
      return code;
    }
  }
  return std::nullopt;
}

}  // namespace

bool is_grpc(ngx_http_request_t* r) noexcept {
  return r->stream && r->headers_in.content_type && !passes_http(r) &&
         view(r->headers_in.content_type->value).starts_with("application/grpc");
}

http::Response grpc_response(const http::Response& from, Reason reason, bool late) {
  const std::string word(to_string(reason));
  const int code = code_of(reason, late);
  http::Response to{.status = NGX_HTTP_OK,
                    .headers = {{"Content-Type", "application/grpc"},
                                {"grpc-status", std::to_string(code)},
                                {"grpc-message", "rejected (" + word + ")"},
                                {"bulkhead-reason", word}},
                    .body = ""};
  for (const http::Header& h : from.headers)
    if (h.name == "Retry-After" && code != deadline_exceeded)
      to.headers.push_back({"grpc-retry-pushback-ms", h.value + "000"});
  return to;
}

// As grpc::verdict().
std::optional<Outcome> grpc_verdict(const ngx_http_upstream_t& upstream) noexcept {
  std::optional<int> code = find_status(upstream.headers_in.trailers);
  if (!code) code = find_status(upstream.headers_in.headers);
  if (!code) return std::nullopt;
  switch (*code) {
    case cancelled:
    case resource_exhausted:
      return Outcome::ignored;
    case unknown:
    case deadline_exceeded:
    case unimplemented:
    case internal:
    case unavailable:
    case data_loss:
      return Outcome::failure;
    default:
      return Outcome::success;
  }
}

}  // namespace bulkhead::nginx
