// The guard on real servers: each kind of RPC, in the synchronous and in the callback API.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <semaphore>
#include <thread>

#include "detail/blocked_wait.h"
#include "detail/handoff.h"
#include "echo_test.h"

namespace bulkhead::grpc::tests {
namespace {

using namespace std::chrono_literals;
using ::grpc::ClientContext;
using ::grpc::Status;
using ::grpc::StatusCode;
using std::chrono::steady_clock;
using ::testing::HasSubstr;

constexpr int kGap = 4;

std::string metadata(const ClientContext& context, const std::string& key) {
  const auto& all = context.GetServerTrailingMetadata();
  const auto found = all.find(key);
  return found == all.end() ? "" : std::string(found->second.data(), found->second.size());
}

Status call(Echo::Stub& stub, const std::string& text, ClientContext& context) {
  Reply reply;
  return stub.Unary(&context, ask(text), &reply);
}
Status call(Echo::Stub& stub, const std::string& text) {
  ClientContext context;
  return call(stub, text, context);
}

// A call on a thread of its own that stays in its handler until the stage lets go.
class Holding {
 public:
  explicit Holding(World& world, const std::string& text = "hold")
      : stub_(world.stub()), thread_([this, text] {
          context.set_wait_for_ready(true);  // gRPC may fail to connect at once where many do
          status = call(*stub_, text, context);
        }) {}
  ~Holding() {
    if (thread_.joinable()) thread_.join();
  }
  void join() { thread_.join(); }
  ClientContext context;
  Status status;

