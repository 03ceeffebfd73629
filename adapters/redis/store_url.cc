#include "store_url.h"

#include <charconv>
#include <stdexcept>

namespace bulkhead::redis {
namespace {

[[noreturn]] void wrong(const std::string& problem) {
  throw std::invalid_argument(problem +
                              ": give redis://host:6379, rediss://host:6380, unix:///run/redis.sock or "
                              "redis+sentinel://host:26379/name");
}

// Percent-decoding of user and password.
std::string decode(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    unsigned value = 0;
    if (text[i] != '%') {
      out += text[i];
    } else if (i + 2 < text.size() &&
               std::from_chars(text.data() + i + 1, text.data() + i + 3, value, 16).ptr ==
                   text.data() + i + 3) {
      out += static_cast<char>(value);
      i += 2;
    } else {
      wrong("a % in it is not followed by two hexadecimal digits");
    }
  }
  return out;
}

int number(std::string_view text, int most, const char* what) {
  int value = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0 || value > most)
    wrong(std::string(what) + " \"" + std::string(text) + "\" is not a number from 0 to " +
          std::to_string(most));
  return value;
}

// An IPv6 address stands in brackets, because its colons are not those of the port.
Address address(std::string_view text, const char* port) {
  Address a;
  a.port = port;
  const std::size_t bracket = text.starts_with('[') ? text.find(']') : text.npos;
  const std::size_t colon = text.find(':', bracket == text.npos ? 0 : bracket);
  if (colon != text.npos) {
    a.port = text.substr(colon + 1);
    if (number(a.port, 65535, "port") == 0) wrong("port 0 is not a port");
  }
  std::string_view host = text.substr(0, colon);
  if (bracket != text.npos) host = host.substr(1, bracket - 1);
  if (host.empty()) wrong("it names no host");
  a.host = host;
  return a;
}

}  // namespace

std::string to_string(const Address& a) {
  if (!a.path.empty()) return a.path;
  return (a.host.find(':') == std::string::npos ? a.host : '[' + a.host + ']') + ':' + a.port;
}

StoreUrl parse_store_url(std::string_view url) {
  StoreUrl out;
  const std::size_t mark = url.find("://");
  const std::string_view scheme = mark == url.npos ? "" : url.substr(0, mark);
  const bool sentinel = scheme == "redis+sentinel" || scheme == "rediss+sentinel";
  out.tls = scheme.starts_with("rediss");
  if (!sentinel && scheme != "redis" && scheme != "rediss" && scheme != "unix")
    wrong("its scheme is not known");
  std::string_view rest = url.substr(mark + 3);
  if (const std::size_t at = rest.rfind('@'); at != rest.npos) {
    const std::string_view who = rest.substr(0, at);
    const std::size_t colon = who.find(':');
    out.user = decode(who.substr(0, colon));
    if (colon != who.npos) out.password = decode(who.substr(colon + 1));
    if (out.password.empty()) wrong("it has a user and no password");
    rest.remove_prefix(at + 1);
  }
  if (scheme == "unix") {
    const std::size_t query = rest.find('?');
    Address a;
    a.path = decode(rest.substr(0, query));
    if (!a.path.starts_with('/')) wrong("the path of a socket begins with /");
    if (query != rest.npos) {
      if (!rest.substr(query).starts_with("?db=")) wrong("the only parameter is ?db=");
      out.db = number(rest.substr(query + 4), 1'000'000, "db");
    }
    out.addresses.push_back(std::move(a));
    return out;
  }
  std::size_t slash = rest.find('/');
  std::string_view hosts = rest.substr(0, slash);
  rest = slash == rest.npos ? "" : rest.substr(slash + 1);
  for (;;) {
    const std::size_t comma = hosts.find(',');
    out.addresses.push_back(address(hosts.substr(0, comma), sentinel ? "26379" : "6379"));
    if (comma == hosts.npos) break;
    hosts.remove_prefix(comma + 1);
  }
  if (sentinel) {
    slash = rest.find('/');
    out.sentinel_master = decode(rest.substr(0, slash));
    if (out.sentinel_master.empty()) wrong("it does not name the master that the Sentinels watch");
    rest = slash == rest.npos ? "" : rest.substr(slash + 1);
  }
  if (!rest.empty()) out.db = number(rest, 1'000'000, "db");
  return out;
}

}  // namespace bulkhead::redis
