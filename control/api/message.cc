#include "message.h"

#include <algorithm>
#include <boost/json/array.hpp>
#include <charconv>
#include <cstdio>

namespace bulkhead::control {
namespace json = boost::json;
namespace {

// Percent-decoding (RFC 3986). False: a % without two hexadecimal digits.
bool decode(std::string_view text, bool plus_is_space, std::string& out) {
  out.clear();
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += plus_is_space && text[i] == '+' ? ' ' : text[i];
      continue;
    }
    const std::string_view digits = text.substr(i + 1, 2);
    unsigned char byte = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), byte, 16);
    if (error != std::errc{} || digits.size() != 2 || end != digits.data() + 2) return false;
    out += static_cast<char>(byte);
    i += 2;
  }
  return true;
}

// RFC 9457. `instance` has the number of the request.
json::object to_json(const Problem& problem, std::uint64_t request) {
  char instance[48];
  std::snprintf(instance, sizeof instance, "urn:bulkhead:request:%llx",
                static_cast<unsigned long long>(request));
  json::object o{{"type", "urn:bulkhead:problem:" + std::string(problem.type.name)},
                 {"title", problem.type.title},
                 {"status", problem.type.status},
                 {"detail", problem.detail},
                 {"instance", instance}};
  if (problem.errors.empty()) return o;
  json::array errors;
  for (const FieldError& e : problem.errors) {
    json::object error{{"pointer", e.pointer}, {"message", e.message}};
    if (!e.hint.empty()) error["hint"] = e.hint;
    if (e.line != 0) {
      error["line"] = e.line;
      error["column"] = e.column;
    }
    errors.push_back(std::move(error));
  }
  o["errors"] = std::move(errors);
  return o;
}

}  // namespace

const std::string* Request::parameter(std::string_view name) const noexcept {
  for (const auto& [key, value] : query)
    if (key == name) return &value;
  return nullptr;
}

Response respond(std::string body, std::string type, unsigned status) {
  Response response;
  response.status = status;
  response.type = std::move(type);
  response.body = std::make_shared<const std::string>(std::move(body));
  return response;
}

Response respond(const json::object& body, unsigned status) {
  return respond(text_of(body) + '\n', "application/json", status);
}

Response respond(const Problem& problem, std::uint64_t request) {
  Response response =
      respond(text_of(to_json(problem, request)) + '\n', "application/problem+json", problem.type.status);
  response.headers = problem.headers;
  return response;
}

// The path is split before it is decoded, so that %2F in a name is no separator. At most 32 parameters.
bool parse_target(std::string_view target, Request& request) {
  if (target.empty() || target.front() != '/') return false;
  target = target.substr(0, target.find('#'));
  const std::size_t question = target.find('?');
  const std::string_view path = target.substr(0, question);
  request.path = path;
  for (std::size_t start = 1; start <= path.size();) {
    const std::size_t end = std::min(path.find('/', start), path.size());
    if (!decode(path.substr(start, end - start), false, request.segments.emplace_back())) return false;
    start = end + 1;
  }
  if (question == std::string_view::npos) return true;
  for (std::string_view rest = target.substr(question + 1); !rest.empty();) {
    const std::string_view pair = rest.substr(0, rest.find('&'));
    rest.remove_prefix(std::min(rest.size(), pair.size() + 1));
    if (pair.empty()) continue;
    const std::size_t equals = pair.find('=');
    auto& [key, value] = request.query.emplace_back();
    if (!decode(pair.substr(0, equals), true, key)) return false;
    if (equals != std::string_view::npos && !decode(pair.substr(equals + 1), true, value)) return false;
    if (request.query.size() > 32) return false;
  }
  return true;
}

}  // namespace bulkhead::control
