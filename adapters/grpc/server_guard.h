// server_guard.h - the bulkheads of a gRPC server: which one an RPC needs, how long it may wait, and the status of a
// rejected one.
//
//   bulkhead::grpc::ServerGuard guard(registry, {.methods = {{.name = "/store.Shop/Buy", .bulkhead = "payments"},
//                                                            {.name = "/store.Shop/", .bulkhead = "shop"}}});
//   ::grpc::ServerBuilder builder;
//   guard.install(builder);                                    // tells guard(), unary() and start() of each RPC
//   builder.RegisterService(&service);
//
// Both APIs: GuardedService (service.h) for a whole service; it needs no install(). Callback API: or reactor.h.
// Synchronous API: or the first line of each method:
//
//   class Payments : public store::Shop::Service {
//     ::grpc::Status Buy(::grpc::ServerContext* context, const store::Order* order, store::Receipt* receipt) override {
//       if (auto rejected = bulkhead::grpc::guard(context)) return *rejected;
//       return pay(*order, *receipt);
//     }
//   };
//
// The place is held until the RPC has ended: its status has been sent, or it was cancelled and its handler has
// returned (callback API: OnDone has run). That includes streams, and handlers that throw.
// A rejected RPC gets a Trailers-Only response: the status of status.h, `grpc-retry-pushback-ms` and `bulkhead-reason`.
// The `execution_timeout` of the bulkhead ends an RPC: its client gets DEADLINE_EXCEEDED at once (status_for.execution_timeout), the
// handler sees a cancelled RPC (IsCancelled(), OnCancel()), and the place is kept until the handler has ended.
// The deadline of the RPC is the deadline of its wait; a cancelled RPC leaves the line (synchronous API: within 5 ms).
// A call between the same two processes may arrive before the place of the one before it is free: the client sees the
// status a moment before the server has ended the RPC. Give the bulkhead a line (max_queue), however short.
//
// Methods: the entry with the longest matching name counts. "/store.Shop/Buy" is one method, "/store.Shop/" all of a
// service, "/" all. A bulkhead is looked up in the registry for each RPC; while it is not there, RPCs are rejected
// (Reason::shutdown). An entry with `tenants` gives each tenant its own bulkhead. In every bulkhead with flow_queues the
// tenants share the queue: the tenant is the flow of the call.
// Priority and tenant are metadata of the RPC. Every client may lower the priority of the method, only trusted peers may
// raise it or name a tenant. The priority is written as in RFC 9218 ("u=0" to "u=7"; http_hints.h).
//
// Threads: every member may be called from any thread. The registry outlives the guard, the guard outlives the server.
// Synchronous API: gRPC gives each RPC a thread, also while it waits in line; so `max_queue` bounds threads, too.
// Not for the asynchronous API (completion queues): guard() rejects there with INTERNAL.
// Cost of install(): a synchronous RPC gets an interceptor (two allocations), which gRPC calls once for each batch of
// operations; a callback RPC gets none. `make bench-grpc` measures it.
#pragma once

#include <grpcpp/server_builder.h>
#include <grpcpp/server_context.h>
#include <grpcpp/support/server_interceptor.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "bulkhead/http_guard.h"
#include "bulkhead/http_hints.h"
#include "bulkhead/registry.h"
#include "status.h"

namespace bulkhead::grpc {

struct Method {
  std::string name = "/";
  std::string bulkhead{};  // of the registry; empty, and no tenants: the method is not protected
  std::string tenants{};   // a set of the registry: an RPC with a tenant gets that tenant's bulkhead
  Priority priority = Priority::normal;
  std::uint32_t cost = 1;
  std::chrono::nanoseconds max_wait = gate_default;  // in line; default: what the bulkhead says
};

// What a router may look at.
struct Arrival {
  std::string_view method;  // "/store.Shop/Buy"
  std::string_view peer;    // as gRPC writes it: "ipv4:10.0.0.7:51514"
  bool trusted = false;
  http::HeaderLookup metadata;  // names in lower case
};

struct ServerGuardOptions {
  std::vector<Method> methods{};
  // Asked first; nullopt: `methods` decide. It must not block, and must not throw.
  std::function<std::optional<Method>(const Arrival&)> router{};
  // The peers whose priorities and tenants are accepted: addresses and networks, and peers for which `trusts` is true, for
  // example by their certificate.
  std::vector<std::string> trusted_peers{};
  std::function<bool(const ::grpc::ServerContextBase&)> trusts{};
  std::string priority_key = "priority";   // metadata, in lower case; empty: not read
  std::string tenant_key = "x-tenant-id";  // the same
  // Never protected, also if "/" matches: a server that is full is still healthy.
  std::vector<std::string> exempt = {"/grpc.health.v1.", "/grpc.reflection."};
  RejectionOptions rejections{};
  // Rejections above a rate are delayed, so that clients that call again at once do not keep the server busy with
  // rejections (http_guard.h). In the synchronous API each delayed rejection keeps its thread. An RPC costs more than an
  // HTTP request, and batches of them delay the other methods, so fewer are sent, one at a time.
  http::StormOptions storm{.per_second = 250, .batch = 1};
  std::function<Outcome(::grpc::StatusCode)> verdict{};  // default: grpc::verdict()
};

struct MethodSnapshot {
  std::string
      method;  // after 1000 names, for those that are new: the entry or the exempt prefix that they match, else "/"
  std::uint64_t started = 0;   // RPCs that gRPC delivered
  std::uint64_t admitted = 0;  // that went on to their handler, also without a bulkhead
  std::uint64_t retries = 0;   // that a client's gRPC sent again (grpc-previous-rpc-attempts)
  std::uint32_t in_flight = 0, waiting = 0;
  std::array<std::uint64_t, kReasons> rejected{};
  std::array<std::uint64_t, 17> ended{};   // admitted RPCs, by the status code that was sent
  std::uint64_t ended_without_status = 0;  // the client was gone first
};

namespace detail {
class GuardedMethod;
}

class ServerGuard {
 public:
  // std::invalid_argument if a method, a network or a name is wrong.
  ServerGuard(Registry& registry, ServerGuardOptions options);
  ~ServerGuard();
  ServerGuard(const ServerGuard&) = delete;
  ServerGuard& operator=(const ServerGuard&) = delete;

