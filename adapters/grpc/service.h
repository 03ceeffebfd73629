// service.h - a whole service behind its guard, without a line in its methods: synchronous or callback API.
//
//   ShopService service;                                         // derives from store::Shop::Service or ::CallbackService
//   bulkhead::grpc::ServerGuard guard(registry, {.methods = {{.name = "/store.Shop/", .bulkhead = "shop"}}});
//   bulkhead::grpc::GuardedService<ShopService> guarded(guard, service, store::Shop::service_full_name());
//   guarded.add("Buy", &ShopService::Buy).add("Prices", &ShopService::Prices);
//   builder.RegisterService(&guarded);                           // instead of &service
//
// A method is called only if its RPC was admitted: in the synchronous API on its own thread, as after guard(); in the callback
// API without a waiting thread, as with Guarded (reactor.h), and its reactors stay as they are. A method that is not added is
// answered with UNIMPLEMENTED, so a forgotten one cannot go unprotected. The kind of a method follows from its parameters.
// No ServerGuard::install(): the wrapper itself holds the place until the status has been sent (callback API: until OnDone has
// run), which costs less than an interceptor. A server that has both counts each RPC once.
// Threads: add() before the server starts. The guard and the service outlive the wrapper. In the callback API a method whose RPC
// waited runs on the thread whose RPC gave its place up.
// Cost: one allocation, in the callback API two, three for an RPC that waits; `make bench-grpc` measures it.
#pragma once

#if __has_include(<grpcpp/impl/server_callback_handlers.h>)
#include <grpcpp/impl/server_callback_handlers.h>
#else
#include <grpcpp/impl/codegen/server_callback_handlers.h>
#endif
#include <grpcpp/impl/rpc_service_method.h>
#include <grpcpp/impl/service_type.h>
#include <grpcpp/support/method_handler.h>
#include <grpcpp/support/sync_stream.h>

#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "detail/relay.h"
#include "server_guard.h"

namespace bulkhead::grpc {

namespace detail {
// Holds the place of a synchronous RPC: gRPC's own handlers return when the status has been sent.
class SyncHandler final : public ::grpc::internal::MethodHandler {
 public:
  SyncHandler(const GuardedMethod& method, std::unique_ptr<MethodHandler> inner)
      : method_(method), inner_(std::move(inner)) {}
  void RunHandler(const HandlerParameter& parameter) override {
    const OwnRpc rpc(method_, *parameter.server_context);
    const MethodRuns runs(rpc);
    inner_->RunHandler(parameter);
  }
  void* Deserialize(grpc_call* call, grpc_byte_buffer* request, ::grpc::Status* status,
                    void** handler_data) override {
    return inner_->Deserialize(call, request, status, handler_data);
  }

 private:
  const GuardedMethod method_;
  const std::unique_ptr<MethodHandler> inner_;
};
}  // namespace detail

template <class S>
class GuardedService : public ::grpc::Service {
 public:
  GuardedService(const ServerGuard& guard, S& service, std::string_view full_name)
      : guard_(guard), service_(service), prefix_("/") {
    prefix_.append(full_name).append("/");
  }

  template <class T, class Request, class Response>
  GuardedService& add(std::string_view name,
                      ::grpc::Status (T::*method)(::grpc::ServerContext*, const Request*, Response*)) {
    return mount_sync<::grpc::internal::RpcMethodHandler<S, Request, Response>>(
        name, ::grpc::internal::RpcMethod::NORMAL_RPC, method);
  }
  template <class T, class Request, class Response>
  GuardedService& add(std::string_view name,
                      ::grpc::Status (T::*method)(::grpc::ServerContext*, ::grpc::ServerReader<Request>*,
                                                  Response*)) {
    return mount_sync<::grpc::internal::ClientStreamingHandler<S, Request, Response>>(
        name, ::grpc::internal::RpcMethod::CLIENT_STREAMING, method);
  }
  template <class T, class Request, class Response>
  GuardedService& add(std::string_view name,
                      ::grpc::Status (T::*method)(::grpc::ServerContext*, const Request*,
                                                  ::grpc::ServerWriter<Response>*)) {
    return mount_sync<::grpc::internal::ServerStreamingHandler<S, Request, Response>>(
        name, ::grpc::internal::RpcMethod::SERVER_STREAMING, method);
  }
  template <class T, class Request, class Response>
  GuardedService& add(std::string_view name,
                      ::grpc::Status (T::*method)(::grpc::ServerContext*,
                                                  ::grpc::ServerReaderWriter<Response, Request>*)) {
    return mount_sync<::grpc::internal::BidiStreamingHandler<S, Request, Response>>(
        name, ::grpc::internal::RpcMethod::BIDI_STREAMING, method);
  }

