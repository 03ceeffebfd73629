#include "access.h"

#include <arpa/inet.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <system_error>

#include "base/text.h"

namespace bulkhead::control {
using base::lower;
namespace {

constexpr std::array kRoles{"none", "viewer", "operator", "admin"};

[[noreturn]] void invalid(const std::string& what) { throw std::invalid_argument("control: " + what); }

bool equal(std::string_view a,
           std::string_view b) noexcept {  // in constant time
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

// "host:port", "host" or "[::1]:port" without the port, if that is a number.
std::string_view without_port(std::string_view host) noexcept {
  const std::size_t colon = host.starts_with('[') ? host.find(':', host.find(']')) : host.find(':');
  if (colon == std::string_view::npos) return host;
  const bool number = host.find_first_not_of("0123456789", colon + 1) == std::string_view::npos;
  return number ? host.substr(0, colon) : host;
}

// The bytes of "10.1.2.3" or "[fd00::7]"; none for a name.
std::string address_bytes(std::string host) {
  std::string bytes(sizeof(in6_addr), '\0');
  const bool v6 = host.starts_with('[') && host.ends_with(']');
  if (v6) host = host.substr(1, host.size() - 2);
  if (::inet_pton(v6 ? AF_INET6 : AF_INET, host.c_str(), bytes.data()) != 1) return "";
  return bytes;
}

// 0.0.0.0, [::]: all addresses of this machine.
bool is_wildcard(const std::string& host) {
  const std::string bytes = address_bytes(host);
  return !bytes.empty() && bytes.find_first_not_of('\0') == std::string::npos;
}

bool is_loopback(std::string_view host) noexcept {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

}  // namespace

std::string_view to_string(Role role) noexcept { return kRoles[static_cast<std::size_t>(role)]; }

std::string sha256_hex(std::string_view text) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned size = 0;
  EVP_Digest(text.data(), text.size(), digest.data(), &size, EVP_sha256(), nullptr);
  std::string hex;
  for (unsigned i = 0; i < size; ++i) {
    hex += "0123456789abcdef"[digest[i] >> 4];
    hex += "0123456789abcdef"[digest[i] & 15];
  }
  return hex;
}

// A file that other users may write is rejected: they could add a token.
Tokens Tokens::load(const std::string& path) {
  std::ifstream file(path);
  if (!file)
    throw std::system_error(errno, std::generic_category(),
                            "control: cannot read tokens_file \"" + path + '"');
  struct stat status{};
  if (::stat(path.c_str(), &status) == 0 && (status.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    char mode[8];
    std::snprintf(mode, sizeof mode, "%04o", status.st_mode & 07777U);
    invalid("tokens_file \"" + path + "\" has mode " + mode + ": other users could add a token; chmod 600 " +
            path);
  }
  std::ostringstream text;
  text << file.rdbuf();
  return parse(text.str(), path);
}

Tokens Tokens::parse(std::string_view text, std::string_view path) {
  Tokens tokens;
  std::istringstream lines{std::string(text)};
  std::string line;
  for (std::size_t number = 1; std::getline(lines, line); ++number) {
    const auto wrong = [&](const std::string& what) {
      invalid("tokens_file " + std::string(path) + ':' + std::to_string(number) + ": " + what +
              "; a line is: name role sha256-of-the-token [expiry as 2027-01-31T00:00:00Z]");
    };
    std::istringstream words(line.substr(0, line.find('#')));
    Token token;
    std::string role, expiry, more;
    if (!(words >> token.name)) continue;
    if (!(words >> role >> token.hash)) wrong("fewer than three words");
    const auto known = std::ranges::find(kRoles, role);
    if (known == kRoles.end() || known == kRoles.begin())
      wrong('"' + role + "\" is not viewer, operator or admin");
    token.role = static_cast<Role>(known - kRoles.begin());
    token.hash = lower(token.hash);
    if (token.hash.size() != 64 || token.hash.find_first_not_of("0123456789abcdef") != std::string::npos)
      wrong("the third word is not a SHA-256 (64 hexadecimal digits): printf %s TOKEN | sha256sum");
    if (words >> expiry) {
      std::tm utc{};
      const char* const end = ::strptime(expiry.c_str(), "%Y-%m-%dT%H:%M:%SZ", &utc);
      const std::chrono::year_month_day day(std::chrono::year(utc.tm_year + 1900),
                                            std::chrono::month(static_cast<unsigned>(utc.tm_mon + 1)),
                                            std::chrono::day(static_cast<unsigned>(utc.tm_mday)));
      if (!end || *end != '\0' || !day.ok()) wrong('"' + expiry + "\" is not a time");
      // A time that the clock cannot represent is never.
      const std::time_t then = ::timegm(&utc);
      if (then < std::chrono::system_clock::to_time_t(WallTime::max()))
        token.expires = std::chrono::system_clock::from_time_t(then);
    }
    if (words >> more) wrong("more than four words");
    tokens.tokens_.push_back(std::move(token));
  }
  return tokens;
}

Caller Tokens::check(std::string_view authorization, WallTime now) const {
  Caller caller;
  constexpr std::string_view kScheme = "bearer ";
  if (authorization.size() <= kScheme.size() || lower(authorization.substr(0, kScheme.size())) != kScheme) {
    caller.denied = "Authorization must be: Bearer TOKEN";
    return caller;
  }
  const std::string hash = sha256_hex(authorization.substr(kScheme.size()));
  const Token* found = nullptr;
  for (const Token& token : tokens_)  // always all of them, so that the time reveals nothing
    if (equal(token.hash, hash)) found = &token;
  if (!found) {
    caller.denied = "unknown token";
  } else if (found->expires <= now) {
    caller.denied = "the token of \"" + found->name + "\" expired at " + rfc3339(found->expires);
  } else {
    caller.actor = found->name;
    caller.role = found->role;
  }
  return caller;
}

TokensFile::TokensFile(std::string path)
    : path_(std::move(path)), stamp_(stamp(path_)), tokens_(Tokens::load(path_)) {}

TokensFile::Stamp TokensFile::stamp(const std::string& path) noexcept {
  struct stat s{};
  if (::stat(path.c_str(), &s) != 0) return {};
  const auto ns = [](const timespec& t) { return t.tv_sec * std::int64_t{1'000'000'000} + t.tv_nsec; };
  return {.device = s.st_dev,
          .inode = s.st_ino,
          .size = static_cast<std::uint64_t>(s.st_size),
          .modified = ns(s.st_mtim),
          .changed = ns(s.st_ctim)};
}

const Tokens& TokensFile::now(Journal& journal) {
  if (path_.empty()) return tokens_;
  // Before the file is read: a change during the read is seen the next time.
  const Stamp found = stamp(path_);
  if (found == stamp_) return tokens_;
  stamp_ = found;
  const auto report = [&](const char* result, const std::string& text) {
    journal.add({.kind = "tokens", .text = text, .audit = true, .action = "tokens_file", .result = result});
  };
  try {
    if (found == Stamp{}) {
      tokens_ = {};
      report("ok", "tokens_file \"" + path_ + "\" is gone: no token is valid");
    } else {
      tokens_ = Tokens::load(path_);
      report("ok", "tokens_file \"" + path_ + "\" was read again");
    }
  } catch (const std::exception& error) {
    report("failed", std::string(error.what()) + "; the previous tokens stay valid");
  }
  return tokens_;
}

// Without a host the address is loopback: to be reachable from other machines has to be asked for.
Address parse_listen(std::string_view listen) {
  const auto wrong = [&] {
    invalid("listen \"" + std::string(listen) +
            "\" is not an address and a port: \"127.0.0.1:9920\", \"[::1]:9920\"");
  };
  const std::size_t colon = listen.rfind(':');
  if (colon == std::string_view::npos) wrong();
  std::string_view host = listen.substr(0, colon);
  const std::string_view port = listen.substr(colon + 1);
  if (host.starts_with('[') && host.ends_with(']'))
    host = host.substr(1, host.size() - 2);
  else if (host.find(':') != std::string_view::npos)
    wrong();
  Address address{.host = std::string(host.empty() ? "127.0.0.1" : host)};
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), address.port);
  if (error != std::errc{} || end != port.data() + port.size() || port.empty()) wrong();
  if (address.host == "localhost") address.host = "127.0.0.1";
  address.loopback = is_loopback(address.host);
  return address;
}

void check_listen(const Address& address, const ServerOptions& o, const Tokens& tokens) {
  if (o.certificate.empty() != o.private_key.empty())
    invalid("certificate and private_key are only useful together: give both, or neither");
  if (!o.client_authorities.empty() && o.certificate.empty())
    invalid("client_authorities has no effect without a certificate: give certificate and private_key");
  if (address.loopback) return;
  const std::string where = "listen \"" + o.listen + "\" can be reached from other machines: ";
  if (o.certificate.empty())
    invalid(where + "give a certificate and a private_key for TLS, or listen on 127.0.0.1 behind a proxy");
  if (tokens.empty()) invalid(where + "give a tokens_file with at least one token");
}

std::vector<std::string> own_hosts(const Address& address, const ServerOptions& options) {
  std::vector<std::string> hosts{"localhost", "127.0.0.1", "[::1]"};
  if (!address.host.empty())
    hosts.push_back(address.host.find(':') == std::string::npos ? address.host : '[' + address.host + ']');
  for (const std::string& host : options.hosts) hosts.push_back(lower(host));
  return hosts;
}

std::string wrong_host(const Request& request, const std::vector<std::string>& hosts) {
  if (request.caller.local) return "";  // browsers do not use unix sockets
  const std::string host = lower(without_port(request.host));
  // DNS rebinding needs a name. A server that listens on all addresses accepts any address in Host.
  const bool ours = std::ranges::find(hosts, host) != hosts.end() ||
                    (!address_bytes(host).empty() && std::ranges::any_of(hosts, is_wildcard));
  if (ours) return "";
  return "Host \"" + request.host.substr(0, 100) + "\" is not a name of this server (option hosts)";
}

std::string wrong_site(const Request& request, const std::vector<std::string>& hosts) {
  if (request.caller.local) return "";
  if (std::string why = wrong_host(request, hosts); !why.empty()) return why;
  if (!request.fetch_site.empty() && request.fetch_site != "same-origin" && request.fetch_site != "none")
    return "the request comes from another web site (Sec-Fetch-Site: " + request.fetch_site.substr(0, 20) +
           ')';
  if (request.origin.empty()) return "";
  std::string_view origin = request.origin;
  const std::size_t scheme = origin.find("://");
  if (scheme == std::string_view::npos || lower(origin.substr(scheme + 3)) != lower(request.host))
    return "Origin \"" + request.origin.substr(0, 100) + "\" is not this server";
  return "";
}

}  // namespace bulkhead::control
