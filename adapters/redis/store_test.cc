#include "adapters/redis/store.h"

#include <gmock/gmock.h>
#include <sys/wait.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "adapters/redis/server_test.h"

namespace bulkhead::redis {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

Store::Until soon() { return std::chrono::steady_clock::now() + 5s; }

shared::StoreRequest join(const std::string& member, std::uint64_t seq, const Store& store) {
  shared::StoreRequest r;
  r.member = member;
  r.seq = seq;
  r.need = 3;
  r.limit = 10;
  r.ttl = 1000;
  r.run = store.run();
  return r;
}

// Joins two limits in one round trip.
void expect_works(Store& store) {
  store.connect(soon());
  const auto answers = store.exchange({{"db", join("a", 1, store)}, {"api", join("a", 1, store)}}, soon());
  ASSERT_EQ(answers.size(), 2u);
  for (const auto& answer : answers) {
    EXPECT_TRUE(answer.ok) << answer.problem;
    EXPECT_EQ(answer.reply.limit, 10u);
    EXPECT_EQ(answer.reply.members, 1u);
    EXPECT_GT(answer.reply.learning, 0);
  }
}

Store store_of(const std::string& url, std::string ca_file = "") {
  return Store({.url = parse_store_url(url), .ca_file = std::move(ca_file)});
}

TEST(RedisStore, SpeaksOverTcp) {
  tests::Server server;
  Store store = store_of(server.url());
  expect_works(store);
  EXPECT_TRUE(store.warnings().empty());
  EXPECT_EQ(server.call({"EXISTS", "{bulkhead}:db:c", "{bulkhead}:db:m", "{bulkhead}:api:c"}).integer, 3);
}

TEST(RedisStore, ALateMessageOfAMemberChangesNothing) {
  tests::Server server;
  Store store = store_of(server.url());
  store.connect(soon());
  const Store::Question late{"db", join("a", 1, store)};
  Store::Question now{"db", join("a", 2, store)};
  now.request.have = 4;
  EXPECT_EQ(store.exchange({now}, soon())[0].reply.granted, 4u);
  const std::string before = server.call({"HGET", "{bulkhead}:db:m", "a"}).text;
  EXPECT_EQ(store.exchange({late}, soon())[0].reply.status, shared::StoreStatus::stale);
  EXPECT_EQ(server.call({"HGET", "{bulkhead}:db:m", "a"}).text, before);
}

TEST(RedisStore, SpeaksOverAUnixSocketInAnotherDatabase) {
  const bulkhead::tests::TempDirectory temporary;
  const std::string path = temporary.path() / "redis.sock";
  tests::Server server({"--unixsocket", path});
  Store store = store_of("unix://" + path + "?db=5");
  expect_works(store);
  EXPECT_EQ(server.call({"DBSIZE"}).integer, 0);
  EXPECT_EQ(server.call({"SWAPDB", "0", "5"}).text, "OK");
  EXPECT_EQ(server.call({"DBSIZE"}).integer, 4);
}

TEST(RedisStore, LogsInAsAUserOfTheAcl) {
  tests::Server server({"--user", "limits", "on", ">s3cret", "~{bulkhead}:*", "+evalsha", "+script|load",
                        "+info", "+select", "+hget", "+hset", "+hmget", "+hgetall", "+hdel", "+hlen",
                        "+pexpire", "+time"});
  Store good = store_of("redis://limits:s3cret@127.0.0.1:" + std::to_string(server.port()));
  expect_works(good);
  Store bad = store_of("redis://limits:wrong@127.0.0.1:" + std::to_string(server.port()));
  try {
    bad.connect(soon());
    FAIL();
  } catch (const std::runtime_error& error) {
    EXPECT_THAT(error.what(), HasSubstr("WRONGPASS"));
  }
}

TEST(RedisStore, SpeaksTlsAndChecksTheCertificate) {
  const bulkhead::tests::TempDirectory temporary;
  const std::string dir = temporary.path();
  ASSERT_EQ(std::system(("openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext "
                         "subjectAltName=DNS:localhost -keyout " +
                         dir + "/key -out " + dir + "/cert >/dev/null 2>&1")
                            .c_str()),
            0);
  const std::uint16_t port = tests::free_port();
  tests::Server server({"--port", "0", "--tls-port", std::to_string(port), "--tls-cert-file", dir + "/cert",
                        "--tls-key-file", dir + "/key", "--tls-auth-clients", "no"},
                       port);
  Store good = store_of("rediss://localhost:" + std::to_string(port), dir + "/cert");
  expect_works(good);
  for (const std::string host : {"localhost", "127.0.0.1"}) {
    Store bad =
        store_of("rediss://" + host + ":" + std::to_string(port), host == "localhost" ? "" : dir + "/cert");
    try {
      bad.connect(soon());
      ADD_FAILURE() << host;
    } catch (const std::runtime_error& error) {
      EXPECT_THAT(error.what(), HasSubstr("TLS handshake"));
    }
  }
}

// A connection to a store that is far away has to be made within a part of a lease.
TEST(RedisStore, IsIntroducedInOneRoundTrip) {
  tests::Server server({"--requirepass", "secret"});
  struct Counted final : Transport {
    Counted(const Endpoint& to, Until until, int& n) : connection(to, until), exchanges(n) {}
    std::vector<Value> exchange(const std::vector<Command>& commands, Until until) override {
      ++exchanges;
      return connection.exchange(commands, until);
    }
    Connection connection;
    int& exchanges;
  };
  int exchanges = 0;
  const auto connect = [&](const Endpoint& to, Transport::Until until) {
    return std::make_unique<Counted>(to, until, exchanges);
  };
  const std::string port = std::to_string(server.port());
  Store store({.url = parse_store_url("redis://:secret@127.0.0.1:" + port + "/3")}, connect);
  store.connect(soon());
  EXPECT_EQ(exchanges, 1);
  Store wrong({.url = parse_store_url("redis://:other@127.0.0.1:" + port + "/3")}, connect);
  try {
    wrong.connect(soon());
    FAIL();
  } catch (const std::runtime_error& error) {  // the first that went wrong
    EXPECT_THAT(error.what(), testing::AllOf(HasSubstr("AUTH"), HasSubstr("WRONGPASS")));
  }
}

// The machine of the first one is dead: it rejects no connection, and accepts none.
TEST(RedisStore, AnAddressThatDoesNotAnswerLeavesTimeForTheNext) {
  tests::Server server;
  const tests::DeadAddress dead("127.0.0.2", server.port());
  Names names([](const std::string&) { return Names::Addresses{"127.0.0.2", "127.0.0.1"}; });
  Connection connection({{"limits.internal", std::to_string(server.port()), ""}},
                        std::chrono::steady_clock::now() + 2s, names);
  EXPECT_EQ(connection.exchange({{"PING"}}, soon())[0].text, "PONG");
}

TEST(RedisStore, WarnsOfEvictionAndOfUnsafeReplication) {
  tests::Server server({"--maxmemory", "50mb", "--maxmemory-policy", "allkeys-lru"});
  tests::Server replica({"--replicaof", "127.0.0.1 " + std::to_string(server.port())});
  Store store = store_of(server.url());
  for (int i = 0; i < 300 && store.warnings().size() < 2; ++i) {  // until the replica has joined
    store.connect(soon());
    std::this_thread::sleep_for(10ms);
  }
  EXPECT_THAT(store.warnings(),
              testing::ElementsAre(HasSubstr("allkeys-lru"), HasSubstr("min-replicas-to-write")));
  Store wrong = store_of(replica.url());
  EXPECT_THROW(wrong.connect(soon()), std::runtime_error);
}

TEST(RedisStore, AServerThatDoesNotAnswerIsGivenUpInTime) {
  tests::Server server;
  Store store = store_of(server.url());
  store.connect(soon());
  server.signal(SIGSTOP);
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_THROW(store.exchange({{"db", join("a", 1, store)}}, begin + 200ms), std::runtime_error);
  EXPECT_FALSE(store.connected());
  server.signal(SIGCONT);
}

TEST(RedisStore, AnotherRunOfTheServerHasAnotherName) {
  tests::Server server;
  Store store = store_of(server.url());
  store.connect(soon());
  const std::string run = store.run();
  server.kill();
  EXPECT_THROW(store.exchange({{"db", join("a", 1, store)}}, soon()), std::runtime_error);
  server.start();
  store.connect(soon());
  EXPECT_NE(store.run(), run);
}

TEST(RedisStore, FollowsACluster) {
  const auto node = [](std::uint16_t bus) {
    return std::make_unique<tests::Server>(std::vector<std::string>{"--cluster-enabled", "yes",
                                                                    "--cluster-require-full-coverage", "no",
                                                                    "--cluster-port", std::to_string(bus)});
  };
  const std::uint16_t bus = tests::free_port();
  const auto a = node(tests::free_port()), b = node(bus);
  b->call({"CLUSTER", "ADDSLOTSRANGE", "0", "16383"});
  a->call({"CLUSTER", "MEET", "127.0.0.1", std::to_string(b->port()), std::to_string(bus)});
  const auto well = [](tests::Server& server) {
    const std::string state = server.call({"CLUSTER", "INFO"}).text;
    return state.find("cluster_state:ok") != state.npos &&
           state.find("cluster_slots_assigned:16384") != state.npos;
  };
  for (int i = 0; i < 1000 && !(well(*a) && well(*b)); ++i) std::this_thread::sleep_for(10ms);
  Store store = store_of(a->url());
  store.connect(soon());
  const auto moved = store.exchange({{"db", join("a", 1, store)}}, soon());
  EXPECT_THAT(moved[0].problem, HasSubstr("MOVED"));
  expect_works(store);
  ASSERT_EQ(store.address(), "127.0.0.1:" + std::to_string(b->port()));

  // The slot moves back to the first node, with the keys of one limit so far.
  const std::string slot = std::to_string(b->call({"CLUSTER", "KEYSLOT", "{bulkhead}"}).integer);
  const std::string id_a = a->call({"CLUSTER", "MYID"}).text, id_b = b->call({"CLUSTER", "MYID"}).text;
  a->call({"CLUSTER", "SETSLOT", slot, "IMPORTING", id_b});
  b->call({"CLUSTER", "SETSLOT", slot, "MIGRATING", id_a});
  b->call({"MIGRATE", "127.0.0.1", std::to_string(a->port()), "", "0", "5000", "KEYS", "{bulkhead}:db:c",
           "{bulkhead}:db:m"});
  const auto ask = store.exchange({{"db", join("a", 2, store)}}, soon());
  EXPECT_THAT(ask[0].problem, HasSubstr("ASK"));
  store.connect(soon());
  ASSERT_EQ(store.address(), "127.0.0.1:" + std::to_string(a->port()));
  const auto there = store.exchange({{"db", join("a", 3, store)}}, soon());
  EXPECT_TRUE(there[0].ok) << there[0].problem;
  EXPECT_EQ(there[0].reply.limit, 10u);
}

TEST(RedisStore, AsksSentinelsForTheMaster) {
  tests::Server master;
  tests::Server replica({"--replicaof", "127.0.0.1 " + std::to_string(master.port())});
  tests::Sentinel watch(master);
  tests::Server& sentinel = watch.server();
  Store store =
      store_of("redis+sentinel://127.0.0.1:1,127.0.0.1:" + std::to_string(sentinel.port()) + "/limits");
  expect_works(store);
  EXPECT_EQ(store.address(), "127.0.0.1:" + std::to_string(master.port()));
  Store unknown = store_of("redis+sentinel://127.0.0.1:" + std::to_string(sentinel.port()) + "/other");
  EXPECT_THROW(unknown.connect(soon()), std::runtime_error);

  // The replica has to be known to the Sentinel before it can take over.
  for (int i = 0; i < 2000 && sentinel.call({"SENTINEL", "replicas", "limits"}).list.empty(); ++i)
    std::this_thread::sleep_for(10ms);
  master.kill();
  for (int i = 0; i < 2000; ++i) {
    try {
      store.connect(soon());
      break;
    } catch (const std::runtime_error&) {
      std::this_thread::sleep_for(10ms);
    }
  }
  ASSERT_TRUE(store.connected());
  EXPECT_EQ(store.address(), "127.0.0.1:" + std::to_string(replica.port()));
}

// A Sentinel that died together with the master's machine must not keep the others from being asked, at each attempt anew.
TEST(RedisStore, ASentinelThatDoesNotAnswerLeavesTimeForTheNext) {
  tests::Server master, hung;
  hung.signal(SIGSTOP);
  tests::Sentinel watch(master);
  Store store = store_of("redis+sentinel://127.0.0.1:" + std::to_string(hung.port()) +
                         ",127.0.0.1:" + std::to_string(watch.server().port()) + "/limits");
  store.connect(std::chrono::steady_clock::now() + 2s);
  EXPECT_EQ(store.address(), "127.0.0.1:" + std::to_string(master.port()));
  hung.signal(SIGCONT);
}

TEST(RedisStore, SentinelsMayAskForThePassword) {
  tests::Server master({"--requirepass", "secret"});
  tests::Sentinel watch(master, "secret");
  const std::string sentinel = "127.0.0.1:" + std::to_string(watch.server().port()) + "/limits";
  Store store = store_of("redis+sentinel://:secret@" + sentinel);
  expect_works(store);
  EXPECT_EQ(store.address(), "127.0.0.1:" + std::to_string(master.port()));
  Store wrong = store_of("redis+sentinel://:other@" + sentinel);
  EXPECT_THROW(wrong.connect(soon()), std::runtime_error);
  Store none = store_of("redis+sentinel://" + sentinel);
  EXPECT_THROW(none.connect(soon()), std::runtime_error);
}

}  // namespace
}  // namespace bulkhead::redis
