#include "config/values.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <span>

#include "base/text.h"

namespace bulkhead::config {
namespace {

using base::join;
using std::chrono::nanoseconds;

constexpr std::string_view kDigits = "0123456789";
constexpr bool is_digit(char c) { return c >= '0' && c <= '9'; }

Unexpected<Complaint> wrong(std::string message, std::string hint = "") {
  return Unexpected(Complaint{std::move(message), std::move(hint)});
}

bool all_digits(std::string_view text) noexcept {
  return !text.empty() && text.find_first_not_of(kDigits) == text.npos;
}

bool is_one_of(std::string_view text, std::initializer_list<std::string_view> words) {
  for (const auto word : words)
    if (text == word) return true;
  return false;
}

// What YAML 1.1 takes for true or false.
bool is_switch(std::string_view text) {
  return is_one_of(base::lower(text), {"yes", "no", "on", "off", "y", "n", "true", "false"});
}

// 010 is 8 for some parsers and 10 for others; 0x10 and 0o10 are not needed here.
bool is_odd_number(std::string_view text) {
  if (text.starts_with('-') || text.starts_with('+')) text.remove_prefix(1);
  if (text.size() < 2 || text[0] != '0') return false;
  return is_one_of(text.substr(1, 1), {"x", "o", "b", "X", "O", "B"}) || is_digit(text[1]);
}

std::string without_zeros(std::string_view digits) {
  const std::size_t first = digits.find_first_not_of('0');
  return first == digits.npos ? "0" : std::string(digits.substr(first));
}

Unexpected<Complaint> odd_number(std::string_view text) {
  if (!all_digits(text))
    return wrong(join({quoted(text), " is not a decimal number"}), "write it in decimal");
  const std::string plain = without_zeros(text);
  std::uint64_t octal = 0;
  const auto [end, error] = std::from_chars(plain.data(), plain.data() + plain.size(), octal, 8);
  const bool readable = error == std::errc{} && end == plain.data() + plain.size();
  return wrong(join({quoted(text), " could be octal"}),
               readable && octal >= 8
                   ? join({"write ", plain, ", or ", std::to_string(octal), " if you mean octal"})
                   : join({"write ", plain}));
}

// The value is a scalar, and plain if it must be.
Result<void, Complaint> expect_scalar(const Node& node, std::string_view what, bool may_be_quoted) {
  if (node.kind == Node::Kind::null)
    return wrong("has no value", join({"give ", what, ", or remove the line"}));
  if (!node.is_scalar()) return wrong(join({"is ", kind_of(node), ", not ", what}));
  if (node.quoted && !may_be_quoted)
    return wrong(join({quoted(node.text), " is text, not ", what}), "remove the quotes");
  return {};
}

struct Unit {
  std::string_view name;
  double in_base;
};
constexpr std::array kTime{Unit{"ns", 1},  Unit{"us", 1e3}, Unit{"µs", 1e3},   Unit{"ms", 1e6},
                           Unit{"s", 1e9}, Unit{"m", 60e9}, Unit{"h", 3600e9}, Unit{"d", 86400e9}};
constexpr std::array kBytes{Unit{"B", 1},    Unit{"KiB", 1024}, Unit{"MiB", 1048576}, Unit{"GiB", 1073741824},
                            Unit{"kB", 1e3}, Unit{"MB", 1e6},   Unit{"GB", 1e9}};

const Unit* take_unit(std::string_view& text, std::span<const Unit> units) {
  const std::string_view word = text.substr(0, std::min(text.find_first_of("0123456789."), text.size()));
  for (const Unit& unit : units)
    if (unit.name == word) {
      text.remove_prefix(word.size());
      return &unit;
    }
  return nullptr;
}

std::string show_units(std::uint64_t value, std::span<const Unit> coarse_first) {
  for (const Unit& unit : coarse_first) {
    const auto size = static_cast<std::uint64_t>(unit.in_base);
    if (value % size == 0 && (value != 0 || size == 1'000'000'000))
      return std::to_string(value / size).append(unit.name);
  }
  return std::to_string(value);
}

std::string format(const char* how, double value) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), how, value);
  return text.data();
}

constexpr std::string_view kTimeUnits = "units are ns, us, ms, s, m, h, d";
constexpr std::string_view kByteUnits = "units are B, KiB, MiB, GiB, kB, MB, GB";

}  // namespace

std::string_view kind_of(const Node& node) {
  switch (node.kind) {
    case Node::Kind::null:
      return "nothing";
    case Node::Kind::list:
      return "a list";
    case Node::Kind::map:
      return "a map";
    case Node::Kind::scalar:
      break;
  }
  return "a single value";
}

