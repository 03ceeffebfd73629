#include "front.h"

#include <algorithm>
#include <boost/beast/core/string.hpp>
#include <boost/beast/http/field.hpp>
#include <optional>
#include <span>

#include "adapters/beast/wire.h"
#include "control/api/handlers.h"
#include "control/web/assets.h"

namespace bulkhead::control {
namespace http = boost::beast::http;
namespace {

constexpr std::string_view kPagePolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

// The host of "http://host:port/path" replaces Host (RFC 9112, 3.2.2).
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

// Of Accept-Encoding (RFC 9110, 12.5.3). Clients that send no such field, as curl does, get plain bytes.
bool accepts_gzip(std::string_view accepted) {
  const auto next = [](std::string_view& rest, char separator) {
    const std::size_t end = std::min(rest.find(separator), rest.size());
    std::string_view part = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    while (part.starts_with(' ') || part.starts_with('\t')) part.remove_prefix(1);
    while (part.ends_with(' ') || part.ends_with('\t')) part.remove_suffix(1);
    return part;
  };
  bool any = false;  // "*", which counts unless gzip is named
  while (!accepted.empty()) {
    std::string_view parameters = next(accepted, ',');
    const std::string_view coding = next(parameters, ';');
    const std::string_view weight = next(parameters, ';');
    const bool wanted = !boost::beast::iequals(weight.substr(0, 2), "q=") ||
                        weight.find_first_of("123456789", 2) != std::string_view::npos;
    if (boost::beast::iequals(coding, "gzip")) return wanted;
    if (coding == "*") any = wanted;
  }
  return any;
}

}  // namespace

Response Front::page(const Request& r) const {
  // Other sites may link here: without a token the page shows no more than a viewer may see.
  if (const std::string why = wrong_host(r, hosts); !why.empty())
    return respond(Problem{kForbidden, why}, r.id);
  if (!core.options.dashboard)
    return respond("Bulkhead control plane without dashboard. /v1/openapi.json lists all routes.\n",
                   "text/plain; charset=utf-8", r.path == "/" ? 200 : 404);
  if (r.segments.size() < 2) {  // without the trailing slash
    Response response = respond("", "text/plain", 302);
    response.headers.emplace_back("Location", "ui/");  // relative, because a proxy may add a prefix
    return response;
  }
  const std::string_view path = r.segments[1].empty() ? "index.html" : std::string_view(r.path).substr(4);
  for (const Asset& asset : assets()) {
    if (asset.path != path) continue;
    // Weak, because the tag is the same for both encodings.
    const std::string tag = "W/" + std::string(asset.etag);
    const bool known = is_among(r.if_none_match, tag) || is_among(r.if_none_match, asset.etag);
    const bool zipped = accepts_gzip(r.accept_encoding);
    const std::span<const unsigned char> bytes = zipped ? asset.gzip : asset.plain;
    Response response = respond(known ? std::string() : std::string(bytes.begin(), bytes.end()),
                                std::string(asset.content_type), known ? 304 : 200);
    response.headers = {{"Content-Security-Policy", std::string(kPagePolicy)},
                        {"ETag", tag},
                        {"Vary", "Accept-Encoding"},
                        {"Cache-Control", "no-cache"}};
    if (zipped) response.headers.emplace_back("Content-Encoding", "gzip");
    return response;
  }
  return respond(Problem{kNotFound, "the dashboard has no file of this name"}, r.id);
}

Caller Front::identify(const Caller& connection, const std::string& authorization) {
  if (connection.local) return connection;
  if (!authorization.empty())
    return tokens.now(core.journal).check(authorization, std::chrono::system_clock::now());
  Caller caller = connection;
  caller.role = anonymous;
  return caller;
}

Request Front::understand(const RawRequest& raw, const Caller& caller, std::uint64_t id) {
  // A header that is sent twice becomes a list, which is neither a valid Host nor a valid token.
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
  r.accept_encoding = header(http::field::accept_encoding);
  r.body = raw.body();
  const std::size_t named = raw.count(http::field::host);
  if (named > 1 || (named == 0 && raw.version() >= 11)) r.malformed = "exactly one Host is required";
  if (!parse_target(without_host({raw.target().data(), raw.target().size()}, r.host), r))
    r.malformed = "the target is not a path, or is badly encoded";
  r.caller = identify(caller, r.authorization);
  return r;
}

// The origin first: a browser of another site must not even learn whether a token is valid. Every denial is journaled.
void Front::check_access(const Route* route, const Request& r) {
  const auto deny = [&](Problem problem) {
    JournalEntry entry = audit_entry(r, "denied", r.segments.size() > 2 ? r.segments[2] : "");
    entry.text = problem.detail;
    core.journal.deny(std::move(entry));
    throw problem;
  };
  const auto ask_for_token = [&](std::string why) {
    deny({.type = kUnauthorized,
          .detail = std::move(why),
          .headers = {{"WWW-Authenticate", "Bearer realm=\"bulkhead\""}}});
  };
  if (const std::string why = wrong_site(r, hosts); !why.empty()) deny({kForbidden, why});
  if (!r.caller.denied.empty()) ask_for_token(r.caller.denied);
  const Role needed = route ? route->role : Role::viewer;
  if (r.caller.role >= needed) return;
  const std::string required = "the role " + std::string(to_string(needed)) + " is required, ";
  if (r.caller.actor == "anonymous")
    ask_for_token(required + "and a token that has it: Authorization: Bearer TOKEN, or the unix socket");
  deny({kForbidden, required + '"' + r.caller.actor + "\" is " + std::string(to_string(r.caller.role))});
}

Answered Front::answer_at_once(const Request& request) {
  try {
    if (!request.malformed.empty()) bad_request(request.malformed);
    if (is_page(request)) return {.response = page(request)};
    const Route* found = nullptr;
    std::optional<Problem> none;
    try {
      found = &find_route(request);
    } catch (const Problem& problem) {
      none = problem;
    }
    // Probes need no access. For everything else access is checked before 404 or 405 is sent.
    const bool probe = request.segments[0] == "livez" || request.segments[0] == "readyz";
    if (!probe) check_access(found, request);
    if (none) throw *none;
    const Route& route = *found;
    if (!request.body.empty() && !request.content_encoding.empty() && request.content_encoding != "identity")
      throw Problem{.type = kUnsupportedMediaType,
                    .detail = "send the body without Content-Encoding",
                    .headers = {{"Accept-Encoding", "identity"}}};
    if (route.where == Where::worker) return {.route = &route};
    return {.response = handle(core, route, request)};
  } catch (const Problem& wrong) {
    return {.response = respond(wrong, request.id)};
  }
}

Response parse_error_response(const boost::system::error_code& error) {
  const int status = beast::status_of(error);
  if (status < 0) return {};
  return respond(status == 431   ? Problem{kHeaderTooLarge, "the header is too large"}
                 : status == 413 ? Problem{kBodyTooLarge, "the body is too large"}
                                 : Problem{kBadRequest, "this is not HTTP: " + error.message()},
                 0);
}

}  // namespace bulkhead::control
