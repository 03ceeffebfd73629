#include "echo_test.h"

#include <grpcpp/alarm.h>

#include <numeric>
#include <stdexcept>
#include <thread>

#include "reactor.h"
#include "service.h"

namespace bulkhead::grpc::tests {
namespace {

using ::grpc::CallbackServerContext;
using ::grpc::ServerContext;
using ::grpc::Status;

struct Inside {
  explicit Inside(Stage& s) : stage(s) { stage.enter(); }
  ~Inside() { stage.leave(); }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;
  Stage& stage;
};

Status status_for(const Ask& ask) {
  return ask.text() == "fail" ? Status(::grpc::StatusCode::INTERNAL, "as asked") : Status::OK;
}

// The methods themselves; GuardedService calls them after its guard.
class BareEcho : public Echo::Service {
 public:
  explicit BareEcho(Stage& stage) : stage_(stage) {}

  Status Unary(ServerContext* context, const Ask* ask, Reply* reply) override {
    const Inside inside(stage_);
    if (stage_.seen) stage_.seen(*context);
    hold(context, *ask);
    if (ask->text() == "throw") throw std::runtime_error("as asked");
    if (const int us = stage_.work_us.load()) std::this_thread::sleep_for(std::chrono::microseconds(us));
    reply->set_text(ask->text());
    return status_for(*ask);
  }
  Status Other(ServerContext*, const Ask* ask, Reply* reply) override {
    const Inside inside(stage_);
    if (ask->text() == "throw") throw std::runtime_error("as asked");
    reply->set_text(ask->text());
    return Status::OK;
  }
  Status Upload(ServerContext* context, ::grpc::ServerReader<Ask>* asks, Reply* reply) override {
    const Inside inside(stage_);
    for (Ask ask; asks->Read(&ask);) {
      hold(context, ask);
      reply->set_text(reply->text() + ask.text());
    }
    return Status::OK;
  }
  Status Download(ServerContext* context, const Ask* ask, ::grpc::ServerWriter<Reply>* replies) override {
    const Inside inside(stage_);
    Reply reply;
    reply.set_text(ask->text());
    for (std::uint32_t i = 0; i < ask->count(); ++i)
      if (!replies->Write(reply)) return Status::CANCELLED;
    hold(context, *ask);
    return status_for(*ask);
  }
  Status Chat(ServerContext* context, ::grpc::ServerReaderWriter<Reply, Ask>* stream) override {
    const Inside inside(stage_);
    for (Ask ask; stream->Read(&ask);) {
      Reply reply;
      reply.set_text(ask.text());
      stream->Write(reply);
      hold(context, ask);
    }
    return Status::OK;
  }

 private:
  void hold(ServerContext* context, const Ask& ask) {
    if (ask.text() != "hold") return;
    while (!stage_.open && (stage_.deaf || !context->IsCancelled()))
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  Stage& stage_;
};

class SyncEcho final : public BareEcho {
 public:
  using BareEcho::BareEcho;
  Status Unary(ServerContext* context, const Ask* ask, Reply* reply) override {
    if (auto rejected = guard(context)) return *rejected;
    return BareEcho::Unary(context, ask, reply);
  }
  Status Other(ServerContext* context, const Ask* ask, Reply* reply) override {
    if (auto rejected = guard(context)) return *rejected;
    return BareEcho::Other(context, ask, reply);
  }
  Status Upload(ServerContext* context, ::grpc::ServerReader<Ask>* asks, Reply* reply) override {
    if (auto rejected = guard(context)) return *rejected;
    return BareEcho::Upload(context, asks, reply);
  }
  Status Download(ServerContext* context, const Ask* ask, ::grpc::ServerWriter<Reply>* replies) override {
    if (auto rejected = guard(context)) return *rejected;
    return BareEcho::Download(context, ask, replies);
  }
  Status Chat(ServerContext* context, ::grpc::ServerReaderWriter<Reply, Ask>* stream) override {
    if (auto rejected = guard(context)) return *rejected;
    return BareEcho::Chat(context, stream);
  }
};

class WrappedEcho final : public GuardedService<BareEcho> {
 public:
  WrappedEcho(const ServerGuard& guard, std::unique_ptr<BareEcho> echo)
      : GuardedService(guard, *echo, Echo::service_full_name()), echo_(std::move(echo)) {
    add("Unary", &BareEcho::Unary).add("Other", &BareEcho::Other).add("Upload", &BareEcho::Upload);
    add("Download", &BareEcho::Download).add("Chat", &BareEcho::Chat);
  }

