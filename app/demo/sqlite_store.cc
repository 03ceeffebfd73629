#include <fmt/format.h>

#include <stdexcept>

#include "adapters/sqlite/database.h"
#include "app/cli/private_directory.h"
#include "app/demo/pooled.h"

namespace bulkhead::demo {
namespace {

sqlite::Connection::Result ask(sqlite::Connection& c, const std::string& sql, std::int64_t value,
                               const std::stop_token& stop) {
  return c.query(sql, {value}, no_deadline, stop);
}

class SqliteStore final : public Store {
 public:
  SqliteStore() : file_(directory_.path() + "/shop.db") {
    const auto must = [](auto result) {
      if (!result) throw std::runtime_error("the demo's database: " + result.error().message());
      return *std::move(result);
    };
    auto connection = must(sqlite::Connection::open({.path = file_, .pragmas = {"synchronous = off"}}));
    must(connection.run("begin"));
    for (const std::string& sql : setup_sql("")) must(connection.run(sql));
    must(connection.run("commit; analyze"));
    about_ = "SQLite " + std::string(must(connection.query("select sqlite_version()"))[0][0]);
  }

  std::string_view kind() const noexcept override { return "sqlite"; }
  std::string about() const override { return about_; }
  std::uint32_t connections() const noexcept override { return kMostConnections; }
  std::unique_ptr<ConnectionPool> pool(std::string name, std::uint32_t max, GateOptions gate) override {
    return std::make_unique<Pooled<sqlite::Pool, sqlite::Connection, ask>>(
        sqlite::PoolOptions{.name = std::move(name),
                            .max = max,
                            .gate = std::move(gate),
                            .connection = {.path = file_, .read_only = true}},
        statements(""));
  }

 private:
  const cli::PrivateDirectory directory_{"bulkhead-demo"};
  const std::string file_;
  std::string about_;
};

}  // namespace

std::unique_ptr<Store> sqlite_store() { return std::make_unique<SqliteStore>(); }

}  // namespace bulkhead::demo
