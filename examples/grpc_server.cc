// A complete gRPC server: payments and prices, each in its own bulkhead.
//
//   example_grpc_server [port]      prints its address, serves until SIGINT or SIGTERM
//   example_grpc_server --check     buys something from itself and ends
#include <bulkhead/adapters/grpc/server_guard.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>

#include <csignal>
#include <cstdio>
#include <string>
#include <string_view>

#include "shop.grpc.pb.h"

using namespace std::chrono_literals;

class ShopService final : public shop::Shop::Service {
  grpc::Status Buy(grpc::ServerContext* context, const shop::Order* order, shop::Receipt* receipt) override {
    if (auto rejected = bulkhead::grpc::guard(context)) return *rejected;
    receipt->set_text("one " + order->item());
    return grpc::Status::OK;
  }
  grpc::Status Prices(grpc::ServerContext* context, const shop::Order*,
                      grpc::ServerWriter<shop::Price>* prices) override {
    if (auto rejected = bulkhead::grpc::guard(context))
      return *rejected;  // the place is held to the end of the stream
    shop::Price price;
    for (int i = 0; i < 3; ++i) {
      price.set_amount(10 - i);
      if (!prices->Write(price)) return grpc::Status::CANCELLED;
    }
    return grpc::Status::OK;
  }
};

int main(int argc, char** argv) {
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGINT);
  sigaddset(&ends, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &ends, nullptr);  // before there are other threads

  bulkhead::Registry registry;
  registry.add({.options = {.name = "payments", .max_concurrent = 8, .max_queue = 16, .max_wait = 500ms}});
  registry.add({.options = {.name = "shop", .max_concurrent = 32, .max_queue = 64}});
  bulkhead::grpc::ServerGuard guard(registry, {.methods = {{.name = "/shop.Shop/Buy", .bulkhead = "payments"},
                                                           {.name = "/shop.Shop/", .bulkhead = "shop"}},
                                               .trusted_peers = {"127.0.0.1"}});
  const bool check = argc > 1 && std::string_view(argv[1]) == "--check";
  const std::string wanted = argc > 1 && !check ? argv[1] : "0";
  int port = 0;
  ShopService service;
  grpc::EnableDefaultHealthCheckService(true);  // answered also while everything is full
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:" + wanted, grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&service);
  guard.install(builder);
  const auto server = builder.BuildAndStart();
  if (!server) return 1;
  std::printf("listening on 127.0.0.1:%d\n", port);
  std::fflush(stdout);

  bool ok = true;
  if (check) {
    const auto stub = shop::Shop::NewStub(
        grpc::CreateChannel("127.0.0.1:" + std::to_string(port), grpc::InsecureChannelCredentials()));
    grpc::ClientContext context;
    shop::Order order;
    order.set_item("lamp");
    shop::Receipt receipt;
    ok = stub->Buy(&context, order, &receipt).ok() && receipt.text() == "one lamp";
    std::puts(receipt.text().c_str());
  } else {
    int signal = 0;
    sigwait(&ends, &signal);
  }
  server->Shutdown(std::chrono::system_clock::now() + 20s);  // what runs and what waits is answered first
  server->Wait();
  std::fputs(guard.metrics().c_str(), stdout);
  return ok ? 0 : 1;
}
