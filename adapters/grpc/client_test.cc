// The guard of a client against real servers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <thread>

#include "client_guard.h"
#include "echo_test.h"

namespace bulkhead::grpc::tests {
namespace {

using namespace std::chrono_literals;
using ::grpc::ClientContext;
using ::grpc::Status;
using ::grpc::StatusCode;
using std::chrono::steady_clock;
using ::testing::HasSubstr;

class GrpcClient : public ::testing::Test {
 protected:
  // A server that admits everything, and a client with the bulkhead "out".
  explicit GrpcClient() : world_({.bulkhead = {.max_concurrent = 100, .max_queue = 100}}) {}

  Echo::Stub& guarded(BulkheadOptions options, ClientGuardOptions guard = {}) {
    options.name = "out";
    out_ = registry_.add({.options = options});
    if (guard.methods.empty()) guard.methods = {{.name = "/bulkhead.testing.Echo/", .bulkhead = "out"}};
    guard_ = std::make_unique<ClientGuard>(registry_, std::move(guard));
    stub_ =
        Echo::NewStub(guard_->channel(world_.address(), ::grpc::InsecureChannelCredentials(), arguments_));
    return *stub_;
  }
  Status call(const std::string& text, ClientContext& context) {
    Reply reply;
    return stub_->Unary(&context, ask(text), &reply);
  }
  Status call(const std::string& text) {
    ClientContext context;
    return call(text, context);
  }
  std::uint64_t arrived() const { return world_.method("Unary").started; }

