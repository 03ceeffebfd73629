#include "server_guard.h"

#include <algorithm>
#include <random>
#include <semaphore>
#include <stdexcept>
#include <thread>
#include <utility>

#include "detail/blocked_wait.h"
#include "detail/handoff.h"
#include "http/pacer.h"
#include "methods.h"
#include "time_limit.h"

namespace bulkhead::grpc {
namespace {

using ::grpc::experimental::InterceptionHookPoints;

constexpr std::chrono::milliseconds kHoldPoll(
    50);  // how often the thread of a held rejection asks whether its client has gone
constexpr int kNoStatus = -1;

TimePoint now() noexcept { return std::chrono::steady_clock::now(); }

std::string_view view(::grpc::string_ref text) noexcept { return {text.data(), text.size()}; }

// "ipv4:10.0.0.7:51514", "ipv6:%5Bfd00::7%5D:51514" -> the address; others (unix:...) -> empty.
std::string address_of(std::string_view peer) {
  const bool v6 = peer.starts_with("ipv6:");
  if (!v6 && !peer.starts_with("ipv4:")) return {};
  peer.remove_prefix(5);
  if (!v6) return std::string(peer.substr(0, peer.rfind(':')));
  const auto after = [&](std::string_view open, std::string_view close) -> std::string {
    if (!peer.starts_with(open)) return {};
    const std::size_t end = peer.find(close);
    return end == std::string_view::npos ? std::string()
                                         : std::string(peer.substr(open.size(), end - open.size()));
  };
  std::string address = after("%5B", "%5D");
  return address.empty() ? after("[", "]") : address;
}

}  // namespace

struct ServerGuard::State {
  State(Registry& r, ServerGuardOptions o)
      : registry(r),
        options(std::move(o)),
        trusted(options.trusted_peers),
        seed(std::random_device()()),
        pacer(options.storm, seed) {}

  std::uint32_t random() noexcept {  // splitmix32: unrelated bits are enough for a jitter
    std::uint32_t z = seed.fetch_add(0x9e3779b9U, std::memory_order_relaxed);
    z = (z ^ (z >> 16)) * 0x85ebca6bU;
    z = (z ^ (z >> 13)) * 0xc2b2ae35U;
    return z ^ (z >> 16);
  }
  bool trusts(const ::grpc::ServerContextBase& context) const {
    if (options.trusts && options.trusts(context)) return true;
    return !options.trusted_peers.empty() && trusted.trusts(address_of(context.peer()));
  }

  Registry& registry;
  const ServerGuardOptions options;
  const http::TrustedPeers trusted;
  std::atomic<std::uint32_t> seed;
  http::RejectionPacer pacer;
  Methods methods;
};

namespace detail {

// One RPC, until it has ended. Its owner is an interceptor, or a handler or relay of a GuardedService.
class Rpc {
 public:
  // The name lives as long as the RPC. Methods may share counters, so these have another.
  Rpc(ServerGuard::State& state, MethodCounters& method, std::string_view name,
      ::grpc::ServerContextBase& context)
      : state_(state), method_(method), name_(name), context_(context) {
    give(this);
  }
  Rpc(const Rpc&) = delete;
  Rpc& operator=(const Rpc&) = delete;
  ~Rpc() {
    take(this);
    end();
  }

  // The RPC whose method runs on this thread.
  static Rpc*& current() noexcept {
    static thread_local Rpc* rpc = nullptr;
    return rpc;
  }
  static Rpc* of(const ::grpc::ServerContextBase* context) noexcept {
    Rpc* const rpc = current();
    return rpc && &rpc->context_ == context ? rpc : nullptr;
  }

  void note(::grpc::StatusCode code) noexcept {  // the status that it ends with
    code_ = code;
    give(this);
  }

