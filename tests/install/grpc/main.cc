// A guarded gRPC server and client as a stranger uses them: the server starts, and a full client rejects before the channel.
#include <bulkhead/adapters/grpc/client_guard.h>
#include <bulkhead/adapters/grpc/reactor.h>
#include <bulkhead/adapters/grpc/server_guard.h>
#include <bulkhead/adapters/grpc/service.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <cstdio>
#include <future>

int main() {
  bulkhead::Registry registry;
  registry.add({.options = {.name = "shop", .max_concurrent = 1}});
  bulkhead::grpc::ServerGuard guard(registry, {.methods = {{.name = "/", .bulkhead = "shop"}}});
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  grpc::CallbackGenericService service;
  builder.RegisterCallbackGenericService(&service);
  guard.install(builder);
  const auto server = builder.BuildAndStart();
  if (!server) return 1;

  bulkhead::grpc::ClientGuard calls(registry, {.methods = {{.name = "/", .bulkhead = "shop"}}});
  grpc::GenericStub stub(
      calls.channel("127.0.0.1:" + std::to_string(port), grpc::InsecureChannelCredentials()));
  const auto place = registry.get("shop")->acquire();
  grpc::ClientContext context;
  const grpc::Slice empty("");
  const grpc::ByteBuffer request(&empty, 1);
  grpc::ByteBuffer reply;
  std::promise<grpc::Status> done;
  stub.UnaryCall(&context, "/shop.Shop/Buy", grpc::StubOptions(), &request, &reply,
                 [&](grpc::Status status) { done.set_value(std::move(status)); });
  const grpc::Status status = done.get_future().get();
  std::printf("port %d: %s\n", port, status.error_message().c_str());
  server->Shutdown();
  return port > 0 && place && status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED ? 0 : 1;
}
