// Who calls and what: trusted peers, tenants, routers, health checks, TLS, metrics, wrong settings.
#include <gmock/gmock.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/health_check_service_interface.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <thread>

#include "echo_test.h"

namespace bulkhead::grpc::tests {
namespace {

using namespace std::chrono_literals;
using ::grpc::ClientContext;
using ::grpc::Status;
using ::grpc::StatusCode;
using ::testing::HasSubstr;

Status call(Echo::Stub& stub, const std::vector<std::pair<std::string, std::string>>& metadata = {},
            const std::string& text = "a", std::string* reason = nullptr) {
  ClientContext context;
  for (const auto& [key, value] : metadata) context.AddMetadata(key, value);
  Reply reply;
  Status status = stub.Unary(&context, ask(text), &reply);
  const auto found = context.GetServerTrailingMetadata().find("bulkhead-reason");
  if (reason && found != context.GetServerTrailingMetadata().end())
    reason->assign(found->second.data(), found->second.size());
  return status;
}

// A call with an empty message.
Status call_by_name(::grpc::GenericStub& stub, const std::string& method) {
  ::grpc::CompletionQueue queue;
  ClientContext context;
  const ::grpc::Slice empty("");
  const ::grpc::ByteBuffer request(&empty, 1);
  const auto rpc = stub.PrepareUnaryCall(&context, method, request, &queue);
  rpc->StartCall();
  ::grpc::ByteBuffer reply;
  Status status;
  rpc->Finish(&reply, &status, &queue);
  void* tag = nullptr;
  bool ok = false;
  EXPECT_TRUE(queue.Next(&tag, &ok));
  return status;
}
Status call_by_name(const World& world, const std::string& method) {
  ::grpc::GenericStub stub(world.channel());
  return call_by_name(stub, method);
}

struct Holding {
  explicit Holding(World& world) : stub(world.stub()), thread([this] { call(*stub, {}, "hold"); }) {}
  ~Holding() { thread.join(); }
  std::unique_ptr<Echo::Stub> stub;
  std::thread thread;
};

TEST(GrpcPeers, OnlyTrustedPeersMayRaiseThePriority) {
  for (const bool trusted : {false, true}) {
    ServerGuardOptions guard;
    if (trusted) guard.trusted_peers = {"127.0.0.0/8"};
    World world({.bulkhead = {.max_concurrent = 2, .critical_reserve = 0.5}, .guard = std::move(guard)});
    {
      const Holding holding(world);
      EXPECT_TRUE(eventually([&] { return world.stage.inside == 1; }));
      const auto stub = world.stub();
      EXPECT_EQ(call(*stub).error_code(), StatusCode::RESOURCE_EXHAUSTED);
      EXPECT_EQ(call(*stub, {{"priority", "u=0"}}).ok(), trusted);
      world.stage.let_go();
    }
  }
}

TEST(GrpcPeers, ATrustedPeersTenantHasABulkheadOfItsOwn) {
  World world(
      {.guard = {
           .methods = {{.name = "/", .bulkhead = "echo"}},
           .router = [](const Arrival& arrival) -> std::optional<Method> {
             if (arrival.metadata("x-tenant-id").empty()) return std::nullopt;
             return Method{.tenants = "customers"};
           },
           .trusts = [](const ::grpc::ServerContextBase& c) { return c.peer().starts_with("ipv4:"); }}});
  world.registry.define_tenants({.name = "customers", .each = {.max_concurrent = 1}, .max_tenants = 10});
  const auto stub = world.stub();
  EXPECT_TRUE(call(*stub).ok());
  EXPECT_TRUE(call(*stub, {{"x-tenant-id", "acme"}}).ok());
  EXPECT_TRUE(
      eventually([&] { return world.registry.get("customers/acme")->snapshot().gate.released == 1; }));
  EXPECT_EQ(world.gate().admitted, 1);
  world.registry.remove_tenants("customers");
  std::string reason;
  EXPECT_EQ(call(*stub, {{"x-tenant-id", "acme"}}, "a", &reason).error_code(), StatusCode::UNAVAILABLE);
  EXPECT_EQ(reason, "shutdown");
}

TEST(GrpcPeers, TheTenantsOfATrustedPeerShareTheQueue) {
  World world({.bulkhead = {.max_concurrent = 1, .max_queue = 20, .flow_queues = 64},
               .guard = {.trusted_peers = {"127.0.0.0/8"}}});
  constexpr int kNoisy = 6;
  std::vector<std::thread> calls;
  std::atomic<int> served{0}, place_of_quiet{0};
  world.stage.seen =
      [&](const ::grpc::ServerContextBase& context) {  // in the handler, where only one call is at a time
        const auto tenant = context.client_metadata().find("x-tenant-id");
        if (tenant == context.client_metadata().end()) return;
        const int place = ++served;
        if (tenant->second == "quiet") place_of_quiet = place;
      };
  {
    const Holding holding(world);
    ASSERT_TRUE(eventually([&] { return world.stage.inside == 1; }));
    const auto stub = world.stub();
    for (int i = 0; i <= kNoisy; ++i) {
      calls.emplace_back([&, quiet = i == kNoisy] {
        EXPECT_TRUE(call(*stub, {{"x-tenant-id", quiet ? "quiet" : "noisy"}}).ok());
      });
      ASSERT_TRUE(eventually([&, i] { return world.gate().waiting == i + 1; }));
    }
    world.stage.let_go();
    for (auto& thread : calls) thread.join();
  }
  EXPECT_EQ(served, kNoisy + 1);
  EXPECT_LE(place_of_quiet, 4) << "not behind all of the other tenant's";
}

TEST(GrpcPeers, TheTenantOfAPeerThatIsNotTrustedIsNotRead) {
  World world({.guard = {.methods = {{.name = "/", .bulkhead = "echo", .tenants = "customers"}}}});
  world.registry.define_tenants({.name = "customers", .each = {.max_concurrent = 1}, .max_tenants = 10});
  const auto stub = world.stub();
  EXPECT_TRUE(call(*stub, {{"x-tenant-id", "acme"}}).ok());
  EXPECT_TRUE(eventually([&] { return world.gate().released == 1; }));
  EXPECT_EQ(world.registry.find("customers/acme"), nullptr);
}

TEST(GrpcPeers, PriorityAndTenantAreReadFromTheMetadataThatIsConfigured) {
  ServerGuardOptions guard;
  guard.methods = {{.name = "/", .bulkhead = "echo", .tenants = "customers"}};
  guard.trusted_peers = {"127.0.0.0/8"};
  guard.tenant_key = "x-customer";
  guard.priority_key = "x-urgency";
  World world({.bulkhead = {.max_concurrent = 2, .critical_reserve = 0.5}, .guard = std::move(guard)});
  world.registry.define_tenants({.name = "customers", .each = {.max_concurrent = 1}, .max_tenants = 10});
  const auto stub = world.stub();
  EXPECT_TRUE(call(*stub, {{"x-customer", "acme"}, {"x-tenant-id", "other"}}).ok());
  EXPECT_TRUE(eventually([&] {
    const auto acme = world.registry.find("customers/acme");
    return acme && acme->snapshot().gate.released == 1;
  }));
  EXPECT_EQ(world.registry.find("customers/other"), nullptr);
  const Holding holding(world);
  EXPECT_TRUE(eventually([&] { return world.stage.inside == 1; }));
  EXPECT_FALSE(call(*stub, {{"priority", "u=0"}}).ok());
  EXPECT_TRUE(call(*stub, {{"x-urgency", "u=0"}}).ok());
  world.stage.let_go();
}

TEST(GrpcPeers, ARouterSeesMethodPeerAndMetadata) {
  std::string method, peer;
  World world({.guard = {.router = [&](const Arrival& arrival) -> std::optional<Method> {
                 method = arrival.method;
                 peer = arrival.peer;
                 return Method{.bulkhead = arrival.metadata("x-batch") == "1" ? "batch" : "echo"};
               }}});
  world.registry.add({.options = {.name = "batch", .max_concurrent = 1}});
  const auto stub = world.stub();
  EXPECT_TRUE(call(*stub, {{"x-batch", "1"}}).ok());
  EXPECT_EQ(method, "/bulkhead.testing.Echo/Unary");
  EXPECT_THAT(peer, HasSubstr("ipv4:127.0.0.1:"));
  EXPECT_TRUE(call(*stub).ok());
  EXPECT_TRUE(eventually([&] { return world.gate().released == 1; }));
  EXPECT_EQ(world.registry.get("batch")->snapshot().gate.admitted, 1);
}

// A client invents method names until the guard makes no more counters; what it has not seen by then is protected all the same.
// The server needs a callback service, here the health checks: without one gRPC calls each method that it does not have "unknown".
void invent_methods(const World& world) {
  ::grpc::GenericStub stub(world.channel());
  for (int i = 0; i < 1000; ++i)
    EXPECT_EQ(call_by_name(stub, "/invented.Service/M" + std::to_string(i)).error_code(),
              StatusCode::UNIMPLEMENTED);
  ASSERT_EQ(world.guard->snapshot().size(), 1000);
}

TEST(GrpcPeers, AMethodIsProtectedHoweverManyNamesClientsInvent) {
  for (const Api api : {Api::sync, Api::callback}) {
    ::grpc::EnableDefaultHealthCheckService(true);
    World world({.api = api,
                 .bulkhead = {.max_concurrent = 1},
                 .guard = {.methods = {{.name = "/bulkhead.testing.Echo/Unary", .bulkhead = "echo"},
                                       {.name = "/bulkhead.testing.Echo/", .bulkhead = "echo"},
                                       {.name = "/grpc.health.v1.Health/", .bulkhead = "echo"}}}});
    ::grpc::EnableDefaultHealthCheckService(false);
    invent_methods(world);
    const Holding holding(world);
    EXPECT_TRUE(eventually([&] { return world.stage.inside == 1; }));
    EXPECT_EQ(call(*world.stub()).error_code(), StatusCode::RESOURCE_EXHAUSTED);
    EXPECT_EQ(call_by_name(world, "/bulkhead.testing.Echo/Other").error_code(),
              StatusCode::RESOURCE_EXHAUSTED);
    EXPECT_EQ(sum(world.method("Unary").rejected), 1);
    EXPECT_EQ(sum(world.method("").rejected), 1);  // of all methods of the entry "/bulkhead.testing.Echo/"
    EXPECT_TRUE(call_by_name(world, "/grpc.health.v1.Health/Check").ok());
    world.stage.let_go();
  }
}

TEST(GrpcPeers, ARouterSeesTheMethodHoweverManyNamesClientsInvent) {
  for (const Api api : {Api::sync, Api::callback}) {
    std::string method;
    ::grpc::EnableDefaultHealthCheckService(true);
    World world({.api = api, .guard = {.router = [&](const Arrival& arrival) -> std::optional<Method> {
                               method = arrival.method;
                               return Method{.bulkhead = "echo"};
                             }}});
    ::grpc::EnableDefaultHealthCheckService(false);
    invent_methods(world);
    EXPECT_TRUE(call(*world.stub()).ok());
    EXPECT_EQ(method, "/bulkhead.testing.Echo/Unary");
  }
}

TEST(GrpcPeers, TheStatusOfAReasonAndTheNameAreSettings) {
  ServerGuardOptions guard;
  guard.rejections.status_for.concurrency_limit = StatusCode::UNAVAILABLE;
  guard.rejections.expose_names = http::ExposeNames::always;
  World world({.bulkhead = {.max_concurrent = 1}, .guard = std::move(guard)});
  const Holding holding(world);
  EXPECT_TRUE(eventually([&] { return world.stage.inside == 1; }));
  const auto stub = world.stub();
  const Status status = call(*stub);
  EXPECT_EQ(status.error_code(), StatusCode::UNAVAILABLE);
  EXPECT_EQ(status.error_message(),
            "bulkhead \"echo\" rejected (concurrency_limit): 1/1 running, 0/0 waiting");
  world.stage.let_go();
}

TEST(GrpcPeers, HealthChecksAreAnsweredWhileEverythingIsFull) {
  ::grpc::EnableDefaultHealthCheckService(true);
  World world({.bulkhead = {.max_concurrent = 1}, .guard = {.methods = {{.name = "/", .bulkhead = "echo"}}}});
  ::grpc::EnableDefaultHealthCheckService(false);
  const Holding holding(world);
  EXPECT_TRUE(eventually([&] { return world.stage.inside == 1; }));
  const Status status = call_by_name(world, "/grpc.health.v1.Health/Check");
  EXPECT_TRUE(status.ok()) << status.error_message();
  world.stage.let_go();
}

TEST(GrpcPeers, ReflectionIsAnsweredWhileEverythingIsFull) {
  ::grpc::reflection::
      InitProtoReflectionServerBuilderPlugin();  // for this and all later servers of the process
  World world({.bulkhead = {.max_concurrent = 1}, .guard = {.methods = {{.name = "/", .bulkhead = "echo"}}}});
  const Holding holding(world);
  EXPECT_TRUE(eventually([&] { return world.stage.inside == 1; }));
  ::grpc::GenericStub generic(world.channel());
  ::grpc::CompletionQueue queue;
  const auto done = [&queue] {
    void* tag = nullptr;
    bool ok = false;
    return queue.Next(&tag, &ok) && ok;
  };
  ClientContext context;
  const auto rpc =
      generic.PrepareCall(&context, "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", &queue);
  rpc->StartCall(this);
  ASSERT_TRUE(done());
  const ::grpc::Slice list_services("\x3a\x00", 2);  // field 7, an empty text
  rpc->WriteLast(::grpc::ByteBuffer(&list_services, 1), {}, this);
  ASSERT_TRUE(done());
  ::grpc::ByteBuffer reply;
  rpc->Read(&reply, this);
  ASSERT_TRUE(done());
  ::grpc::Slice text;
  ASSERT_TRUE(reply.DumpToSingleSlice(&text).ok());
  EXPECT_THAT(std::string(text.begin(), text.end()), HasSubstr("bulkhead.testing.Echo"));
  Status status;
  rpc->Finish(&status, this);
  ASSERT_TRUE(done());
  EXPECT_TRUE(status.ok()) << status.error_message();
  world.stage.let_go();
}

TEST(GrpcPeers, ABulkheadThatWasRemovedRejectsAndOneThatIsBackServes) {
  World world({.bulkhead = {.max_concurrent = 4}});
  const auto stub = world.stub();
  EXPECT_TRUE(call(*stub).ok());
  world.registry.remove("echo");
  std::string reason;
  EXPECT_EQ(call(*stub, {}, "a", &reason).error_code(), StatusCode::UNAVAILABLE);
  EXPECT_EQ(reason, "shutdown");
  world.registry.add({.options = {.name = "echo", .max_concurrent = 1}});
  EXPECT_TRUE(call(*stub).ok());
}

TEST(GrpcPeers, MetricsOfAMethodAreForPrometheus) {
  World world({.bulkhead = {.max_concurrent = 4}});
  const auto stub = world.stub();
  EXPECT_TRUE(call(*stub).ok());
  EXPECT_TRUE(eventually([&] { return world.method("Unary").in_flight == 0; }));
  const std::string page = world.guard->metrics();
  const std::string labels = "{grpc_method=\"/bulkhead.testing.Echo/Unary\"";
  EXPECT_THAT(page, HasSubstr("# TYPE bulkhead_grpc_server_started_total counter\n"
                              "bulkhead_grpc_server_started_total" +
                              labels + "} 1\n"));
  EXPECT_THAT(page,
              HasSubstr("bulkhead_grpc_server_rejected_total" + labels + ",reason=\"queue_limit\"} 0\n"));
  EXPECT_THAT(page, HasSubstr("bulkhead_grpc_server_ended_total" + labels + ",code=\"OK\"} 1\n"));
}

TEST(GrpcPeers, ThePageOfTheFormatsNamesEveryMetric) {
  std::ifstream file(METRICS_PAGE);
  ASSERT_TRUE(file);
  const std::string page((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  Registry registry;
  const ServerGuard guard(registry, {});
  std::istringstream lines(guard.metrics());
  int families = 0;
  for (std::string hash, word, name, type; lines >> hash >> word >> name;) {
    std::getline(lines, type);
    if (word != "TYPE") continue;
    ++families;
    EXPECT_THAT(page, HasSubstr("| `" + name + "` |" + type + " |"));
  }
  EXPECT_EQ(families, 7);
}

TEST(GrpcPeers, AGuardedServiceOnAServerWithTheInterceptorCountsEachRpcOnce) {
  for (const Api api : {Api::wrapped, Api::wrapped_callback}) {
    World world({.api = api, .bulkhead = {.max_concurrent = 1, .max_queue = 4}, .install_too = true});
    const auto stub = world.stub();
    ASSERT_TRUE(call(*stub).ok());
    ASSERT_TRUE(eventually([&] { return world.method("Unary").ended[0] == 1; }));
    EXPECT_EQ(world.method("Unary").started, 1u);
    EXPECT_EQ(world.method("Unary").admitted, 1u);
    EXPECT_EQ(world.gate().in_flight, 0u);
  }
}

TEST(GrpcPeers, AMethodWithoutAnInstalledGuardIsRejectedAndSaysWhy) {
  Stage stage;
  Registry registry;
  const ServerGuard guard(registry, {});
  const auto service = make_echo(Api::sync, stage, guard);
  ::grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", ::grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(service.get());
  const auto server = builder.BuildAndStart();
  const auto stub = Echo::NewStub(
      ::grpc::CreateChannel("127.0.0.1:" + std::to_string(port), ::grpc::InsecureChannelCredentials()));
  const Status status = call(*stub);
  EXPECT_EQ(status.error_code(), StatusCode::INTERNAL);
  EXPECT_THAT(status.error_message(), HasSubstr("ServerGuard::install(builder)"));
  EXPECT_EQ(stage.runs, 0);
  server->Shutdown();
}

std::string made(const std::string& file) {
  std::stringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

TEST(GrpcPeers, RpcsOverTlsAreGuardedAlike) {
  const std::string directory = ::testing::TempDir() + "bulkhead_grpc_" + std::to_string(::getpid());
  const std::string command =
      "mkdir -p " + directory + " && cd " + directory +
      " && openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext "
      "subjectAltName=DNS:localhost,IP:127.0.0.1 -keyout key -out crt >/dev/null 2>&1";
  ASSERT_EQ(std::system(command.c_str()), 0);
  const std::string key = made(directory + "/key"), certificate = made(directory + "/crt");
  ASSERT_EQ(std::system(("rm -r " + directory).c_str()), 0);
  for (const Api api : {Api::sync, Api::callback}) {
    ::grpc::SslServerCredentialsOptions tls;
    tls.pem_key_cert_pairs = {{key, certificate}};
    World world(
        {.api = api, .bulkhead = {.max_concurrent = 1}, .credentials = ::grpc::SslServerCredentials(tls)});
    const auto credentials =
        ::grpc::SslCredentials({.pem_root_certs = certificate, .pem_private_key = "", .pem_cert_chain = ""});
    const auto holding = Echo::NewStub(::grpc::CreateChannel(world.address("localhost"), credentials));
    const auto stub = Echo::NewStub(::grpc::CreateChannel(world.address("localhost"), credentials));
    std::thread held([&] { EXPECT_TRUE(call(*holding, {}, "hold").ok()); });
    EXPECT_TRUE(eventually([&] { return world.stage.inside == 1; }));
    std::string reason;
    EXPECT_EQ(call(*stub, {}, "a", &reason).error_code(), StatusCode::RESOURCE_EXHAUSTED);
    EXPECT_EQ(reason, "concurrency_limit");
    {
      ClientContext context;
      Reply reply;
      const auto stream = stub->Chat(&context);
      EXPECT_FALSE(stream->Read(&reply));
      EXPECT_EQ(stream->Finish().error_code(), StatusCode::RESOURCE_EXHAUSTED);
    }
    world.stage.let_go();
    held.join();
    EXPECT_TRUE(eventually([&] { return world.gate().in_flight == 0; }));
    EXPECT_TRUE(call(*stub).ok());
    EXPECT_TRUE(eventually([&] { return world.gate().in_flight == 0; }));
    {
      ClientContext context;
      Reply reply;
      const auto stream = stub->Chat(&context);
      EXPECT_TRUE(stream->Write(ask("a")) && stream->Read(&reply));
      EXPECT_EQ(world.gate().in_flight, 1);
      stream->WritesDone();
      EXPECT_TRUE(stream->Finish().ok());
    }
    EXPECT_TRUE(eventually([&] { return world.gate().in_flight == 0; }));
  }
}

}  // namespace
}  // namespace bulkhead::grpc::tests