 private:
  std::unique_ptr<BareEcho> echo_;
};

// A reactor without a guard, with the names that Guarded has.
template <class Base>
class Bare : public Base {
 public:
  virtual void OnAdmitted() = 0;
  virtual void OnCancelled() = 0;
  virtual void OnEnded() = 0;
  void OnDone() final { OnEnded(); }
  void OnCancel() final { OnCancelled(); }
};
template <class R, class... Args>
R* start_bare(Args&&... args) {
  auto* const reactor = new R(std::forward<Args>(args)...);
  try {
    reactor->OnAdmitted();
  } catch (...) {
    reactor->OnEnded();
    throw;
  }
  return reactor;
}

// Common to all reactors: inside from the admission to the very end, finished once, held if the text says so.
template <class Kind>
class Act : public Kind {
 public:
  explicit Act(Stage& stage) : stage_(stage) {}
  void OnAdmitted() final {
    stage_.enter();
    entered_ = true;
    act();
  }
  void OnCancelled() final {
    if (!stage_.deaf) finish(Status::CANCELLED);
  }
  void OnEnded() final {
    if (entered_) stage_.leave();
    delete this;
  }

 protected:
  virtual void act() = 0;
  void finish(Status status) {
    if (!finished_->exchange(true)) this->Finish(std::move(status));
  }
  void finish_or_hold(const Ask& ask) {
    if (ask.text() != "hold") return finish(status_for(ask));
    stage_.park([this, finished = finished_] {
      if (!finished->exchange(true)) this->Finish(Status::OK);
    });
  }
  Stage& stage_;

 private:
  bool entered_ = false;
  std::shared_ptr<std::atomic<bool>> finished_ = std::make_shared<std::atomic<bool>>(false);
};

template <template <class> class Kind>
class UnaryAct final : public Act<Kind<::grpc::ServerUnaryReactor>> {
  using Base = Act<Kind<::grpc::ServerUnaryReactor>>;

 public:
  UnaryAct(Stage& stage, const Ask* ask, Reply* reply) : Base(stage), ask_(ask), reply_(reply) {}

 private:
  void act() override {
    if (ask_->text() == "throw") throw std::runtime_error("as asked");
    reply_->set_text(ask_->text());
    const int us = this->stage_.work_us;
    if (us == 0) return this->finish_or_hold(*ask_);
    alarm_.Set(std::chrono::system_clock::now() + std::chrono::microseconds(us),
               [this](bool) { this->finish_or_hold(*ask_); });
  }
  const Ask* ask_;
  Reply* reply_;
  ::grpc::Alarm alarm_;
};

template <template <class> class Kind>
class UploadAct final : public Act<Kind<::grpc::ServerReadReactor<Ask>>> {
  using Base = Act<Kind<::grpc::ServerReadReactor<Ask>>>;

 public:
  UploadAct(Stage& stage, Reply* reply) : Base(stage), reply_(reply) {}

