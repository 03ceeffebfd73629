// What a guard costs a gRPC server, and what a storm of rejections costs the other methods.
//
// Servers and the storm are processes of their own, made before this one uses gRPC, which must not be forked. Short rounds in
// turn, and the medians of what is compared within a round, because the machine's own speed changes from second to second.
#include <grpcpp/alarm.h>
#include <grpcpp/grpcpp.h>
#include <testing.grpc.pb.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "adapters/grpc/reactor.h"
#include "adapters/grpc/server_guard.h"
#include "adapters/grpc/service.h"
#include "bench/http/process.h"

namespace bulkhead::bench {
namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;
using testing::Ask;
using testing::Echo;
using testing::Reply;
using Tell = std::function<void(std::uint16_t)>;

constexpr const char* kUsage = R"(bulkhead_grpc_bench [--quick] [--only throughput|storm|cancel] [--rounds N]

throughput  unary RPCs per second of 16 client threads, and the server's processor time per RPC: a plain server against one
            with a GuardedService and one with guard() or unary() in its methods, in the synchronous and in the callback API.
            Rounds of one second, in turn.
storm       latency of /Other, one caller, while 80 callers ask for /Unary, which has 8 places held for 50 ms each, and call
            again at once after every rejection. Quiet and storm in turn.
cancel      how long an RPC stays in line after its client has cancelled it, one after the other: rounds of 100.
)";

constexpr int kPlaces = 8, kStormers = 10 * kPlaces;

template <bool kGuarded>
class SyncEcho final : public Echo::Service {
 public:
  ::grpc::Status Unary(::grpc::ServerContext* context, const Ask* ask, Reply* reply) override {
    if constexpr (kGuarded)
      if (auto rejected = grpc::guard(context)) return *rejected;
    if (ask->count()) std::this_thread::sleep_for(50ms);
    reply->set_text(ask->text());
    return ::grpc::Status::OK;
  }
  ::grpc::Status Other(::grpc::ServerContext* context, const Ask* ask, Reply* reply) override {
    if constexpr (kGuarded)
      if (auto rejected = grpc::guard(context)) return *rejected;
    reply->set_text(ask->text());
    return ::grpc::Status::OK;
  }
};

class PlainCallbackEcho final : public Echo::CallbackService {
 public:
  ::grpc::ServerUnaryReactor* Unary(::grpc::CallbackServerContext* context, const Ask* ask,
                                    Reply* reply) override {
    reply->set_text(ask->text());
    auto* const reactor = context->DefaultReactor();
    reactor->Finish(::grpc::Status::OK);
    return reactor;
  }
  ::grpc::ServerUnaryReactor* Other(::grpc::CallbackServerContext* context, const Ask* ask,
                                    Reply* reply) override {
    return Unary(context, ask, reply);
  }
};

// Holds its place for 50 ms.
class Slow final : public grpc::Guarded<::grpc::ServerUnaryReactor> {
 public:
  Slow(const Ask* ask, Reply* reply) : ask_(ask), reply_(reply) {}
  void OnAdmitted() override {
    reply_->set_text(ask_->text());
    alarm_.Set(std::chrono::system_clock::now() + 50ms, [this](bool) { Finish(::grpc::Status::OK); });
  }

 private:
  const Ask* ask_;
  Reply* reply_;
  ::grpc::Alarm alarm_;
};

class GuardedCallbackEcho final : public Echo::CallbackService {
 public:
  ::grpc::ServerUnaryReactor* Unary(::grpc::CallbackServerContext* context, const Ask* ask,
                                    Reply* reply) override {
    if (ask->count()) return grpc::start<Slow>(context, ask, reply);
    return grpc::unary(context, [=](::grpc::ServerUnaryReactor& rpc) {
      reply->set_text(ask->text());
      rpc.Finish(::grpc::Status::OK);
    });
  }
  ::grpc::ServerUnaryReactor* Other(::grpc::CallbackServerContext* context, const Ask* ask,
                                    Reply* reply) override {
    return grpc::unary(context, [=](::grpc::ServerUnaryReactor& rpc) {
      reply->set_text(ask->text());
      rpc.Finish(::grpc::Status::OK);
    });
  }
};

