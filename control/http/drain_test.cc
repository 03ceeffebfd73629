#include <gmock/gmock.h>

#include <future>
#include <thread>
#include <vector>

#include "control/world_test.h"
#include "tests/support/descriptor_limit.h"
#include "tests/support/http_client.h"

namespace bulkhead::control {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using testing::StartsWith;
using tests::becomes;
using HttpClient = tests::HttpClient;

TimePoint in(std::chrono::nanoseconds time) { return std::chrono::steady_clock::now() + time; }

void get(const HttpClient& client, const std::string& path) {
  client.send("GET " + path + " HTTP/1.1\r\nHost: localhost\r\n\r\n");
}

TEST(ControlDrain, FinishesWhatHasBegunAndClosesTheRest) {
  World world;
  Server& server = world.start();
  const HttpClient used(server.port()), unused(server.port()), begun(server.port()), stream(server.port());
  get(used, "/v1/snapshot");
  EXPECT_THAT(used.read(), StartsWith("HTTP/1.1 200"));
  get(stream, "/v1/stream");
  EXPECT_THAT(stream.read(), HasSubstr("event-stream"));
  begun.send("GET /v1/snapshot HTTP/1.1\r\nHost: localhost\r\n");
  get(used, "/v1/snapshot");
  EXPECT_THAT(used.read(), StartsWith("HTTP/1.1 200"));  // begun was read before
  auto drained = std::async(std::launch::async, [&] { return server.drain(in(60s)); });
  EXPECT_EQ(used.read(), "");
  EXPECT_EQ(unused.read(), "");
  stream.read_all();
  EXPECT_FALSE(HttpClient(server.port()).connected());
  EXPECT_EQ(drained.wait_for(0s), std::future_status::timeout);
  begun.send("\r\n");
  const std::string last = begun.read_all();
  EXPECT_THAT(last, StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(last, HasSubstr("Connection: close"));
  EXPECT_TRUE(drained.get());
  EXPECT_TRUE(server.drain(in(0s)));
}

TEST(ControlDrain, EndsAtItsDeadlineAndBoundsHold) {
  World world;
  world.options.request_timeout = 2s;
  Server& server = world.start();
  const HttpClient loris(server.port()), big(server.port());
  loris.send("GET /v1/snapshot HTTP/1.1\r\nX-A: ");
  big.send("POST /v1/config/validate HTTP/1.1\r\nHost: localhost\r\n");
  EXPECT_FALSE(server.drain(in(1ms)));
  big.send("Content-Length: 3000000\r\n\r\n");
  EXPECT_THAT(big.read(), StartsWith("HTTP/1.1 413"));
  EXPECT_FALSE(server.drain(in(1ms)));  // the slow one has time left
  EXPECT_TRUE(server.drain(in(60s)));   // and was given up
}

TEST(ControlDescriptors, AServerWithoutDescriptorsNeitherSpinsNorEndsAndGoesOnWhenThereAreSome) {
  BULKHEAD_SKIP_WITHOUT_DESCRIPTORS();
  const tests::Served served([](int ready) {
    World world;
    Server& server = world.start();
    tests::use_up_descriptors_but(4);
    tests::tell(ready, server.port());
    for (;;) ::pause();
  });
  ASSERT_NE(served.port(), 0);
  std::vector<HttpClient> clients;
  for (int i = 0; i < 8; ++i) clients.emplace_back(served.port());
  for (const HttpClient& c : clients) get(c, "/v1/snapshot");
  int answered = 0;
  EXPECT_TRUE(becomes([&] {
    answered = static_cast<int>(std::ranges::count_if(clients, &HttpClient::has_answer));
    return answered >= 4;
  }));
  EXPECT_LE(answered, 5);  // one more if the server had a file of its own open when the rest was used up
  clients[0].read();
  std::string events;
  EXPECT_TRUE(becomes([&] {
    get(clients[0], "/v1/events");
    events = clients[0].read();
    return events.find("cannot accept connections") != std::string::npos;
  }));
  const std::size_t first = events.find("cannot accept connections");
  EXPECT_EQ(events.find("cannot accept connections", first + 1), std::string::npos) << events;
  const auto before = served.used();
  const TimePoint watched = in(500ms);
  while (std::chrono::steady_clock::now() < watched) std::this_thread::sleep_for(10ms);
  EXPECT_LT(served.used() - before, 150ms);
  EXPECT_TRUE(served.alive());
  for (int i = 0; i < 4; ++i) clients[i].close();
  for (int i = 4; i < 8; ++i) EXPECT_THAT(clients[i].read(), StartsWith("HTTP/1.1")) << i;
}

}  // namespace
}  // namespace bulkhead::control