// For a terminal: control characters could move its cursor. A text above 300 bytes is left out.
std::string printable(std::string_view text) {
  constexpr std::size_t kMost = 300;
  if (text.size() > kMost) return "";
  std::string shown;
  while (!text.empty()) {
    const std::size_t length = base::utf8_length(text);
    const auto c = static_cast<unsigned char>(text[0]);
    const bool c1 = length == 2 && c == 0xC2 && static_cast<unsigned char>(text[1]) < 0xA0;
    const bool control = (c < 0x20 && c != '\t') || c == 0x7f || c1;
    if (length == 0 || control)
      shown += '?';
    else
      shown.append(text.substr(0, length));
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return shown;
}

// Cut at 60 bytes, at the end of a character: an error message must stay readable.
std::string quoted(std::string_view text) {
  constexpr std::size_t kMost = 60;
  std::string shown = "\"";
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    if (i >= kMost && (c & 0xC0) != 0x80) return shown + "...\"";
    if (c == '\n') {
      shown += "\\n";
    } else if (c < 0x20 || c == 0x7f) {
      constexpr std::string_view kHex = "0123456789abcdef";
      shown.append({'\\', 'x', kHex[c >> 4U], kHex[c & 15U]});
    } else {
      shown += text[i];
    }
  }
  return shown + '"';
}

// Other spellings of a number (1_000, 0x10, unlimited) are errors that say what to write.
Read<std::uint64_t> read_count(const Node& node) {
  if (auto is = expect_scalar(node, "a whole number", false); !is) return Unexpected(is.error());
  const std::string_view text = node.text;
  if (is_odd_number(text)) return odd_number(text);
  std::uint64_t value = 0;
  if (all_digits(text)) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error == std::errc{}) return value;
    return wrong(join({quoted(text), " is too large"}));
  }
  if (is_one_of(base::lower(text), {"unlimited", "infinite", "infinity", "inf", ".inf", "none", "-1", "max"}))
    return wrong(join({quoted(text), " is not a whole number"}),
                 "nothing is unlimited here: give the most you would accept");
  if (text.find_first_not_of("0123456789_,'") == text.npos) {
    std::string digits;
    for (const char c : text)
      if (is_digit(c)) digits += c;
    return wrong(join({quoted(text), " is not a whole number"}),
                 digits.empty() ? "write digits only" : join({"write ", digits}));
  }
  return wrong(join({quoted(text), " is not a whole number"}));
}

Read<double> read_number(const Node& node) {
  if (auto is = expect_scalar(node, "a number", false); !is) return Unexpected(is.error());
  std::string_view text = node.text;
  if (is_odd_number(text) && text.find('.') == std::string_view::npos) return odd_number(text);
  double value = 0;
  if (base::take_decimal(text, value) && text.empty()) return value;
  return wrong(join({quoted(node.text), " is not a number such as 1.5"}));
}

Read<double> read_share(const Node& node) {
  if (auto is = expect_scalar(node, "a share such as 20%", true); !is) return Unexpected(is.error());
  std::string_view text = node.text;
  if (is_odd_number(text) && text.find('.') == std::string_view::npos) return odd_number(text);
  double value = 0;
  if (base::take_decimal(text, value)) {
    if (text == "%") return value / 100;
    if (text.empty() && value > 1)
      return wrong(join({quoted(node.text), " is more than 1"}),
                   join({"write ", node.text, "% if you mean per cent"}));
    if (text.empty()) return value;
  }
  return wrong(join({quoted(node.text), " is not a share"}), "write 20%, or 0.2");
}

// 50% or 5: a part of the total in per cent, or in units.
Read<Share> read_part(const Node& node) {
  if (auto is = expect_scalar(node, "a part of the total", true); !is) return Unexpected(is.error());
  std::string_view text = node.text;
  double percent = 0;
  if (is_odd_number(text) && text.find('.') == std::string_view::npos) return odd_number(text);
  if (text.ends_with('%') && base::take_decimal(text, percent) && text == "%") {
    if (percent > 100) return wrong(join({quoted(node.text), " is more than all of it"}), "give 0% to 100%");
    return Share{.percent = percent};
  }
  std::uint32_t units = 0;
  text = node.text;
  if (all_digits(text)) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), units);
    if (error == std::errc{}) return Share{.units = units};
    return wrong(join({quoted(text), " is too large"}));
  }
  return wrong(join({quoted(node.text), " is not a part of the total"}),
               "write 50% for per cent, or 5 for units");
}

// Units from coarse to fine, each once. A number without a unit is an error, because its meaning would be a guess.
Read<nanoseconds> read_duration(const Node& node, bool forever) {
  if (auto is = expect_scalar(node, "a duration such as 250ms", true); !is) return Unexpected(is.error());
  std::string_view text = node.text;
  if (text == "forever") {
    if (forever) return wait_forever;
    return wrong("cannot be forever", "give a duration such as 10s");
  }
  if (text.starts_with('-')) return wrong(join({quoted(text), " is negative"}), "give 0s or more");
  double total = 0, value = 0, finer_than = 1e300;
  bool any = false;
  while (!text.empty()) {
    if (!base::take_decimal(text, value)) break;
    if (text.empty() && !any)
      return wrong(join({quoted(node.text), " has no unit"}),
                   join({"write ", node.text, "s or ", node.text, "ms; ", kTimeUnits}));
    const Unit* unit = take_unit(text, kTime);
    if (!unit || unit->in_base >= finer_than) {
      any = false;
      break;
    }
    finer_than = unit->in_base;
    total += value * unit->in_base;
    any = true;
  }
  if (!any || !text.empty())
    return wrong(join({quoted(node.text), " is not a duration"}),
                 join({"write 250ms or 1m30s; ", kTimeUnits}));
  if (total > 9e18) return wrong(join({quoted(node.text), " is too long"}));
  return nanoseconds(std::llround(total));
}

