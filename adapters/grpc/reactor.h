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
// Needs ServerGuard::install(); create the reactor inside the method, on the thread that gRPC called it on.
// OnAdmitted() and the function of unary() must not block, as everything in this API. What they throw ends the RPC with
// UNKNOWN; they must not throw after Finish().
// Cost: one allocation for the reactor (unary(): only if the RPC waits), and one more for an RPC that waits.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <optional>
#include <utility>

#include "detail/handoff.h"
#include "server_guard.h"

namespace bulkhead::grpc {

namespace detail {
inline ::grpc::Status unexpected_error() {
  return {::grpc::StatusCode::UNKNOWN, "Unexpected error in RPC handling"};
}
// What throws ends its RPC, as gRPC does with methods of the synchronous API.
template <class Reactor, class F>
void run(Reactor& reactor, F f) {
  try {
    f();
  } catch (...) {
    reactor.Finish(unexpected_error());
  }
}
}  // namespace detail

template <class Reactor>
class Guarded : public Reactor {
 public:
  // The RPC has its place: start reading and writing, or finish.
  virtual void OnAdmitted() = 0;
  virtual void OnCancelled() {}            // instead of OnCancel()
  virtual void OnEnded() { delete this; }  // instead of OnDone(): nothing of the RPC is left

  void OnDone() final {
    detail::take(this);
    OnEnded();
  }
  void OnCancel() final {
    detail::take(this);
    if (!entry_.cancel()) OnCancelled();
  }

  void enter(::grpc::CallbackServerContext* context) {  // once; start() calls it
    detail::give(this);
    entry_.begin(context, [this](std::optional<::grpc::Status> rejected) {
      if (rejected) return this->Finish(*std::move(rejected));
      detail::run(*this, [this] { OnAdmitted(); });
    });
  }
  void enter_at_once() {  // instead: the RPC has its place
    detail::give(this);
    entry_.admit_at_once();
    OnAdmitted();
  }

 private:
  detail::Entry entry_;
};

// Makes the reactor R and lets it wait for its place.
template <class R, class... Args>
R* start(::grpc::CallbackServerContext* context, Args&&... args) {
  auto* const reactor = new R(std::forward<Args>(args)...);
  reactor->enter(context);
  return reactor;
}

template <class F>
::grpc::ServerUnaryReactor* unary(::grpc::CallbackServerContext* context, F admitted) {
  class Unary final : public Guarded<::grpc::ServerUnaryReactor> {
   public:
    explicit Unary(F f) : admitted_(std::move(f)) {}
    void OnAdmitted() override { admitted_(*this); }

   private:
    F admitted_;
  };
  auto answer = detail::decide_now(context);
  if (!answer) return start<Unary>(context, std::move(admitted));
  // Nothing to wait for: gRPC's own reactor costs no allocation and no thread switch.
  ::grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  if (*answer)
    reactor->Finish(**std::move(answer));
  else
    detail::run(*reactor, [&] { admitted(*reactor); });
  return reactor;
}

}  // namespace bulkhead::grpc
