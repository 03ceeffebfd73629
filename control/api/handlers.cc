#include "handlers.h"

#include <algorithm>
#include <charconv>

#include "base/text.h"

namespace bulkhead::control {
namespace json = boost::json;

std::string transport(const Request& r) { return r.caller.local ? "unix" : "tcp"; }

void bad_request(std::string detail) { throw Problem{kBadRequest, std::move(detail)}; }

std::size_t number(const Request& r, std::string_view name, std::size_t least, std::size_t most,
                   std::size_t standard) {
  const std::string* const text = r.parameter(name);
  if (!text) return standard;
  std::size_t n = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), n);
  if (error != std::errc{} || end != text->data() + text->size() || n < least || n > most)
    bad_request(std::string(name) + " must be a whole number from " + std::to_string(least) + " to " +
                std::to_string(most));
  return n;
}

bool dry_run(const Request& r) {
  // A misspelled ?dryrun=true must not change anything.
  for (const auto& [key, value] : r.query)
    if (key != "dry_run") bad_request("unknown parameter \"" + key + "\"; the only one is dry_run");
  if (r.query.size() > 1) bad_request("dry_run is given twice");
  const std::string* const text = r.parameter("dry_run");
  if (!text || *text == "false") return false;
  if (!text->empty() && *text != "true" && *text != "1") bad_request("dry_run must be true or false");
  return true;
}

std::string media_type(const Request& r) {
  std::string type = r.content_type.substr(0, r.content_type.find(';'));
  type.erase(type.find_last_not_of(" \t") + 1);
  return base::lower(type);
}

void need_json(const Request& r) {
  if (r.body.empty() || media_type(r) == "application/json") return;
  throw Problem{kUnsupportedMediaType, "send Content-Type: application/json"};
}

Body body_of(const BodySpec& spec, const Request& r) {
  need_json(r);
  return read_body(spec, r.body.empty() ? json::object{} : parse_object(r.body));
}

JournalEntry audit_entry(const Request& r, std::string kind, std::string bulkhead) {
  return {.kind = std::move(kind),
          .bulkhead = std::move(bulkhead),
          .actor = r.caller.actor,
          .audit = true,
          .role = std::string(to_string(r.caller.role)),
          .transport = transport(r),
          .action = r.method + ' ' + r.path,
          .request = r.id};
}

Response with_etag(Response response, std::string etag) {
  response.headers.emplace_back("ETag", std::move(etag));
  return response;
}

bool is_among(std::string_view tags, std::string_view etag) {
  if (tags == "*") return true;
  while (!tags.empty()) {
    std::string_view one = tags.substr(0, tags.find(','));
    tags.remove_prefix(std::min(tags.size(), one.size() + 1));
    while (one.starts_with(' ')) one.remove_prefix(1);
    while (one.ends_with(' ')) one.remove_suffix(1);
    if (one == etag) return true;
  }
  return false;
}

}  // namespace bulkhead::control