  bool arrived() const noexcept { return arrived_; }
  // Which bulkhead, and what to ask of it. False: the RPC needs no place, or is rejected already.
  bool arrive() {
    if (arrived_) return false;
    arrived_ = true;
    if (const auto again = context_.client_metadata().find("grpc-previous-rpc-attempts");
        again != context_.client_metadata().end())
      method_.retries.fetch_add(1, std::memory_order_relaxed);
    if (method_.exempt) return admit_freely();
    const ServerGuardOptions& o = state_.options;
    std::optional<Method> routed;
    if (o.router) {
      const std::string peer = context_.peer();
      trusted_ = state_.trusts(context_);
      const auto get = [this](std::string_view name) { return metadata(name); };
      routed = o.router({.method = name_, .peer = peer, .trusted = trusted_, .metadata = get});
    }
    const Method* const entry = routed ? &*routed : method_.entry;
    if (!entry || (entry->bulkhead.empty() && entry->tenants.empty())) return admit_freely();
    if (!o.router) trusted_ = state_.trusts(context_);
    options_.priority = priority(*entry);
    options_.cost = entry->cost;
    options_.timeout = entry->max_wait;
    options_.deadline = steady_deadline(context_.deadline());
    const std::string_view tenant = trusted_ ? metadata(o.tenant_key) : std::string_view();
    if (!tenant.empty()) options_.flow = flow_of(tenant);
    if (auto bulkhead = bulkhead_of(*entry, tenant)) {
      bulkhead_ = *std::move(bulkhead);
      return true;
    } else {
      reject(bulkhead.error());
      return false;
    }
  }

  const std::optional<::grpc::Status>& answer() const noexcept { return answer_; }
  std::chrono::nanoseconds held() const noexcept { return held_; }  // how long to keep a rejection
  const std::shared_ptr<Bulkhead>& bulkhead() const noexcept { return bulkhead_; }
  const AcquireOptions& options() const noexcept { return options_; }
  Call& begun() noexcept { return begun_; }  // of an RPC that has to wait

  void decide(Result<Call> call) {
    if (call)
      admit(*std::move(call));
    else
      reject(call.error());
  }
  void admit(Call call) {
    call_ = std::move(call);
    admit_freely();
    if (const auto limit = call_.execution_timeout(); limit != wait_forever)
      limit_.start(context_.c_call(), limit, too_long());
    give(this);
  }
  bool admit_freely() noexcept {
    admitted_ = true;
    method_.admitted.fetch_add(1, std::memory_order_relaxed);
    method_.in_flight.fetch_add(1, std::memory_order_relaxed);
    give(this);
    return false;
  }
  void reject(const Rejection& why) {
    method_.rejected[static_cast<std::size_t>(why.reason)].fetch_add(1, std::memory_order_relaxed);
    const RejectionOptions& o = state_.options.rejections;
    const Rejected how{.priority = options_.priority,
                       .trusted = trusted_,
                       .late = options_.deadline <= now(),
                       .random = state_.random()};
    context_.AddTrailingMetadata(kPushbackKey, std::to_string(pushback_of(why, o, how).count()));
    context_.AddTrailingMetadata(kReasonKey, std::string(to_string(why.reason)));
    answer_ = status_of(why, o, how);
    if (why.reason != Reason::cancelled) held_ = state_.pacer.hold(now());
    give(this);
  }
  void reject_cancelled() {
    reject({.reason = Reason::cancelled, .name = bulkhead_ ? bulkhead_->name() : std::string_view()});
  }
  ::grpc::Status too_long() const {
    return status_of({.reason = Reason::execution_timeout, .name = bulkhead_->name()},
                     state_.options.rejections, {.trusted = trusted_});
  }
  // False: it waits no longer.
  void count_waiting(bool waits) noexcept {
    if (waits)
      method_.waiting.fetch_add(1, std::memory_order_relaxed);
    else
      method_.waiting.fetch_sub(1, std::memory_order_relaxed);
  }

