// echo_test.h - the service of testing.proto in the synchronous and in the callback API, on a real server on loopback.
#pragma once

#include <grpcpp/grpcpp.h>
#include <testing.grpc.pb.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "server_guard.h"

namespace bulkhead::grpc::tests {

using ::bulkhead::testing::Ask;
using ::bulkhead::testing::Echo;
using ::bulkhead::testing::Reply;

// What the handlers do and have done. A request "hold" stays in its handler until let_go() or until its client has gone; "throw"
// throws; "fail" ends with INTERNAL.
class Stage {
 public:
  void enter() {
    runs.fetch_add(1);
    const int now = inside.fetch_add(1) + 1;
    for (int before = peak.load(); before < now && !peak.compare_exchange_weak(before, now);) {
    }
  }
  void leave() { inside.fetch_sub(1); }
  void let_go() {
    std::vector<std::function<void()>> parked;
    {
      const std::lock_guard lock(mutex_);
      open = true;
      parked.swap(parked_);
    }
    for (const auto& go : parked) go();
  }
  void park(std::function<void()> go) {
    {
      const std::lock_guard lock(mutex_);
      if (!open) {
        parked_.push_back(std::move(go));
        return;
      }
    }
    go();
  }

  std::atomic<int> inside{0}, peak{0}, runs{0};
  std::atomic<bool> open{false};
  std::atomic<bool> deaf{false};  // a handler that is held does not notice that its RPC is cancelled
  std::function<void(const ::grpc::ServerContextBase&)>
      seen;                     // what a unary call of the synchronous API runs; set it first
  std::atomic<int> work_us{0};  // that each unary call takes, asleep

 private:
  std::mutex mutex_;
  std::vector<std::function<void()>> parked_;
};

enum class Api { sync, callback, wrapped, wrapped_callback };  // wrapped: behind GuardedService
inline constexpr const char* kApis[] = {"Sync", "Callback", "Wrapped", "WrappedCallback"};

std::unique_ptr<::grpc::Service> make_echo(Api api, Stage& stage, const ServerGuard& guard);

// A server with a guard. Destroying it cancels what is still running.
class World {
 public:
  struct Options {
    Api api = Api::sync;
    BulkheadOptions bulkhead{};  // named "echo"
    ServerGuardOptions guard{};  // without methods: all of Echo in "echo"
    bool install_too = false;    // the interceptor, on a server whose service is wrapped
    std::shared_ptr<::grpc::ServerCredentials> credentials = ::grpc::InsecureServerCredentials();
  };
  explicit World(Options options);
  ~World();
  void cancel_all() { server_->Shutdown(std::chrono::system_clock::now()); }  // what runs and what waits

  std::string address(const std::string& host = "127.0.0.1") const {
    return host + ":" + std::to_string(port_);
  }
  std::shared_ptr<::grpc::Channel> channel(const ::grpc::ChannelArguments& arguments = {}) const;
  std::unique_ptr<Echo::Stub> stub() const { return Echo::NewStub(channel()); }
  MethodSnapshot method(const std::string& name) const;  // "Unary"; all zero: it had no RPC
  Snapshot gate() const { return registry.get("echo")->snapshot().gate; }

  Stage stage;
  Registry registry;
  std::unique_ptr<ServerGuard> guard;

 private:
  std::unique_ptr<::grpc::Service> service_;
  std::unique_ptr<::grpc::Server> server_;
  int port_ = 0;
};

// Waits until it holds; false after 20 s.
bool eventually(const std::function<bool()>& holds);
Ask ask(const std::string& text, std::uint32_t count = 0);
std::uint64_t sum(const std::array<std::uint64_t, kReasons>& rejected);

}  // namespace bulkhead::grpc::tests