Read<std::uint64_t> read_size(const Node& node) {
  if (auto is = expect_scalar(node, "a size such as 64KiB", true); !is) return Unexpected(is.error());
  std::string_view text = node.text;
  double value = 0;
  if (base::take_decimal(text, value)) {
    if (text.empty())
      return wrong(join({quoted(node.text), " has no unit"}),
                   join({"write ", node.text, "B or ", node.text, "KiB; ", kByteUnits}));
    const Unit* unit = take_unit(text, kBytes);
    if (unit && text.empty()) {
      if (value * unit->in_base > 9e15) return wrong(join({quoted(node.text), " is too large"}));
      return static_cast<std::uint64_t>(std::llround(value * unit->in_base));
    }
  }
  return wrong(join({quoted(node.text), " is not a size"}), join({"write 64KiB; ", kByteUnits}));
}

Read<bool> read_flag(const Node& node) {
  if (auto is = expect_scalar(node, "true or false", false); !is) return Unexpected(is.error());
  if (node.text == "true") return true;
  if (node.text == "false") return false;
  const std::string low = base::lower(node.text);
  if (is_one_of(low, {"yes", "on", "y", "true", "1", "enabled"}))
    return wrong(join({quoted(node.text), " is not true or false"}), "write true");
  if (is_one_of(low, {"no", "off", "n", "false", "0", "disabled"}))
    return wrong(join({quoted(node.text), " is not true or false"}), "write false");
  return wrong(join({quoted(node.text), " is not true or false"}));
}

Read<std::string> read_text(const Node& node) {
  if (auto is = expect_scalar(node, "text", true); !is) return Unexpected(is.error());
  if (!node.quoted && is_switch(node.text))
    return wrong(join({quoted(node.text), " is a switch to some readers of YAML, here it must be text"}),
                 join({"write \"", node.text, "\" with the quotes"}));
  if (node.text.empty()) return wrong("is empty", "give text, or remove the line");
  return node.text;
}

Read<std::string> read_name(const Node& node) {
  auto text = read_text(node);
  if (!text) return text;
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  bool good = letter((*text)[0]) && text->size() <= 100;
  for (const char c : *text) good = good && (letter(c) || is_digit(c) || c == '-' || c == '_');
  if (good) return text;
  return wrong(join({quoted(*text), " is not a name"}),
               "begin with a letter, then letters, digits, - and _, 100 at most");
}

std::string show_number(double value) { return format("%.10g", value); }

std::string show_share(double share) { return format("%.10g%%", share * 100); }

std::string show_part(const Share& part) {
  return part.percent != 0 ? format("%.10g%%", part.percent) : std::to_string(part.units);
}

std::string show_duration(nanoseconds span) {
  if (span == wait_forever) return "forever";
  constexpr std::array kCoarse{Unit{"h", 3600e9}, Unit{"m", 60e9}, Unit{"s", 1e9},
                               Unit{"ms", 1e6},   Unit{"us", 1e3}, Unit{"ns", 1}};
  return show_units(static_cast<std::uint64_t>(span.count()), kCoarse);
}

std::string show_size(std::uint64_t bytes) {
  constexpr std::array kCoarse{Unit{"GiB", 1073741824}, Unit{"MiB", 1048576}, Unit{"KiB", 1024}};
  for (const Unit& unit : kCoarse)
    if (const auto size = static_cast<std::uint64_t>(unit.in_base); bytes != 0 && bytes % size == 0)
      return std::to_string(bytes / size).append(unit.name);
  return std::to_string(bytes) + "B";
}

std::string one_of(std::span<const std::string_view> words) {
  std::string text;
  for (std::size_t i = 0; i < words.size(); ++i)
    text.append(i == 0 ? "" : i + 1 == words.size() ? " or " : ", ").append(words[i]);
  return text;
}

// Quoted if YAML would read the plain text as something else.
std::string show_text(std::string_view text) {
  constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./";
  const bool bare = !text.empty() && text.find_first_not_of(kPlain) == text.npos && !is_switch(text) &&
                    !is_digit(text[0]) && text[0] != '-' && text[0] != '.' && base::lower(text) != "null";
  if (bare) return std::string(text);
  std::string shown = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') shown += '\\';
    if (c == '\n')
      shown += "\\n";
    else
      shown += c;
  }
  return shown + '"';
}

}  // namespace bulkhead::config