 private:
  std::unique_ptr<Echo::Stub> stub_;
  std::thread thread_;
};

class GrpcServer : public ::testing::TestWithParam<Api> {
 protected:
  World make(BulkheadOptions bulkhead, ServerGuardOptions guard = {}) {
    return World({.api = GetParam(), .bulkhead = std::move(bulkhead), .guard = std::move(guard)});
  }
};
INSTANTIATE_TEST_SUITE_P(Apis, GrpcServer,
                         ::testing::Values(Api::sync, Api::callback, Api::wrapped, Api::wrapped_callback),
                         [](const auto& api) { return kApis[static_cast<int>(api.param)]; });

TEST_P(GrpcServer, EachKindOfRpcRunsInAPlaceAndGivesItBack) {
  World world = make({.max_concurrent = 1, .max_queue = kGap});
  const auto stub = world.stub();
  EXPECT_TRUE(call(*stub, "a").ok());
  {
    ClientContext context;
    Reply reply;
    const auto writer = stub->Upload(&context, &reply);
    for (const char* text : {"a", "b", "c"}) EXPECT_TRUE(writer->Write(ask(text)));
    writer->WritesDone();
    EXPECT_TRUE(writer->Finish().ok());
    EXPECT_EQ(reply.text(), "abc");
  }
  {
    ClientContext context;
    const auto reader = stub->Download(&context, ask("x", 3));
    int got = 0;
    for (Reply reply; reader->Read(&reply);) ++got;
    EXPECT_TRUE(reader->Finish().ok());
    EXPECT_EQ(got, 3);
  }
  {
    ClientContext context;
    const auto stream = stub->Chat(&context);
    for (const char* text : {"a", "b"}) {
      Reply reply;
      EXPECT_TRUE(stream->Write(ask(text)) && stream->Read(&reply));
      EXPECT_EQ(reply.text(), text);
    }
    stream->WritesDone();
    EXPECT_TRUE(stream->Finish().ok());
  }
  EXPECT_TRUE(eventually([&] { return world.gate().in_flight == 0; }));
  EXPECT_EQ(world.gate().admitted, 4);
  EXPECT_EQ(world.gate().succeeded, 4);
  EXPECT_EQ(world.stage.peak, 1);
  EXPECT_EQ(world.method("Chat").ended[0], 1);
}

TEST_P(GrpcServer, ARejectedRpcNeverReachesItsHandlerAndIsTrailersOnly) {
  World world = make({.max_concurrent = 1}, {.rejections = {.retry = 100ms}});
  Holding holding(world);
  ASSERT_TRUE(eventually([&] { return world.stage.inside == 1; }));
  const auto stub = world.stub();
  ClientContext context;
  const Status status = call(*stub, "a", context);
  EXPECT_EQ(status.error_code(), StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(status.error_message(), "rejected (concurrency_limit)");
  EXPECT_EQ(metadata(context, "bulkhead-reason"), "concurrency_limit");
  const int pushback = std::stoi(metadata(context, "grpc-retry-pushback-ms"));
  EXPECT_GE(pushback, 200);  // normal priority: twice the setting, and up to half as much again
  EXPECT_LE(pushback, 300);
  EXPECT_EQ(world.stage.runs, 1);
  world.stage.let_go();
  holding.join();
  EXPECT_TRUE(holding.status.ok());
  EXPECT_EQ(world.method("Unary").rejected[static_cast<int>(Reason::concurrency_limit)], 1);
}

TEST_P(GrpcServer, StreamsAreRejectedAsUnaryCallsAre) {
  World world = make({.max_concurrent = 1});
  Holding holding(world);
  ASSERT_TRUE(eventually([&] { return world.stage.inside == 1; }));
  const auto stub = world.stub();
  Reply reply;
  ClientContext upload, download, chat;
  EXPECT_EQ(stub->Upload(&upload, &reply)->Finish().error_code(), StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(stub->Download(&download, ask("x", 3))->Finish().error_code(), StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(stub->Chat(&chat)->Finish().error_code(), StatusCode::RESOURCE_EXHAUSTED);
  for (ClientContext* context : {&upload, &download, &chat}) {
    EXPECT_EQ(metadata(*context, "bulkhead-reason"), "concurrency_limit");
    EXPECT_NE(metadata(*context, "grpc-retry-pushback-ms"), "");
  }
  EXPECT_EQ(world.stage.runs, 1);
  world.stage.let_go();
}

TEST_P(GrpcServer, AnRpcWaitsInLineAndRunsWhenItsTurnComes) {
  World world = make({.max_concurrent = 1, .max_queue = 1});
  Holding first(world);
  ASSERT_TRUE(eventually([&] { return world.stage.inside == 1; }));
  Holding second(world, "b");
  ASSERT_TRUE(eventually([&] { return world.gate().waiting == 1; }));
  EXPECT_EQ(world.method("Unary").waiting, 1);
  const auto stub = world.stub();
  EXPECT_EQ(call(*stub, "c").error_code(), StatusCode::RESOURCE_EXHAUSTED);
  ClientContext context;
  Reply reply;
  EXPECT_EQ(stub->Other(&context, ask("c"), &reply).error_code(), StatusCode::RESOURCE_EXHAUSTED);
  world.stage.let_go();
  first.join();
  second.join();
  EXPECT_TRUE(first.status.ok() && second.status.ok());
  EXPECT_EQ(world.stage.peak, 1);
  EXPECT_EQ(world.method("Unary").waiting, 0);
}

TEST_P(GrpcServer, AUnaryFunctionWaitsInLineToo) {
  World world = make({.max_concurrent = 1, .max_queue = 1});
  Holding first(world);
  ASSERT_TRUE(eventually([&] { return world.stage.inside == 1; }));
  const auto stub = world.stub();
  Status status;
  Reply reply;
  std::thread second([&] {
    ClientContext context;
    status = stub->Other(&context, ask("b"), &reply);
  });
  EXPECT_TRUE(eventually([&] { return world.method("Other").waiting == 1; }));
  world.stage.let_go();
  second.join();
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(reply.text(), "b");
  EXPECT_EQ(world.stage.peak, 1);
}

// Nothing else would end this wait. How long it takes is measured by `make bench-grpc`, on a machine that does nothing else.
TEST_P(GrpcServer, ACancelledRpcLeavesTheLine) {
  World world = make({.max_concurrent = 1, .max_queue = 1});
  Holding first(world);
  ASSERT_TRUE(eventually([&] { return world.stage.inside == 1; }));
  constexpr int kTimes = 9;
  for (int i = 0; i < kTimes; ++i) {
    Holding second(world, "b");
    ASSERT_TRUE(eventually([&] { return world.gate().waiting == 1; }));
    second.context.TryCancel();
    EXPECT_TRUE(eventually([&] { return world.gate().waiting == 0; }));
    second.join();
    EXPECT_EQ(second.status.error_code(), StatusCode::CANCELLED);
  }
  EXPECT_TRUE(eventually(
      [&] { return world.method("Unary").rejected[static_cast<int>(Reason::cancelled)] == kTimes; }));
  EXPECT_EQ(world.stage.runs, 1);
  world.stage.let_go();
}

// The synchronous API: five milliseconds and the way of the cancellation are within ten.
static_assert(detail::kCancelPoll <= 5ms);

TEST(GrpcWait, TheFirstYesIsTheLastQuestion) {
  std::binary_semaphore decided{0};
  int questions = 0, left = 0;
  detail::blocked_wait(
      decided, [&] { return ++questions == 3; },
      [&] {
        ++left;
        decided.release();
      });
  EXPECT_EQ(questions, 3);
  EXPECT_EQ(left, 1);
}

TEST(GrpcWait, ADecisionEndsTheWaitWithoutAQuestion) {
  std::binary_semaphore decided{1};
  detail::blocked_wait(decided, [] { return ADD_FAILURE(), true; }, [] { ADD_FAILURE(); });
}

TEST(GrpcWait, AWaitThatIsLeftStillAwaitsItsDecision) {
  std::binary_semaphore decided{0};
  std::atomic<bool> released = false;
  std::thread decides;
  detail::blocked_wait(
      decided, [] { return true; },
      [&] {
        decides = std::thread([&] {
          released = true;
          decided.release();
        });
      });
  EXPECT_TRUE(released);
  decides.join();
}

TEST_P(GrpcServer, ThePlaceOfACancelledRpcDoesNotGoToAHandlerWhoseRpcIsCancelledToo) {
  constexpr int kWaiting = 20;
  World world = make({.max_concurrent = 1, .max_queue = kWaiting});
  Holding first(world);
  ASSERT_TRUE(eventually([&] { return world.stage.inside == 1; }));
  std::vector<std::unique_ptr<Holding>> waiting;
  for (int i = 0; i < kWaiting; ++i) waiting.push_back(std::make_unique<Holding>(world));
  EXPECT_TRUE(eventually([&] { return world.gate().waiting == kWaiting; }));
  world.cancel_all();
  waiting.clear();
  EXPECT_LE(world.stage.runs, kWaiting / 4);  // gRPC cancels one after the other, so a few may still run
  EXPECT_TRUE(eventually([&] { return world.gate().in_flight == 0; }));
}

TEST_P(GrpcServer, TheDeadlineOfTheRpcEndsItsWait) {
  World world = make({.max_concurrent = 1, .max_queue = 1});
  Holding first(world);
  ASSERT_TRUE(eventually([&] { return world.stage.inside == 1; }));
  const auto stub = world.stub();
  ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + 500ms);
  EXPECT_EQ(call(*stub, "b", context).error_code(), StatusCode::DEADLINE_EXCEEDED);
  EXPECT_TRUE(
      eventually([&] { return world.gate().waiting == 0 && sum(world.method("Unary").rejected) == 1; }));
  EXPECT_EQ(world.stage.runs, 1);
  world.stage.let_go();
}

TEST_P(GrpcServer, MaxWaitOfAMethodEndsItsWait) {
  World world =
      make({.max_concurrent = 1, .max_queue = 1},
           {.methods = {{.name = "/bulkhead.testing.Echo/Unary", .bulkhead = "echo", .max_wait = 5ms}}});
  Holding first(world);
  ASSERT_TRUE(eventually([&] { return world.stage.inside == 1; }) || !first.status.ok());
  const auto stub = world.stub();
  ClientContext context;
  EXPECT_EQ(call(*stub, "b", context).error_code(), StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(metadata(context, "bulkhead-reason"), "timeout");
  world.stage.let_go();
}

TEST_P(GrpcServer, AStormOfTenTimesTheCapNeverExceedsItAtTheHandler) {
  constexpr int kCap = 8, kClients = 10 * kCap, kCalls = 25;
  World world = make({.max_concurrent = kCap, .max_queue = kCap});
  world.stage.work_us = 500;
  std::atomic<int> ok{0}, rejected{0}, other{0};
  std::vector<std::thread> clients;
  const std::shared_ptr<::grpc::Channel> channels[] = {world.channel(), world.channel()};
  for (int i = 0; i < kClients; ++i)
    clients.emplace_back([&, stub = Echo::NewStub(channels[i % 2])] {
      for (int n = 0; n < kCalls; ++n) {
        const StatusCode code = call(*stub, "a").error_code();
        ++(code == StatusCode::OK ? ok : code == StatusCode::RESOURCE_EXHAUSTED ? rejected : other);
      }
    });
  for (auto& c : clients) c.join();
  EXPECT_EQ(other, 0);
  EXPECT_EQ(ok + rejected, kClients * kCalls);
  EXPECT_EQ(world.stage.runs, ok);
  EXPECT_EQ(world.stage.peak, kCap);
  EXPECT_TRUE(eventually([&] { return world.gate().in_flight == 0; }));
  const MethodSnapshot m = world.method("Unary");
  EXPECT_EQ(m.started, kClients * kCalls);
  EXPECT_EQ(m.admitted, ok.load());
  EXPECT_EQ(sum(m.rejected), rejected.load());
  EXPECT_EQ(m.in_flight, 0);
}

TEST_P(GrpcServer, TenThousandShortStreamsHoldTheirPlacesToTheirEnds) {
#if defined(BULKHEAD_GRPC_TSAN)  // tells of each object that gRPC passes on, which takes milliseconds
  constexpr int kStreams = 400;
#else
  constexpr int kStreams = 10000;
#endif
  constexpr int kCap = 3, kClients = 8;
  World world = make({.max_concurrent = kCap, .max_queue = 4 * kClients});
  std::atomic<int> ok{0};
  std::vector<std::thread> clients;
  const auto channel = world.channel();
  for (int i = 0; i < kClients; ++i)
    clients.emplace_back([&, i, stub = Echo::NewStub(channel)] {
      for (int n = 0; n < kStreams / kClients; ++n) {
        ClientContext context;
        Reply reply;
        switch ((i + n) % 3) {
          case 0: {
            const auto writer = stub->Upload(&context, &reply);
            writer->Write(ask("a"));
            writer->WritesDone();
            ok += writer->Finish().ok();
            break;
          }
          case 1: {
            const auto reader = stub->Download(&context, ask("x", 1));
            while (reader->Read(&reply)) {
            }
            ok += reader->Finish().ok();
            break;
          }
          default: {
            const auto stream = stub->Chat(&context);
            stream->Write(ask("a"));
            stream->WritesDone();
            while (stream->Read(&reply)) {
            }
            ok += stream->Finish().ok();
          }
        }
      }
    });
  for (auto& c : clients) c.join();
  EXPECT_EQ(ok, kStreams);
  EXPECT_EQ(world.stage.runs, kStreams);
  EXPECT_LE(world.stage.peak, kCap);
  EXPECT_TRUE(eventually([&] { return world.gate().in_flight == 0; }));
  EXPECT_EQ(world.gate().admitted, kStreams);
  EXPECT_EQ(world.gate().released, kStreams);
  EXPECT_EQ(world.gate().rejected(), 0);
}

TEST_P(GrpcServer, RejectionsOfAStormAreHeldBack) {
  World world =
      make({.max_concurrent = 1}, {.storm = {.per_second = 10, .burst = 1, .batch = 1, .max_hold = 10s}});
  Holding holding(world);
  ASSERT_TRUE(eventually([&] { return world.stage.inside == 1; }));
  const auto stub = world.stub();
  const auto begin = steady_clock::now();
  for (int i = 0; i < 4; ++i) EXPECT_EQ(call(*stub, "a").error_code(), StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_GE(steady_clock::now() - begin, 200ms);  // the first at once, the others 100 ms apart
  world.stage.let_go();
}

TEST_P(GrpcServer, AStreamKeepsItsPlaceUntilItEnds) {
  World world = make({.max_concurrent = 1});
  const auto stub = world.stub();
  ClientContext context;
  const auto stream = stub->Chat(&context);
  Reply reply;
  ASSERT_TRUE(stream->Write(ask("a")) && stream->Read(&reply));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(call(*stub, "b").error_code(), StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_TRUE(stream->Write(ask("c")) && stream->Read(&reply));
  stream->WritesDone();
  EXPECT_TRUE(stream->Finish().ok());
  EXPECT_TRUE(eventually([&] { return world.gate().in_flight == 0; }));
  EXPECT_TRUE(call(*stub, "d").ok());
}

TEST_P(GrpcServer, AHandlerThatFailsOrThrowsGivesItsPlaceBackAsAFailure) {
  World world = make({.max_concurrent = 4, .max_queue = kGap});
  const auto stub = world.stub();
  EXPECT_EQ(call(*stub, "fail").error_code(), StatusCode::INTERNAL);
  EXPECT_EQ(call(*stub, "throw").error_code(), StatusCode::UNKNOWN);
  ClientContext context;
  Reply reply;
  EXPECT_EQ(stub->Other(&context, ask("throw"), &reply).error_code(), StatusCode::UNKNOWN);
  EXPECT_TRUE(eventually([&] { return world.gate().failed == 3; }));
  EXPECT_EQ(world.gate().in_flight, 0);
}

TEST_P(GrpcServer, AStockRetryingClientHonoursThePushback) {
  World world = make({.max_concurrent = 1}, {.rejections = {.retry = 150ms}});
  Holding holding(world);
  ASSERT_TRUE(eventually([&] { return world.stage.inside == 1; }));
  ::grpc::ChannelArguments arguments;
  arguments.SetServiceConfigJSON(
      R"({"methodConfig":[{"name":[{"service":"bulkhead.testing.Echo"}],"retryPolicy":{
    "maxAttempts":4,"initialBackoff":"0.001s","maxBackoff":"0.001s","backoffMultiplier":1,
    "retryableStatusCodes":["RESOURCE_EXHAUSTED"]}}]})");
  const auto stub = Echo::NewStub(world.channel(arguments));
  std::thread opens([&] {
    EXPECT_TRUE(eventually([&] { return sum(world.method("Unary").rejected) >= 1; }));
    world.stage.let_go();
  });
  const auto begin = steady_clock::now();
  EXPECT_TRUE(call(*stub, "a").ok());
  opens.join();
  const auto retries = world.method("Unary").retries;  // more than one where the machine is slow to open
  EXPECT_EQ(sum(world.method("Unary").rejected), retries);
  // Twice 150 ms for the normal priority; without the pushback it would have been back after 1 ms.
  EXPECT_GE(steady_clock::now() - begin, 300ms * retries);
}

TEST_P(GrpcServer, AnExecutionTimeoutEndsTheRpcAndThePlaceIsKeptUntilTheHandlerHasEnded) {
  World world = make({.max_concurrent = 1, .execution_timeout = 200ms});
  world.stage.deaf = true;
  const auto stub = world.stub();
  ClientContext context;
  const Status status = call(*stub, "hold", context);
  EXPECT_EQ(status.error_code(), StatusCode::DEADLINE_EXCEEDED);
  EXPECT_EQ(status.error_message(), "rejected (execution_timeout)");
  EXPECT_EQ(world.stage.inside, 1);
  EXPECT_EQ(call(*stub, "a").error_code(), StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(world.gate().in_flight, 1);
  world.stage.let_go();
  EXPECT_TRUE(eventually([&] { return world.gate().in_flight == 0; }));
  EXPECT_EQ(world.registry.get("echo")->snapshot().timed_out, 1);
  EXPECT_EQ(world.method("Unary").ended[StatusCode::DEADLINE_EXCEEDED], 1);
  EXPECT_TRUE(call(*stub, "b").ok());
}

TEST_P(GrpcServer, AnExecutionTimeoutCancelsAHandlerThatListens) {
  World world = make({.max_concurrent = 1, .max_queue = kGap, .execution_timeout = 300ms});
  const auto stub = world.stub();
  ClientContext context;
  const auto stream = stub->Chat(&context);
  Reply reply;
  EXPECT_TRUE(stream->Write(ask("hold")) && stream->Read(&reply));
  EXPECT_FALSE(stream->Read(&reply));
  EXPECT_EQ(stream->Finish().error_code(), StatusCode::DEADLINE_EXCEEDED);
  EXPECT_TRUE(eventually([&] { return world.gate().in_flight == 0; }));
  EXPECT_EQ(world.registry.get("echo")->snapshot().timed_out, 1);
}

TEST_P(GrpcServer, AnRpcThatEndsInTimeIsNotTouchedByItsExecutionTimeout) {
  World world = make({.max_concurrent = 2, .max_queue = 100, .execution_timeout = 10s});
  const auto stub = world.stub();
  for (int i = 0; i < 200; ++i) EXPECT_TRUE(call(*stub, "a").ok());
  EXPECT_TRUE(eventually([&] { return world.gate().succeeded == 200; }));
}

}  // namespace
}  // namespace bulkhead::grpc::tests