 private:
  std::string_view metadata(std::string_view name) const {
    if (name.empty()) return {};
    const auto found = context_.client_metadata().find(::grpc::string_ref(name.data(), name.size()));
    return found == context_.client_metadata().end() ? std::string_view() : view(found->second);
  }
  Priority priority(const Method& entry) const {
    const Priority asked = http::parse_priority(metadata(state_.options.priority_key), entry.priority);
    return trusted_ ? asked : std::max(asked, entry.priority);  // the greater value is the lower priority
  }
  Result<std::shared_ptr<Bulkhead>> bulkhead_of(const Method& entry, std::string_view tenant) const {
    using Found = Result<std::shared_ptr<Bulkhead>>;
    if (!entry.tenants.empty() && (!tenant.empty() || entry.bulkhead.empty())) try {
        return state_.registry.tenant(entry.tenants, tenant);
      } catch (const std::invalid_argument&) {  // the set was removed
        return Found(unexpect, Rejection{.reason = Reason::shutdown, .name = entry.tenants});
      }
    if (auto found = state_.registry.find(entry.bulkhead)) return found;
    return Found(unexpect, Rejection{.reason = Reason::shutdown, .name = entry.bulkhead});
  }
  void end() noexcept {
    if (!admitted_) return;
    limit_.stop();
    if (limit_.passed())
      code_ = state_.options.rejections.status_for.execution_timeout;  // that the client has seen
    method_.in_flight.fetch_sub(1, std::memory_order_relaxed);
    if (code_ >= 0 && code_ < static_cast<int>(method_.ended.size()))
      method_.ended[static_cast<std::size_t>(code_)].fetch_add(1, std::memory_order_relaxed);
    else
      method_.ended_without_status.fetch_add(1, std::memory_order_relaxed);
    if (!call_) return;
    if (limit_.passed()) {
      call_.finish(Outcome::timeout);
      return;
    }
    const auto& own = state_.options.verdict;
    const auto code = static_cast<::grpc::StatusCode>(code_);
    call_.finish(code_ == kNoStatus ? Outcome::ignored : own ? own(code) : verdict(code));
  }

  ServerGuard::State& state_;
  MethodCounters& method_;
  const std::string_view name_;
  ::grpc::ServerContextBase& context_;
  bool arrived_ = false, admitted_ = false, trusted_ = false;
  int code_ = kNoStatus;
  std::chrono::nanoseconds held_{};
  AcquireOptions options_;
  std::shared_ptr<Bulkhead> bulkhead_;  // outlives call_
  Call begun_, call_;
  TimeLimit limit_;
  std::optional<::grpc::Status> answer_;
};

namespace {

// A callback RPC between gRPC's request for an interceptor and its method, both on one thread. It gets no interceptor,
// because gRPC makes another round trip to its core for each batch that an interceptor may see; unary(), start() and
// GuardedService notice the end of the RPC themselves.
struct Arrival {
  const ::grpc::ServerContextBase* context = nullptr;
  MethodCounters* method = nullptr;
  std::string_view name;
  std::weak_ptr<ServerGuard::State> state;  // of the factory: gone with its server, if the method never asked

  static Arrival& latest() noexcept {
    static thread_local Arrival arrival;
    return arrival;
  }
  bool take(const ::grpc::ServerContextBase& of) noexcept {
    return context == &of && std::exchange(context, nullptr) && !state.expired();
  }
};

// gRPC destroys it with the context, when the RPC has ended.
class RpcInterceptor final : public ::grpc::experimental::Interceptor {
 public:
  RpcInterceptor(ServerGuard::State& state, MethodCounters& method, std::string_view name,
                 ::grpc::ServerContextBase& context)
      : rpc_(state, method, name, context) {}

  void Intercept(::grpc::experimental::InterceptorBatchMethods* batch) override {
    take(&rpc_);
    if (batch->QueryInterceptionHookPoint(InterceptionHookPoints::POST_RECV_INITIAL_METADATA)) {
      // The handler runs inside Proceed(), on this thread, and finds its RPC by the thread. When Proceed() returns, the RPC
      // may have ended, and this object with it.
      Rpc* const outer = std::exchange(Rpc::current(), &rpc_);
      batch->Proceed();
      Rpc::current() = outer;
      return;
    }
    if (batch->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_STATUS))
      rpc_.note(batch->GetSendStatus().error_code());
    give(&rpc_);
    batch->Proceed();
  }

