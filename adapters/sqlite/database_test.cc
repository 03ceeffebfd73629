// Readers, one writer and deadlines on a real file.
#include "database.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <thread>

#include "bulkhead/metrics.h"
#include "bulkhead/registry.h"
#include "tests/support/temp_directory.h"
#include "tests/support/until.h"

namespace bulkhead::sqlite {
namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;
using testing::HasSubstr;

// Counts for minutes, unless it is stopped.
const std::string kSlow =
    "with recursive n(i) as (select 1 union all select i + 1 from n where i < 1000000000) select count(*) "
    "from n";

class SqliteDatabase : public testing::Test {
 protected:
  DatabaseOptions options() const {
    return {
        .name = "shop", .path = (dir_ / "shop.db").string(), .readers = 3, .reader_gate = {.max_queue = 16}};
  }
  const tests::TempDirectory temporary_;
  const std::filesystem::path& dir_ = temporary_.path();
};

TEST_F(SqliteDatabase, ValuesRowsAndErrors) {
  Database shop(options());
  auto w = shop.writer().acquire();
  ASSERT_TRUE(w) << w.error().message();
  ASSERT_TRUE((*w)->run("create table items (id integer primary key, name text, price real)"));
  EXPECT_EQ((*w)->query("insert into items values (?, ?, ?), (2, null, 2)", {1, "O'Hara", 0.5})->affected(),
            2u);
  const auto twice = (*w)->query("insert into items values (?, ?, ?)", {1, "again", nullptr});
  ASSERT_FALSE(twice);
  EXPECT_EQ(twice.error().code, 1555);
  EXPECT_EQ(twice.error().message(), "SQLite 1555: UNIQUE constraint failed: items.id");

  auto r = shop.readers().acquire();
  ASSERT_TRUE(r) << r.error().message();
  for (int i = 0; i < 2; ++i) {  // the second time with the statement it has kept
    const auto rows = (*r)->query("select name, price, id from items where id <= ? order by id", {2});
    ASSERT_TRUE(rows) << rows.error().message();
    ASSERT_EQ(rows->size(), 2u);
    EXPECT_EQ(rows->column(1), "price");
    EXPECT_EQ((*rows)[0][0], "O'Hara");
    EXPECT_EQ((*rows)[0].number(1), 0.5);
    EXPECT_TRUE((*rows)[1].null(0));
    EXPECT_EQ((*rows)[1].integer(2), 2);
  }
  EXPECT_FALSE((*r)->query("delete from items")) << "a reader only reads";
}

TEST_F(SqliteDatabase, ValuesThatAreMissingOrTooManyAreAnErrorAndNothingIsRun) {
  Database shop(options());
  auto w = shop.writer().acquire();
  ASSERT_TRUE((*w)->run("create table items (id integer primary key, name text)"));
  for (int i = 0; i < 2; ++i) {  // the second time with the statement it has kept
    const auto missing = (*w)->query("insert into items values (?, ?)", {1});
    ASSERT_FALSE(missing);
    EXPECT_EQ(missing.error().message(), "SQLite 25: the statement has 2 parameters, but 1 value was given");
  }
  EXPECT_FALSE((*w)->query("insert into items values (?3, ?1)", {1, "x"}));
  EXPECT_FALSE((*w)->query("select 1", {1}));
  EXPECT_FALSE((*w)->query("-- nothing", {1}));
  EXPECT_FALSE((*w)->run("insert into items values (1, ?)"));
  EXPECT_EQ((*(*w)->query("select count(*) from items"))[0].integer(0), 0);
  EXPECT_TRUE((*w)->query("insert into items values (?, ?)", {1, nullptr}));
}

TEST_F(SqliteDatabase, ASecondStatementInAQueryIsAnErrorAndNothingIsRun) {
  Database shop(options());
  auto w = shop.writer().acquire();
  ASSERT_TRUE((*w)->run("create table items (id integer primary key)"));
  const auto two = (*w)->query("insert into items values (1); insert into items values (2)");
  ASSERT_FALSE(two);
  EXPECT_THAT(two.error().message(), HasSubstr("query() takes one statement"));
  EXPECT_THAT(two.error().message(), HasSubstr("insert into items values (2)"));
  EXPECT_FALSE((*w)->query("insert into items values (1); nonsense"));
  const std::string hidden("insert into items values (1)\0; drop table items", 48);
  EXPECT_FALSE((*w)->query(hidden));
  EXPECT_FALSE((*w)->run(hidden));
  EXPECT_EQ((*(*w)->query("select count(*) from items; -- that is all\n "))[0].integer(0), 0);
  EXPECT_TRUE((*w)->run("insert into items values (1); insert into items values (2)"));
}

TEST_F(SqliteDatabase, AValueKeepsItsNulBytes) {
  Database shop(options());
  auto w = shop.writer().acquire();
  const std::string bytes("ab\0cd", 5);
  EXPECT_EQ((*(*w)->query("select ?", {bytes}))[0][0], bytes);
}

TEST_F(SqliteDatabase, TheDeadlineStopsAQueryAndTheConnectionGoesOn) {
  Database shop(options());
  const auto began = steady_clock::now();
  auto r = shop.readers().acquire({.deadline = began + 50ms});
  ASSERT_TRUE(r);
  const auto late = (*r)->query(kSlow);
  ASSERT_FALSE(late);
  EXPECT_TRUE(late.error().timed_out()) << late.error().message();
  EXPECT_LT(steady_clock::now() - began, 10s);
  r->release();
  auto again = shop.readers().acquire();
  EXPECT_EQ((*(*again)->query("select 1"))[0].integer(0), 1);
  std::stop_source stop;
  std::jthread stopper([&] { stop.request_stop(); });
  EXPECT_EQ((*again)->query(kSlow, {}, no_deadline, stop.get_token()).error().kind, Error::Kind::cancelled);
}

TEST_F(SqliteDatabase, WritersWaitInLineInsteadOfFailingWithBusy) {
  Database shop(options());
  ASSERT_TRUE((*shop.writer().acquire())->run("create table t (a int)"));
  std::atomic<int> failed{0};
  {
    std::vector<std::jthread> writers;
    for (int t = 0; t < 8; ++t)
      writers.emplace_back([&] {
        for (int i = 0; i < 25; ++i) {
          auto w = shop.writer().acquire({.timeout = 60s});
          if (!w || !(*w)->run("begin immediate; insert into t values (1); commit")) ++failed;
        }
      });
  }
  EXPECT_EQ(failed, 0);
  EXPECT_EQ((*(*shop.readers().acquire())->query("select count(*) from t"))[0].integer(0), 200);
  EXPECT_EQ(shop.writer().snapshot().most_alive, 1u);
}

TEST_F(SqliteDatabase, AnOpenTransactionIsRolledBackOnReturn) {
  Database shop(options());
  ASSERT_TRUE((*shop.writer().acquire())->run("create table t (a int)"));
  ASSERT_TRUE((*shop.writer().acquire())->run("begin; insert into t values (1)"));
  auto w = shop.writer().acquire({.timeout = 10s});
  ASSERT_TRUE(w) << w.error().message();
  EXPECT_FALSE((*w)->in_transaction());
  EXPECT_EQ((*(*w)->query("select count(*) from t"))[0].integer(0), 0);
}

TEST_F(SqliteDatabase, SlowReportsFillTheReadersButTheWriterGoesOn) {
  Database shop(options());
  ASSERT_TRUE((*shop.writer().acquire())->run("create table t (a int)"));
  std::stop_source stop;
  std::vector<std::jthread> reports;
  for (int i = 0; i < 3; ++i)
    reports.emplace_back([&] {
      auto r = shop.readers().acquire();
      if (r) static_cast<void>((*r)->query(kSlow, {}, no_deadline, stop.get_token()));
    });
  while (shop.readers().snapshot().used < 3) std::this_thread::yield();
  EXPECT_EQ(shop.readers().acquire({.timeout = 1ms}).error().rejection->reason, Reason::timeout);
  auto w = shop.writer().acquire({.timeout = 0s});
  ASSERT_TRUE(w) << w.error().message();
  EXPECT_TRUE((*w)->query("insert into t values (1)"));
  stop.request_stop();
}

TEST_F(SqliteDatabase, ADeadlineEndsWithItsLease) {
  Database shop(options());
  const auto past = steady_clock::now() + 20ms;
  {
    EXPECT_TRUE((*shop.writer().acquire({.deadline = past}))->run("select 1"));
  }
  while (steady_clock::now() < past) std::this_thread::yield();
  auto next = shop.writer().resources().acquire();  // which sets none
  ASSERT_TRUE(next);
  const auto rows = (*next)->query(
      "with recursive n(i) as (select 1 union all select i + 1 from n where i < 10000) select count(*) from "
      "n");
  ASSERT_TRUE(rows) << rows.error().message();
}

TEST_F(SqliteDatabase, BothPoolsAreKnownToARegistryTheyAreAttachedTo) {
  Registry registry;
  Database shop(options());
  const Attached readers = registry.attach(shop.readers());
  Attached writer = registry.attach(shop.writer());
  EXPECT_THROW(static_cast<void>(registry.attach(shop.writer())), std::invalid_argument);
  const auto held = shop.readers().acquire();
  Metrics metrics;
  std::string page;
  metrics.render(page, registry.snapshot(), MetricsFormat::prometheus);
  EXPECT_THAT(page, HasSubstr(R"(bulkhead_resources{pool="shop.readers",kind="sqlite",state="used"} 1)"));
  EXPECT_THAT(page, HasSubstr(R"(bulkhead_resources_max{pool="shop.writer",kind="sqlite"} 1)"));
  writer.detach();
  EXPECT_EQ(registry.snapshot().resources.size(), 1u);
}

TEST_F(SqliteDatabase, AFileThatCannotBeOpenedIsTold) {
  auto o = options();
  o.path = "/nowhere/shop.db";
  try {
    const Database shop(o);
    FAIL() << "opened";
  } catch (const std::runtime_error& e) {
    EXPECT_THAT(e.what(), HasSubstr("unable to open database file"));
  }
}

TEST_F(SqliteDatabase, IdleConnectionsAreOpenedAheadAndKeptAlive) {
  PoolOptions pool_options{
      .name = "shop", .connection = {.path = (dir_ / "shop.db").string()}, .min_idle = 2, .keepalive = 1ms};
  Pool pool(pool_options);
  tests::until([&] { return pool.snapshot().idle == 2; });
  EXPECT_TRUE((*pool.acquire())->query("select 1"));
  EXPECT_EQ(pool.snapshot().invalid, 0u);
  pool_options.keepalive = 0ms;
  EXPECT_THROW(Pool{pool_options}, std::invalid_argument);
}

}  // namespace
}  // namespace bulkhead::sqlite