  World world_;
  Registry registry_;
  std::shared_ptr<Bulkhead> out_;
  ::grpc::ChannelArguments arguments_;
  std::unique_ptr<ClientGuard> guard_;
  std::unique_ptr<Echo::Stub> stub_;
};

std::string reason(const ClientContext& context) {
  const auto& all = context.GetServerTrailingMetadata();
  const auto found = all.find("bulkhead-reason");
  return found == all.end() ? "" : std::string(found->second.data(), found->second.size());
}

TEST_F(GrpcClient, ACallTakesAPlaceAndGivesItBackWithItsStatus) {
  guarded({.max_concurrent = 1});
  EXPECT_TRUE(call("a").ok());
  EXPECT_EQ(call("fail").error_code(), StatusCode::INTERNAL);
  const Snapshot s = out_->snapshot().gate;
  EXPECT_EQ(s.in_flight, 0);
  EXPECT_EQ(s.succeeded, 1);
  EXPECT_EQ(s.failed, 1);
}

TEST_F(GrpcClient, ARejectedCallNeverReachesTheChannel) {
  guarded({.max_concurrent = 1});
  auto holding = std::async(std::launch::async, [&] { return call("hold"); });
  ASSERT_TRUE(eventually([&] { return world_.stage.inside == 1; }));
  ClientContext context;
  const Status status = call("a", context);
  EXPECT_EQ(status.error_code(), StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), HasSubstr("bulkhead \"out\" rejected (concurrency_limit)"));
  EXPECT_EQ(reason(context), "concurrency_limit");
  {
    ClientContext streaming;
    const auto stream = stub_->Chat(&streaming);
    Reply reply;
    EXPECT_FALSE(stream->Write(ask("a")));
    EXPECT_FALSE(stream->Read(&reply));
    EXPECT_EQ(stream->Finish().error_code(), StatusCode::RESOURCE_EXHAUSTED);
  }
  {
    ClientContext streaming;
    Reply reply;
    const auto writer = stub_->Upload(&streaming, &reply);
    writer->WritesDone();
    EXPECT_EQ(writer->Finish().error_code(), StatusCode::RESOURCE_EXHAUSTED);
  }
  {
    ClientContext streaming;
    const auto reader = stub_->Download(&streaming, ask("x", 2));
    Reply reply;
    EXPECT_FALSE(reader->Read(&reply));
    EXPECT_EQ(reader->Finish().error_code(), StatusCode::RESOURCE_EXHAUSTED);
  }
  world_.stage.let_go();
  EXPECT_TRUE(holding.get().ok());
  EXPECT_EQ(arrived(), 1);
  EXPECT_EQ(world_.guard->snapshot().size(), 1);
}

TEST_F(GrpcClient, FailuresOpenTheBreakerAndItsRejectionsNeverReachTheChannel) {
  guarded({.max_concurrent = 4, .breaker = BreakerOptions{.window_calls = 4, .minimum_calls = 4}});
  for (int i = 0; i < 4; ++i) EXPECT_EQ(call("fail").error_code(), StatusCode::INTERNAL);
  ClientContext context;
  EXPECT_EQ(call("a", context).error_code(), StatusCode::UNAVAILABLE);
  EXPECT_EQ(reason(context), "breaker_open");
  EXPECT_EQ(arrived(), 4);
}

TEST_F(GrpcClient, ARateLimitRejectsWhatIsTooMuch) {
  guarded({.max_concurrent = 4, .rate_limit = RateLimiterOptions{.rate = 2, .per = std::chrono::hours(1)}});
  EXPECT_TRUE(call("a").ok() && call("b").ok());
  ClientContext context;
  EXPECT_EQ(call("c", context).error_code(), StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(reason(context), "rate_limit");
  EXPECT_EQ(arrived(), 2);
}

TEST_F(GrpcClient, CallsWaitInLineAndTheCapHolds) {
  guarded({.max_concurrent = 2, .max_queue = 100});
  world_.stage.work_us = 300;
  std::vector<std::thread> callers;
  std::atomic<int> ok{0};
  for (int i = 0; i < 20; ++i)
    callers.emplace_back([&] {
      for (int n = 0; n < 20; ++n) ok += call("a").ok();
    });
  for (auto& c : callers) c.join();
  EXPECT_EQ(ok, 400);
  EXPECT_EQ(world_.stage.peak, 2);
  EXPECT_EQ(out_->snapshot().gate.in_flight, 0);
}

TEST_F(GrpcClient, ACallInLineIsCancelledByItsContextAndByItsDeadline) {
  guarded({.max_concurrent = 1, .max_queue = 4});
  auto holding = std::async(std::launch::async, [&] { return call("hold"); });
  ASSERT_TRUE(eventually([&] { return world_.stage.inside == 1; }));
  ClientContext cancelled;
  auto waiting = std::async(std::launch::async, [&] { return call("a", cancelled); });
  ASSERT_TRUE(eventually([&] { return out_->snapshot().gate.waiting == 1; }));
  cancelled.TryCancel();
  EXPECT_EQ(waiting.get().error_code(), StatusCode::CANCELLED);
  ClientContext late;
  late.set_deadline(std::chrono::system_clock::now() + 30ms);
  EXPECT_EQ(call("a", late).error_code(), StatusCode::DEADLINE_EXCEEDED);
  ClientContext stream_late;
  stream_late.set_deadline(std::chrono::system_clock::now() + 30ms);
  EXPECT_EQ(stub_->Chat(&stream_late)->Finish().error_code(), StatusCode::DEADLINE_EXCEEDED);
  world_.stage.let_go();
  EXPECT_TRUE(holding.get().ok());
  EXPECT_EQ(arrived(), 1);
}

TEST_F(GrpcClient, TheCallbackApiWaitsWithoutAThread) {
  guarded({.max_concurrent = 1, .max_queue = 4});
  auto holding = std::async(std::launch::async, [&] { return call("hold"); });
  ASSERT_TRUE(eventually([&] { return world_.stage.inside == 1; }));
  ClientContext context;
  const Ask request = ask("a");
  Reply reply;
  std::promise<Status> done;
  stub_->async()->Unary(&context, &request, &reply,
                        [&](Status status) { done.set_value(std::move(status)); });
  EXPECT_EQ(out_->snapshot().gate.waiting, 1);  // and this thread has not waited
  world_.stage.let_go();
  EXPECT_TRUE(done.get_future().get().ok());
  EXPECT_EQ(reply.text(), "a");
  EXPECT_TRUE(holding.get().ok());
}

// Collects the tags of an RPC in a completion queue; false: one did not arrive.
bool arrive(::grpc::CompletionQueue& queue, int tags) {
  for (int i = 0; i < tags; ++i) {
    void* tag = nullptr;
    bool ok = false;
    if (queue.AsyncNext(&tag, &ok, std::chrono::system_clock::now() + 10s) !=
        ::grpc::CompletionQueue::GOT_EVENT)
      return false;
  }
  return true;
}

TEST_F(GrpcClient, AnAsynchronousCallWaitsWithoutAThread) {
  guarded({.max_concurrent = 1, .max_queue = 4});
  auto holding = std::async(std::launch::async, [&] { return call("hold"); });
  ASSERT_TRUE(eventually([&] { return world_.stage.inside == 1; }));
  ::grpc::CompletionQueue queue;
  ClientContext context;
  const auto rpc = stub_->PrepareAsyncUnary(&context, ask("a"), &queue);
  rpc->StartCall();
  Reply reply;
  Status status;
  rpc->Finish(&reply, &status, this);
  EXPECT_EQ(out_->snapshot().gate.waiting, 1);  // and this thread has not waited
  world_.stage.let_go();
  EXPECT_TRUE(arrive(queue, 1) && status.ok());
  EXPECT_EQ(reply.text(), "a");
  EXPECT_TRUE(holding.get().ok());
}

TEST_F(GrpcClient, ACallThatReadsItsInitialMetadataFirstWaitsThere) {
  guarded({.max_concurrent = 1, .max_queue = 4, .max_wait = 50ms});
  auto holding = std::async(std::launch::async, [&] { return call("hold"); });
  ASSERT_TRUE(eventually([&] { return world_.stage.inside == 1; }));
  for (const bool full : {true, false}) {
    if (!full) {
      world_.stage.let_go();
      EXPECT_TRUE(holding.get().ok());
    }
    ::grpc::CompletionQueue queue;
    ClientContext context;
    const auto rpc = stub_->PrepareAsyncUnary(&context, ask("a"), &queue);
    rpc->StartCall();
    rpc->ReadInitialMetadata(this);
    EXPECT_EQ(out_->snapshot().gate.waiting, 0);  // decided: nothing may be issued before that
    Reply reply;
    Status status;
    rpc->Finish(&reply, &status, this);
    const bool ended = arrive(queue, 2);
    EXPECT_TRUE(ended);
    if (!ended) {  // the queue must be empty when it goes
      context.TryCancel();
      arrive(queue, 1);
    }
    EXPECT_EQ(status.error_code(), full ? StatusCode::RESOURCE_EXHAUSTED : StatusCode::OK);
  }
}

TEST_F(GrpcClient, AUnaryCallWithAReactorWaitsWhereItStarts) {
  struct Reactor final : ::grpc::ClientUnaryReactor {
    void OnDone(const Status& status) override { done.set_value(status); }
    std::promise<Status> done;
  };
  guarded({.max_concurrent = 1, .max_queue = 4, .max_wait = 50ms});
  auto holding = std::async(std::launch::async, [&] { return call("hold"); });
  ASSERT_TRUE(eventually([&] { return world_.stage.inside == 1; }));
  for (const bool full : {true, false}) {
    if (!full) {
      world_.stage.let_go();
      EXPECT_TRUE(holding.get().ok());
    }
    ClientContext context;
    const Ask request = ask("a");
    Reply reply;
    Reactor reactor;
    stub_->async()->Unary(&context, &request, &reply, &reactor);
    reactor.StartCall();
    EXPECT_EQ(out_->snapshot().gate.waiting, 0);
    EXPECT_EQ(reactor.done.get_future().get().error_code(),
              full ? StatusCode::RESOURCE_EXHAUSTED : StatusCode::OK);
  }
}

TEST_F(GrpcClient, AStreamHoldsItsPlaceUntilItIsFinishedOrAbandoned) {
  guarded({.max_concurrent = 1});
  {
    ClientContext context;
    const auto stream = stub_->Chat(&context);
    Reply reply;
    EXPECT_TRUE(stream->Write(ask("a")) && stream->Read(&reply));
    EXPECT_EQ(out_->snapshot().gate.in_flight, 1);
    stream->WritesDone();
    EXPECT_TRUE(stream->Finish().ok());
    EXPECT_EQ(out_->snapshot().gate.in_flight, 0);
  }
  {
    ClientContext context;
    const auto stream = stub_->Chat(&context);
    EXPECT_TRUE(stream->Write(ask("a")));
    context.TryCancel();
  }
  EXPECT_EQ(out_->snapshot().gate.in_flight, 0);
  EXPECT_TRUE(call("a").ok());
}

TEST_F(GrpcClient, AnRpcAndTheRetriesOfGrpcAreOneCall) {
  world_.registry.resize("echo", 1);
  world_.registry.resize_queue("echo", 0);
  arguments_.SetServiceConfigJSON(
      R"({"methodConfig":[{"name":[{"service":"bulkhead.testing.Echo"}],"retryPolicy":{
    "maxAttempts":5,"initialBackoff":"0.001s","maxBackoff":"0.001s","backoffMultiplier":1,
    "retryableStatusCodes":["RESOURCE_EXHAUSTED"]}}]})");
  guarded({.max_concurrent = 4});
  const auto plain = world_.stub();
  auto holding = std::async(std::launch::async, [&] {
    ClientContext context;
    Reply reply;
    return plain->Unary(&context, ask("hold"), &reply);
  });
  ASSERT_TRUE(eventually([&] { return world_.stage.inside == 1; }));
  auto retried = std::async(std::launch::async, [&] { return call("a"); });
  ASSERT_TRUE(eventually([&] { return sum(world_.method("Unary").rejected) == 1; }));
  EXPECT_EQ(out_->snapshot().gate.in_flight, 1);  // between its attempts
  world_.stage.let_go();
  EXPECT_TRUE(retried.get().ok());
  EXPECT_TRUE(holding.get().ok());
  EXPECT_EQ(world_.method("Unary").retries, 1);
  EXPECT_EQ(out_->snapshot().gate.admitted, 1);
  EXPECT_EQ(out_->snapshot().gate.succeeded, 1);
}