enum class Form { plain, service, method };  // not guarded; by GuardedService; by a line in each method

template <class Service>
void serve(Form form, std::uint32_t places, const Tell& tell) {
  Registry registry;
  registry.add({.options = {.name = "unary", .max_concurrent = places}});
  registry.add({.options = {.name = "other", .max_concurrent = 64, .max_queue = 64}});
  grpc::ServerGuard guard(registry,
                          {.methods = {{.name = "/bulkhead.testing.Echo/", .bulkhead = "unary"},
                                       {.name = "/bulkhead.testing.Echo/Other", .bulkhead = "other"}}});
  Service service;
  grpc::GuardedService<Service> whole(guard, service, Echo::service_full_name());
  whole.add("Unary", &Service::Unary).add("Other", &Service::Other);
  ::grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", ::grpc::InsecureServerCredentials(), &port);
  if (form == Form::service)
    builder.RegisterService(&whole);
  else
    builder.RegisterService(&service);
  if (form == Form::method) guard.install(builder);
  const auto server = builder.BuildAndStart();
  tell(static_cast<std::uint16_t>(port));
  server->Wait();
}

std::unique_ptr<Echo::Stub> connect(std::uint16_t port) {
  ::grpc::ChannelArguments own;
  own.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return Echo::NewStub(::grpc::CreateCustomChannel("127.0.0.1:" + std::to_string(port),
                                                   ::grpc::InsecureChannelCredentials(), own));
}

double quantile(std::vector<double> values, double q) {
  std::ranges::sort(values);
  return values[std::min(values.size() - 1,
                         static_cast<std::size_t>(static_cast<double>(values.size()) * q))];
}

// The medians of the rounds against the bounds of docs/design/grpc.md.
constexpr double kLeastRate = 0.97, kMostLatency = 1.5, kMostInLineMs = 10;
const char* verdict(bool reached) { return reached ? "PASS" : "FAIL"; }

// ---- throughput ----

struct Speed {
  double per_second = 0, cpu_us = 0;
};

class Clients {
 public:
  explicit Clients(const Process& server) : server_(server) {
    for (int i = 0; i < 4; ++i) stubs_.push_back(connect(server.port));
  }
  Speed run(std::chrono::milliseconds time) {
    const double before = server_.cpu_seconds();
    const auto begin = steady_clock::now(), until = begin + time;
    std::atomic<std::uint64_t> calls{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 16; ++i)
      threads.emplace_back([&, i] {
        Ask ask;
        ask.set_text("hello");
        std::uint64_t own = 0;
        for (; steady_clock::now() < until; ++own) {
          ::grpc::ClientContext context;
          Reply reply;
          if (const auto status = stubs_[i % 4]->Unary(&context, ask, &reply); !status.ok()) {
            std::fprintf(stderr, "bulkhead_grpc_bench: %s\n", status.error_message().c_str());
            std::exit(1);
          }
        }
        calls += own;
      });
    for (auto& t : threads) t.join();
    const double took = std::chrono::duration<double>(steady_clock::now() - begin).count();
    const auto n = static_cast<double>(calls.load());
    return {n / took, (server_.cpu_seconds() - before) / n * 1e6};
  }

 private:
  const Process& server_;
  std::vector<std::unique_ptr<Echo::Stub>> stubs_;
};

