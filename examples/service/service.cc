// A complete small service to copy as a start: an HTTP API, a database, a payment provider that is slow on some days, image work,
// tenants, limits in a file that it follows, metrics and a dashboard.
//
//   example_service FILE.yaml [DATABASE]        prints its addresses, serves until SIGINT or SIGTERM
//
//   curl -X POST 'localhost:PORT/orders?item=rope'       201 paid, or 202 accepted: it is paid later
//   curl localhost:PORT/orders/1
//   curl -X POST -H 'X-Tenant-Id: ann' 'localhost:PORT/images?pixels=500'
//   curl localhost:PORT/metrics
//   curl -X POST 'localhost:PORT/provider?ms=2000'       the payment provider takes 2 s from now on
#include <bulkhead/adapters/httplib/server.h>
#include <bulkhead/adapters/sqlite/database.h>
#include <bulkhead/adapters/watch/file_watch.h>
#include <bulkhead/adapters/yaml/yaml.h>
#include <bulkhead/config_metrics.h>
#include <bulkhead/control/server.h>
#include <bulkhead/live_config.h>
#include <bulkhead/registry.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

using namespace std::chrono_literals;
using bulkhead::httplib::Server;
using Request = httplib::Request;
using Response = httplib::Response;

namespace {

// The dependency that is not ours. A client library in a real service; it should look at `stop` as this one does.
class PaymentProvider {
 public:
  void set_latency(std::chrono::milliseconds latency) { latency_ = latency.count(); }
  std::string pay(std::int64_t order, const std::stop_token& stop) const {
    for (auto left = latency_.load(); left > 0; --left) {
      if (stop.stop_requested())
        throw std::runtime_error("payment of order " + std::to_string(order) + " cancelled");
      std::this_thread::sleep_for(1ms);
    }
    return "receipt-" + std::to_string(order);
  }

 private:
  std::atomic<std::int64_t> latency_ = 5;
};

// Work for a processor: a grey picture is blurred and halved. Stops early when the client has gone.
std::size_t thumbnail(std::size_t pixels, const std::stop_token& stop) {
  std::vector<std::uint8_t> picture(pixels * pixels);
  for (std::size_t i = 0; i < picture.size(); ++i) picture[i] = static_cast<std::uint8_t>(i * 31);
  std::vector<std::uint8_t> small((pixels / 2) * (pixels / 2));
  for (std::size_t y = 0; y < pixels / 2 && !stop.stop_requested(); ++y)
    for (std::size_t x = 0; x < pixels / 2; ++x) {
      unsigned sum = 0;
      for (std::size_t dy = 0; dy < 2; ++dy)
        for (std::size_t dx = 0; dx < 2; ++dx) sum += picture[(2 * y + dy) * pixels + 2 * x + dx];
      small[y * (pixels / 2) + x] = static_cast<std::uint8_t>(sum / 4);
    }
  return small.size();
}

void answer(Response& response, int status, const std::string& text) {
  response.status = status;
  response.set_content(text + '\n', "text/plain");
}

// The number of a parameter, or `otherwise`; at most `most`.
std::size_t number(const Request& request, const char* name, std::size_t otherwise, std::size_t most) {
  if (!request.has_param(name)) return otherwise;
  return std::min<std::size_t>(std::strtoul(request.get_param_value(name).c_str(), nullptr, 10), most);
}

class Service {
 public:
  Service(const std::string& config, const std::string& database)
      : live_(registry_, {.file = config,
                          .read = [config] { return bulkhead::config_text(bulkhead::yaml::load(config)); }}),
        watch_({.path = must_load(config), .on_change = [this] { report(live_.reload("watch")); }}),
        database_({.name = "database",
                   .path = database,
                   .readers = 4,
                   .reader_gate = {.max_queue = 64, .max_wait = 200ms},
                   .writer_gate = {.max_queue = 64, .max_wait = 500ms}}),
        guard_(registry_, {.routes = {{.path = "/orders", .bulkhead = "orders", .max_timeout = 2s},
                                      {.path = "/images", .tenants = "uploads", .max_timeout = 10s}},
                           .trusted_peers = {"127.0.0.1"},  // the proxy in front of us, which sets the tenant
                           .metrics_extras = [this] { return bulkhead::config_metrics(live_); }}),
        server_(guard_),
        admin_(registry_, live_, {.listen = "127.0.0.1:0"}) {
    auto db = database_.writer().acquire();
    if (!db) throw std::runtime_error(db.error().message());
    if (auto made =
            (*db)->run("create table if not exists orders (id integer primary key, item text, receipt text)");
        !made)
      throw std::runtime_error(made.error().message());
    add_routes();
  }

