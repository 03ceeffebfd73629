// access.h - who may do what: tokens and roles, names of this host, other web sites, where to listen.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "journal.h"
#include "message.h"

namespace bulkhead::control {

std::string sha256_hex(std::string_view text);

// The file of tokens: lines of `name role sha256-of-the-token [expiry]`. Read once, at the start.
class Tokens {
 public:
  Tokens() = default;
  // std::invalid_argument with the line that is wrong; std::system_error if it cannot be read.
  static Tokens load(const std::string& path);
  static Tokens parse(std::string_view text, std::string_view path);

  // The caller behind "Bearer ..."; `denied` says why not.
  Caller check(std::string_view authorization, WallTime now) const;
  bool empty() const noexcept { return tokens_.empty(); }

 private:
  struct Token {
    std::string name, hash;
    Role role{};
    WallTime expires = WallTime::max();
  };
  std::vector<Token> tokens_;
};

// Where to listen, taken apart: "127.0.0.1:9920", "[::1]:9920", ":9920" (loopback).
struct Address {
  std::string host;
  std::uint16_t port = 0;
  bool loopback = false;
};
Address parse_listen(std::string_view listen);  // std::invalid_argument

// Refuses what would let anybody in: std::invalid_argument says what is missing.
void check_listen(const Address& address, const ServerOptions& options, const Tokens& tokens);

// "" if the request came for one of our names and from none but ourselves; else why not.
std::string wrong_site(const Request& request, const std::vector<std::string>& hosts);
std::vector<std::string> own_hosts(const Address& address, const ServerOptions& options);

}  // namespace bulkhead::control
