// The parts of the commands that speak to a running process; the control plane is a real one on loopback.
#include "app/client/admin.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "app/client/view.h"
#include "bulkhead/registry.h"
#include "control/server.h"

namespace bulkhead::client {
namespace {

TEST(Admin, AnAddressThatIsNoneIsRejectedWithTheFormsThatAre) {
  for (const char* wrong : {"nonsense", "ftp://host/", "unix:"}) try {
      Admin::at(wrong, "");
      ADD_FAILURE() << wrong;
    } catch (const std::invalid_argument& error) {
      EXPECT_NE(std::string(error.what()).find(wrong), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find("http://host:port"), std::string::npos) << error.what();
    }
}

std::string heading(const std::vector<BulkheadRow>& rows, std::size_t columns) {
  return table({}, rows, columns, rows.size()).front();
}

TEST(Table, SinceAndTheLastMinuteStayLongerThanRatesAndTheBreakerAlways) {
  std::vector<BulkheadRow> rows(1);
  rows[0].name = "analytics";
  rows[0].has_breaker = true;
  for (const char* const column : {"STATE", "IN FLIGHT", "SINCE", "REJ 1MIN", "BREAKER"})
    EXPECT_NE(heading(rows, 80).find(column), std::string::npos) << column << ": " << heading(rows, 80);
  // A long name is shortened before its breaker, its state or the time since the trouble began disappear.
  rows[0].name = "recommendations-of-a-third-party";
  for (const std::size_t columns : {50U, 60U, 80U, 100U, 130U, 200U}) {
    EXPECT_NE(heading(rows, columns).find("BREAKER"), std::string::npos) << columns;
    EXPECT_EQ(heading(rows, columns).find("SINCE") != std::string::npos, columns >= 60) << columns;
    EXPECT_LE(heading(rows, columns).size(), columns);
  }
}

TEST(Admin, ANameIsEncodedAsOnePartOfAPath) {
  EXPECT_EQ(encoded("a/b c"), "a%2Fb%20c");
  EXPECT_EQ(encoded("Az09-_.~"), "Az09-_.~");
  EXPECT_EQ(encoded(std::string_view("\0\xc3\xa9", 3)), "%00%C3%A9");
}

struct Plane {
  Plane() {
    for (const char* name : {"db", "search"})
      registry.add({.options = {.name = name, .max_concurrent = 7, .max_queue = 3}});
  }
  Registry registry;
  control::Server server{registry, {.unix_socket = "", .listen = "127.0.0.1:0"}};
};

TEST(Admin, AsksARunningControlPlane) {
  const Plane plane;
  // With the address of the dashboard, as people copy it.
  for (const std::string& where : {plane.server.url(), plane.server.url() + "/ui/#/db"}) {
    const Admin admin = Admin::at(where, "");
    const Reply reply = admin.ask({.path = "/v1/snapshot"});
    ASSERT_EQ(reply.status, 200) << where << ": " << reply.trouble;
    EXPECT_EQ(reply.exit_code(), 0);
    const View view = read_view(reply.json());
    ASSERT_EQ(view.rows.size(), 2u);
    EXPECT_EQ(view.rows[0].name, "db");
    EXPECT_EQ(view.rows[0].max_concurrent, 7u);
    EXPECT_EQ(view.rows[0].max_queue, 3u);
    EXPECT_EQ(view.rows[0].state, "idle");
  }
}

TEST(Admin, WhatIsNotThereIsAnErrorWithADetail) {
  const Plane plane;
  const Reply reply = Admin::at(plane.server.url(), "").ask({.path = "/v1/nonesuch"});
  EXPECT_EQ(reply.status, 404);
  EXPECT_EQ(reply.exit_code(), 1);
  EXPECT_NE(reply.explain(), "HTTP status 404\n") << "the detail is shown";
}

// Listens on a port of loopback, answers one connection with `text` and closes it.
class OneAnswer {
 public:
  explicit OneAnswer(std::string text) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof at;
    EXPECT_EQ(::bind(fd_, reinterpret_cast<sockaddr*>(&at), size), 0);
    EXPECT_EQ(::getsockname(fd_, reinterpret_cast<sockaddr*>(&at), &size), 0);
    port_ = ntohs(at.sin_port);
    if (text.empty()) return;  // bound and not listening: connections are rejected
    EXPECT_EQ(::listen(fd_, 1), 0);
    thread_ = std::thread([this, text = std::move(text)] {
      const int client = ::accept(fd_, nullptr, nullptr);
      char request[4096];
      EXPECT_GT(::recv(client, request, sizeof request, 0), 0);
      EXPECT_GT(::send(client, text.data(), text.size(), MSG_NOSIGNAL), 0);
      ::close(client);
    });
  }
  ~OneAnswer() {
    if (thread_.joinable()) thread_.join();
    ::close(fd_);
  }
  Reply ask() const {
    return Admin::at("http://127.0.0.1:" + std::to_string(port_), "").ask({.path = "/v1/snapshot"});
  }

