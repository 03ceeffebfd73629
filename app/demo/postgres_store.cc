#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <stdexcept>

#include "adapters/postgres/pool.h"
#include "app/demo/pooled.h"

namespace bulkhead::demo {
namespace {

using std::chrono::steady_clock;

postgres::Connection::Result ask(postgres::Connection& c, const std::string& sql, std::int64_t value,
                                 const std::stop_token& stop) {
  return c.prepared(sql, {value}, no_deadline, stop);
}

// A schema of its own in the database it is given, dropped at the end: nothing else there is touched.
class PostgresStore final : public Store {
 public:
  explicit PostgresStore(const std::string& conninfo)
      : conninfo_(conninfo), schema_(fmt::format("bulkhead_demo_{:08x}", std::random_device()())) {
    auto opened = postgres::Connection::open({.conninfo = conninfo, .application_name = "bulkhead demo"},
                                             steady_clock::now() + std::chrono::seconds(10));
    if (!opened) throw std::runtime_error("cannot connect to PostgreSQL: " + opened.error().message());
    own_.emplace(*std::move(opened));
    about_ = "PostgreSQL " + std::string(must("show server_version")[0][0]);
    about_ = about_.substr(0, about_.find(" ("));
    connections_ = std::min<std::int64_t>(kMostConnections, free_connections());
    if (connections_ < kFewestConnections)
      throw std::runtime_error(fmt::format(
          "this PostgreSQL has {} connections to spare, the demo needs {} to {}: close some, or raise "
          "max_connections",
          std::max<std::int64_t>(connections_, 0), kFewestConnections, kMostConnections));
    must("create schema " + schema_);
    try {
      for (const std::string& sql : setup_sql(schema_ + ".")) must(sql);
      must("analyze " + schema_ + ".items");
      must("analyze " + schema_ + ".orders");
    } catch (...) {
      drop();
      throw;
    }
  }
  ~PostgresStore() override { drop(); }
  PostgresStore(const PostgresStore&) = delete;
  PostgresStore& operator=(const PostgresStore&) = delete;

  std::string_view kind() const noexcept override { return "postgres"; }
  std::string about() const override { return about_; }
  std::uint32_t connections() const noexcept override { return static_cast<std::uint32_t>(connections_); }
  std::unique_ptr<ConnectionPool> pool(std::string name, std::uint32_t max, GateOptions gate) override {
    return std::make_unique<Pooled<postgres::Pool, postgres::Connection, ask>>(
        postgres::PoolOptions{.name = std::move(name),
                              .max = max,
                              .gate = std::move(gate),
                              // A hundred reports are cancelled at once when analytics recovers.
                              .connection = {.conninfo = conninfo_, .cancel_grace = std::chrono::seconds(10)},
                              .connect_timeout = std::chrono::seconds(10)},
        statements(schema_ + "."));
  }

 private:
  postgres::Rows must(const std::string& sql) {
    auto rows = own_->query(sql, {}, steady_clock::now() + std::chrono::seconds(30));
    if (!rows) throw std::runtime_error("PostgreSQL: " + rows.error().message());
    return *std::move(rows);
  }
  // Connections that are not in use and not reserved for superusers; this one is not counted.
  std::int64_t free_connections() {
    return must(
               "select current_setting('max_connections')::int - "
               "current_setting('superuser_reserved_connections')::int"
               " - coalesce(current_setting('reserved_connections', true), '0')::int"
               " - (select count(*) from pg_stat_activity where backend_type = 'client backend')")[0]
        .integer(0);
  }
  void drop() noexcept {
    static_cast<void>(own_->run("drop schema if exists " + schema_ + " cascade",
                                steady_clock::now() + std::chrono::seconds(30)));
  }

  const std::string conninfo_, schema_;
  std::optional<postgres::Connection> own_;
  std::string about_;
  std::int64_t connections_ = 0;
};

}  // namespace

std::unique_ptr<Store> postgres_store(const std::string& conninfo) {
  return std::make_unique<PostgresStore>(conninfo);
}

}  // namespace bulkhead::demo
