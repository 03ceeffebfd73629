#include "server_test.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace bulkhead::postgres::tests {
namespace {

std::string binaries() {
  for (const char* dir :
       {"/usr/lib/postgresql/15/bin", "/usr/lib/postgresql/16/bin", "/usr/lib/postgresql/17/bin"})
    if (std::filesystem::exists(std::string(dir) + "/initdb")) return dir;
  throw std::runtime_error("no PostgreSQL server found below /usr/lib/postgresql");
}

std::uint16_t free_port() {
  const int s = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in a{};
  a.sin_family = AF_INET;
  a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof a;
  if (bind(s, reinterpret_cast<sockaddr*>(&a), size) != 0 ||
      getsockname(s, reinterpret_cast<sockaddr*>(&a), &size) != 0)
    throw std::runtime_error("no free port");
  close(s);
  return ntohs(a.sin_port);
}

void run(const std::string& command) {
  if (std::system((command + " > /dev/null 2>&1").c_str()) != 0)
    throw std::runtime_error("failed: " + command);
}

}  // namespace

Server& Server::get() {
  static Server server;
  return server;
}

std::string Server::as_owner(const std::string& command) const {
  return geteuid() == 0 ? "runuser -u postgres -- " + command : command;
}

Server::Server() {
  std::string name = (std::filesystem::temp_directory_path() / "bulkhead_pg_XXXXXX").string();
  dir_ = mkdtemp(name.data());
  if (geteuid() == 0) run("chown postgres " + dir_.string());
  const std::string data = (dir_ / "data").string();
  run(as_owner(binaries() + "/initdb -N -A trust -U postgres -D " + data));
  port_ = free_port();
  std::ofstream conf(data + "/postgresql.conf", std::ios::app);
  conf << "port = " << port_ << "\nlisten_addresses = '127.0.0.1'\nunix_socket_directories = '"
       << dir_.string()
       << "'\nfsync = off\nsynchronous_commit = off\nfull_page_writes = off\nmax_connections = 40\n"
          "shared_buffers = 16MB\nlog_min_messages = panic\nmax_parallel_workers_per_gather = 0\nautovacuum "
          "= off\n";
  conf.close();
  start();
}

Server::~Server() {
  try {
    stop();
  } catch (const std::exception&) {
    // it has been stopped already
  }
  std::error_code ignored;
  std::filesystem::remove_all(dir_, ignored);
}

void Server::start() {
  run(as_owner(binaries() + "/pg_ctl -w -t 60 -l /dev/null -D " + (dir_ / "data").string() + " start"));
}
void Server::stop() {
  run(as_owner(binaries() + "/pg_ctl -w -m fast -D " + (dir_ / "data").string() + " stop"));
}
void Server::restart() {
  stop();
  start();
}

void Server::configure(const std::string& settings) {
  std::ofstream(dir_ / "data/postgresql.conf", std::ios::app) << settings;
  restart();
}
void Server::prepend_hba(const std::string& lines) {
  const auto path = dir_ / "data/pg_hba.conf";
  std::stringstream before;
  before << std::ifstream(path).rdbuf();
  std::ofstream(path) << lines << before.str();
}

std::string Server::conninfo() const {
  return "host=" + dir_.string() + " port=" + std::to_string(port_) + " user=postgres dbname=postgres";
}
std::string Server::tcp_conninfo(std::uint16_t port) const {
  return "hostaddr=127.0.0.1 port=" + std::to_string(port ? port : port_) + " user=postgres dbname=postgres";
}

}  // namespace bulkhead::postgres::tests