 private:
  void act() override { this->StartRead(&ask_); }
  void OnReadDone(bool ok) override {
    if (!ok) return this->finish(Status::OK);
    if (ask_.text() == "hold") return this->finish_or_hold(ask_);
    reply_->set_text(reply_->text() + ask_.text());
    this->StartRead(&ask_);
  }
  Reply* reply_;
  Ask ask_;
};

template <template <class> class Kind>
class DownloadAct final : public Act<Kind<::grpc::ServerWriteReactor<Reply>>> {
  using Base = Act<Kind<::grpc::ServerWriteReactor<Reply>>>;

 public:
  DownloadAct(Stage& stage, const Ask* ask) : Base(stage), ask_(*ask) { reply_.set_text(ask->text()); }

 private:
  void act() override { next(); }
  void OnWriteDone(bool ok) override { ok ? next() : this->finish(Status::CANCELLED); }
  void next() {
    if (sent_++ == ask_.count()) return this->finish_or_hold(ask_);
    this->StartWrite(&reply_);
  }
  const Ask ask_;
  Reply reply_;
  std::uint32_t sent_ = 0;
};

template <template <class> class Kind>
class ChatAct final : public Act<Kind<::grpc::ServerBidiReactor<Ask, Reply>>> {
  using Base = Act<Kind<::grpc::ServerBidiReactor<Ask, Reply>>>;

 public:
  using Base::Base;

 private:
  void act() override { this->StartRead(&ask_); }
  void OnReadDone(bool ok) override {
    if (!ok) return this->finish(Status::OK);
    reply_.set_text(ask_.text());
    this->StartWrite(&reply_);
  }
  void OnWriteDone(bool ok) override {
    if (!ok) return this->finish(Status::CANCELLED);
    if (ask_.text() == "hold") return this->finish_or_hold(ask_);
    this->StartRead(&ask_);
  }
  Ask ask_;
  Reply reply_;
};

class CallbackEcho final : public Echo::CallbackService {
 public:
  explicit CallbackEcho(Stage& stage) : stage_(stage) {}
  ::grpc::ServerUnaryReactor* Unary(CallbackServerContext* context, const Ask* ask, Reply* reply) override {
    return start<UnaryAct<Guarded>>(context, stage_, ask, reply);
  }
  ::grpc::ServerUnaryReactor* Other(CallbackServerContext* context, const Ask* ask, Reply* reply) override {
    return unary(context, [this, ask, reply](::grpc::ServerUnaryReactor& rpc) {
      const Inside inside(stage_);
      if (ask->text() == "throw") throw std::runtime_error("as asked");
      reply->set_text(ask->text());
      rpc.Finish(Status::OK);
    });
  }
  ::grpc::ServerReadReactor<Ask>* Upload(CallbackServerContext* context, Reply* reply) override {
    return start<UploadAct<Guarded>>(context, stage_, reply);
  }
  ::grpc::ServerWriteReactor<Reply>* Download(CallbackServerContext* context, const Ask* ask) override {
    return start<DownloadAct<Guarded>>(context, stage_, ask);
  }
  ::grpc::ServerBidiReactor<Ask, Reply>* Chat(CallbackServerContext* context) override {
    return start<ChatAct<Guarded>>(context, stage_);
  }

 private:
  Stage& stage_;
};

// Methods that know no guard; GuardedService calls them once their RPC has its place.
class BareCallbackEcho final : public Echo::CallbackService {
 public:
  explicit BareCallbackEcho(Stage& stage) : stage_(stage) {}
  ::grpc::ServerUnaryReactor* Unary(CallbackServerContext*, const Ask* ask, Reply* reply) override {
    return start_bare<UnaryAct<Bare>>(stage_, ask, reply);
  }
  ::grpc::ServerUnaryReactor* Other(CallbackServerContext* context, const Ask* ask, Reply* reply) override {
    const Inside inside(stage_);
    if (ask->text() == "throw") throw std::runtime_error("as asked");
    reply->set_text(ask->text());
    ::grpc::ServerUnaryReactor* const rpc = context->DefaultReactor();
    rpc->Finish(Status::OK);
    return rpc;
  }
  ::grpc::ServerReadReactor<Ask>* Upload(CallbackServerContext*, Reply* reply) override {
    return start_bare<UploadAct<Bare>>(stage_, reply);
  }
  ::grpc::ServerWriteReactor<Reply>* Download(CallbackServerContext*, const Ask* ask) override {
    return start_bare<DownloadAct<Bare>>(stage_, ask);
  }
  ::grpc::ServerBidiReactor<Ask, Reply>* Chat(CallbackServerContext*) override {
    return start_bare<ChatAct<Bare>>(stage_);
  }

