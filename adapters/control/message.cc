#include "message.h"

#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/serialize.hpp>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "base/suggest.h"

namespace bulkhead::control {
namespace json = boost::json;
namespace {

int hex_digit(char c) noexcept {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

bool decode(std::string_view text, bool plus_is_space, std::string& out) {
  out.clear();
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += plus_is_space && text[i] == '+' ? ' ' : text[i];
      continue;
    }
    if (i + 2 >= text.size()) return false;
    const int high = hex_digit(text[i + 1]), low = hex_digit(text[i + 2]);
    if (high < 0 || low < 0) return false;
    out += static_cast<char>(high * 16 + low);
    i += 2;
  }
  return true;
}

std::string_view title_of(std::string_view type) noexcept {
  constexpr std::pair<std::string_view, std::string_view> titles[] = {
      {"bad_request", "The request makes no sense"},
      {"unauthorized", "A token is needed"},
      {"forbidden", "Not allowed"},
      {"not_found", "There is no such thing"},
      {"method_not_allowed", "Not with this method"},
      {"conflict", "It cannot be done as things are"},
      {"too_large", "The request is too large"},
      {"unsupported_media_type", "The body has to be JSON"},
      {"invalid_body", "The body is not valid"},
      {"unavailable", "Not available now"},
      {"internal", "Something went wrong here"},
  };
  for (const auto& [name, title] : titles)
    if (name == type) return title;
  return "Error";
}

}  // namespace

const std::string* Request::parameter(std::string_view name) const noexcept {
  for (const auto& [key, value] : query)
    if (key == name) return &value;
  return nullptr;
}

namespace {

// The length of the character that `text` begins with; 0: it is not UTF-8.
std::size_t character(std::string_view text) noexcept {
  const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U; };
  const auto in = [](unsigned c, unsigned low, unsigned high) { return c >= low && c <= high; };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  // What the second byte may be: not what would be shorter otherwise, a surrogate, or above U+10FFFF.
  const unsigned low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
  const unsigned high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
  const std::size_t length = in(first, 0xc2, 0xdf)   ? 2
                             : in(first, 0xe0, 0xef) ? 3
                             : in(first, 0xf0, 0xf4) ? 4
                                                     : 0;
  if (length == 0 || !in(byte(1), low, high)) return 0;
  for (std::size_t i = 2; i < length; ++i)
    if (!in(byte(i), 0x80, 0xbf)) return 0;
  return length;
}

// A path or a header may be anything, JSON has to be UTF-8: what is not becomes U+FFFD, byte by byte.
std::string as_utf8(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::size_t length = character(text);
    out += length > 0 ? text.substr(0, length) : "\xef\xbf\xbd";
    text.remove_prefix(std::max<std::size_t>(1, length));
  }
  return out;
}

void write(std::string& out, const json::value& value) {
  if (const auto* const object = value.if_object()) {
    char separator = '{';
    for (const auto& [key, member] : *object) {
      out += separator;
      out += json::serialize(as_utf8(key));
      out += ':';
      write(out, member);
      separator = ',';
    }
    if (object->empty()) out += '{';
    out += '}';
  } else if (const auto* const array = value.if_array()) {
    out += '[';
    for (std::size_t i = 0; i < array->size(); ++i) {
      if (i > 0) out += ',';
      write(out, (*array)[i]);
    }
    out += ']';
  } else if (const auto* const number = value.if_double()) {
    char text[32];
    const auto [end, error] = std::to_chars(text, text + sizeof text, *number);
    if (std::isfinite(*number) && error == std::errc{})
      out.append(text, end);
    else
      out += "null";
  } else if (const auto* const text = value.if_string()) {
    out += json::serialize(as_utf8(*text));
  } else {
    out += json::serialize(value);
  }
}

}  // namespace

std::string text_of(const json::value& value) {
  std::string out;
  write(out, value);
  return out;
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

json::object to_json(const Problem& problem, std::uint64_t request) {
  char instance[48];
  std::snprintf(instance, sizeof instance, "urn:bulkhead:request:%llx",
                static_cast<unsigned long long>(request));
  json::object o{{"type", "urn:bulkhead:problem:" + problem.type},
                 {"title", title_of(problem.type)},
                 {"status", problem.status},
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

Response respond(const Problem& problem, std::uint64_t request) {
  Response response =
      respond(text_of(to_json(problem, request)) + '\n', "application/problem+json", problem.status);
  response.headers = problem.headers;
  return response;
}

Problem not_known(std::string_view what, std::string_view name, const std::vector<std::string>& known,
                  std::string_view list) {
  const std::string close = base::suggest(name, known);
  return {.status = 404,
          .type = "not_found",
          .detail = "there is no " + std::string(what) + " \"" + std::string(name) + "\"; " +
                    (close.empty() ? std::string(list) : "did you mean \"" + close + "\"?")};
}

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