 private:
  Rpc rpc_;
};

::grpc::Status no_rpc() {
  return {
      ::grpc::StatusCode::INTERNAL,
      "bulkhead::grpc: this RPC has no guard on this thread; call ServerGuard::install(builder) before "
      "BuildAndStart(), and guard() or start() inside the method, on the thread that gRPC called it on; or "
      "register a GuardedService"};
}

// What a blocked thread waits for.
struct Place {
  std::optional<Result<Call>> call;
  std::binary_semaphore decided{0};
};

// After a cancellation the answer still comes, and is awaited: it may be a place that has to go back.
Result<Call> acquire(Rpc& rpc, const ::grpc::ServerContext& context) {
  if (auto answer = rpc.bulkhead()->begin_acquire(rpc.options(), rpc.begun())) return *std::move(answer);
  const auto place = std::make_shared<Place>();
  std::stop_source gone;
  AcquireOptions options = rpc.options();
  options.stop = gone.get_token();
  rpc.count_waiting(true);
  rpc.bulkhead()->async_acquire(std::move(rpc.begun()), std::move(options), [place](Result<Call> decided) {
    place->call.emplace(std::move(decided));
    place->decided.release();
  });
  blocked_wait(place->decided, [&] { return context.IsCancelled(); }, [&] { gone.request_stop(); });
  rpc.count_waiting(false);
  Result<Call> call = *std::move(place->call);
  // Its client may have gone since the last question, and the next in line needs the place.
  if (call && context.IsCancelled()) {
    call->finish(Outcome::ignored);
    return Result<Call>(unexpect, Rejection{.reason = Reason::cancelled, .name = rpc.bulkhead()->name()});
  }
  return call;
}

// Keeps a rejection on the blocked thread of its RPC.
void hold(const Rpc& rpc, const ::grpc::ServerContext& context) {
  const TimePoint until = now() + rpc.held();
  for (TimePoint at = now(); at < until && !context.IsCancelled(); at = now())
    std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(until - at, kHoldPoll));
}

}  // namespace

GuardedMethod::GuardedMethod(const ServerGuard& guard, std::string_view name)
    : state_(*guard.state_), counters_(state_.methods.of(name, state_.options)), name_(name) {}

OwnRpc::OwnRpc(const GuardedMethod& method, ::grpc::ServerContextBase& context) {
  if (Rpc::of(&context)) return;
  if (!Arrival::latest().take(context)) method.counters_.started.fetch_add(1, std::memory_order_relaxed);
  rpc_.reset(new Rpc(method.state_, method.counters_, method.name_, context));
}
OwnRpc::OwnRpc(::grpc::CallbackServerContext& context) {
  Arrival& arrival = Arrival::latest();
  if (!Rpc::of(&context) && arrival.take(context))
    rpc_.reset(new Rpc(*arrival.state.lock(), *arrival.method, arrival.name, context));
}
OwnRpc::OwnRpc(OwnRpc&& other) noexcept = default;
OwnRpc::~OwnRpc() = default;
void OwnRpc::note(::grpc::StatusCode code) noexcept {
  if (rpc_) rpc_->note(code);
}
void OwnRpc::Delete::operator()(Rpc* rpc) const noexcept { delete rpc; }

MethodRuns::MethodRuns(const OwnRpc& own) noexcept : outer_(Rpc::current()) {
  if (own.rpc_) Rpc::current() = own.rpc_.get();
}
MethodRuns::~MethodRuns() { Rpc::current() = outer_; }

void note_status(const ::grpc::ServerContextBase* context, ::grpc::StatusCode code) noexcept {
  if (Rpc* const rpc = Rpc::of(context)) rpc->note(code);
}

struct RpcEntry::Hold final : Alarm {
  Hold(Decided d, ::grpc::Status s) : decided(std::move(d)), status(std::move(s)) {}
  bool expire() noexcept override { return true; }
  void expired() noexcept override {
    const Decided tell = std::move(decided);  // this object may be gone when it returns
    tell(std::move(status));
  }
  Decided decided;
  ::grpc::Status status;
};

RpcEntry::RpcEntry(bool waits)
    : state_(waits ? waiting : admitted),
      stop_(waits ? std::stop_source() : std::stop_source(std::nostopstate)) {}
RpcEntry::~RpcEntry() = default;

// The last that happens here: the reactor may end inside.
void RpcEntry::tell(const Rpc& rpc) {
  Decided decided = std::move(decided_);
  if (!rpc.answer() || rpc.held().count() == 0) return decided(rpc.answer());
  hold_ = std::make_unique<Hold>(std::move(decided), *rpc.answer());
  hold_->at = now() + rpc.held();
  Clock::steady().deadlines().arm(*hold_);
}

