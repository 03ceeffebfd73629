// json.h - writes one JSON document, indented. Nesting and commas are its business, names and values yours.
//
//   JsonWriter json;
//   json.open().field("name", "checkout").field("p99_ms", 93.2).list("acts"). ... .close().close();
//   json.text();
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace bulkhead::cli {

std::string json_quoted(std::string_view text);  // escapes; bytes that are not UTF-8 become U+FFFD

class JsonWriter {
 public:
  JsonWriter& open() { return begin("", '{'); }  // an object: the document, or an element of a list
  JsonWriter& open(std::string_view name) { return begin(name, '{'); }
  JsonWriter& list(std::string_view name) { return begin(name, '['); }
  JsonWriter& close();

  JsonWriter& field(std::string_view name, std::string_view value) { return raw(name, json_quoted(value)); }
  JsonWriter& field(std::string_view name, const char* value) { return field(name, std::string_view(value)); }
  JsonWriter& field(std::string_view name, double value);  // not finite: null
  template <std::same_as<bool> T>
  JsonWriter& field(std::string_view name, T value) {
    return raw(name, value ? "true" : "false");
  }
  template <std::unsigned_integral T>
    requires(!std::same_as<T, bool>)
  JsonWriter& field(std::string_view name, T value) {
    return raw(name, std::to_string(value));
  }
  JsonWriter& null(std::string_view name) { return raw(name, "null"); }

  const std::string& text() const noexcept { return text_; }

 private:
  JsonWriter& begin(std::string_view name, char bracket);
  JsonWriter& raw(std::string_view name, std::string_view value);
  void start(std::string_view name);

  std::string text_;
  std::vector<char> open_;  // the brackets that will close what is open
  bool first_ = true;       // in what is open
};

}  // namespace bulkhead::cli
