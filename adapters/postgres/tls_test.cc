// Connections under TLS to a real server whose certificate is made here.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <stdexcept>

#include "pool.h"
#include "server_test.h"

namespace bulkhead::postgres::tests {
namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;
using testing::HasSubstr;

void run(const std::string& command) {
  if (std::system(("{ " + command + "; } > /dev/null 2>&1").c_str()) != 0)
    throw std::runtime_error("failed: " + command);
}

// The server with TLS on, for as long as the tests below run: a certificate for the name "localhost", signed by
// "right.crt"; in the database template1 a client has to have a certificate, too.
class PostgresTls : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    Server& server = Server::get();
    const std::string in = "cd " + server.directory().string() + " && ";
    for (const char* name : {"right", "wrong"})
      run(in + "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=" + name + "-root -keyout " +
          name + ".key -out " + name + ".crt");
    const auto signed_by_right = [&](const std::string& file, const std::string& name) {
      run(in + "openssl req -newkey rsa:2048 -nodes -subj /CN=" + name + " -keyout " + file + ".key -out " +
          file + ".csr && openssl x509 -req -in " + file +
          ".csr -CA right.crt -CAkey right.key -CAcreateserial -days 2 -out " + file + ".crt && chmod 600 " +
          file + ".key");
    };
    signed_by_right("server", "localhost");
    signed_by_right("client", "postgres");
    if (geteuid() == 0) run(in + "chown postgres server.key");  // whose process the server is
    server.prepend_hba("hostssl template1 all 127.0.0.1/32 cert\n");
    server.configure("ssl = on\nssl_ca_file = '" + file("right.crt") + "'\nssl_cert_file = '" +
                     file("server.crt") + "'\nssl_key_file = '" + file("server.key") + "'\n");
  }
  static void TearDownTestSuite() { Server::get().configure("ssl = off\n"); }

  static std::string file(const std::string& name) { return (Server::get().directory() / name).string(); }
  // Always to 127.0.0.1; `host` is the name that is verified.
  static Result<Connection, Error> connect(const std::string& host, Tls tls, const std::string& more = "") {
    return Connection::open(
        {.conninfo = Server::get().tcp_conninfo() + " host=" + host + " " + more, .tls = std::move(tls)},
        steady_clock::now() + 20s);
  }
  static bool encrypted(Connection& c) {
    const auto rows = c.query("select ssl from pg_stat_ssl where pid = pg_backend_pid()");
    EXPECT_TRUE(rows) << rows.error().message();
    return rows && (*rows)[0][0] == "t";
  }
};

TEST_F(PostgresTls, TheRightRootIsTrustedAndTheNameIsVerifiedWhereAsked) {
  for (const auto& [mode, host] :
       {std::pair("verify-full", "localhost"), std::pair("verify-ca", "localhost"),
        std::pair("verify-ca", "elsewhere.example"), std::pair("require", "elsewhere.example")}) {
    auto c = connect(host, {.mode = mode, .root_certificate = file("right.crt")});
    ASSERT_TRUE(c) << mode << " " << host << ": " << c.error().message();
    EXPECT_TRUE(encrypted(*c)) << mode;
  }
  const auto other =
      connect("elsewhere.example", {.mode = "verify-full", .root_certificate = file("right.crt")});
  ASSERT_FALSE(other) << "the certificate is for localhost";
  EXPECT_THAT(other.error().message(), HasSubstr("does not match host name \"elsewhere.example\""));
}

TEST_F(PostgresTls, AWrongRootIsRejected) {
  for (const char* mode : {"verify-ca", "verify-full"}) {
    const auto wrong = connect("localhost", {.mode = mode, .root_certificate = file("wrong.crt")});
    ASSERT_FALSE(wrong) << mode;
    EXPECT_EQ(wrong.error().kind, Error::Kind::connection);
    EXPECT_THAT(wrong.error().message(), HasSubstr("certificate verify failed"));
    const auto none = connect("localhost", {.mode = mode, .root_certificate = file("nowhere.crt")});
    ASSERT_FALSE(none) << mode;
    EXPECT_THAT(none.error().message(), HasSubstr("nowhere.crt"));
  }
}

TEST_F(PostgresTls, WithoutItWhereTheSettingSaysSo) {
  auto plain = connect("localhost", {.mode = "disable"});
  ASSERT_TRUE(plain) << plain.error().message();
  EXPECT_FALSE(encrypted(*plain));
}

TEST_F(PostgresTls, AClientShowsItsCertificate) {
  const Tls root{.mode = "verify-full", .root_certificate = file("right.crt")};
  const auto without = connect("localhost", root, "dbname=template1");
  ASSERT_FALSE(without);
  EXPECT_THAT(without.error().message(), HasSubstr("certificate"));
  Tls own = root;
  own.certificate = file("client.crt");
  own.key = file("client.key");
  auto with = connect("localhost", own, "dbname=template1");
  ASSERT_TRUE(with) << with.error().message();
  EXPECT_TRUE(encrypted(*with));
}

TEST_F(PostgresTls, APoolLendsEncryptedConnectionsAndDeadlinesCancelOnThem) {
  Pool pool({.name = "tls",
             .max = 1,
             .connection = {.conninfo = Server::get().tcp_conninfo() + " host=localhost",
                            .tls = {.mode = "verify-full", .root_certificate = file("right.crt")}},
             .connect_timeout = 20s});
  {
    auto db = pool.acquire();
    ASSERT_TRUE(db) << db.error().message();
    EXPECT_TRUE(encrypted(**db));
    const auto late = (*db)->query("select pg_sleep(30)", {}, steady_clock::now() + 50ms);
    ASSERT_FALSE(late);
    EXPECT_TRUE(late.error().timed_out()) << late.error().message();
  }
  auto again = pool.acquire();
  ASSERT_TRUE(again) << again.error().message();
  EXPECT_TRUE((*again)->query("select 1"));
}

TEST_F(PostgresTls, APoolThatMustHaveItSaysWhyItHasNoConnection) {
  Pool pool({.name = "strict",
             .max = 1,
             .connection = {.conninfo = Server::get().tcp_conninfo() + " host=localhost",
                            .tls = {.mode = "verify-full", .root_certificate = file("wrong.crt")}},
             .connect_timeout = 20s});
  const auto none = pool.acquire();
  ASSERT_FALSE(none);
  EXPECT_TRUE(none.error().failed());
  EXPECT_THAT(none.error().message(), HasSubstr("bulkhead \"strict\" cannot open: "));
  EXPECT_THAT(none.error().message(), HasSubstr("certificate verify failed"));
}

}  // namespace
}  // namespace bulkhead::postgres::tests