 private:
  Stage& stage_;
};

class WrappedCallbackEcho final : public GuardedService<BareCallbackEcho> {
 public:
  WrappedCallbackEcho(const ServerGuard& guard, std::unique_ptr<BareCallbackEcho> echo)
      : GuardedService(guard, *echo, Echo::service_full_name()), echo_(std::move(echo)) {
    add("Unary", &BareCallbackEcho::Unary).add("Other", &BareCallbackEcho::Other);
    add("Upload", &BareCallbackEcho::Upload).add("Download", &BareCallbackEcho::Download);
    add("Chat", &BareCallbackEcho::Chat);
  }

 private:
  std::unique_ptr<BareCallbackEcho> echo_;
};

}  // namespace

std::unique_ptr<::grpc::Service> make_echo(Api api, Stage& stage, const ServerGuard& guard) {
  if (api == Api::callback) return std::make_unique<CallbackEcho>(stage);
  if (api == Api::wrapped) return std::make_unique<WrappedEcho>(guard, std::make_unique<BareEcho>(stage));
  if (api == Api::wrapped_callback)
    return std::make_unique<WrappedCallbackEcho>(guard, std::make_unique<BareCallbackEcho>(stage));
  return std::make_unique<SyncEcho>(stage);
}

World::World(Options options) {
  options.bulkhead.name = "echo";
  registry.add({.options = options.bulkhead});
  if (options.guard.methods.empty() && !options.guard.router)
    options.guard.methods = {{.name = "/bulkhead.testing.Echo/", .bulkhead = "echo"}};
  guard = std::make_unique<ServerGuard>(registry, std::move(options.guard));
  service_ = make_echo(options.api, stage, *guard);
  ::grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", options.credentials, &port_);
  builder.RegisterService(service_.get());
  const bool wrapped = options.api == Api::wrapped || options.api == Api::wrapped_callback;
  if (!wrapped || options.install_too) guard->install(builder);
  server_ = builder.BuildAndStart();
  if (!server_ || port_ == 0) throw std::runtime_error("the server did not start");
}

World::~World() {
  stage.let_go();
  server_->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(1));
  server_->Wait();
}

std::shared_ptr<::grpc::Channel> World::channel(const ::grpc::ChannelArguments& arguments) const {
  ::grpc::ChannelArguments own = arguments;
  own.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // a connection of its own
  return ::grpc::CreateCustomChannel(address(), ::grpc::InsecureChannelCredentials(), own);
}

MethodSnapshot World::method(const std::string& name) const {
  for (MethodSnapshot& m : guard->snapshot())
    if (m.method == "/bulkhead.testing.Echo/" + name) return m;
  return {};
}

bool eventually(const std::function<bool()>& holds) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!holds()) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  return true;
}

Ask ask(const std::string& text, std::uint32_t count) {
  Ask a;
  a.set_text(text);
  a.set_count(count);
  return a;
}

std::uint64_t sum(const std::array<std::uint64_t, kReasons>& rejected) {
  return std::accumulate(rejected.begin(), rejected.end(), std::uint64_t{0});
}

}  // namespace bulkhead::grpc::tests

// c-ares keeps a few bytes of each name that gRPC resolves; what we lose is still reported.
extern "C" const char* __lsan_default_suppressions();
extern "C" const char* __lsan_default_suppressions() { return "leak:libcares\n"; }
