#include "front.h"

#include <boost/beast/core/string.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/field.hpp>
#include <optional>

#include "handlers.h"
#include "web/assets.h"

namespace bulkhead::control {
namespace http = boost::beast::http;
namespace {

constexpr std::string_view kPagePolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

// "http://host:port/path" (RFC 9112, 3.2.2) names the host itself, whatever Host says.
std::string without_host(std::string_view target, std::string& host) {
  const std::size_t colon = target.find("://");
  const std::string_view scheme = target.substr(0, colon);
  if (colon == std::string_view::npos ||
      !(boost::beast::iequals(scheme, "http") || boost::beast::iequals(scheme, "https")))
    return std::string(target);
  target.remove_prefix(colon + 3);
  host = target.substr(0, target.find_first_of("/?#"));
  target.remove_prefix(host.size());
  return (target.starts_with('/') ? "" : "/") + std::string(target);
}

bool is_page(const Request& r) {
  return !r.changes() && (r.path == "/" || (!r.segments.empty() && r.segments[0] == "ui"));
}

Response page(const Core& core, const Request& r) {
  Request own = r;  // a link from elsewhere may lead here: the page shows nothing by itself
  own.fetch_site.clear();
  own.origin.clear();
  if (const std::string why = wrong_site(own, core.hosts); !why.empty())
    return respond(Problem{.status = 403, .type = "forbidden", .detail = why}, r.id);
  if (!core.options.dashboard)
    return respond("Bulkhead control plane, without its dashboard. /v1/openapi.json says what there is.\n",
                   "text/plain; charset=utf-8", r.path == "/" ? 200 : 404);
  if (r.segments.size() < 2) {  // without the last slash
    Response response = respond("", "text/plain", 302);
    response.headers.emplace_back("Location", "ui/");  // relative: there may be a prefix before it
    return response;
  }
  const std::string_view path = r.segments[1].empty() ? "index.html" : std::string_view(r.path).substr(4);
  for (const Asset& asset : assets()) {
    if (asset.path != path) continue;
    // A cache on the way may have made the tag weak; the bytes are the same.
    const std::string tag(asset.etag);
    const bool known = is_among(r.if_none_match, tag) || is_among(r.if_none_match, "W/" + tag);
    Response response = respond(known ? std::string() : std::string(asset.gzip.begin(), asset.gzip.end()),
                                std::string(asset.content_type), known ? 304 : 200);
    response.headers = {{"Content-Encoding", "gzip"},
                        {"Content-Security-Policy", std::string(kPagePolicy)},
                        {"ETag", tag},
                        {"Cache-Control", "no-cache"}};
    return response;
  }
  return respond(Problem{.status = 404, .type = "not_found", .detail = "the dashboard has no such file"},
                 r.id);
}

}  // namespace

Request understand(const Core& core, const RawRequest& raw, const Caller& caller, std::uint64_t id) {
  // One that is sent twice is the list of both, which no Host and no token is.
  const auto header = [&](http::field name) {
    std::string all;
    for (auto [field, end] = raw.equal_range(name); field != end; ++field) {
      if (!all.empty()) all += ", ";
      all += std::string_view(field->value().data(), field->value().size());
    }
    return all;
  };
  Request r;
  r.id = id;
  r.method = std::string(raw.method_string());
  r.host = header(http::field::host);
  r.origin = header(http::field::origin);
  r.fetch_site = std::string(raw["Sec-Fetch-Site"]);
  r.authorization = header(http::field::authorization);
  r.content_type = header(http::field::content_type);
  r.content_encoding = header(http::field::content_encoding);
  r.if_match = header(http::field::if_match);
  r.if_none_match = header(http::field::if_none_match);
  r.accept = header(http::field::accept);
  r.body = raw.body();
  const std::size_t hosts = raw.count(http::field::host);
  if (hosts > 1 || (hosts == 0 && raw.version() >= 11)) r.malformed = "there has to be one Host";
  if (!parse_target(without_host({raw.target().data(), raw.target().size()}, r.host), r))
    r.malformed = "the target is not a path, or badly encoded";
  r.caller = caller;
  if (caller.local) return r;
  if (!r.authorization.empty())
    r.caller = core.tokens.check(r.authorization, std::chrono::system_clock::now());
  else
    r.caller.role = core.options.anonymous;
  return r;
}

Answered answer_at_once(Core& core, const Request& request) {
  try {
    if (!request.malformed.empty()) bad_request(request.malformed);
    if (is_page(request)) return {.response = page(core, request)};
    const Route* found = nullptr;
    std::optional<Problem> none;
    try {
      found = &find_route(request);
    } catch (const Problem& problem) {
      none = problem;
    }
    // Probes are not asked for anything, others before they are told that there is no such thing.
    const bool probe = request.segments[0] == "livez" || request.segments[0] == "readyz";
    if (!probe) check_access(core, found, request);
    if (none) throw *none;
    const Route& route = *found;
    if (!request.body.empty() && !request.content_encoding.empty() && request.content_encoding != "identity")
      throw Problem{.status = 415,
                    .type = "unsupported_media_type",
                    .detail = "send the body as it is, without Content-Encoding",
                    .headers = {{"Accept-Encoding", "identity"}}};
    if (route.where == Where::worker) return {.route = &route};
    return {.response = handle(core, route, request)};
  } catch (const Problem& wrong) {
    return {.response = respond(wrong, request.id)};
  }
}

Response refuse(unsigned status, std::string type, std::string detail) {
  return respond(Problem{.status = status, .type = std::move(type), .detail = std::move(detail)}, 0);
}

Response refusal_of(const boost::system::error_code& error) {
  if (error == http::error::header_limit) return refuse(431, "too_large", "the header is too large");
  if (error == http::error::body_limit || error == http::error::buffer_overflow)
    return refuse(413, "too_large", "the body is too large");
  if (error == http::error::end_of_stream || error == http::error::partial_message ||
      error.category() != http::make_error_code(http::error::end_of_stream).category())
    return {};  // gone, or too slow
  return refuse(400, "bad_request", "this is not HTTP: " + error.message());
}

}  // namespace bulkhead::control
