#include "resp.h"

#include <charconv>

namespace bulkhead::redis {
namespace {

class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}

  std::size_t used() const noexcept { return at_; }

  Parsed value(Value& v, int depth) {
    std::string_view line;
    if (depth > kMaxDepth) return Parsed::malformed;
    if (const Parsed p = next_line(line); p != Parsed::done) return p;
    if (line.empty()) return Parsed::malformed;
    const char type = line.front();
    line.remove_prefix(1);
    v = {};
    switch (type) {
      case '+':
      case '-':
        v.kind = type == '+' ? Value::Kind::text : Value::Kind::error;
        v.text = line;
        return Parsed::done;
      case ':':
        v.kind = Value::Kind::integer;
        return whole(line, v.integer);
      case '_':
        return line.empty() ? Parsed::done : Parsed::malformed;
      case '#':
        v.kind = Value::Kind::boolean;
        v.integer = line == "t";
        return line == "t" || line == "f" ? Parsed::done : Parsed::malformed;
      case ',':
      case '(':
        v.kind = Value::Kind::number;
        v.text = line;
        return line.empty() ? Parsed::malformed : Parsed::done;
      case '$':
        v.kind = Value::Kind::text;
        return bulk(line, v, 0);
      case '!':
        v.kind = Value::Kind::error;
        return bulk(line, v, 0);
      case '=':  // "txt:" before the text
        v.kind = Value::Kind::text;
        return bulk(line, v, 4);
      case '*':
      case '~':
      case '>':
        return list(line, v, 1, depth);
      case '%':
        return list(line, v, 2, depth);
      case '|': {
        Value attribute;
        if (const Parsed p = list(line, attribute, 2, depth); p != Parsed::done) return p;
        return value(v, depth + 1);
      }
      default:
        return Parsed::malformed;
    }
  }

 private:
  Parsed next_line(std::string_view& line) {
    const std::size_t end = bytes_.find("\r\n", at_);
    if (end == bytes_.npos) return bytes_.size() - at_ > kMaxText ? Parsed::malformed : Parsed::incomplete;
    line = bytes_.substr(at_, end - at_);
    at_ = end + 2;
    return Parsed::done;
  }

  static Parsed whole(std::string_view line, std::int64_t& out) {
    if (line.starts_with('+')) line.remove_prefix(1);
    const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), out);
    return error == std::errc() && end == line.data() + line.size() && !line.empty() ? Parsed::done
                                                                                     : Parsed::malformed;
  }

  Parsed bulk(std::string_view line, Value& v, std::size_t prefix) {
    std::int64_t size = 0;
    if (whole(line, size) != Parsed::done || size < -1 || size > static_cast<std::int64_t>(kMaxText))
      return Parsed::malformed;
    if (size < 0) return v = {}, Parsed::done;
    const auto length = static_cast<std::size_t>(size);
    if (bytes_.size() - at_ < length + 2) return Parsed::incomplete;
    if (bytes_.substr(at_ + length, 2) != "\r\n" || length < prefix) return Parsed::malformed;
    v.text = bytes_.substr(at_ + prefix, length - prefix);
    at_ += length + 2;
    return Parsed::done;
  }

  Parsed list(std::string_view line, Value& v, std::int64_t per_entry, int depth) {
    std::int64_t size = 0;
    if (whole(line, size) != Parsed::done || size < -1 || size > static_cast<std::int64_t>(kMaxElements))
      return Parsed::malformed;
    if (size < 0) return v = {}, Parsed::done;
    v.kind = Value::Kind::list;
    // Not reserved: the size is only what the other side says.
    for (std::int64_t i = 0; i < size * per_entry; ++i) {
      Value element;
      if (const Parsed p = value(element, depth + 1); p != Parsed::done) return p;
      v.list.push_back(std::move(element));
    }
    return Parsed::done;
  }

  std::string_view bytes_;
  std::size_t at_ = 0;
};

void append_word(std::string& out, std::string_view word) {
  out += '$';
  out += std::to_string(word.size());
  out += "\r\n";
  out += word;
  out += "\r\n";
}

}  // namespace

Parsed parse(std::string_view bytes, Value& value, std::size_t& used) {
  Reader reader(bytes);
  const Parsed result = reader.value(value, 0);
  used = reader.used();
  return result;
}

void append_command(std::string& out, const std::vector<std::string>& words) {
  out += '*';
  out += std::to_string(words.size());
  out += "\r\n";
  for (const std::string& word : words) append_word(out, word);
}

}  // namespace bulkhead::redis
