// A gRPC client with a bulkhead, a breaker and a rate limit for its server.
//
//   example_grpc_client <address> [calls]      buys from example_grpc_server
//   example_grpc_client --check                calls a server that is not there, until the breaker opens
#include <bulkhead/adapters/grpc/client_guard.h>
#include <grpcpp/grpcpp.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "shop.grpc.pb.h"

using namespace std::chrono_literals;

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fputs("example_grpc_client <address> [calls] | --check\n", stderr);
    return 2;
  }
  const bool check = std::string_view(argv[1]) == "--check";
  bulkhead::Registry registry;
  registry.add({.options = {.name = "shop",
                            .max_concurrent = 16,
                            .max_queue = 16,
                            .breaker = bulkhead::BreakerOptions{.window_calls = 10, .minimum_calls = 5},
                            .rate_limit = bulkhead::RateLimiterOptions{.rate = 100}}});
  bulkhead::grpc::ClientGuard guard(registry, {.methods = {{.name = "/shop.Shop/", .bulkhead = "shop"}}});
  const auto stub =
      shop::Shop::NewStub(guard.channel(check ? "127.0.0.1:1" : argv[1], grpc::InsecureChannelCredentials()));

  std::string last;
  const int calls = check ? 10 : argc > 2 ? std::atoi(argv[2]) : 1;
  for (int i = 0; i < calls; ++i) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + 1s);
    shop::Order order;
    order.set_item("lamp");
    shop::Receipt receipt;
    const grpc::Status status = stub->Buy(&context, order, &receipt);
    last = status.ok() ? receipt.text() : status.error_message();
    std::puts(last.c_str());
  }
  return check && last.find("breaker_open") == std::string::npos ? 1 : 0;
}
