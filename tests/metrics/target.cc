// metrics_target - a process with bulkheads that can be scraped, for the tests beside this file.
//
//   metrics_target page fresh|loaded prometheus|openmetrics|json    prints a page and ends
//   metrics_target serve                                            prints its port, answers GET /metrics as the
//                                                                   Accept header asks, and obeys lines of its input:
//     call <bulkhead> <n>     n calls that succeed
//     reject <bulkhead> <n>   n calls that find it full
//     hold <bulkhead>         one call that goes on until the end
//     counters                prints what the bulkheads themselves count, as JSON, without going through metrics
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <list>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "bulkhead/metrics.h"
#include "bulkhead/registry.h"
#include "tests/metrics/sample_registry.h"

namespace {

using bulkhead::MetricsFormat;

bulkhead::MetricsExtras extras() {
  return {.config = bulkhead::ConfigState{.last_success = std::chrono::system_clock::now(),
                                          .revision = "1f3a9c02",
                                          .source = "bulkhead.yaml"},
          .process = bulkhead::process_stats()};
}

std::string render(bulkhead::Metrics& metrics, const bulkhead::RegistrySnapshot& all, MetricsFormat format) {
  std::string page;
  metrics.render(page, all, format, extras());
  return page;
}

int print_page(std::string_view load, std::string_view format) {
  bulkhead::tests::SampleRegistry sample;
  if (load == "loaded") sample.load();
  bulkhead::Metrics metrics{{.top_tenants = 5}};
  std::cout << render(metrics, sample.registry.snapshot(),
                      format == "json"          ? MetricsFormat::json
                      : format == "openmetrics" ? MetricsFormat::openmetrics
                                                : MetricsFormat::prometheus);
  return 0;
}

// The services of a shop, on the steady clock.
struct Shop {
  Shop() {
    registry.add({.options = {.name = "checkout", .max_concurrent = 2, .breaker = bulkhead::BreakerOptions{}},
                  .criticality = bulkhead::Priority::critical});
    registry.add({.options = {.name = "search", .max_concurrent = 2}});
  }
  bulkhead::Bulkhead& at(std::string_view name) { return *registry.get(name); }

  bulkhead::Registry registry;
  std::list<bulkhead::Call> held;
};

// One request per connection is all a scraper needs.
void answer(int client, Shop& shop, bulkhead::Metrics& metrics) {
  std::string request;
  char buffer[4096];
  while (request.find("\r\n\r\n") == std::string::npos && request.size() < 65'536) {
    const ssize_t n = read(client, buffer, sizeof buffer);
    if (n <= 0) break;
    request.append(buffer, static_cast<std::size_t>(n));
  }
  std::string accept;
  std::istringstream lines(request);
  for (std::string line; std::getline(lines, line) && line != "\r";)
    if (line.starts_with("Accept: ")) accept = line.substr(8, line.size() - 9);
  const MetricsFormat format = bulkhead::negotiate(accept);
  const std::string page = render(metrics, shop.registry.snapshot(), format);
  std::string reply = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: ";
  reply += bulkhead::content_type(format);
  reply += "\r\nContent-Length: " + std::to_string(page.size()) + "\r\n\r\n" + page;
  for (std::size_t sent = 0; sent < reply.size();) {
    const ssize_t n = send(client, reply.data() + sent, reply.size() - sent, MSG_NOSIGNAL);
    if (n <= 0) break;
    sent += static_cast<std::size_t>(n);
  }
}

void obey(const std::string& line, Shop& shop) {
  std::istringstream words(line);
  std::string verb, name;
  long n = 1;
  words >> verb >> name >> n;
  if (verb == "call")
    for (; n > 0; --n) static_cast<void>(shop.at(name).execute([] {}));
  if (verb == "reject") {
    std::vector<bulkhead::Call> full;
    while (auto call = shop.at(name).try_acquire()) full.push_back(*std::move(call));
    for (--n; n > 0; --n) static_cast<void>(shop.at(name).try_acquire());
  }
  if (verb == "hold") shop.held.push_back(*shop.at(name).acquire());
  if (verb == "counters") {
    std::string out = "{";
    for (const std::string& one : shop.registry.names()) {
      const bulkhead::BulkheadSnapshot s = shop.at(one).snapshot();
      out += (out.size() > 1 ? ",\"" : "\"") + one + "\":{\"admitted\":" + std::to_string(s.gate.admitted) +
             ",\"succeeded\":" + std::to_string(s.gate.succeeded) + ",\"concurrency_limit\":" +
             std::to_string(s.gate.rejected(bulkhead::Reason::concurrency_limit)) +
             ",\"active\":" + std::to_string(s.gate.permits) +
             ",\"served\":" + std::to_string(s.service.count()) + "}";
    }
    std::cout << out << "}" << std::endl;
  } else {
    std::cout << "done" << std::endl;
  }
}

int serve() {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  if (bind(listener, any, size) != 0 || listen(listener, 16) != 0 || getsockname(listener, any, &size) != 0) {
    std::perror("metrics_target");
    return 1;
  }
  std::cout << ntohs(address.sin_port) << std::endl;
  Shop shop;
  bulkhead::Metrics metrics;
  std::jthread server([&] {
    for (int client = 0; (client = accept(listener, nullptr, nullptr)) >= 0; close(client))
      answer(client, shop, metrics);
  });
  for (std::string line; std::getline(std::cin, line);) obey(line, shop);
  shutdown(listener, SHUT_RDWR);
  server.join();
  close(listener);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 4 && std::string_view(argv[1]) == "page") return print_page(argv[2], argv[3]);
  if (argc == 2 && std::string_view(argv[1]) == "serve") return serve();
  std::cerr << "usage: metrics_target page fresh|loaded prometheus|openmetrics|json | serve\n";
  return 2;
}
