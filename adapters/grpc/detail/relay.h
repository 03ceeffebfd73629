// relay.h - lets a reactor of gRPC's callback API wait in line before it is bound to its RPC.
//
// For service.h and reactor.h. The RPC is bound to a Relay, which waits for the place and holds it until OnDone(). Once the
// RPC is admitted, the function that makes the reactor is called. That reactor is bound to a Seat, which passes each
// operation to the Relay. gRPC's promises hold for the reactor: OnCancel() runs only after the method has returned, and
// OnDone() runs last.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <atomic>
#include <functional>
#include <optional>
#include <utility>

#include "../server_guard.h"
#include "handoff.h"

namespace bulkhead::grpc::detail {

// F makes the reactor. It is destroyed with the relay, called or not.
template <class Reactor, class F>
class Relay : public Reactor {
 public:
  Relay(OwnRpc rpc, F method, bool at_once)
      : rpc_(std::move(rpc)), method_(std::move(method)), at_once_(at_once), entry_(!at_once) {}

  void enter(::grpc::CallbackServerContext* context) {  // once
    give(this);
    if (at_once_) return admitted();
    entry_.begin(context, [this](std::optional<::grpc::Status> rejected) {
      if (rejected) return finish_alone(*std::move(rejected));
      admitted();
    });
  }

  // OnDone() of gRPC's default reactor needs no thread of its own. gRPC asks while an RPC that waits may be admitted.
  bool InternalInlineable() final {
    take(this);
    return at_once_ && inner_ && inner_->InternalInlineable();
  }
  void OnSendInitialMetadataDone(bool ok) final { inner()->OnSendInitialMetadataDone(ok); }
  void OnCancel() final {
    take(this);
    if (!entry_.cancel() && cancel_.fetch_sub(1) == 1) inner_->OnCancel();
  }
  void OnDone() final {
    take(this);
    if (inner_) inner_->OnDone();
    delete this;
  }

 protected:
  ~Relay() override = default;
  virtual void bind() = 0;
  // The reactor may finish while it is being bound. gRPC is called afterwards, so that OnDone() never runs during bind().
  void finish(::grpc::Status status, std::function<void(::grpc::Status)> with = {}) {
    status_ = std::move(status);
    with_ = std::move(with);
    if (finish_.fetch_sub(1) == 1) finish_now();
  }

  Reactor* inner() noexcept {
    take(this);
    return inner_;
  }
  Reactor* inner_ = nullptr;  // that the method has made

 private:
  void admitted() {
    try {
      const MethodRuns runs(rpc_);
      inner_ = method_();
    } catch (...) {  // as gRPC does with methods of the synchronous API
      return finish_alone({::grpc::StatusCode::UNKNOWN, "Unexpected error in RPC handling"});
    }
    give(this);
    if (!inner_) return finish_alone({::grpc::StatusCode::UNIMPLEMENTED, ""});  // as gRPC does
    bind();
    give(this);
    if (cancel_.fetch_sub(1) == 1) inner_->OnCancel();
    if (finish_.fetch_sub(1) == 1) finish_now();  // the RPC may end inside
  }
  void finish_alone(::grpc::Status status) {  // there is no reactor of the method
    rpc_.note(status.error_code());
    this->Finish(std::move(status));
  }
  void finish_now() {
    rpc_.note(status_.error_code());
    if (with_)
      std::exchange(with_, nullptr)(std::move(status_));
    else
      this->Finish(std::move(status_));
  }

  OwnRpc rpc_;
  F method_;
  const bool at_once_;  // admitted without a wait
  RpcEntry entry_;
  ::grpc::Status status_;
  std::function<void(::grpc::Status)> with_;  // how to finish; empty: Finish()
  // What the last of two does: "bound" and "cancelled", "bound" and "finished".
  std::atomic<int> cancel_{2}, finish_{2};
};

// What a reactor sees of its RPC. gRPC calls the Relay, and never the two private functions of a Seat.
template <class Call, class Reactor, class To>
class Seat : public Call {
 public:
  explicit Seat(To& to) : to_(to) {}
  void bind(Reactor* reactor) {
    give(this);
    this->BindReactor(reactor);
  }
  void Finish(::grpc::Status status) override { to().end(std::move(status)); }
  void SendInitialMetadata() override { to().StartSendInitialMetadata(); }

 protected:
  To& to() noexcept {
    take(this);
    return to_;
  }

 private:
  To& to_;
  ::grpc::internal::ServerReactor* reactor() override { return nullptr; }
  void CallOnDone() override {}
};

template <class F>
class UnaryRelay final : public Relay<::grpc::ServerUnaryReactor, F> {
 public:
  using Relay<::grpc::ServerUnaryReactor, F>::Relay;
  void end(::grpc::Status status) { this->finish(std::move(status)); }

 private:
  void bind() override { seat_.bind(this->inner_); }
  Seat<::grpc::ServerCallbackUnary, ::grpc::ServerUnaryReactor, UnaryRelay> seat_{*this};
};

template <class Request, class F>
class ReadRelay final : public Relay<::grpc::ServerReadReactor<Request>, F> {
  using Reactor = ::grpc::ServerReadReactor<Request>;