 private:
  int fd_;
  std::uint16_t port_ = 0;
  std::thread thread_;
};

TEST(Admin, NobodyThereIsUnreachable) {
  const Reply reply = OneAnswer("").ask();
  EXPECT_EQ(reply.status, 0);
  EXPECT_EQ(reply.exit_code(), kUnreachable);
  EXPECT_EQ(reply.explain(), reply.trouble + "\n");
  EXPECT_EQ(Admin::at("/" + std::string(200, 'x'), "").ask({}).exit_code(), kUnreachable);
}

TEST(Admin, AnAnswerOfSomethingElseOrCutOffIsUnreachable) {
  for (const char* text : {"SSH-2.0-OpenSSH_9.2\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}"}) {
    const Reply reply = OneAnswer(text).ask();
    EXPECT_EQ(reply.status, 0) << text;
    EXPECT_EQ(reply.exit_code(), kUnreachable) << text;
    EXPECT_FALSE(reply.trouble.empty());
  }
}

TEST(Reply, EachStatusHasItsExitCode) {
  const auto code = [](int status) { return Reply{.status = status}.exit_code(); };
  EXPECT_EQ(code(200), 0);
  EXPECT_EQ(code(204), 0);
  EXPECT_EQ(code(400), kInvalid);
  EXPECT_EQ(code(422), kInvalid);
  EXPECT_EQ(code(401), kForbidden);
  EXPECT_EQ(code(403), kForbidden);
  EXPECT_EQ(code(409), kConflict);
  EXPECT_EQ(code(412), kConflict);
  EXPECT_EQ(code(500), 1);
  EXPECT_EQ(code(0), kUnreachable);
  EXPECT_EQ((Reply{.denied = true}).exit_code(), kForbidden);
}

TEST(Reply, ExplainsEveryErrorWithItsPlaceAndHint) {
  const Reply several{
      .status = 422,
      .body =
          R"({"detail":"2 errors","errors":[{"line":3,"pointer":"/limit","message":"is 0","hint":"give 1"},
                                  {"pointer":"/queue","message":"is -1"}]})"};
  EXPECT_EQ(several.explain(), "2 errors\n  line 3: /limit: is 0 (give 1)\n  /queue: is -1\n");
  const Reply one{.status = 422,
                  .body = R"({"detail":"limit is 0","errors":[{"message":"limit is 0","hint":"give 1"}]})"};
  EXPECT_EQ(one.explain(), "limit is 0\n  give 1\n") << "the message is not repeated";
  EXPECT_EQ((Reply{.status = 502, .body = "<html>"}).explain(), "HTTP status 502\n");
}

TEST(Reply, TextsOfOthersCannotCommandTheTerminal) {
  const Reply reply{.status = 500, .body = "{\"detail\":\"a\\u001b[2Jb\"}"};
  EXPECT_EQ(reply.explain(), "a?[2Jb\n");
}

TEST(View, WhatIsNoSnapshotIsRejected) {
  EXPECT_THROW(read_view(nullptr), std::runtime_error);
  EXPECT_THROW(read_view(boost::json::array{}), std::runtime_error);
}

std::vector<BulkheadRow> three_rows() {
  std::vector<BulkheadRow> rows(3);
  rows[0].name = "b", rows[0].max_concurrent = 10, rows[0].in_flight = 1, rows[0].rate = 5;
  rows[1].name = "a", rows[1].max_concurrent = 10, rows[1].in_flight = 9, rows[1].rejected_rate = 1,
  rows[1].rate = 2;
  rows[2].name = "c", rows[2].max_concurrent = 10, rows[2].in_flight = 1, rows[2].wait_p99 = 0.5;
  return rows;
}

TEST(View, RowsAreSortedByTheHighestAndThenByName) {
  const auto order = [](SortBy sort) {
    std::vector<BulkheadRow> rows = three_rows();
    sort_rows(rows, sort);
    return rows[0].name + rows[1].name + rows[2].name;
  };
  EXPECT_EQ(order(SortBy::name), "abc");
  EXPECT_EQ(order(SortBy::utilization), "abc");
  EXPECT_EQ(order(SortBy::rejected), "abc");
  EXPECT_EQ(order(SortBy::rate), "bac");
  EXPECT_EQ(order(SortBy::wait), "cab");
}

TEST(View, ATableHasAHeadingAndMarksTheSelectedRow) {
  const auto lines = table({}, three_rows(), 160, 1);
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[1][0], ' ');
  EXPECT_EQ(lines[2][0], '>');
  EXPECT_NE(lines[2].find("9/10"), std::string::npos) << lines[2];
}

TEST(View, APoolThatFailsSaysWhy) {
  std::vector<PoolRow> pools(1);
  pools[0].name = "pg", pools[0].used = 2, pools[0].max = 5, pools[0].failing = "connection refused";
  pools[0].bulkhead = "database", pools[0].bulkhead_waiting = 200;
  const auto lines = pool_table({}, pools, 120);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_NE(lines[2].find("2/5"), std::string::npos) << lines[2];
  EXPECT_NE(lines[2].find("connection refused"), std::string::npos) << lines[2];
  EXPECT_TRUE(pool_table({}, {}, 120).empty());
}

}  // namespace
}  // namespace bulkhead::client