void throughput(int rounds, std::chrono::milliseconds time) {
  constexpr int kForms = 3;
  const char* const names[] = {"plain", "GuardedService", "guard() in each method"};
  const Process servers[] = {
      Process([](const Tell& tell) { serve<SyncEcho<false>>(Form::plain, 1000, tell); }),
      Process([](const Tell& tell) { serve<SyncEcho<false>>(Form::service, 1000, tell); }),
      Process([](const Tell& tell) { serve<SyncEcho<true>>(Form::method, 1000, tell); }),
      Process([](const Tell& tell) { serve<PlainCallbackEcho>(Form::plain, 1000, tell); }),
      Process([](const Tell& tell) { serve<PlainCallbackEcho>(Form::service, 1000, tell); }),
      Process([](const Tell& tell) { serve<GuardedCallbackEcho>(Form::method, 1000, tell); }),
  };
  std::vector<Clients> clients;
  for (const Process& server : servers) clients.emplace_back(server).run(time / 2);
  std::vector<double> rates[2 * kForms], costs[2 * kForms], ratios[2 * kForms], cost_ratios[2 * kForms];
  for (int round = 0; round < rounds; ++round)
    for (int api = 0; api < 2; ++api) {
      Speed speed[kForms];
      for (int k = 0; k < kForms; ++k) {
        const int form = (k + round) % kForms;  // who goes first changes
        speed[form] = clients[api * kForms + form].run(time);
      }
      for (int form = 0; form < kForms; ++form) {
        const int i = api * kForms + form;
        rates[i].push_back(speed[form].per_second);
        costs[i].push_back(speed[form].cpu_us);
        ratios[i].push_back(speed[form].per_second / speed[0].per_second);
        cost_ratios[i].push_back(speed[form].cpu_us / speed[0].cpu_us);
      }
    }
  std::printf(
      "throughput: 16 client threads, %d rounds; bound: at least %.2fx RPC/s\n%-36s %8s %12s %8s %8s\n",
      rounds, kLeastRate, "server", "RPC/s", "cpu us/RPC", "ratio", "cpu");
  for (int i = 0; i < 2 * kForms; ++i) {
    const std::string name = std::string(i < kForms ? "synchronous: " : "callback: ") + names[i % kForms];
    std::printf("%-36s %8.0f %12.1f", name.c_str(), quantile(rates[i], 0.5), quantile(costs[i], 0.5));
    if (i % kForms) {
      const double ratio = quantile(ratios[i], 0.5);
      std::printf(" %7.3fx %7.3fx  %s", ratio, quantile(cost_ratios[i], 0.5), verdict(ratio >= kLeastRate));
    }
    std::printf("\n");
  }
}

// ---- storm ----

void rage(std::uint16_t port, const Tell& tell) {
  std::vector<std::unique_ptr<Echo::Stub>> stubs;
  for (int i = 0; i < 4; ++i) stubs.push_back(connect(port));
  std::vector<std::thread> threads;
  for (int i = 0; i < kStormers; ++i)
    threads.emplace_back([&, i] {
      Ask ask;
      ask.set_count(1);
      for (;;) {
        ::grpc::ClientContext context;
        Reply reply;
        stubs[i % 4]->Unary(&context, ask, &reply);
      }
    });
  tell(1);
  for (auto& t : threads) t.join();
}

std::vector<double> probe(Echo::Stub& stub, std::chrono::milliseconds time) {
  std::vector<double> all;
  for (const auto until = steady_clock::now() + time; steady_clock::now() < until;) {
    ::grpc::ClientContext context;
    Ask ask;
    Reply reply;
    const auto begin = steady_clock::now();
    if (!stub.Other(&context, ask, &reply).ok()) std::exit(1);
    all.push_back(std::chrono::duration<double, std::micro>(steady_clock::now() - begin).count());
    std::this_thread::sleep_for(1ms);
  }
  return all;
}

void storm(int rounds, std::chrono::milliseconds time) {
  const Process sync([](const Tell& tell) { serve<SyncEcho<true>>(Form::method, kPlaces, tell); });
  const Process sync_storm([&](const Tell& tell) { rage(sync.port, tell); });
  sync_storm.pause(true);
  const Process callback([](const Tell& tell) { serve<GuardedCallbackEcho>(Form::method, kPlaces, tell); });
  const Process callback_storm([&](const Tell& tell) { rage(callback.port, tell); });
  callback_storm.pause(true);
  std::printf(
      "storm: %d callers for %d places, %d rounds; bound: at most %.1fx of the quiet p90\n%-24s %12s %12s "
      "%8s %8s\n",
      kStormers, kPlaces, rounds, kMostLatency, "server", "quiet p90 us", "storm p90 us", "p50", "p90");
  const auto measure = [&](const char* name, const Process& server, const Process& stormers) {
    const auto stub = connect(server.port);
    probe(*stub, time / 2);
    std::vector<double> quiet90, storm90, r50, r90;
    for (int round = 0; round < rounds; ++round) {
      const auto quiet = probe(*stub, time);
      stormers.pause(false);
      probe(*stub, time / 4);
      const auto stormy = probe(*stub, time);
      stormers.pause(true);
      probe(*stub, time / 4);
      quiet90.push_back(quantile(quiet, 0.9));
      storm90.push_back(quantile(stormy, 0.9));
      r50.push_back(quantile(stormy, 0.5) / quantile(quiet, 0.5));
      r90.push_back(storm90.back() / quiet90.back());
    }
    const double ratio = quantile(r90, 0.5);
    std::printf("%-24s %12.0f %12.0f %7.2fx %7.2fx  %s\n", name, quantile(quiet90, 0.5),
                quantile(storm90, 0.5), quantile(r50, 0.5), ratio, verdict(ratio <= kMostLatency));
  };
  measure("guarded, synchronous", sync, sync_storm);
  measure("guarded, callback", callback, callback_storm);
}