  using Factory = ::grpc::experimental::ServerInterceptorFactoryInterface;
  // Gives the builder the guard's interceptor and `others`, instead of those it has.
  void install(::grpc::ServerBuilder& builder, std::vector<std::unique_ptr<Factory>> others = {});
  // The same for a builder of your own making. It must be the first: gRPC runs received data through the interceptors from
  // the last to the first, and between this one and the handler nothing may move the RPC to another thread.
  std::unique_ptr<Factory> interceptor();

  std::vector<MethodSnapshot> snapshot() const;  // methods with at least one RPC, by name
  std::string metrics() const;  // the same for Prometheus: bulkhead_grpc_server_*, text 0.0.4

  struct State;

 private:
  friend class detail::GuardedMethod;
  std::shared_ptr<State> state_;
};

// Synchronous API: takes the place of this RPC, and blocks while the RPC is in line. nullopt: admitted, or not
// protected. Else the method must return the status. A second call for the same RPC gives the first answer.
std::optional<::grpc::Status> guard(::grpc::ServerContext* context);

struct MethodCounters;

namespace detail {

class Rpc;

// For service.h: a method of a guarded service. The name outlives it.
class GuardedMethod {
 public:
  GuardedMethod(const ServerGuard& guard, std::string_view name);

 private:
  friend class OwnRpc;
  ServerGuard::State& state_;
  MethodCounters& counters_;
  std::string_view name_;
};

// An RPC, which ends with this object. Empty if another object on this thread has it: an interceptor, or a GuardedService around
// a method that is guarded itself.
class OwnRpc {
 public:
  OwnRpc(const GuardedMethod& method, ::grpc::ServerContextBase& context);
  // Callback API: the RPC that install()'s factory was asked about on this thread. Empty also if there is none.
  explicit OwnRpc(::grpc::CallbackServerContext& context);
  OwnRpc(OwnRpc&& other) noexcept;
  ~OwnRpc();
  void note(::grpc::StatusCode code) noexcept;  // the status that it ends with

 private:
  friend class MethodRuns;
  struct Delete {
    void operator()(Rpc* rpc) const noexcept;
  };
  std::unique_ptr<Rpc, Delete> rpc_;
};

// While it lives, guard() and decide_now() on this thread find the RPC.
class MethodRuns {
 public:
  explicit MethodRuns(const OwnRpc& own) noexcept;
  ~MethodRuns();
  MethodRuns(const MethodRuns&) = delete;
  MethodRuns& operator=(const MethodRuns&) = delete;

 private:
  Rpc* const outer_;
};
void note_status(const ::grpc::ServerContextBase* context, ::grpc::StatusCode code) noexcept;

// For relay.h: the answer of guard(), unless the RPC has to wait or its rejection is held: nullopt, RpcEntry goes on.
std::optional<std::optional<::grpc::Status>> decide_now(::grpc::CallbackServerContext* context);

// The place of one callback RPC, for relay.h.
class RpcEntry {
 public:
  explicit RpcEntry(bool waits);  // false: decide_now() has given the place
  ~RpcEntry();
  using Decided = std::function<void(std::optional<::grpc::Status>)>;
  // After decide_now(), if that has not decided. Calls decided() exactly once: nullopt when the RPC has its place, else the status
  // to finish with; perhaps before this returns.
  void begin(::grpc::CallbackServerContext* context, Decided decided);
  // The client has gone. True: decided() has had, or will have, a status. False: the RPC was admitted.
  bool cancel() noexcept;

 private:
  enum State : std::uint8_t { waiting, admitted, over };
  struct Hold;
  void decide(Rpc* rpc, Result<Call> call);
  void tell(const Rpc& rpc);

  std::atomic<State> state_;
  const std::stop_source stop_;  // most RPCs need not wait, and have none
  Decided decided_;
  std::unique_ptr<Hold> hold_;  // of a rejection that does not leave yet
};

}  // namespace detail
}  // namespace bulkhead::grpc
