#include "app/cli/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>

namespace bulkhead::cli {
namespace {

bool starts_character(char c) noexcept { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }

// The end of the escape sequence that starts at `i`, or `i`.
std::size_t skip_escape(std::string_view text, std::size_t i) noexcept {
  if (text[i] != '\x1b') return i;
  const std::size_t end = text.find('m', i);
  return end == text.npos ? text.size() : end + 1;
}

}  // namespace

std::string paint(const Style& style, Paint paint, std::string_view text) {
  constexpr std::array<std::string_view, 10> kCodes{"",   "1",  "2",    "31",   "32",
                                                    "33", "36", "1;31", "1;32", "7"};
  if (!style.colour || paint == Paint::none) return std::string(text);
  std::string painted;
  for (;;) {  // line by line: a line that is cut off or redrawn takes no colour with it
    const std::size_t end = std::min(text.find('\n'), text.size());
    painted += fmt::format("\x1b[{}m{}\x1b[0m", kCodes[static_cast<std::size_t>(paint)], text.substr(0, end));
    if (end == text.size()) return painted;
    painted += '\n';
    text.remove_prefix(end + 1);
  }
}

std::string printable(std::string_view text, bool lines) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    const auto next = static_cast<unsigned char>(i + 1 < text.size() ? text[i + 1] : 0);
    const bool upper =
        c == 0xC2 && next >= 0x80 && next < 0xA0;  // C1 control characters, which some terminals execute
    i += upper;
    out += upper || (c < 0x20 && !(lines && c == '\n')) || c == 0x7F ? '?' : text[i];
  }
  return out;
}

std::size_t width(std::string_view text) noexcept {
  std::size_t columns = 0;
  for (std::size_t i = 0; i < text.size();) {
    if (const std::size_t end = skip_escape(text, i); end != i) {
      i = end;
      continue;
    }
    columns += starts_character(text[i++]);
  }
  return columns;
}

std::string pad_left(std::string_view text, std::size_t columns) {
  const std::size_t w = width(text);
  return std::string(columns > w ? columns - w : 0, ' ').append(text);
}

std::string pad_right(std::string_view text, std::size_t columns) {
  const std::size_t w = width(text);
  return std::string(text).append(columns > w ? columns - w : 0, ' ');
}

std::string clip(std::string_view text, std::size_t columns) {
  if (width(text) <= columns) return std::string(text);
  std::string clipped;
  bool coloured = false;
  for (std::size_t i = 0, shown = 0; i < text.size();) {
    if (const std::size_t end = skip_escape(text, i); end != i) {
      clipped.append(text.substr(i, end - i));
      coloured = true;
      i = end;
      continue;
    }
    if (starts_character(text[i]) && shown++ == columns) break;
    clipped += text[i++];
  }
  return coloured ? clipped + "\x1b[0m" : clipped;
}

std::string wrap(std::string_view text, std::size_t columns, std::string_view indent) {
  constexpr std::array<std::string_view, 5> kUnits{"ms", "s", "us", "µs", "%"};
  std::string wrapped;
  std::size_t at = 0;
  while (!text.empty()) {
    std::size_t end = std::min(text.find(' '), text.size());
    for (const std::string_view unit : kUnits) {  // a number and its unit stay together
      const std::string_view rest = text.substr(std::min(end + 1, text.size()));
      const bool ends =
          rest.size() <= unit.size() || !std::isalnum(static_cast<unsigned char>(rest[unit.size()]));
      if (rest.starts_with(unit) && ends) {
        end = std::min(text.find(' ', end + 1), text.size());
        break;
      }
    }
    const std::string_view word = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (word.empty()) continue;
    if (at > 0 && at + 1 + width(word) > columns) {
      wrapped += '\n';
      at = 0;
    }
    wrapped.append(at == 0 ? indent : " ").append(word);
    at += (at == 0 ? width(indent) : 1) + width(word);
  }
  return wrapped;
}

std::string duration(const Style& style, std::uint64_t ns) {
  const double us = static_cast<double>(ns) / 1e3;
  if (us < 999.5) return fmt::format("{:.0f} {}s", us, style.utf8 ? "µ" : "u");
  if (us < 9'950) return fmt::format("{:.1f} ms", us / 1e3);
  if (us < 999'500) return fmt::format("{:.0f} ms", us / 1e3);
  return fmt::format("{:.{}f} s", us / 1e6, us < 9.995e6 ? 2 : 1);
}

std::string percent(double share) {
  if (share >= 1) return "100 %";
  if (share <= 0) return "0 %";
  return fmt::format("{:.1f} %", std::clamp(std::floor(share * 1000) / 10, 0.1, 99.9));
}

std::string bar(const Style& style, double share, std::size_t columns) {
  share = std::clamp(share, 0.0, 1.0);
  const auto eighths = static_cast<std::size_t>(std::lround(share * static_cast<double>(columns) * 8));
  std::string text;
  if (!style.utf8) {
    const std::size_t full = (eighths + 4) / 8;
    return std::string(full, '#') + std::string(columns - full, '.');
  }
  constexpr std::array<std::string_view, 8> kPartial{"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  for (std::size_t i = 0; i < eighths / 8; ++i) text += "█";
  text += kPartial[eighths % 8];
  for (std::size_t i = (eighths + 7) / 8; i < columns; ++i) text += "·";
  return text;
}

std::string span(double seconds) {
  const auto s = static_cast<std::int64_t>(std::max(0.0, seconds) + 0.5);
  if (s < 90) return fmt::format("{}s", s);
  if (s < 3600)
    return s % 60 == 0 || s >= 600 ? fmt::format("{}m", s / 60) : fmt::format("{}m {}s", s / 60, s % 60);
  const std::int64_t big = s < 48 * 3600 ? 3600 : 86'400, small = big == 3600 ? 60 : 3600;
  const std::string rest =
      s % big / small == 0 ? "" : fmt::format(" {}{}", s % big / small, big == 3600 ? 'm' : 'h');
  return fmt::format("{}{}{}", s / big, big == 3600 ? 'h' : 'd', rest);
}

std::string sparkline(const Style& style, const std::vector<double>& values, double top) {
  constexpr std::string_view kBlocks[] = {"\u2581", "\u2582", "\u2583", "\u2584",
                                          "\u2585", "\u2586", "\u2587", "\u2588"};
  constexpr std::string_view kPlain = "_.-~=+*#";
  std::string line;
  for (const double value : values) {
    if (value < 0) {
      line += ' ';
      continue;
    }
    const double share = top > 0 ? std::min(1.0, value / top) : 0;
    const auto step = static_cast<std::size_t>(std::min(7.0, std::ceil(share * 7)));
    line += style.utf8 ? kBlocks[step] : kPlain.substr(step, 1);
  }
  return line;
}

}  // namespace bulkhead::cli
