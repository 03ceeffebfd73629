// Connections, pools and workloads against a real server.
#include "pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <thread>

#include "bulkhead/metrics.h"
#include "bulkhead/registry.h"
#include "server_test.h"
#include "tests/support/descriptor_limit.h"
#include "tests/support/no_threads.h"

namespace bulkhead::postgres::tests {
namespace {

using namespace std::chrono_literals;
using bulkhead::tests::NoDescriptors;
using bulkhead::tests::NoThreads;
using std::chrono::steady_clock;
using testing::HasSubstr;

ConnectionOptions to_server(Reset reset = Reset::rollback) {
  return {.conninfo = Server::get().conninfo(), .reset = reset};
}
PoolOptions pool_options(std::string name, std::uint32_t max, Reset reset = Reset::rollback) {
  return {.name = std::move(name),
          .max = max,
          .gate = {.max_queue = 32, .max_wait = 5s},
          .connection = to_server(reset)};
}
Connection connect(const ConnectionOptions& options = to_server()) {
  auto c = Connection::open(options, steady_clock::now() + 10s);
  EXPECT_TRUE(c) << c.error().message();
  return *std::move(c);
}
// One who looks on, outside of every pool.
std::int64_t ask(const std::string& sql, std::initializer_list<Value> values = {}) {
  static Connection admin = connect({.conninfo = Server::get().conninfo(), .application_name = "admin"});
  if (!admin.good()) admin = connect({.conninfo = Server::get().conninfo(), .application_name = "admin"});
  auto rows = admin.query(sql, values);
  EXPECT_TRUE(rows) << rows.error().message();
  return rows && !rows->empty() ? (*rows)[0].integer(0) : -1;
}
std::int64_t backends(const std::string& name) {
  return ask("select count(*) from pg_stat_activity where application_name = $1", {name});
}

TEST(PostgresConnection, RowsParametersNullsAndPreparedStatements) {
  Connection c = connect();
  auto rows =
      c.query("select $1::int + 1 as next, $2::text as name, $3::text as nothing, $4::float8, $5::bool",
              {41, "O'Hara", nullptr, 0.5, true});
  ASSERT_TRUE(rows) << rows.error().message();
  ASSERT_EQ(rows->size(), 1u);
  EXPECT_EQ(rows->columns(), 5u);
  EXPECT_EQ(rows->column(1), "name");
  const Row row = (*rows)[0];
  EXPECT_EQ(row.integer(0), 42);
  EXPECT_EQ(row["name"], "O'Hara");
  EXPECT_TRUE(row.null(2));
  EXPECT_EQ(row.number(3), 0.5);
  EXPECT_EQ(row[4], "t");
  for (int i = 0; i < 3; ++i) EXPECT_EQ((*c.prepared("select $1::int * 2", {i}))[0].integer(0), 2 * i);
  EXPECT_EQ((*c.query("select count(*) from pg_prepared_statements"))[0].integer(0), 1);
  EXPECT_EQ(c.run("create temp table t (a int); insert into t values (1), (2), (3)")->affected(), 3u);
}

TEST(PostgresConnection, AnErrorCarriesItsSqlstate) {
  Connection c = connect();
  const auto unknown = c.query("select * from nowhere");
  ASSERT_FALSE(unknown);
  EXPECT_TRUE(unknown.error().is("42P01"));
  EXPECT_EQ(unknown.error().kind, Error::Kind::server);
  EXPECT_EQ(unknown.error().message(), R"(ERROR 42P01: relation "nowhere" does not exist)");
  EXPECT_TRUE(c.query("select 1")) << "the connection is as good as before";
}

TEST(PostgresConnection, TheDeadlineCancelsTheQueryAndTheConnectionGoesOn) {
  Connection c = connect();
  const auto began = steady_clock::now();
  const auto late = c.query("select pg_sleep(30)", {}, began + 50ms);
  ASSERT_FALSE(late);
  EXPECT_TRUE(late.error().timed_out()) << late.error().message();
  EXPECT_LT(steady_clock::now() - began, 10s);
  EXPECT_TRUE(c.good());
  EXPECT_EQ((*c.query("select 7"))[0].integer(0), 7) << "and no late cancellation hits the next query";
  std::stop_source stop;
  std::thread stopper([&] { stop.request_stop(); });
  EXPECT_EQ(c.query("select pg_sleep(30)", {}, no_deadline, stop.get_token()).error().kind,
            Error::Kind::cancelled);
  stopper.join();
}

TEST(PostgresConnection, WithoutAThreadToCancelADeadlineStillEndsTheQuery) {
  ConnectionOptions o = to_server();
  o.cancel_grace = 200ms;
  Connection c = connect(o);
  {
    const NoThreads none;
    const auto late = c.query("select pg_sleep(30)", {}, steady_clock::now() + 20ms);
    ASSERT_FALSE(late);
    EXPECT_TRUE(late.error().timed_out()) << late.error().message();
    EXPECT_GT(NoThreads::failed(), 1) << "it is tried again";
  }
  EXPECT_FALSE(c.good());
  const Connection::Result later[] = {c.query("select 1"), c.prepared("select 1", {}), c.run("select 1")};
  for (const auto& next : later) {
    ASSERT_FALSE(next);
    EXPECT_EQ(next.error().kind, Error::Kind::connection);
    EXPECT_THAT(next.error().message(), HasSubstr("release the connection"));
  }
}

// What cancels a query needs a connection of its own.
TEST(PostgresConnection, WithoutFileDescriptorsADeadlineStillEndsTheQueryAndNothingOpens) {
  BULKHEAD_SKIP_WITHOUT_DESCRIPTORS();
  ConnectionOptions o = to_server();
  o.cancel_grace = 200ms;
  Connection c = connect(o);
  {
    const NoDescriptors none;
    const auto late = c.query("select pg_sleep(30)", {}, steady_clock::now() + 20ms);
    ASSERT_FALSE(late);
    EXPECT_TRUE(late.error().timed_out()) << late.error().message();
    const auto opened = Connection::open(o, steady_clock::now() + 10s);
    ASSERT_FALSE(opened);
    EXPECT_EQ(opened.error().kind, Error::Kind::connection);
    EXPECT_THAT(opened.error().message(), HasSubstr("open files"));
  }
  EXPECT_TRUE(connect(o).good());
}

TEST(PostgresPool, WithoutFileDescriptorsACallIsRejectedAndALaterOneServed) {
  BULKHEAD_SKIP_WITHOUT_DESCRIPTORS();
  Pool pool(pool_options("no_descriptors", 2));
  {
    const NoDescriptors none;
    const auto db = pool.acquire({.timeout = 30s});
    ASSERT_FALSE(db);
    EXPECT_THAT(db.error().message(), HasSubstr("open files"));
    EXPECT_EQ(pool.snapshot().opened, 0u);
  }
  const auto began = steady_clock::now();
  auto db = pool.acquire();
  while (!db && steady_clock::now() < began + 10s) db = pool.acquire();  // it opens none for some time
  ASSERT_TRUE(db) << db.error().message();
  EXPECT_EQ((*(*db)->query("select 7"))[0].integer(0), 7);
}

TEST(PostgresConnection, ASessionHasItsTimeoutsAndItsName) {
  Connection c = connect({.conninfo = Server::get().conninfo(),
                          .application_name = "session",
                          .statement_timeout = 40ms,
                          .lock_timeout = 30ms,
                          .idle_in_transaction_session_timeout = 20s});
  EXPECT_EQ((*c.query("show lock_timeout"))[0][0], "30ms");
  EXPECT_EQ((*c.query("show idle_in_transaction_session_timeout"))[0][0], "20s");
  EXPECT_EQ((*c.query("show application_name"))[0][0], "session");
  EXPECT_TRUE(c.query("select pg_sleep(30)").error().timed_out());
}

TEST(PostgresConnection, ConnectingFailsWithTheReason) {
  const auto none = Connection::open({.conninfo = "host=/nowhere"}, steady_clock::now() + 1s);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().kind, Error::Kind::connection);
  EXPECT_THAT(none.error().message(), HasSubstr("/nowhere"));
  const auto plain = Connection::open({.conninfo = Server::get().tcp_conninfo(), .tls = {.mode = "require"}});
  ASSERT_FALSE(plain) << "this server has no TLS, and the setting says it must";
  EXPECT_THAT(plain.error().message(), HasSubstr("SSL"));
}

TEST(PostgresConnection, ClosingWaitsUntilItNoLongerCountsAtTheServer) {
  for (int i = 0; i < 20; ++i) {
    Connection c = connect({.conninfo = Server::get().conninfo(), .application_name = "closing"});
    ASSERT_EQ(backends("closing"), 1);
    c.close();
    ASSERT_EQ(backends("closing"), 0);
  }
}

TEST(PostgresPool, AReturnedConnectionIsClean) {
  for (const Reset reset : {Reset::rollback, Reset::discard_all}) {
    Pool pool(pool_options("clean", 1, reset));
    int pid = 0;
    {
      auto c = pool.acquire();
      ASSERT_TRUE(c) << c.error().message();
      pid = (*c)->backend_pid();
      EXPECT_TRUE((*c)->run("set work_mem = '1MB'"));
      EXPECT_TRUE((*c)->run("begin; create table left_over (a int)"));
    }
    {
      auto c = pool.acquire();
      ASSERT_TRUE(c);
      EXPECT_EQ((*c)->backend_pid(), pid);
      EXPECT_FALSE((*c)->in_transaction());
      EXPECT_TRUE((*(*c)->query("select to_regclass('left_over')"))[0].null(0));
      EXPECT_EQ((*(*c)->query("show work_mem"))[0][0] == "1MB", reset == Reset::rollback);
      // A query is still running when this lease dies.
      ASSERT_FALSE((*c)->query("select pg_sleep(30)", {}, steady_clock::now()));
    }
    auto c = pool.acquire();
    ASSERT_TRUE(c);
    EXPECT_EQ((*(*c)->query("select 1"))[0].integer(0), 1);
    EXPECT_EQ(pool.snapshot().most_alive, 1u);
  }
}

TEST(PostgresPool, TheDeadlineOfTheAcquireIsTheStatementTimeout) {
  Pool pool(pool_options("deadline", 1));
  const auto began = steady_clock::now();
  auto c = pool.acquire({.deadline = began + 100ms});
  ASSERT_TRUE(c) << c.error().message();
  EXPECT_TRUE((*c)->query("select pg_sleep(30)").error().timed_out());
  EXPECT_LT(steady_clock::now() - began, 10s);
  c->release();
  EXPECT_TRUE((*pool.acquire())->query("select 1")) << "the next caller has its own";
}

TEST(PostgresPool, ATerminatedBackendIsReplaced) {
  Pool pool(pool_options("terminated", 2));
  int pid = 0;
  {
    auto c = pool.acquire();
    pid = (*c)->backend_pid();
  }
  ask("select pg_terminate_backend($1, 5000)", {pid});
  auto first = pool.acquire();
  ASSERT_TRUE(first);
  if (!(*first)->query("select 1"))
    first->release();  // it was idle for less than validate_after: found out by use
  auto second = pool.acquire();
  ASSERT_TRUE(second);
  EXPECT_TRUE((*second)->query("select 1"));
  EXPECT_NE((*second)->backend_pid(), pid);
}

TEST(PostgresPool, AServerThatIsDownIsNotAFullPool) {
  PoolOptions options = pool_options("down", 1);
  options.connection.conninfo = "host=/nowhere";
  Pool pool(options);
  const auto none = pool.acquire();
  ASSERT_FALSE(none);
  EXPECT_TRUE(none.error().failed());
  EXPECT_THAT(none.error().message(), HasSubstr("bulkhead \"down\" cannot open: "));
}

TEST(PostgresWorkloads, AreCheckedAgainstTheServer) {
  WorkloadsOptions options{.name = "shop",
                           .connection = to_server(),
                           .workloads = {{.name = "checkout", .share = {.units = 20}},
                                         {.name = "browse", .share = {.units = 12}},
                                         {.name = "analytics", .share = {.units = 6}}}};
  try {
    const Workloads shop(options);
    FAIL() << "38 connections of 37";
  } catch (const std::invalid_argument& e) {
    EXPECT_STREQ(
        e.what(),
        "workloads \"shop\": checkout 20 + browse 12 + analytics 6 = 38 connections, but the server has 37 "
        "(max_connections = 40, 3 reserved): give at most 37, or raise max_connections to 41");
  }
  options.workloads.pop_back();
  options.instances = 2;
  EXPECT_THAT(*check_against_server(options),
              HasSubstr("32 connections x 2 instances = 64, but the server has 37"));
  options.instances = 1;
  Workloads shop(options);
  EXPECT_EQ(shop.unchecked(), "");
  EXPECT_TRUE(shop["checkout"].acquire());
  EXPECT_EQ(backends("checkout"), 1);
  EXPECT_THROW(shop["nobody"], std::invalid_argument);
  options.connection.conninfo = "host=/nowhere";
  EXPECT_THAT(Workloads(options).unchecked(), HasSubstr("/nowhere"));
}

TEST(PostgresWorkloads, PerCentsAreRoundedTogether) {
  const WorkloadsOptions options{.name = "shop",
                                 .total = 37,
                                 .connection = to_server(),
                                 .workloads = {{.name = "checkout", .share = {.percent = 50}},
                                               {.name = "browse", .share = {.percent = 30}},
                                               {.name = "analytics", .share = {.percent = 15}},
                                               {.name = "admin", .share = {.percent = 5}}}};
  Workloads shop(options);
  std::uint32_t sum = 0;
  for (const Pool* pool : shop.pools()) sum += pool->snapshot().max;
  EXPECT_EQ(sum, 37u);
  EXPECT_EQ(shop["checkout"].snapshot().max, 18u);
  EXPECT_EQ(shop["admin"].snapshot().max, 2u) << "1.85";
}

TEST(PostgresWorkloads, ElasticOnesLendConnectionsAndNeverExceedTheTotalAtTheServer) {
  Workloads shop({.name = "shop",
                  .total = 6,
                  .elastic = true,
                  .connection = to_server(),
                  .workloads = {{.name = "elastic_a", .share = {.units = 3}, .gate = {.max_queue = 8}},
                                {.name = "elastic_b", .share = {.units = 3}, .gate = {.max_queue = 8}}}});
  {
    std::vector<ResourceResult<Connection>> all;
    for (int i = 0; i < 6; ++i) {
      all.push_back(shop["elastic_a"].acquire());
      ASSERT_TRUE(all.back()) << all.back().error().message();
    }
    EXPECT_EQ(backends("elastic_a"), 6);
  }
  std::vector<ResourceResult<Connection>> some;
  for (int i = 0; i < 3; ++i) {
    some.push_back(shop["elastic_b"].acquire({.timeout = 5s}));
    ASSERT_TRUE(some.back()) << some.back().error().message();
    EXPECT_LE(ask("select count(*) from pg_stat_activity where application_name like 'elastic%'"), 6);
  }
  EXPECT_EQ(backends("elastic_a"), 3);
  EXPECT_EQ(shop.alive(), 6u);
  EXPECT_NE(shop.group(), nullptr);
}

TEST(PostgresMetrics, APoolThatIsAttachedIsOnThePageAndPromtoolTakesIt) {
  Registry registry;
  Pool pool(pool_options("metrics \"quoted\"", 3));
  const Attached attached = registry.attach(pool);
  Metrics metrics;
  std::string text;
  metrics.render(text, registry.snapshot(), MetricsFormat::prometheus);
  const std::string label = R"({pool="metrics \"quoted\"")";
  for (const char* series : {"_connections{,state=\"used\"}", "_connections{,state=\"idle\"}",
                             "_connections{,state=\"connecting\"}", "_timeouts_total{}",
                             "_rejected_total{,reason=\"queue_limit\"}", "_wait_seconds_count{}",
                             "_use_seconds_bucket{,le=\"+Inf\"}", "_connect_failures_total{}"}) {
    std::string line = "bulkhead_pg" + std::string(series);
    line.replace(line.find('{'), 1, label);
    EXPECT_THAT(text, HasSubstr(line + " 0\n")) << "from the start";
  }
  EXPECT_THAT(text, HasSubstr("bulkhead_pg_connections_max" + label + "} 3\n"));
  {
    const auto held = pool.acquire();
    metrics.render(text, registry.snapshot(), MetricsFormat::prometheus);
    EXPECT_THAT(text, HasSubstr("bulkhead_pg_connections" + label + ",state=\"used\"} 1\n"));
  }
  metrics.render(text, registry.snapshot(), MetricsFormat::prometheus);
  EXPECT_THAT(text, HasSubstr("bulkhead_pg_connections" + label + ",state=\"idle\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("bulkhead_pg_wait_seconds_count" + label + "} 1\n"));
  FILE* promtool = popen("promtool check metrics", "w");
  fwrite(text.data(), 1, text.size(), promtool);
  EXPECT_EQ(pclose(promtool), 0) << text;
}

TEST(PostgresPool, ADeadlineEndsWithItsLease) {
  Pool pool(pool_options("stale", 1));
  const auto past = steady_clock::now() + 100ms;
  {
    EXPECT_TRUE((*pool.acquire({.deadline = past}))->query("select 1"));
  }
  while (steady_clock::now() < past) std::this_thread::yield();
  auto next = pool.resources().acquire();  // which sets none
  ASSERT_TRUE(next);
  EXPECT_TRUE((*next)->query("select pg_sleep(0.01)"));
  EXPECT_EQ(pool.snapshot().opened, 1u);
}

}  // namespace
}  // namespace bulkhead::postgres::tests
