// server_test.h - a PostgreSQL server of the tests' own, in a temporary directory, on a unix socket and
// a free loopback port.
//
// Started once for the program; stopped, and its directory removed, when the program ends. As root it
// runs as user postgres.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace bulkhead::postgres::tests {

class Server {
 public:
  static Server& get();  // running; the test fails if it cannot be started

  std::string conninfo() const;                            // by unix socket
  std::string tcp_conninfo(std::uint16_t port = 0) const;  // by loopback; another port: a proxy's
  std::uint16_t port() const { return port_; }
  const std::filesystem::path& directory() const { return dir_; }
  void configure(const std::string& settings);  // adds to postgresql.conf, and restarts
  void prepend_hba(const std::string& lines);   // to pg_hba.conf, in force with the next start
  void restart();                               // "fast": all backends are terminated
  void stop();
  void start();

 private:
  Server();
  ~Server();
  std::string as_owner(const std::string& command) const;

  std::filesystem::path dir_;
  std::uint16_t port_ = 0;
};

}  // namespace bulkhead::postgres::tests
