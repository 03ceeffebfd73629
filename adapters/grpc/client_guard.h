// client_guard.h - the bulkheads of a gRPC client: concurrency limit, breaker and rate limit for the RPCs of a channel.
//
//   bulkhead::grpc::ClientGuard guard(registry, {.methods = {{.name = "/store.Shop/", .bulkhead = "shop"}}});
//   auto channel = guard.channel("dns:///shop:443", ::grpc::SslCredentials({}));
//   auto stub = store::Shop::NewStub(channel);                 // every RPC of the channel passes its bulkhead
//   ::grpc::ClientContext context;
//   bulkhead::grpc::pass_on_deadline(*served, context);       // inside a handler: no longer than its own caller waits
//   const ::grpc::Status status = stub->Buy(&context, lamp, &receipt);
//
// An RPC that is rejected never reaches the channel: no connection, no bytes. Its status is that of status.h, with
// `bulkhead-reason` in the trailing metadata. Without an entry for its method an RPC is not protected.
// The place is held from the start of the RPC until its status has arrived, or its ClientContext is gone. The status code
// goes to the breaker and the adaptive limiter (grpc::verdict()).
// The `execution_timeout` of the bulkhead cancels an RPC, with DEADLINE_EXCEEDED (status_for.execution_timeout).
// Retries: gRPC retries below this interceptor, so an RPC and all its attempts are one call: one place, one token of the rate
// limit, one outcome, the last. The server sees each attempt (MethodSnapshot::retries). A breaker and a cap on the
// client therefore bound RPCs, not attempts; bound those by `maxAttempts` and `retryThrottling` of the service config.
// Waiting: the deadline of the ClientContext is the deadline of the wait, and TryCancel() ends it. A unary RPC that is one
// batch of operations waits without a thread of its own, so in the callback API and with a completion queue its caller
// continues. gRPC makes several batches of a stream, of a unary RPC with a reactor and of one with ReadInitialMetadata().
// These block the thread that starts them (that calls ReadInitialMetadata()), because gRPC may issue the other batches
// before the RPC is admitted: use max_wait 0 for those that are started on a callback thread.
// Threads: every member may be called from any thread. The registry must outlive the guard, and the guard the RPCs of its
// channels.
// Cost: gRPC makes the interceptor, one allocation; one more for an RPC that waits.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/server_context.h>
#include <grpcpp/support/channel_arguments.h>
#include <grpcpp/support/client_interceptor.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bulkhead/registry.h"
#include "status.h"

namespace bulkhead::grpc {

struct ClientMethod {
  std::string name = "/";  // as Method::name of server_guard.h
  std::string bulkhead{};  // of the registry; empty: not protected
  Priority priority = Priority::normal;
  std::uint32_t cost = 1;
  std::chrono::nanoseconds max_wait = gate_default;  // in line; default: what the bulkhead says
};

struct ClientGuardOptions {
  std::vector<ClientMethod> methods{};
  StatusFor status_for{};
  std::function<Outcome(::grpc::StatusCode)> verdict{};  // default: grpc::verdict()
};

class ClientGuard {
 public:
  ClientGuard(Registry& registry, ClientGuardOptions options);  // std::invalid_argument if a method is wrong
  ~ClientGuard();
  ClientGuard(const ClientGuard&) = delete;
  ClientGuard& operator=(const ClientGuard&) = delete;

  using Factory = ::grpc::experimental::ClientInterceptorFactoryInterface;
  // A channel with the guard's interceptor, and `others` after it.
  std::shared_ptr<::grpc::Channel> channel(const std::string& target,
                                           const std::shared_ptr<::grpc::ChannelCredentials>& credentials,
                                           const ::grpc::ChannelArguments& arguments = {},
                                           std::vector<std::unique_ptr<Factory>> others = {});
  std::unique_ptr<Factory> interceptor();  // for a channel of your own making

  struct State;

 private:
  std::shared_ptr<State> state_;
};

// Gives `to` the deadline of the RPC that is served, if that is earlier than its own. Call it before `to` is used.
// A context of ClientContext::FromServerContext() needs it, too: gRPC gives the inherited deadline and cancellation to the call below
// the interceptors, so the wait in line does not see them, and ClientContext::deadline() does not show them.
void pass_on_deadline(const ::grpc::ServerContextBase& from, ::grpc::ClientContext& to);

}  // namespace bulkhead::grpc
