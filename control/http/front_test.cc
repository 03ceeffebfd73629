// How HTTP is spoken: what is said of every answer, and what becomes of clients that are slow, strange or malicious.
#include <cstdlib>
#include <ctime>
#include <random>

#include "control/world_test.h"

namespace bulkhead::control {
namespace {

using namespace std::chrono_literals;
namespace json = boost::json;

TEST(Front, EveryAnswerHasItsDate) {
  World w;
  const std::string date = w.get("/livez").header("Date");
  std::tm utc{};
  const char* const end = ::strptime(date.c_str(), "%a, %d %b %Y %H:%M:%S GMT", &utc);
  ASSERT_TRUE(end && *end == '\0') << date;
  EXPECT_LT(std::abs(std::difftime(std::time(nullptr), ::timegm(&utc))), 60);
  EXPECT_NE(w.get("/nothing").header("Date"), "");
}

TEST(Front, TheDashboardIsThereUnlessItIsNotWanted) {
  World w;
  EXPECT_EQ(w.get("/").header("Location"), "ui/");
  const Reply page = w.get("/ui/");
  EXPECT_EQ(page.status, 200);
  EXPECT_EQ(page.header("Content-Type"), "text/html; charset=utf-8");
  EXPECT_NE(page.header("Content-Security-Policy").find("default-src 'none'"), std::string::npos);
  EXPECT_EQ(w.get("/ui/uplot.js").status, 200);
  EXPECT_EQ(w.get("/ui/nothing.js").status, 404);

  World without;
  without.options.dashboard = false;
  EXPECT_EQ(without.get("/").status, 200);
  EXPECT_NE(without.get("/").body.find("/v1/openapi.json"), std::string::npos);
  EXPECT_EQ(without.get("/ui/").status, 404);
}

TEST(Front, APageThatTheBrowserHasIsNotSentAgain) {
  World w;
  const std::string tag = w.get("/ui/main.js").header("ETag");
  ASSERT_TRUE(tag.starts_with("W/")) << tag;
  for (const std::string& has : {tag, tag.substr(2), "\"other\", " + tag, std::string("*")}) {
    const Reply reply = w.ask({.path = "/ui/main.js", .headers = {"If-None-Match: " + has}});
    EXPECT_EQ(reply.status, 304) << has;
    EXPECT_EQ(reply.body, "");
    EXPECT_EQ(reply.header("ETag"), tag);
  }
  EXPECT_EQ(w.ask({.path = "/ui/main.js", .headers = {"If-None-Match: \"other\""}}).status, 200);
}

TEST(Front, ThePageIsCompressedOnlyForClientsThatAcceptIt) {
  World w;
  const auto page = [&](const std::string& accepted) {
    std::vector<std::string> headers;
    if (!accepted.empty()) headers.push_back("Accept-Encoding: " + accepted);
    return w.ask({.path = "/ui/", .headers = headers});
  };
  for (const char* const zipped :
       {"gzip", "gzip, deflate, br", "br;q=1.0, GZIP;q=0.5", "*", "identity;q=0, *;q=0.1"}) {
    const Reply reply = page(zipped);
    EXPECT_EQ(reply.header("Content-Encoding"), "gzip") << zipped;
    EXPECT_EQ(reply.header("Vary"), "Accept-Encoding");
    EXPECT_TRUE(reply.body.starts_with("\x1f\x8b")) << zipped;
  }
  for (const char* const plain : {"", "identity", "br", "gzip;q=0", "gzip; q=0.000, *", "*;q=0", "gzipped"}) {
    const Reply reply = page(plain);
    EXPECT_EQ(reply.header("Content-Encoding"), "") << plain;
    EXPECT_EQ(reply.header("Vary"), "Accept-Encoding");
    EXPECT_TRUE(reply.body.starts_with("<!doctype html>")) << plain << ": " << reply.body.substr(0, 40);
  }
}

TEST(Front, ABodyInAnEncodingIsNotTakenForPlainText) {
  World w;
  const std::string drain = R"({"reason": "r"})";
  EXPECT_EQ(w.put("/v1/drains/db?dry_run=true", drain, {"Content-Encoding: identity"}).status, 200);
  const Reply reply = w.put("/v1/drains/db", drain, {"Content-Encoding: gzip"});
  EXPECT_EQ(reply.status, 415);
  EXPECT_NE(reply.body.find("Content-Encoding"), std::string::npos);
  EXPECT_EQ(reply.header("Accept-Encoding"), "identity");
  EXPECT_FALSE(w["db"].snapshot().draining);
}

TEST(Front, OtherWebSitesAndOtherNamesAreTurnedAway) {
  World w;
  EXPECT_EQ(w.ask({.path = "/v1/snapshot", .host = "evil.example"}).status, 403);  // DNS rebinding
  EXPECT_EQ(w.ask({.path = "/v1/snapshot", .host = "127.0.0.1:1"}).status, 200);
  EXPECT_EQ(w.ask({.path = "/v1/snapshot", .host = "[::1]:1"}).status, 200);
  for (const char* const disguised :
       {"127.0.0.1:1.evil.example", "localhost:x", "[::1].evil.example", "[::1", "[::1]x:1"})
    EXPECT_EQ(w.ask({.path = "/v1/snapshot", .host = disguised}).status, 403) << disguised;
  EXPECT_EQ(w.ask({.path = "/v1/snapshot", .headers = {"Origin: http://evil.example"}}).status, 403);
  EXPECT_EQ(w.ask({.path = "/v1/snapshot", .headers = {"Origin: http://localhost"}}).status, 200);
  EXPECT_EQ(w.ask({.path = "/v1/snapshot", .headers = {"Sec-Fetch-Site: cross-site"}}).status, 403);
  EXPECT_EQ(w.ask({.path = "/v1/snapshot", .headers = {"Sec-Fetch-Site: same-origin"}}).status, 200);
  const Reply audit = w.get("/v1/audit");
  EXPECT_NE(audit.body.find("evil.example"), std::string::npos);
}

// Names and headers are strangers' bytes; answers and the audit file are JSON all the same.
TEST(Front, WhatIsNotUtf8IsAnsweredInUtf8) {
  World w;
  boost::system::error_code error;
  for (const Ask& ask : {Ask{.path = "/v1/bulkhe\x9b"
                                     "ds/db"},
                         Ask{.path = "/v1/bulkheads/%ff%c0%80%ed%a0%80%f4%90%80%80"},
                         Ask{.path = "/v1/snapshot", .headers = {"Origin: http://\xff.example"}}}) {
    const Reply reply = w.ask(ask);
    EXPECT_EQ(reply.status / 100, 4);
    json::parse(reply.body, error);
    EXPECT_FALSE(error) << reply.body;
    EXPECT_NE(reply.body.find("\xef\xbf\xbd"), std::string::npos) << reply.body;
  }
  std::ifstream file(w.options.audit_file);
  for (std::string line; std::getline(file, line);) {
    json::parse(line, error);
    EXPECT_FALSE(error) << line;
  }
  const Reply fine = w.get("/v1/bulkheads/%c3%a9%e2%82%ac%f0%9f%98%80");
  EXPECT_NE(fine.body.find("\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"), std::string::npos) << fine.body;
}

TEST(Front, SlowClientsMakeRoomForOthers) {
  World w;
  w.options.max_connections = 8;
  w.start();
  std::vector<Client> slow;
  for (int i = 0; i < 100; ++i) {
    slow.push_back(Client::tcp(w.server->port()));
    slow.back().send("GET /v1/snapshot HTTP/1.1\r\nHost: loc");
  }
  EXPECT_EQ(w.get("/v1/session").status, 200);
  EXPECT_EQ(w.ask_local({.path = "/v1/session"}).status, 200);
  std::string rest;
  EXPECT_FALSE(slow.front().receive(rest));  // closed
}

TEST(Front, AClientThatDoesNotFinishItsRequestIsClosed) {
  World w;
  w.options.request_timeout = 50ms;
  w.start();
  Client client = Client::tcp(w.server->port());
  client.send("PUT /v1/overrides/db HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{");
  std::string rest;
  EXPECT_FALSE(client.receive(rest));
}

TEST(Front, TheHeadOfTheStreamIsAllThatHeadGets) {
  World w;
  w.start();
  Client client = Client::tcp(w.server->port());
  client.send(Ask{.method = "HEAD", .path = "/v1/stream"}.text());
  Reply head = client.read(true);
  EXPECT_EQ(head.status, 200);
  EXPECT_EQ(head.header("Content-Type"), "text/event-stream");
  EXPECT_FALSE(client.receive(head.body));
  EXPECT_EQ(head.body, "");
}

TEST(Front, AClientThatAsksWhetherToSendItsBodyIsTold) {
  World w;
  w.start();
  const Ask put{.method = "PUT",
                .path = "/v1/overrides/db",
                .body = R"({"max_concurrent": 3, "reason": "r"})",
                .token = "o",
                .headers = {"Expect: 100-continue"}};
  const std::size_t header = put.text().size() - put.body.size();
  Client client = Client::tcp(w.server->port());
  client.send(put.text().substr(0, header));
  std::string go_on;
  while (!go_on.ends_with("\r\n\r\n") && client.receive(go_on)) {
  }
  EXPECT_EQ(go_on, "HTTP/1.1 100 Continue\r\n\r\n");
  client.send(put.body);
  EXPECT_EQ(client.read().status, 200);
}

Reply raw(World& w, const std::string& request) {
  if (!w.server) w.start();
  Client client = Client::tcp(w.server->port());
  client.send(request);
  return client.read();
}

TEST(Front, ARequestNamesOneHost) {
  World w;
  for (const char* const path : {"/v1/bulkheads", "/livez", "/ui/"}) {
    EXPECT_EQ(raw(w, Ask{.path = path, .headers = {"Host: localhost"}}.text()).status, 400) << path;
    EXPECT_EQ(raw(w, "GET " + std::string(path) + " HTTP/1.1\r\n\r\n").status, 400) << path;
  }
}

// They come from a kubelet that knows the pod's address, or from HTTP/1.0; and they reveal nothing.
TEST(Front, AProbeMayAskByAnyName) {
  World w;
  EXPECT_EQ(w.ask({.path = "/livez", .host = "10.1.2.3:9920"}).status, 200);
  EXPECT_EQ(w.ask({.path = "/readyz", .host = "pod.example"}).status, 200);
  EXPECT_EQ(raw(w, "GET /readyz HTTP/1.0\r\n\r\n").status, 200);
  EXPECT_EQ(raw(w, "GET /v1/session HTTP/1.0\r\n\r\n").status, 403);
}

// Who rebinds a name in DNS needs a name.
TEST(Front, WhereItListensOnAllAddressesEachOfThemIsItsHost) {
  const auto ours = [](const char* listen, const char* host) {
    Request request;
    request.host = host;
    return wrong_site(request, own_hosts(parse_listen(listen), {})).empty();
  };
  for (const char* const all : {"0.0.0.0:1", "[::]:1", "[0::0]:1"}) {
    for (const char* const host : {"10.1.2.3", "10.1.2.3:9920", "[fd00::7]:9920", "localhost:1"})
      EXPECT_TRUE(ours(all, host)) << all << ' ' << host;
    for (const char* const host :
         {"evil.example", "10.1.2.3.evil.example", "10.1", "[fd00::7", "fd00::7", ""})
      EXPECT_FALSE(ours(all, host)) << all << ' ' << host;
  }
  EXPECT_FALSE(ours("127.0.0.1:1", "10.1.2.3"));
  EXPECT_FALSE(ours("10.1.2.4:1", "10.1.2.3"));
}

TEST(Front, ATargetMayNameItsHost) {
  World w;
  const auto status = [&](const std::string& target, const std::string& host) {
    return w.ask({.path = target, .host = host}).status;
  };
  EXPECT_EQ(status("http://127.0.0.1:9920/v1/snapshot", "127.0.0.1:9920"), 200);
  EXPECT_EQ(status("HTTPS://localhost/v1/history?seconds=5", "elsewhere.example"),
            200);  // Host is passed over
  EXPECT_EQ(status("http://localhost", "localhost"), 302);
  EXPECT_EQ(status("http://localhost?x", "localhost"), 302);
  EXPECT_EQ(status("http://evil.example/v1/snapshot", "localhost"), 403);
  EXPECT_EQ(status("http://localhost@evil.example/v1/snapshot", "localhost"), 403);
  for (const char* const target : {"ftp://localhost/v1/snapshot", "http:/v1/snapshot", "v1/snapshot", "*"})
    EXPECT_EQ(status(target, "localhost"), 400) << target;
}

TEST(Front, NonsenseIsSurvived) {
  World w;
  w.options.request_timeout = 200ms;
  w.start();
  std::mt19937 random(7);
  const auto any = [&](std::size_t n) {
    return std::uniform_int_distribution<std::size_t>(0, n - 1)(random);
  };
  const std::vector<std::string> seeds{
      Ask{.path = "/v1/snapshot"}.text(),
      Ask{.method = "PUT",
          .path = "/v1/overrides/db?dry_run=true",
          .body = R"({"max_concurrent": 5, "max_queue": 1, "ttl": "5m", "reason": "fuzz"})",
          .token = "o"}
          .text(),
      Ask{.method = "POST",
          .path = "/v1/batch",
          .body = R"({"operations": [{"method": "PUT", "path": "/v1/drains/db", "body": {"reason": "r"}}]})",
          .token = "o"}
          .text(),
      Ask{.path = "/v1/history?seconds=10&step=3&bulkhead=db"}.text()};
  for (int round = 0; round < 300; ++round) {
    std::string text = seeds[any(seeds.size())];
    for (std::size_t edits = 1 + any(6); edits > 0; --edits) {
      const std::size_t at = any(text.size());
      switch (any(4)) {
        case 0:
          text[at] = static_cast<char>(any(256));
          break;
        case 1:
          text.erase(at, 1 + any(20));
          break;
        case 2:
          text.insert(at, text.substr(any(text.size()), any(40)));
          break;
        case 3:
          text.insert(at, std::string(1 + any(3), "\0\r\n%\"{[\\"[any(8)]));
          break;
      }
      if (text.empty()) text = "\r\n";
    }
    Client client = Client::tcp(w.server->port());
    client.send(text);
    client.finish();
    std::string rest;
    while (client.receive(rest)) {
    }
    EXPECT_TRUE(rest.empty() || rest.starts_with("HTTP/1.1 ")) << rest.substr(0, 100);
    EXPECT_EQ(rest.find(" 500 "), std::string::npos) << text << "\n" << rest;
  }
  for (const std::string& body :
       {std::string(5000, '['), std::string("{\"max_concurrent\":") + std::string(400, '9') + "}",
        std::string("{\"reason\":\"\\ud800\"}"), std::string("nul")})
    EXPECT_EQ(w.put("/v1/overrides/db", body).status / 100, 4) << body.substr(0, 40);
  EXPECT_EQ(w.get("/v1/session").status, 200);
}

}  // namespace
}  // namespace bulkhead::control
