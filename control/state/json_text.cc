#include "json_text.h"

#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <charconv>
#include <cmath>
#include <string_view>

#include "base/text.h"

namespace bulkhead::control {
namespace json = boost::json;
namespace {

// Paths and headers can have any bytes, JSON is UTF-8: each byte that is not UTF-8 becomes U+FFFD.
std::string as_utf8(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::size_t length = base::utf8_length(text);
    out += length > 0 ? text.substr(0, length) : "\xef\xbf\xbd";
    text.remove_prefix(std::max<std::size_t>(1, length));
  }
  return out;
}

// Recursive: the documents are made by this program and are a few levels deep.
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

}  // namespace bulkhead::control
