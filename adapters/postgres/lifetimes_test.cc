// Every operation of async.h, through every phase and every end: see tests/support/asio_lifetimes.h.
#include "tests/support/asio_lifetimes.h"

#include "async.h"
#include "server_test.h"

namespace bulkhead::postgres::tests {
namespace {

namespace asio = boost::asio;
using lifetimes::named;
using lifetimes::Operation;
using lifetimes::Scene;
using namespace std::chrono_literals;

// A pool of one connection, which is open already.
class AcquireRow : public Operation {
 public:
  void make(const Hooks& hooks) override {
    pool_.emplace(options(hooks));
    fill();
    free();
    lifetimes::wait_until(nullptr, [&] { return idle(); });
  }
  void fill() override { held_ = *pool_->acquire(); }
  void free() override { held_.release(); }
  asio::awaitable<void> call(Scene& scene) override {
    auto db = co_await async_acquire(*pool_, {.stop = scene.stop.get_token()});
    if (db) co_await scene.inside();
  }
  std::uint32_t waiting() override { return static_cast<std::uint32_t>(pool_->snapshot().gate.waiting); }
  bool idle() override { return waiting() == 0 && pool_->resources().gate().in_flight() == 0; }
  void destroy() override { pool_.reset(); }

 protected:
  virtual PoolOptions options(const Hooks& hooks) const {
    return {.name = "lifetimes",
            .max = 1,
            .gate = {.max_queue = 4, .hooks = hooks},
            .connection = {.conninfo = Server::get().conninfo()}};
  }
  std::optional<Pool> pool_;
  Lease held_;
};

// Nothing is open: the call opens its connection once it has its place.
class OpenRow final : public AcquireRow {
 public:
  void make(const Hooks& hooks) override { pool_.emplace(options(hooks)); }
  void fill() override {
    held_ = *pool_->acquire();
    held_.mark_broken();  // so that the next has to open one
  }
};

// What is idle is validated first.
class ValidateRow final : public AcquireRow {
  PoolOptions options(const Hooks& hooks) const override {
    PoolOptions o = AcquireRow::options(hooks);
    o.validate_after = 0ns;
    return o;
  }
};

// Queries the server again and again, until it is told to leave.
class QueryRow : public AcquireRow {
 public:
  asio::awaitable<void> call(Scene& scene) override {
    auto db = co_await async_acquire(*pool_, {.stop = scene.stop.get_token()});
    if (!db) co_return;
    ++scene.entered;
    while (!scene.leaving) {
      const auto rows = co_await query(**db, scene.alive);
      if (!rows) co_return;
    }
  }
  virtual asio::awaitable<Connection::Result> query(Connection& db, std::shared_ptr<int> keep) {
    auto rows = co_await async_query(db, "select $1::int, pg_sleep(0.002)", *keep);
    co_return rows;
  }
};

class PreparedRow final : public QueryRow {
  asio::awaitable<Connection::Result> query(Connection& db, std::shared_ptr<int> keep) override {
    auto rows = co_await async_prepared(db, "select $1::int + 1, pg_sleep(0.002)", *keep);
    co_return rows;
  }
};

class QueryUntilRow final : public QueryRow {
  asio::awaitable<Connection::Result> query(Connection& db, std::shared_ptr<int> keep) override {
    auto rows = co_await async_query_until(db, std::chrono::steady_clock::now() + 5ms,
                                           "select $1::int, pg_sleep(0.003)", *keep);
    co_return rows;
  }
};

const lifetimes::NamedOperation kOperations[] = {named<AcquireRow>("Acquire"),
                                                 named<OpenRow>("AcquireAndOpen"),
                                                 named<ValidateRow>("AcquireAndValidate"),
                                                 named<QueryRow>("Query"),
                                                 named<QueryUntilRow>("QueryUntil"),
                                                 named<PreparedRow>("Prepared")};

class PostgresLifetimes : public testing::TestWithParam<lifetimes::Case> {};

TEST_P(PostgresLifetimes, AreKept) { lifetimes::play(GetParam(), 3); }

INSTANTIATE_TEST_SUITE_P(Of, PostgresLifetimes, lifetimes::all_cases(kOperations), lifetimes::case_name);

}  // namespace
}  // namespace bulkhead::postgres::tests