std::optional<std::optional<::grpc::Status>> decide_now(::grpc::CallbackServerContext* context) {
  Rpc* const rpc = Rpc::of(context);
  if (!rpc) return no_rpc();
  if (rpc->arrive()) {
    auto answer = rpc->bulkhead()->begin_acquire(rpc->options(), rpc->begun());
    if (!answer) return std::nullopt;
    rpc->decide(*std::move(answer));
  }
  if (rpc->held().count() > 0) return std::nullopt;
  return rpc->answer();
}

void RpcEntry::begin(::grpc::CallbackServerContext* context, Decided decided) {
  Rpc* const rpc = Rpc::of(context);
  decided_ = std::move(decided);
  if (rpc->answer()) {
    state_ = over;
    return tell(*rpc);
  }
  AcquireOptions options = rpc->options();
  options.stop = stop_.get_token();
  rpc->count_waiting(true);
  const std::shared_ptr<Bulkhead> bulkhead = rpc->bulkhead();  // the RPC may end inside
  bulkhead->async_acquire(std::move(rpc->begun()), std::move(options), [this, rpc](Result<Call> call) {
    rpc->count_waiting(false);
    decide(rpc, std::move(call));
  });
}

// A cancellation and an admission may race; state_ decides once. If cancel() is first, a place that arrives later goes
// back. If the RPC was admitted first, its reactor gets the cancellation.
void RpcEntry::decide(Rpc* rpc, Result<Call> call) {
  State expected = waiting;
  if (!call) {
    state_ = over;
    rpc->reject(call.error());
  } else if (state_.compare_exchange_strong(expected, admitted)) {
    rpc->admit(*std::move(call));
  } else {
    call->finish(Outcome::ignored);
    rpc->reject_cancelled();
  }
  tell(*rpc);
}

bool RpcEntry::cancel() noexcept {
  State expected = waiting;
  if (!state_.compare_exchange_strong(expected, over)) return expected == over;
  const std::stop_source stop = stop_;
  stop.request_stop();
  return true;
}

}  // namespace detail

std::optional<::grpc::Status> guard(::grpc::ServerContext* context) {
  detail::Rpc* const rpc = detail::Rpc::of(context);
  if (!rpc) return detail::no_rpc();
  if (rpc->arrived()) return rpc->answer();
  if (rpc->arrive()) rpc->decide(detail::acquire(*rpc, *context));
  if (rpc->held().count() > 0) detail::hold(*rpc, *context);
  return rpc->answer();
}

ServerGuard::ServerGuard(Registry& registry, ServerGuardOptions options) {
  check_methods(options.methods, registry);
  state_ = std::make_shared<State>(registry, std::move(options));
}
ServerGuard::~ServerGuard() = default;

std::unique_ptr<ServerGuard::Factory> ServerGuard::interceptor() {
  class Made final : public Factory {
   public:
    explicit Made(std::shared_ptr<State> state)
        : kept_(std::move(state)), state_(kept_.get(), [](State*) {}) {}
    ::grpc::experimental::Interceptor* CreateServerInterceptor(
        ::grpc::experimental::ServerRpcInfo* info) override {
      const std::string_view name = info->method() ? info->method() : "";
      MethodCounters& method = state_->methods.of(name, state_->options);
      method.started.fetch_add(1, std::memory_order_relaxed);
      ::grpc::ServerContextBase& context = *info->server_context();
      if (!dynamic_cast<::grpc::CallbackServerContext*>(&context))
        return new detail::RpcInterceptor(*state_, method, name, context);
      detail::Arrival& arrival = detail::Arrival::latest();
      arrival.context = &context;
      arrival.method = &method;
      arrival.name = name;
      if (arrival.state.owner_before(state_) || state_.owner_before(arrival.state)) arrival.state = state_;
      return nullptr;
    }

   private:
    const std::shared_ptr<State> kept_;
    const std::shared_ptr<State> state_;  // ends with the server; does not own
  };
  return std::make_unique<Made>(state_);
}

void ServerGuard::install(::grpc::ServerBuilder& builder, std::vector<std::unique_ptr<Factory>> others) {
  others.insert(others.begin(), interceptor());
  builder.experimental().SetInterceptorCreators(std::move(others));
}

std::vector<MethodSnapshot> ServerGuard::snapshot() const { return state_->methods.snapshot(); }
std::string ServerGuard::metrics() const { return to_prometheus(snapshot()); }

}  // namespace bulkhead::grpc
