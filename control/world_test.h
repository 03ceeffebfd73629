// world_test.h - a server over the sample bulkheads, and functions that send requests to it.
#pragma once

#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "control/http/access.h"
#include "control/server.h"
#include "http_client_test.h"
#include "sample_test.h"
#include "tests/support/temp_directory.h"

namespace bulkhead::control {

// Without a file, unless a test sets `live`.
struct World : Sample {
  std::optional<LiveConfig> live;
  const tests::TempDirectory temporary;
  const std::string directory = temporary.path().string();
  ServerOptions options;
  std::unique_ptr<Server> server;

  World() {
    options = {.unix_socket = directory + "/admin.sock",
               .listen = "127.0.0.1:0",
               .tokens_file = directory + "/tokens",
               .instance = "test",
               .version = "1.2.3",
               .audit_file = directory + "/audit.jsonl"};
    std::ofstream(options.tokens_file)
        << "# for tests\nvera viewer " << sha256_hex("v") << "\nolga operator " << sha256_hex("o")
        << "\nann admin " << sha256_hex("a") << " 2999-01-01T00:00:00Z\nold admin " << sha256_hex("x")
        << " 2020-01-01T00:00:00Z\n";
    std::filesystem::permissions(options.tokens_file, std::filesystem::perms(0600));  // whatever the umask
  }
  ~World() { server.reset(); }
  Server& start() {
    server = live ? std::make_unique<Server>(registry, *live, options)
                  : std::make_unique<Server>(registry, options);
    return *server;
  }
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
