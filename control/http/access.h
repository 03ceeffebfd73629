// access.h - tokens and roles, accepted Host names, cross-site requests, and the rules for addresses to listen on.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "control/api/message.h"
#include "control/state/journal.h"

namespace bulkhead::control {

std::string sha256_hex(std::string_view text);

// The tokens of a file with lines `name role sha256-of-the-token [expiry]`.
class Tokens {
 public:
  Tokens() = default;
  // std::invalid_argument names the invalid line; std::system_error if the file cannot be read.
  static Tokens load(const std::string& path);
  static Tokens parse(std::string_view text, std::string_view path);

  // The caller with "Bearer ..."; its `denied` says why the token is not accepted.
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

// A tokens file that is read again when it changes. If the file is deleted, no token is valid. If it becomes invalid, the
// previous tokens stay valid and the journal says why.
class TokensFile {
 public:
  TokensFile() = default;
  explicit TokensFile(std::string path);                              // throws as Tokens::load
  explicit TokensFile(Tokens tokens) : tokens_(std::move(tokens)) {}  // that never change
  const Tokens& now(Journal& journal);  // one stat(); reads the file if it differs

 private:
  struct Stamp {
    std::uint64_t device = 0, inode = 0, size = 0;
    std::int64_t modified = 0, changed = 0;  // nanoseconds
    bool operator==(const Stamp&) const = default;
  };
  static Stamp stamp(const std::string& path) noexcept;

  std::string path_;
  Stamp stamp_{};
  Tokens tokens_;
};

// An address to listen on: "127.0.0.1:9920", "[::1]:9920", ":9920" (loopback).
struct Address {
  std::string host;
  std::uint16_t port = 0;
  bool loopback = false;
};
Address parse_listen(std::string_view listen);  // std::invalid_argument

// std::invalid_argument if an address that other machines can reach lacks a certificate or tokens.
void check_listen(const Address& address, const ServerOptions& options, const Tokens& tokens);

// "" if Host is one of `hosts`; else the reason.
std::string wrong_host(const Request& request, const std::vector<std::string>& hosts);
// As wrong_host(), and the request must not come from another web site.
std::string wrong_site(const Request& request, const std::vector<std::string>& hosts);
std::vector<std::string> own_hosts(const Address& address, const ServerOptions& options);

}  // namespace bulkhead::control
