#include "app/demo/store.h"

#include <algorithm>
#include <array>
#include <stdexcept>
#include <thread>

namespace bulkhead::demo {
namespace {

constexpr std::array<std::string_view, kAsks> kSql{
    "select count(*), sum(i.price) from @orders o join @items i on i.id = o.item where o.customer = $1",
    "select id, name, price from @items where category = $1 order by price limit 20",
    "select count(*), sum(amount) from @orders where day = $1",
    "select id, customer, amount from @orders where id > $1 order by id limit 20",
    "select count(*) from @orders a join @orders b on abs(a.amount - b.amount) < 3 and a.customer <> "
    "b.customer "
    "where a.id <= $1",
};

std::string with_schema(std::string_view sql, std::string_view schema) {
  std::string text;
  for (const char c : sql) c == '@' ? text += schema : text += c;
  return text;
}

// What is left when no database was built in: connections that are lent for real, and queries that only take time.
class Simulated final : public Store {
  class Pretending final : public Held {
   public:
    explicit Pretending(Lease<int> lease) : lease_(std::move(lease)) {}
    Result<void, AskError> ask(Ask what, std::int64_t, const std::stop_token& stop) override {
      const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(what == Ask::pairs ? 3 : 0);
      while (std::chrono::steady_clock::now() < until) {
        if (stop.stop_requested()) return Unexpected(AskError{.stopped = true, .text = "stopped"});
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      }
      return {};
    }

   private:
    Lease<int> lease_;
  };
  class Things final : public ConnectionPool {
   public:
    Things(std::string name, std::uint32_t max, GateOptions gate)
        : pool_({.name = std::move(name),
                 .max = max,
                 .open = [](const Opening&) { return 0; },
                 .gate = std::move(gate)}) {}
    void acquire(bulkhead::base::UniqueFunction<void(Answer)> handler) override {
      pool_.async_acquire({}, [handler = std::move(handler)](ResourceResult<int> lease) mutable {
        if (lease)
          handler(std::make_unique<Pretending>(*std::move(lease)));
        else
          handler(Unexpected(std::move(lease).error()));
      });
    }
    ResourceSnapshot snapshot() const override { return pool_.snapshot(); }

   private:
    ResourcePool<int> pool_;
  };

 public:
  std::string_view kind() const noexcept override { return "simulated"; }
  std::string about() const override { return "simulated: this program was built without SQLite"; }
  std::uint32_t connections() const noexcept override { return kMostConnections; }
  std::unique_ptr<ConnectionPool> pool(std::string name, std::uint32_t max, GateOptions gate) override {
    return std::make_unique<Things>(std::move(name), max, std::move(gate));
  }
};

}  // namespace

std::int64_t orders_to_compare() noexcept {
  // One order takes about 0.75 ms of one core, and the 15 reports of analytics' share use as many cores as there are.
  return 267 * std::clamp<std::int64_t>(std::thread::hardware_concurrency(), 1, 15);
}

std::string sql_of(Ask what, std::string_view schema) {
  return with_schema(kSql[static_cast<std::size_t>(what)], schema);
}

std::vector<std::string> setup_sql(std::string_view schema) {
  constexpr std::string_view kSetup[] = {
      "create table @items (id integer primary key, category integer, name text, price integer)",
      "create table @orders (id integer primary key, customer integer, item integer, day integer, amount "
      "integer)",
      "insert into @items with recursive n(i) as (select 1 union all select i + 1 from n where i < 2000) "
      "select i, i % 40, 'item ' || i, 100 + i * 37 % 900 from n",
      "insert into @orders with recursive n(i) as (select 1 union all select i + 1 from n where i < 8000) "
      "select i, i * 7919 % 1000, 1 + i * 1009 % 2000, i % 30, 100 + i * 7919 % 9973 from n",
      "create index items_category on @items (category)",
      "create index orders_customer on @orders (customer)",
      "create index orders_day on @orders (day)",
  };
  std::vector<std::string> all;
  for (const std::string_view sql : kSetup) all.push_back(with_schema(sql, schema));
  return all;
}

std::unique_ptr<Store> simulated_store() { return std::make_unique<Simulated>(); }

std::unique_ptr<Store> open_store(const std::string& postgres) {
  if (!postgres.empty()) {
#ifdef BULKHEAD_WITH_POSTGRES
    return postgres_store(postgres);
#else
    throw std::runtime_error(
        "this program was built without PostgreSQL (adapters/postgres): leave --postgres out");
#endif
  }
#ifdef BULKHEAD_WITH_SQLITE
  return sqlite_store();
#else
  return simulated_store();
#endif
}

}  // namespace bulkhead::demo
