#include "client_guard.h"

#include <grpcpp/create_channel.h>

#include <algorithm>
#include <optional>
#include <semaphore>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "detail/handoff.h"
#include "methods.h"
#include "time_limit.h"

namespace bulkhead::grpc {

struct ClientGuard::State {
  Registry& registry;
  const ClientGuardOptions options;
};

namespace {

using ::grpc::experimental::ClientRpcInfo;
using ::grpc::experimental::InterceptionHookPoints;
using ::grpc::experimental::InterceptorBatchMethods;

// One RPC of a client. gRPC owns it and destroys it with the ClientContext.
class ClientRpc final : public ::grpc::experimental::Interceptor {
 public:
  ClientRpc(std::shared_ptr<ClientGuard::State> state, const ClientMethod& method, ClientRpcInfo& info)
      : state_(std::move(state)), method_(method), info_(info) {
    detail::give(this);
  }
  ~ClientRpc() override { detail::take(this); }

  // gRPC calls this for each batch. The first one takes the place; later ones answer for a rejected RPC, or see its
  // status.
  void Intercept(InterceptorBatchMethods* batch) override {
    detail::take(this);
    const auto has = [batch](InterceptionHookPoints point) {
      return batch->QueryInterceptionHookPoint(point);
    };
    if (has(InterceptionHookPoints::PRE_SEND_CANCEL)) {
      gone_.request_stop();
      return batch->Proceed();
    }
    if (!decided_ && has(InterceptionHookPoints::PRE_SEND_INITIAL_METADATA)) return enter(batch);
    if (rejection_) {
      answer(batch, has);
      detail::give(this);
      return batch->Proceed();
    }
    if (has(InterceptionHookPoints::POST_RECV_STATUS)) {
      const ::grpc::StatusCode code = batch->GetRecvStatus()->error_code();
      const auto& own = state_->options.verdict;
      limit_.stop();
      call_.finish(limit_.passed() ? Outcome::timeout : own ? own(code) : verdict(code));
    }
    detail::give(this);
    batch->Proceed();
  }

 private:
  void enter(InterceptorBatchMethods* batch) {
    bulkhead_ = state_->registry.find(method_.bulkhead);
    if (!bulkhead_)
      return decide(batch,
                    Result<Call>(unexpect, Rejection{.reason = Reason::shutdown, .name = method_.bulkhead}));
    deadline_ = steady_deadline(info_.client_context()->deadline());
    AcquireOptions options{.priority = method_.priority,
                           .cost = method_.cost,
                           .timeout = method_.max_wait,
                           .deadline = deadline_};
    Call begun;
    if (auto answer = bulkhead_->begin_acquire(options, begun)) return decide(batch, *std::move(answer));
    options.stop = gone_.get_token();
    if (batch->GetRecvStatus()) {
      // The whole RPC is this batch, so Proceed() and Hijack() may come later, on the thread that gives the place. Otherwise gRPC
      // issues further batches meanwhile, which would go to a call that has not started.
      const std::shared_ptr<Bulkhead> bulkhead = bulkhead_;  // the RPC may end inside
      bulkhead->async_acquire(std::move(begun), std::move(options),
                              [this, batch](Result<Call> call) { decide(batch, std::move(call)); });
      return;
    }
    std::optional<Result<Call>> decided;
    std::binary_semaphore ready{0};
    bulkhead_->async_acquire(std::move(begun), std::move(options), [&](Result<Call> call) {
      decided.emplace(std::move(call));
      ready.release();
    });
    ready.acquire();
    decide(batch, *std::move(decided));
  }

  ::grpc::Status too_long() const {
    const Rejection why{.reason = Reason::execution_timeout, .name = bulkhead_->name()};
    return {code_of(why.reason, state_->options.status_for), why.message()};
  }

  // The last that happens here: the RPC may end inside Proceed() and Hijack().
  void decide(InterceptorBatchMethods* batch, Result<Call> call) {
    decided_ = true;
    if (call) {
      call_ = *std::move(call);
      if (const auto limit = call_.execution_timeout(); limit != wait_forever)
        limit_.start(info_.client_context()->c_call(), limit, too_long());
      detail::give(this);
      batch->Proceed();
    } else {
      rejection_ = call.error();
      detail::give(this);
      batch->Hijack();
    }
  }

  // Fills in what gRPC asks of a hijacked RPC: no message goes or comes, and the status says why.
  template <class Has>
  void answer(InterceptorBatchMethods* batch, const Has& has) const {
    if (has(InterceptionHookPoints::PRE_SEND_MESSAGE)) batch->FailHijackedSendMessage();
    if (has(InterceptionHookPoints::PRE_RECV_MESSAGE)) batch->FailHijackedRecvMessage();
    if (!has(InterceptionHookPoints::PRE_RECV_STATUS)) return;
    const bool late = deadline_ <= std::chrono::steady_clock::now();
    *batch->GetRecvStatus() =
        ::grpc::Status(code_of(rejection_->reason, state_->options.status_for, late), rejection_->message());
    const std::string_view reason = to_string(rejection_->reason);
    batch->GetRecvTrailingMetadata()->emplace(kReasonKey, ::grpc::string_ref(reason.data(), reason.size()));
  }

  const std::shared_ptr<ClientGuard::State> state_;
  const ClientMethod& method_;
  ClientRpcInfo& info_;
  bool decided_ = false;
  TimePoint deadline_ = no_deadline;
  std::stop_source gone_;
  std::shared_ptr<Bulkhead> bulkhead_;  // outlives call_
  Call call_;
  TimeLimit limit_;
  std::optional<Rejection> rejection_;
};

}  // namespace

ClientGuard::ClientGuard(Registry& registry, ClientGuardOptions options) {
  check_methods(options.methods, registry);
  state_ = std::make_shared<State>(State{registry, std::move(options)});
}
ClientGuard::~ClientGuard() = default;

std::unique_ptr<ClientGuard::Factory> ClientGuard::interceptor() {
  class Made final : public Factory {
   public:
    explicit Made(std::shared_ptr<State> state) : state_(std::move(state)) {}
    ::grpc::experimental::Interceptor* CreateClientInterceptor(ClientRpcInfo* info) override {
      const ClientMethod* const method = match(state_->options.methods, info->method());
      return method && !method->bulkhead.empty() ? new ClientRpc(state_, *method, *info) : nullptr;
    }

   private:
    const std::shared_ptr<State> state_;
  };
  return std::make_unique<Made>(state_);
}

std::shared_ptr<::grpc::Channel> ClientGuard::channel(
    const std::string& target, const std::shared_ptr<::grpc::ChannelCredentials>& credentials,
    const ::grpc::ChannelArguments& arguments, std::vector<std::unique_ptr<Factory>> others) {
  others.insert(others.begin(), interceptor());
  return ::grpc::experimental::CreateCustomChannelWithInterceptors(target, credentials, arguments,
                                                                   std::move(others));
}

void pass_on_deadline(const ::grpc::ServerContextBase& from, ::grpc::ClientContext& to) {
  to.set_deadline(std::min(from.deadline(), to.deadline()));
}

}  // namespace bulkhead::grpc
