// world_test.h - a control plane over a few real bulkheads, and ways to ask it.
#pragma once

#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "access.h"
#include "bulkhead/manual_clock.h"
#include "http_client_test.h"
#include "server.h"
#include "tests/support/temp_directory.h"

namespace bulkhead::control {

// Real bulkheads, as a program that has three of its own would show them.
struct World {
  ManualClock clock;
  std::mutex mutex;  // of `bulkheads`
  std::map<std::string, std::shared_ptr<Bulkhead>, std::less<>> bulkheads;
  const tests::TempDirectory temporary;
  const std::string directory = temporary.path().string();
  ServerOptions options;
  std::unique_ptr<Server> server;

  World() {
    add({.name = "db", .max_concurrent = 20, .max_queue = 10, .clock = &clock});
    add({.name = "pay/eu", .max_concurrent = 5, .breaker = BreakerOptions{}, .clock = &clock});
    add({.name = "auto", .max_concurrent = 5, .adaptive = LimiterOptions{}, .clock = &clock});
    options = {.unix_socket = directory + "/admin.sock",
               .listen = "127.0.0.1:0",
               .tokens_file = directory + "/tokens",
               .instance = "test",
               .version = "1.2.3",
               .audit_file = directory + "/audit.jsonl",
               .clock = &clock};
    std::ofstream(options.tokens_file)
        << "# for tests\nvera viewer " << sha256_hex("v") << "\nolga operator " << sha256_hex("o")
        << "\nann admin " << sha256_hex("a") << " 2999-01-01T00:00:00Z\nold admin " << sha256_hex("x")
        << " 2020-01-01T00:00:00Z\n";
    std::filesystem::permissions(options.tokens_file, std::filesystem::perms(0600));  // whatever the umask
  }
  ~World() { server.reset(); }
  void add(const BulkheadOptions& o) {
    const std::lock_guard lock(mutex);
    bulkheads[o.name] = std::make_shared<Bulkhead>(o);
  }
  Bulkhead& operator[](std::string_view name) { return *bulkheads.find(name)->second; }

  Plant plant() {
    return {.snapshot =
                [this] {
                  const std::lock_guard lock(mutex);
                  RegistrySnapshot all;
                  for (const auto& [name, b] : bulkheads)
                    all.bulkheads.push_back({.name = name,
                                             .type = "",
                                             .group = "",
                                             .tenants = "",
                                             .tenant_id = "",
                                             .configured = b->options(),
                                             .now = b->snapshot(),
                                             .bulkhead = b});
                  return all;
                },
            .find =
                [this](std::string_view name) {
                  const std::lock_guard lock(mutex);
                  const auto found = bulkheads.find(name);
                  return found == bulkheads.end() ? nullptr : found->second;
                }};
  }
  Server& start() { return *(server = std::make_unique<Server>(plant(), options)); }
  Reply ask(const Ask& request) {
    if (!server) start();
    Client client = Client::tcp(server->port());
    EXPECT_TRUE(client.send(request.text()));
    return client.read(request.method == "HEAD");
  }
  Reply ask_local(const Ask& request) {
    if (!server) start();
    Client client = Client::local(options.unix_socket);
    EXPECT_TRUE(client.send(request.text()));
    return client.read();
  }
  Reply get(const std::string& path) { return ask({.path = path}); }
  Reply put(const std::string& path, const std::string& body, std::vector<std::string> headers = {}) {
    return ask({.method = "PUT", .path = path, .body = body, .token = "o", .headers = std::move(headers)});
  }
};

inline std::int64_t number(const boost::json::value& v) { return v.to_number<std::int64_t>(); }

}  // namespace bulkhead::control