 public:
  using Relay<Reactor, F>::Relay;
  void end(::grpc::Status status) { this->finish(std::move(status)); }
  void OnReadDone(bool ok) override { this->inner()->OnReadDone(ok); }

 private:
  struct At final : Seat<::grpc::ServerCallbackReader<Request>, Reactor, ReadRelay> {
    using Seat<::grpc::ServerCallbackReader<Request>, Reactor, ReadRelay>::Seat;
    void Read(Request* message) override { this->to().StartRead(message); }
  };
  void bind() override { seat_.bind(this->inner_); }
  At seat_{*this};
};

template <class Response, class F>
class WriteRelay final : public Relay<::grpc::ServerWriteReactor<Response>, F> {
  using Reactor = ::grpc::ServerWriteReactor<Response>;

 public:
  using Relay<Reactor, F>::Relay;
  void end(::grpc::Status status) { this->finish(std::move(status)); }
  void end(const Response* last, ::grpc::WriteOptions options, ::grpc::Status status) {
    this->finish(std::move(status),
                 [=, this](::grpc::Status s) { this->StartWriteAndFinish(last, options, std::move(s)); });
  }
  void OnWriteDone(bool ok) override { this->inner()->OnWriteDone(ok); }

 private:
  struct At final : Seat<::grpc::ServerCallbackWriter<Response>, Reactor, WriteRelay> {
    using Seat<::grpc::ServerCallbackWriter<Response>, Reactor, WriteRelay>::Seat;
    void Write(const Response* message, ::grpc::WriteOptions options) override {
      this->to().StartWrite(message, options);
    }
    void WriteAndFinish(const Response* last, ::grpc::WriteOptions options, ::grpc::Status status) override {
      this->to().end(last, options, std::move(status));
    }
  };
  void bind() override { seat_.bind(this->inner_); }
  At seat_{*this};
};

template <class Request, class Response, class F>
class BidiRelay final : public Relay<::grpc::ServerBidiReactor<Request, Response>, F> {
  using Reactor = ::grpc::ServerBidiReactor<Request, Response>;

 public:
  using Relay<Reactor, F>::Relay;
  void end(::grpc::Status status) { this->finish(std::move(status)); }
  void end(const Response* last, ::grpc::WriteOptions options, ::grpc::Status status) {
    this->finish(std::move(status),
                 [=, this](::grpc::Status s) { this->StartWriteAndFinish(last, options, std::move(s)); });
  }
  void OnReadDone(bool ok) override { this->inner()->OnReadDone(ok); }
  void OnWriteDone(bool ok) override { this->inner()->OnWriteDone(ok); }

 private:
  struct At final : Seat<::grpc::ServerCallbackReaderWriter<Request, Response>, Reactor, BidiRelay> {
    using Seat<::grpc::ServerCallbackReaderWriter<Request, Response>, Reactor, BidiRelay>::Seat;
    void Read(Request* message) override { this->to().StartRead(message); }
    void Write(const Response* message, ::grpc::WriteOptions options) override {
      this->to().StartWrite(message, options);
    }
    void WriteAndFinish(const Response* last, ::grpc::WriteOptions options, ::grpc::Status status) override {
      this->to().end(last, options, std::move(status));
    }
  };
  void bind() override { seat_.bind(this->inner_); }
  At seat_{*this};
};

template <class Reactor, class F>
struct RelayOf;
template <class F>
struct RelayOf<::grpc::ServerUnaryReactor, F> {
  using type = UnaryRelay<F>;
};
template <class Request, class F>
struct RelayOf<::grpc::ServerReadReactor<Request>, F> {
  using type = ReadRelay<Request, F>;
};
template <class Response, class F>
struct RelayOf<::grpc::ServerWriteReactor<Response>, F> {
  using type = WriteRelay<Response, F>;
};
template <class Request, class Response, class F>
struct RelayOf<::grpc::ServerBidiReactor<Request, Response>, F> {
  using type = BidiRelay<Request, Response, F>;
};

template <class Reactor>
class Rejecting final : public Reactor {
 public:
  explicit Rejecting(::grpc::Status status) { this->Finish(std::move(status)); }
  bool InternalInlineable() override { return true; }
  void OnDone() override { delete this; }
};

// The reactor of an RPC. The place comes first, and the method, which makes the RPC's own reactor, runs only with it.
template <class Reactor, class F>
Reactor* relayed(OwnRpc rpc, ::grpc::CallbackServerContext* context, F method) {
  const MethodRuns runs(rpc);
  auto answer = decide_now(context);
  if (answer && *answer) return new Rejecting<Reactor>(**std::move(answer));
  auto* const relay =
      new typename RelayOf<Reactor, F>::type(std::move(rpc), std::move(method), answer.has_value());
  relay->enter(context);
  return relay;
}

}  // namespace bulkhead::grpc::detail