TEST_F(GrpcClient, ADeadlineIsPassedOn) {
  ::grpc::ServerContext served;  // without a deadline
  ClientContext own;
  const auto soon = std::chrono::system_clock::now() + 1s;
  own.set_deadline(soon);
  pass_on_deadline(served, own);
  EXPECT_LE(own.deadline() - soon, 1us);
}

TEST_F(GrpcClient, AServerPassesItsDeadlineOnToTheNextOne) {
  guarded({.max_concurrent = 4});
  World front({.bulkhead = {.max_concurrent = 4}});
  std::chrono::system_clock::time_point arrived;
  world_.stage.seen = [&](const ::grpc::ServerContextBase& context) { arrived = context.deadline(); };
  front.stage.seen = [&](const ::grpc::ServerContextBase& served) {
    ClientContext context;
    pass_on_deadline(served, context);
    EXPECT_TRUE(call("a", context).ok());
  };
  const auto stub = front.stub();
  ClientContext context;
  const auto deadline = std::chrono::system_clock::now() + 5s;
  context.set_deadline(deadline);
  Reply reply;
  EXPECT_TRUE(stub->Unary(&context, ask("a"), &reply).ok());
  EXPECT_LE(arrived - deadline, 1s);  // gRPC sends the time that is left, and rounds it
  EXPECT_GE(arrived - deadline, -4s);
}