// ---- cancel ----

// One place, held for the whole measurement, and one RPC at a time in line behind it. Server and client share the process, so
// that it sees the line.
template <class Service>
void cancel_each(const char* name, int cancellations) {
  Registry registry;
  const auto bulkhead = registry.add({.options = {.name = "unary", .max_concurrent = 1, .max_queue = 1}});
  const auto held = bulkhead->acquire();
  grpc::ServerGuard guard(registry, {.methods = {{.name = "/", .bulkhead = "unary"}}});
  Service service;
  ::grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", ::grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&service);
  guard.install(builder);
  const auto server = builder.BuildAndStart();
  const auto stub = connect(static_cast<std::uint16_t>(port));
  const auto in_line = [&](std::uint32_t waiting) {
    while (bulkhead->snapshot().gate.waiting != waiting) std::this_thread::sleep_for(50us);
  };
  std::vector<double> all;
  for (int i = 0; i < cancellations; ++i) {
    ::grpc::ClientContext context;
    std::thread call([&] {
      Ask ask;
      Reply reply;
      stub->Unary(&context, ask, &reply);
    });
    in_line(1);
    const auto begin = steady_clock::now();
    context.TryCancel();
    in_line(0);
    all.push_back(std::chrono::duration<double, std::milli>(steady_clock::now() - begin).count());
    call.join();
  }
  const double p99 = quantile(all, 0.99);
  std::printf("%-24s %8.2f %8.2f %8.2f  %s\n", name, quantile(all, 0.5), p99, quantile(all, 1),
              verdict(p99 <= kMostInLineMs));
}

void cancel(int rounds, std::chrono::milliseconds time) {
  const int cancellations = static_cast<int>(rounds * time.count() / 10);
  std::printf(
      "cancel: %d cancellations, time in line after each; bound: p99 at most %.0f ms\n%-24s %8s %8s %8s\n",
      cancellations, kMostInLineMs, "server", "p50 ms", "p99 ms", "most ms");
  cancel_each<SyncEcho<true>>("guarded, synchronous", cancellations);
  cancel_each<GuardedCallbackEcho>("guarded, callback", cancellations);
}

}  // namespace
}  // namespace bulkhead::bench

int main(int argc, char** argv) {
  std::string_view only;
  int rounds = 9;
  std::chrono::milliseconds time(1000);
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--quick") {
      rounds = 1;
      time = std::chrono::milliseconds(100);
    } else if (argument == "--only" && i + 1 < argc) {
      only = argv[++i];
    } else if (argument == "--rounds" && i + 1 < argc) {
      rounds = std::max(1, std::atoi(argv[++i]));
    } else {
      std::fputs(bulkhead::bench::kUsage, stderr);
      return 2;
    }
  }
  // gRPC and fork() do not mix: each part is a process that starts without it.
  const auto part = [&](std::string_view name, void (*run)(int, std::chrono::milliseconds)) {
    if (!only.empty() && only != name) return;
    const bulkhead::bench::Process child([&](const bulkhead::bench::Tell& tell) {
      run(rounds, time);
      std::fflush(stdout);
      tell(1);
    });
  };
  part("throughput", bulkhead::bench::throughput);
  part("storm", bulkhead::bench::storm);
  part("cancel", bulkhead::bench::cancel);
}
