// Whatever bytes come in on a connection: they are answered or refused, never with 500, in bounded size, and what is said
// in JSON is JSON. All of the control plane but its sockets: HTTP is parsed as the server parses it, then everything that
// stands behind it, with the full rights of the unix socket or with those of TCP.
#include <boost/asio/buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/json/parse.hpp>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "adapters/control/front.h"
#include "adapters/control/web/assets.h"
#include "bulkhead/manual_clock.h"

// In place of the page, which the build makes elsewhere.
std::span<const bulkhead::control::Asset> bulkhead::control::assets() noexcept {
  static constexpr unsigned char bytes[] = {'p', 'a', 'g', 'e'};
  static constexpr Asset page[] = {{"index.html", "text/html; charset=utf-8", bytes, "\"1\""}};
  return page;
}

namespace {

using namespace bulkhead;
using namespace bulkhead::control;
namespace http = boost::beast::http;

void require(bool good, const char* what) {
  if (good) return;
  std::fprintf(stderr, "not so: %s\n", what);
  std::abort();
}

// A registry would not have "pay/eu"; a program with bulkheads of its own may.
struct World {
  ManualClock clock;
  std::map<std::string, std::shared_ptr<Bulkhead>, std::less<>> bulkheads;
  bool on = false;
  std::unique_ptr<Core> core;

  World() {
    add({.name = "db", .max_concurrent = 20, .max_queue = 10, .clock = &clock});
    add({.name = "pay/eu", .max_concurrent = 5, .breaker = BreakerOptions{}, .clock = &clock});
    add({.name = "auto", .max_concurrent = 5, .adaptive = LimiterOptions{}, .clock = &clock});
    const auto plan = [] {
      return ConfigPlan{.errors = {}, .changes = {}, .needs_restart = {}, .revision = "r1"};
    };
    ServerOptions options{
        .instance = "fuzz",
        .config = {
            .path = "f.yaml",
            .status = [] { return control::ConfigStatus{.valid = true, .revision = "r1", .error = ""}; },
            .running = [] { return std::string("version: 1\n"); },
            .validate = [](const std::string&) { return std::vector<Diagnostic>{}; },
            .diff = plan,
            .reload = plan},
        .switches = {{.name = "slow",
                      .title = "Slow",
                      .is_on = [this] { return on; },
                      .set = [this](bool set) { on = set; }}},
        .clock = &clock};
    core = std::make_unique<Core>(Plant{.snapshot = [this] { return snapshot(); },
                                        .find =
                                            [this](std::string_view name) {
                                              const auto found = bulkheads.find(name);
                                              return found == bulkheads.end() ? nullptr : found->second;
                                            }},
                                  std::move(options));
    core->tokens = Tokens::parse("olga operator " + sha256_hex("o"), "tokens");
    core->hosts = {"localhost"};
    core->observer.second();
  }
  void add(const BulkheadOptions& o) { bulkheads[o.name] = std::make_shared<Bulkhead>(o); }
  RegistrySnapshot snapshot() const {
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
  }

  Response answer(const RawRequest& raw, bool local) {
    const Caller caller{.role = local ? Role::admin : Role::none, .local = local};
    const Request request = understand(*core, raw, caller, 1);
    const Answered answered = answer_at_once(*core, request);
    if (!answered.route) return answered.response;
    core->expire();
    return handle(*core, *answered.route, request);
  }
};

void check(const Response& response) {
  require(response.status >= 200 && response.status < 600 && response.status != 500,
          "every request has an answer");
  if (!response.body) return;
  require(response.body->size() < 1'000'000, "the answer is bounded");
  if (response.type.find("json") == std::string::npos || response.body->empty()) return;
  boost::system::error_code error;
  boost::json::parse(*response.body, error);
  require(!error, "what is called JSON is JSON");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static World* const world = new World;
  world->clock.advance(std::chrono::seconds(1));
  // As Server reads: one request after the other, as long as the connection would be kept.
  for (std::size_t at = 0; at < size;) {
    http::request_parser<http::string_body> parser;
    parser.header_limit(8 * 1024);
    parser.body_limit(64 * 1024);
    parser.eager(true);
    boost::system::error_code error;
    at += parser.put(boost::asio::buffer(data + at, size - at), error);
    if (error || !parser.is_done()) {
      const Response refusal =
          refusal_of(error ? error : http::make_error_code(http::error::partial_message));
      if (refusal.body) check(refusal);
      return 0;
    }
    const RawRequest raw = parser.release();
    const Response remote = world->answer(raw, false);
    check(remote);
    check(world->answer(raw, true));
    if (!raw.keep_alive() || remote.stream) return 0;
  }
  return 0;
}
