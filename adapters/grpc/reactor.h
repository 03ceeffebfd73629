// reactor.h - reactors of gRPC's callback API that wait in line before they start.
//
// A unary method: the function is called when the RPC has its place, and finishes it now or later.
//
//   class Payments : public store::Shop::CallbackService {
//     ::grpc::ServerUnaryReactor* Buy(::grpc::CallbackServerContext* context, const store::Order* order,
//                                     store::Receipt* receipt) override {
//       return bulkhead::grpc::unary(
//           context, [=](::grpc::ServerUnaryReactor& rpc) { rpc.Finish(pay(*order, *receipt)); });
//     }
//   };
//
// A stream: derive from Guarded<...> and start in OnAdmitted(). The method returns start<Watch>(context).
//
//   class Watch final : public bulkhead::grpc::Guarded<::grpc::ServerWriteReactor<store::Price>> {
//     void OnAdmitted() override { StartWrite(&price_); }
//     void OnWriteDone(bool ok) override { Finish(ok ? ::grpc::Status::OK : ::grpc::Status::CANCELLED); }
//     store::Price price_;
//   };
//
// A rejected RPC is finished with its status, and OnAdmitted() never runs. The place is given back after OnDone().
// Threads: OnAdmitted() runs on the thread of start(), or on the one whose RPC gave its place up. No thread waits.
// A client that goes while its RPC is in line takes it out of the line at once. OnCancelled() runs only for RPCs that were
// admitted.
// Needs ServerGuard::install(); call unary() or start() inside the method, on the thread that gRPC called it on.
// OnAdmitted() and the function of unary() must not block, as everything in this API. What they throw ends the RPC with UNKNOWN.
// Cost: one allocation (start(): also the reactor), and one more for an RPC that waits. No interceptor runs.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <memory>
#include <utility>

#include "detail/relay.h"
#include "server_guard.h"

namespace bulkhead::grpc {

template <class Reactor>
class Guarded : public Reactor {
 public:
  // The RPC has its place: start reading and writing, or finish.
  virtual void OnAdmitted() = 0;
  virtual void OnCancelled() {}            // instead of OnCancel()
  virtual void OnEnded() { delete this; }  // instead of OnDone(); also of a reactor whose RPC was rejected

  void OnDone() final { OnEnded(); }
  void OnCancel() final { OnCancelled(); }
};

namespace detail {
template <class Reactor>
Reactor* start(::grpc::CallbackServerContext* context, Guarded<Reactor>* made) {
  struct End {
    void operator()(Guarded<Reactor>* reactor) const { reactor->OnEnded(); }
  };
  return relayed<Reactor>(OwnRpc(*context), context,
                          [reactor = std::unique_ptr<Guarded<Reactor>, End>(made)]() mutable -> Reactor* {
                            reactor->OnAdmitted();
                            return reactor.release();
                          });
}
}  // namespace detail

// Makes the reactor R and lets it wait for its place. To be returned by the method.
template <class R, class... Args>
auto* start(::grpc::CallbackServerContext* context, Args&&... args) {
  return detail::start(context, new R(std::forward<Args>(args)...));
}

template <class F>
::grpc::ServerUnaryReactor* unary(::grpc::CallbackServerContext* context, F admitted) {
  return detail::relayed<::grpc::ServerUnaryReactor>(
      detail::OwnRpc(*context), context, [context, admitted = std::move(admitted)]() mutable {
        ::grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
        admitted(*reactor);
        return reactor;
      });
}

}  // namespace bulkhead::grpc
