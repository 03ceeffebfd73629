// text.h - numbers and tables as people read them: units, padding, colour.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace bulkhead::cli {

// How to write to one stream: with colours or not, with more than ASCII or not.
struct Style {
  bool colour = false;
  bool utf8 = false;
};

enum class Paint : std::uint8_t { none, bold, dim, red, green, yellow, cyan, bold_red, bold_green, inverse };
std::string paint(const Style& style, Paint paint, std::string_view text);

// What others have named, for a terminal: signs that would move its cursor or change its state become "?".
std::string printable(std::string_view text, bool lines = false);  // lines: their ends stay

// Columns on a screen; each character counts as one, escape sequences as none.
std::size_t width(std::string_view text) noexcept;
std::string pad_left(std::string_view text, std::size_t columns);   // right-aligned
std::string pad_right(std::string_view text, std::size_t columns);  // left-aligned
// At most `columns` wide, colours kept and closed.
std::string clip(std::string_view text, std::size_t columns);
// Lines of at most `columns`, broken at spaces.
std::string wrap(std::string_view text, std::size_t columns, std::string_view indent = "");

std::string duration(const Style& style, std::uint64_t ns);  // "870 us", "45 ms", "1.07 s"
std::string percent(double share);                           // "100 %" only if it is all, "0 %" only if none
std::string span(double seconds);                            // "42s", "6m 25s", "20h 3m", "2d 4h"
// One sign per value, from 0 to `top`; a value below 0 is a gap.
std::string sparkline(const Style& style, const std::vector<double>& values, double top);
std::string bar(const Style& style, double share, std::size_t columns);

}  // namespace bulkhead::cli