TEST_F(GrpcClient, AContextOfTheServersNeedsItsDeadlineForTheWait) {
  guarded({.max_concurrent = 1, .max_queue = 4, .max_wait = 10s});
  auto holding = std::async(std::launch::async, [&] { return call("hold"); });
  ASSERT_TRUE(eventually([&] { return world_.stage.inside == 1; }));
  World front({.bulkhead = {.max_concurrent = 4}});
  Status inner;
  front.stage.seen = [&](const ::grpc::ServerContextBase& served) {
    const auto context = ClientContext::FromServerContext(static_cast<const ::grpc::ServerContext&>(served));
    EXPECT_EQ(context->deadline(), std::chrono::system_clock::time_point::max());
    pass_on_deadline(served, *context);
    inner = call("a", *context);
  };
  const auto stub = front.stub();
  ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + 100ms);
  Reply reply;
  stub->Unary(&context, ask("a"), &reply);  // late, or just in time with the status of the inner RPC
  EXPECT_TRUE(eventually([&] { return front.stage.inside == 0 && front.gate().in_flight == 0; }));
  EXPECT_EQ(inner.error_code(), StatusCode::DEADLINE_EXCEEDED);
  EXPECT_EQ(out_->snapshot().gate.waiting, 0);
  world_.stage.let_go();
  EXPECT_TRUE(holding.get().ok());
}

TEST_F(GrpcClient, AnExecutionTimeoutEndsTheRpcOfAClient) {
  guarded({.max_concurrent = 1, .execution_timeout = 30ms});
  const Status status = call("hold");
  EXPECT_EQ(status.error_code(), StatusCode::DEADLINE_EXCEEDED);
  EXPECT_THAT(status.error_message(), HasSubstr("execution_timeout"));
  EXPECT_EQ(out_->snapshot().gate.in_flight, 0);
  EXPECT_EQ(out_->snapshot().timed_out, 1);
  EXPECT_TRUE(eventually([&] { return world_.stage.inside == 0; }));  // the server has heard of it
}

TEST_F(GrpcClient, AWrongEntryNamesThePlaceAndTheFix) {
  registry_.add({.options = {.name = "out", .max_concurrent = 1}});
  const auto wrong = [&](ClientMethod method) -> std::string {
    try {
      const ClientGuard guard(registry_, {.methods = {{.name = "/", .bulkhead = "out"}, std::move(method)}});
    } catch (const std::invalid_argument& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_EQ(wrong({.name = "Shop.Buy"}),
            "methods[1].name: \"Shop.Buy\" names no gRPC method; write /package.Service/Method, "
            "/package.Service/ or /");
  EXPECT_EQ(wrong({.name = "/"}), "methods[1].name: \"/\" is there twice; remove one");
  EXPECT_THAT(wrong({.name = "/a.B/", .bulkhead = "ou"}), HasSubstr("\"ou\""));
  EXPECT_EQ(wrong({.name = "/a.B/", .cost = 0}), "methods[1].cost: must be at least 1");
}

}  // namespace
}  // namespace bulkhead::grpc::tests
