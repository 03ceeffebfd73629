// Any bytes on a connection get a response of bounded size that is not 500, and a JSON response is valid JSON. The fuzzer
// runs all of the control plane except its sockets: requests are parsed as the server parses them, and handled with the
// rights of the unix socket and with those of TCP.
#include <algorithm>
#include <boost/json/parse.hpp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "adapters/beast/wire.h"
#include "control/http/front.h"
#include "control/sample_test.h"
#include "control/web/assets.h"

// Instead of the page, which the build of control generates.
std::span<const bulkhead::control::Asset> bulkhead::control::assets() noexcept {
  static constexpr unsigned char bytes[] = {'p', 'a', 'g', 'e'};
  static constexpr Asset page[] = {{"index.html", "text/html; charset=utf-8", bytes, bytes, "\"1\""}};
  return page;
}

namespace {

using namespace bulkhead;
using namespace bulkhead::control;

void require(bool good, const char* what) {
  if (good) return;
  std::fprintf(stderr, "not so: %s\n", what);
  std::abort();
}

struct World : Sample {
  LiveConfig live{registry,
                  {.file = "f.yaml",
                   .read = [] { return ConfigText{.text = "version: 1\n"}; },
                   .parse = [](std::string_view) { return ConfigText{}; },
                   .ends_overrides = false}};
  bool on = false;
  Core core{registry,
            &live,
            {.instance = "fuzz",
             .switches = {{.name = "slow",
                           .title = "Slow",
                           .is_on = [this] { return on; },
                           .set = [this](bool set) { on = set; }}}}};
  Front front{.core = core,
              .tokens = TokensFile(Tokens::parse("olga operator " + sha256_hex("o"), "tokens")),
              .hosts = {"localhost"}};

  World() { core.observer.second(); }
  Response answer(const RawRequest& raw, bool local) {
    const Caller caller{.role = local ? Role::admin : Role::none, .local = local};
    const Request request = front.understand(raw, caller, 1);
    const Answered answered = front.answer_at_once(request);
    if (!answered.route) return answered.response;
    core.expire();
    return handle(core, *answered.route, request);
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
  // As the server reads: one request after the other, until one is invalid or ends the connection.
  beast::RequestReader reader(8 * 1024, 64 * 1024);
  for (std::size_t at = 0;;) {
    reader.next();
    while (!reader.done()) {
      const auto room = reader.room();
      const std::size_t bytes = std::min(room.size(), size - at);
      if (bytes == 0) return 0;
      std::memcpy(room.data(), data + at, bytes);
      at += bytes;
      reader.take(bytes);
    }
    if (reader.error()) {
      const Response response = parse_error_response(reader.error());
      if (response.body) check(response);
      return 0;
    }
    const RawRequest raw = reader.release();
    const Response remote = world->answer(raw, false);
    check(remote);
    check(world->answer(raw, true));
    if (!raw.keep_alive() || remote.stream) return 0;
  }
}