  // Callback API.
  template <class T, class Request, class Response>
  GuardedService& add(std::string_view name,
                      ::grpc::ServerUnaryReactor* (T::*method)(::grpc::CallbackServerContext*, const Request*,
                                                               Response*)) {
    return mount_callback<::grpc::internal::CallbackUnaryHandler<Request, Response>>(
        name, ::grpc::internal::RpcMethod::NORMAL_RPC, method);
  }
  template <class T, class Request, class Response>
  GuardedService& add(std::string_view name,
                      ::grpc::ServerReadReactor<Request>* (T::*method)(::grpc::CallbackServerContext*,
                                                                       Response*)) {
    return mount_callback<::grpc::internal::CallbackClientStreamingHandler<Request, Response>>(
        name, ::grpc::internal::RpcMethod::CLIENT_STREAMING, method);
  }
  template <class T, class Request, class Response>
  GuardedService& add(std::string_view name,
                      ::grpc::ServerWriteReactor<Response>* (T::*method)(::grpc::CallbackServerContext*,
                                                                         const Request*)) {
    return mount_callback<::grpc::internal::CallbackServerStreamingHandler<Request, Response>>(
        name, ::grpc::internal::RpcMethod::SERVER_STREAMING, method);
  }
  template <class T, class Request, class Response>
  GuardedService& add(std::string_view name, ::grpc::ServerBidiReactor<Request, Response>* (T::*method)(
                                                 ::grpc::CallbackServerContext*)) {
    return mount_callback<::grpc::internal::CallbackBidiHandler<Request, Response>>(
        name, ::grpc::internal::RpcMethod::BIDI_STREAMING, method);
  }

 private:
  using Kind = ::grpc::internal::RpcMethod::RpcType;

  template <class Handler, class T, class... Args>
  GuardedService& mount_sync(std::string_view name, Kind kind,
                             ::grpc::Status (T::*method)(::grpc::ServerContext*, Args...)) {
    auto guarded = [method](S* service, ::grpc::ServerContext* context, Args... args) -> ::grpc::Status {
      if (auto rejected = guard(context)) return *std::move(rejected);
      detail::note_status(context, ::grpc::StatusCode::UNKNOWN);  // of a method that throws
      ::grpc::Status status = (service->*method)(context, args...);
      detail::note_status(context, status.error_code());
      return status;
    };
    const detail::GuardedMethod entry = entry_of(name);
    return mount(kind, new detail::SyncHandler(entry, std::make_unique<Handler>(guarded, &service_)));
  }
  template <class Handler, class Reactor, class T, class... Args>
  GuardedService& mount_callback(std::string_view name, Kind kind,
                                 Reactor* (T::*method)(::grpc::CallbackServerContext*, Args...)) {
    const detail::GuardedMethod entry = entry_of(name);
    auto relayed = [entry, &service = service_, method](::grpc::CallbackServerContext* context,
                                                        Args... args) -> Reactor* {
      return detail::relayed<Reactor>(
          detail::OwnRpc(entry, *context), context,
          [&service, method, context, args...] { return (service.*method)(context, args...); });
    };
    return mount(kind, new Handler(std::move(relayed)), true);
  }
  detail::GuardedMethod entry_of(std::string_view name) {
    names_.push_back(prefix_ + std::string(name));
    return {guard_, names_.back()};
  }
  // The method named last.
  GuardedService& mount(Kind kind, ::grpc::internal::MethodHandler* handler, bool callback = false) {
    using Served = ::grpc::internal::RpcServiceMethod;
    auto* const method = new Served(names_.back().c_str(), kind, handler);
    if (callback) method->SetServerApiType(Served::ApiType::CALL_BACK);
    AddMethod(method);
    return *this;
  }

  const ServerGuard& guard_;
  S& service_;
  std::string prefix_;
  std::deque<std::string> names_;  // gRPC keeps pointers to them
};

}  // namespace bulkhead::grpc