  // Serves until `ends` has one of its signals; then answers what runs and what waits in line.
  void run(const sigset_t& ends) {
    const int port = server_.bind_to_any_port("127.0.0.1");
    std::printf("api       http://127.0.0.1:%d\ndashboard %s/ui/\n", port, admin_.url().c_str());
    std::fflush(stdout);
    std::thread serving([this] { server_.listen_after_bind(); });
    int signal = 0;
    sigwait(&ends, &signal);
    if (!server_.drain(std::chrono::steady_clock::now() + 20s)) server_.stop();
    serving.join();
  }

 private:
  static void report(const bulkhead::ReloadResult& result) {
    if (!result.ok()) std::fputs(to_text(result.problems).c_str(), stderr);  // and the old settings stay
  }
  std::string must_load(const std::string& config) {
    const bulkhead::ReloadResult loaded = live_.reload("start");
    if (!loaded.ok()) throw std::runtime_error(to_text(loaded.problems));
    return config;
  }

  void add_routes() {
    server_.Post("/orders",
                 [this](const Request& request, Response& response) { create_order(request, response); });
    server_.Get(R"(/orders/(\d+))",
                [this](const Request& request, Response& response) { show_order(request, response); });
    server_.Post("/images",
                 [this](const Request& request, Response& response) { shrink_image(request, response); });
    server_.Post("/provider", [this](const Request& request, Response& response) {
      provider_.set_latency(std::chrono::milliseconds(number(request, "ms", 5, 60'000)));
      answer(response, 200, "ok");
    });
  }

  void create_order(const Request& request, Response& response) {
    const std::string item = request.has_param("item") ? request.get_param_value("item") : "";
    if (item.empty()) return answer(response, 400, "which item? POST /orders?item=NAME");
    std::int64_t order = 0;
    {
      auto db = database_.writer().acquire({.deadline = Server::visit().deadline});
      if (!db) return answer(response, 503, db.error().message());
      auto rows = (*db)->query("insert into orders (item) values (?) returning id", {item});
      if (!rows) return answer(response, 500, rows.error().message());
      order = std::strtoll(std::string((*rows)[0][0]).c_str(), nullptr, 10);
    }  // the writer goes back before the payment, which may take long
    const auto payments = registry_.use("payments");
    if (!payments) return answer(response, 202, "order " + std::to_string(order) + " accepted");
    const auto receipt = payments->execute([&](std::stop_token stop) { return provider_.pay(order, stop); },
                                           [](const bulkhead::Cause&) { return std::string(); });
    // The provider is slow, down or full: the order is good all the same.
    if (!receipt || receipt->empty())
      return answer(response, 202, "order " + std::to_string(order) + " accepted, to be paid");
    if (auto db = database_.writer().acquire())
      if (auto done = (*db)->query("update orders set receipt = ? where id = ?", {*receipt, order}); !done)
        return answer(response, 500, done.error().message());
    answer(response, 201, "order " + std::to_string(order) + ' ' + *receipt);
  }

  void show_order(const Request& request, Response& response) {
    auto db = database_.readers().acquire({.deadline = Server::visit().deadline});
    if (!db) return answer(response, 503, db.error().message());
    auto rows = (*db)->query("select item, receipt from orders where id = ?", {request.matches[1].str()});
    if (!rows) return answer(response, 500, rows.error().message());
    if (rows->size() == 0) return answer(response, 404, "no such order");
    answer(response, 200, std::string((*rows)[0][0]) + ' ' + std::string((*rows)[0][1]));
  }

  void shrink_image(const Request& request, Response& response) {
    const std::size_t pixels = number(request, "pixels", 200, 4000);
    const auto thumbnails = registry_.use("thumbnails");
    if (!thumbnails) return answer(response, 503, "no thumbnails now");
    const auto size = thumbnails->execute([pixels](std::stop_token stop) { return thumbnail(pixels, stop); });
    if (!size) return Server::reject(size.error(), response);
    answer(response, 200, std::to_string(*size) + " bytes");
  }

  // In the order of their dependencies: the last one ends first.
  bulkhead::Registry registry_;
  bulkhead::LiveConfig live_;
  bulkhead::watch::FileWatch watch_;
  bulkhead::sqlite::Database database_;
  PaymentProvider provider_;
  bulkhead::http::Guard guard_;
  Server server_;
  bulkhead::control::Server admin_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fputs("usage: example_service FILE.yaml [DATABASE]\n", stderr);
    return 2;
  }
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGINT);
  sigaddset(&ends, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &ends, nullptr);  // before there are other threads
  try {
    Service service(argv[1], argc > 2 ? argv[2] : "service.db");
    service.run(ends);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
