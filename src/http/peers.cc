#include <array>
#include <charconv>
#include <cstdint>
#include <optional>

#include "base/text.h"
#include "bulkhead/http_hints.h"

namespace bulkhead::http {
namespace {

using Bits = std::array<std::uint8_t, 16>;  // IPv4 as ::ffff:a.b.c.d
constexpr unsigned kV4Prefix = 96;

template <class N>
bool parse(std::string_view text, N& n, int base) noexcept {
  const char* const begin = text.data();
  const char* const end = begin + text.size();
  const auto [stop, error] = std::from_chars(begin, end, n, base);
  return error == std::errc() && stop == end;
}

bool parse_v4(std::string_view text, std::uint8_t* out) noexcept {
  for (int i = 0; i < 4; ++i) {
    const std::size_t dot = i < 3 ? text.find('.') : text.size();
    if (dot == std::string_view::npos || dot == 0 || dot > 3 || !parse(text.substr(0, dot), out[i], 10))
      return false;
    text.remove_prefix(i < 3 ? dot + 1 : dot);
  }
  return text.empty();
}

// Groups of hexadecimal digits, one "::" for as many zeros as are missing, perhaps an IPv4 address at the end.
bool parse_v6(std::string_view text, Bits& out) noexcept {
  Bits parts{};
  std::size_t filled = 0, gap = parts.size() + 1;
  if (text.starts_with("::")) {
    gap = 0;
    text.remove_prefix(2);
  }
  while (!text.empty()) {
    const std::size_t colon = text.find(':');
    const std::string_view group = text.substr(0, colon);
    if (colon == std::string_view::npos && group.find('.') != std::string_view::npos) {
      if (filled > 12 || !parse_v4(group, &parts[filled])) return false;
      filled += 4;
      break;
    }
    std::uint16_t value = 0;
    if (filled > 14 || group.size() > 4 || !parse(group, value, 16)) return false;
    parts[filled++] = static_cast<std::uint8_t>(value >> 8);
    parts[filled++] = static_cast<std::uint8_t>(value & 0xff);
    if (colon == std::string_view::npos) break;
    text.remove_prefix(colon + 1);
    if (text.starts_with(':')) {
      if (gap <= parts.size()) return false;
      gap = filled;
      text.remove_prefix(1);
    } else if (text.empty()) {
      return false;
    }
  }
  if (gap > parts.size()) {
    out = parts;
    return filled == parts.size();
  }
  if (filled >= parts.size()) return false;
  out = {};
  for (std::size_t i = 0; i < gap; ++i) out[i] = parts[i];
  for (std::size_t i = gap; i < filled; ++i) out[parts.size() - filled + i] = parts[i];
  return true;
}

std::optional<Bits> parse_address(std::string_view text) noexcept {
  Bits bits{};
  if (text.find(':') != std::string_view::npos)
    return parse_v6(text, bits) ? std::optional(bits) : std::nullopt;
  bits[10] = bits[11] = 0xff;
  return parse_v4(text, &bits[12]) ? std::optional(bits) : std::nullopt;
}

bool same(const Bits& a, const Bits& b, unsigned prefix) noexcept {
  for (unsigned i = 0; i < prefix / 8; ++i)
    if (a[i] != b[i]) return false;
  const unsigned rest = prefix % 8;
  return rest == 0 || ((a[prefix / 8] ^ b[prefix / 8]) >> (8 - rest)) == 0;
}

}  // namespace

// IPv4 is stored as IPv4 in IPv6, so that one comparison serves both.
TrustedPeers::TrustedPeers(const std::vector<std::string>& networks) {
  for (const std::string& text : networks) {
    const std::size_t slash = text.find('/');
    const std::string_view address = std::string_view(text).substr(0, slash);
    const auto bits = parse_address(address);
    const bool v4 = address.find(':') == std::string_view::npos;
    const unsigned most = v4 ? 32 : 128;
    unsigned prefix = most;
    if (!bits || (slash != std::string::npos &&
                  (!parse(std::string_view(text).substr(slash + 1), prefix, 10) || prefix > most)))
      base::throw_invalid(base::join(
          {"http: trusted_peers: \"", text,
           "\" is neither an address nor a network: give \"10.1.2.3\", \"10.0.0.0/8\" or \"fd00::/8\""}));
    networks_.push_back({*bits, prefix + (v4 ? kV4Prefix : 0)});
  }
}

bool TrustedPeers::trusts(std::string_view address) const noexcept {
  if (networks_.empty()) return false;
  const auto bits = parse_address(address.substr(0, address.find('%')));  // without the zone
  if (!bits) return false;
  for (const Network& network : networks_)
    if (same(*bits, network.bits, network.prefix)) return true;
  return false;
}

}  // namespace bulkhead::http
