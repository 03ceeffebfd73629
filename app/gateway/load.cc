#include <algorithm>
#include <charconv>
#include <filesystem>
#include <set>

#include "app/gateway/gateway.h"
#include "bulkhead/http_hints.h"

namespace bulkhead::gateway {
namespace {

// What may stand in nginx.conf as it is: nothing that ends a word or means something to nginx.
bool is_word(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](unsigned char c) {
    return c > ' ' && c != 0x7f &&
           std::string_view(";{}\"'\\$#").find(static_cast<char>(c)) == std::string_view::npos;
  });
}

bool is_header(std::string_view name) {
  return !name.empty() && std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-';
  });
}

bool is_address(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  if (!is_word(text) || colon == std::string_view::npos || colon == 0) return false;
  const std::string_view port = text.substr(colon + 1);
  std::uint16_t number = 0;
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), number);
  return error == std::errc{} && end == port.data() + port.size() && number > 0;
}

// nginx would look for a relative path in the directory of its own files, which is gone when it ends.
void make_absolute(std::string& path) {
  if (!path.empty() && !path.starts_with("syslog:")) path = std::filesystem::absolute(path).string();
}

void make_absolute(Gateway& g) {
  for (Listener& l : g.listeners) {
    if (!l.tls) continue;
    make_absolute(l.tls->certificate);
    make_absolute(l.tls->private_key);
  }
  for (std::string* const path : {&g.access_log, &g.nginx, &g.module}) make_absolute(*path);
}

class Checks {
 public:
  Checks(const Config& config, const Gateway& gateway, yaml::Loaded& part)
      : config_(config), g_(gateway), part_(part) {}

  void run() {
    // Whether a route uses it or not: nginx's workers make all bulkheads of the file.
    for (const BulkheadConfig& b : config_.bulkheads)
      if (b.options.scope == Scope::fleet ||
          std::ranges::find(b.options.budgets, Scope::fleet, &BudgetOptions::scope) !=
              b.options.budgets.end())
        complain("bulkheads." + b.options.name + ".scope", "nginx cannot use a limit of a fleet",
                 "write scope: host");
    std::set<std::string> addresses;
    for (const Listener& l : g_.listeners) {
      const std::string path = "gateway.listeners." + l.name;
      if (!addresses.insert(l.address).second)
        complain(path + ".address", "another listener has it", "remove one of them");
      if (!is_address(l.address))
        complain(path + ".address", "\"" + l.address + "\" is not an address and a port",
                 "write 0.0.0.0:8080");
      if (l.tls && (!is_word(l.tls->certificate) || !is_word(l.tls->private_key)))
        complain(path + ".tls", "a path has a character that nginx.conf cannot hold", "rename the file");
    }
    for (const Upstream& u : g_.upstreams) {
      const std::string path = "gateway.upstreams." + u.name + ".servers";
      if (u.servers.empty()) complain(path, "is empty", "write [127.0.0.1:9000]");
      for (const std::string& server : u.servers)
        if (!is_address(server))
          complain(path, "\"" + server + "\" is not an address and a port", "write 127.0.0.1:9000");
    }
    std::set<std::string> seen;
    for (const Route& r : g_.routes) route(r, seen);
    for (const auto& [name, header] : {std::pair("priority_header", &g_.priority_header),
                                       {"tenant_header", &g_.tenant_header},
                                       {"deadline_header", &g_.deadline_header}})
      if (!is_header(*header))
        complain(std::string("gateway.") + name, "\"" + *header + "\" is not a header's name", "");
    try {
      http::TrustedPeers(g_.trusted_peers);
    } catch (const std::exception& error) {
      complain("gateway.trusted_peers", error.what(), "write addresses or networks, as 10.0.0.0/8");
    }
    for (const auto& [name, file] : {std::pair("access_log", &g_.access_log),
                                     {"nginx", &g_.nginx},
                                     {"module", &g_.module},
                                     {"user", &g_.user}})
      if (!file->empty() && !is_word(*file))
        complain(std::string("gateway.") + name, "has a character that nginx.conf cannot hold", "rename it");
  }

 private:
  void route(const Route& r, std::set<std::string>& seen) {
    const std::string path = "gateway.routes." + r.name;
    if (!r.path.starts_with('/') || !is_word(r.path))
      complain(path + ".path", "\"" + r.path + "\" is not a path", "begin with /");
    if (!r.host.empty() && !is_word(r.host)) complain(path + ".host", "\"" + r.host + "\" is not a host", "");
    std::string key = r.host + ' ' + r.path + ' ' + r.header;
    for (const std::string& method : r.methods) {
      key += ' ' + method;
      if (method.empty() || !std::ranges::all_of(method, [](char c) { return c >= 'A' && c <= 'Z'; }))
        complain(path + ".methods", "\"" + method + "\" is not a method", "write [GET, POST]");
    }
    if (const auto [name, value] = header_of(r);
        !r.header.empty() && (!is_header(name) || (!value.empty() && !is_word(value))))
      complain(path + ".header", "\"" + r.header + "\" is not a header and its value", "write \"X-Beta: 1\"");
    if (!seen.insert(key).second)
      complain(path, "another route has the same host and path",
               "remove one of them, or give it methods or a header");
    if (const BulkheadConfig* const b = config_.find(r.bulkhead);
        g_.workers > 1 && (config_.find_tenants(r.bulkhead) || (b && b->options.scope == Scope::process)))
      complain(path + ".bulkhead",
               "each of the " + std::to_string(g_.workers) + " workers would have a limit of its own for \"" +
                   r.bulkhead + "\"",
               b ? "add scope: host to the bulkhead and host: {region: /run/bulkhead/region} to the file, or "
                   "write "
                   "gateway.workers: 1"
                 : "tenants need gateway.workers: 1");
    const bool known =
        std::ranges::any_of(g_.upstreams, [&](const Upstream& u) { return u.name == r.upstream; });
    if (!known)
      complain(path + ".upstream", "unknown upstream \"" + r.upstream + "\"", "add it to gateway.upstreams");
    const auto is_grpc = [&](const Upstream& u) {
      return u.name == r.upstream && u.protocol == Upstream::Protocol::grpc;
    };
    if (std::ranges::any_of(g_.upstreams, is_grpc)) {
      for (const auto& [name, on] : {std::pair("websocket", r.websocket), {"streaming", r.streaming}})
        if (on)
          complain(path + '.' + name, "the upstream speaks gRPC, which has no use for it",
                   "remove the setting");
      if (std::ranges::none_of(g_.listeners, &Listener::http2))
        complain(path + ".upstream", "gRPC needs HTTP/2, and no listener has it",
                 "write http2: true at a listener");
    }
    if (r.bulkhead.empty()) return;
    const BulkheadConfig* const bulkhead = config_.find(r.bulkhead);
    if (!bulkhead && !config_.find_tenants(r.bulkhead))
      complain(path + ".bulkhead", "unknown bulkhead \"" + r.bulkhead + "\"",
               "add it to bulkheads or tenants");
    if (bulkhead) lint(r, *bulkhead);
    if (bulkhead && bulkhead->options.isolation == Isolation::threads)
      complain(path + ".bulkhead", "has isolation: threads, which nginx cannot use",
               "write isolation: semaphore");
  }

  void lint(const Route& r, const BulkheadConfig& b) {
    for (const BudgetOptions& budget : b.options.budgets)
      warn("gateway.routes." + r.name + ".bulkhead",
           "no request of a gateway names the budget \"" + budget.name + "\" of \"" + r.bulkhead +
               "\", which limits nothing here",
           "remove it from the bulkhead, or write bulkhead_budget in an nginx.conf of your own");
    const auto u = std::ranges::find(g_.upstreams, r.upstream, &Upstream::name);
    if (u == g_.upstreams.end()) return;
    const std::string path = "gateway.upstreams." + u->name;
    if (u->keep_alive < b.options.max_concurrent)
      warn(path + ".keep_alive",
           std::to_string(u->keep_alive) + " connections are kept, and \"" + r.bulkhead + "\" admits " +
               std::to_string(b.options.max_concurrent) +
               ": the others are opened and closed for each request",
           "write at least max_concurrent of the bulkhead");
    if (u->read_timeout < b.options.execution_timeout && b.options.execution_timeout != wait_forever)
      warn(path + ".read_timeout",
           "is shorter than execution_timeout of \"" + r.bulkhead + "\", which never applies",
           "write more than execution_timeout");
  }

  void warn(std::string path, std::string message, std::string hint) {
    const Position at = config_.where(path);
    part_.warnings.push_back({.severity = ConfigProblem::Severity::warning,
                              .file = "",
                              .at = at,
                              .path = std::move(path),
                              .message = std::move(message),
                              .hint = std::move(hint)});
  }

  void complain(std::string path, std::string message, std::string hint) {
    const Position at = config_.where(path);
    part_.problems.push_back({.file = "",
                              .at = at,
                              .path = std::move(path),
                              .message = std::move(message),
                              .hint = std::move(hint)});
  }

  const Config& config_;
  const Gateway& g_;
  yaml::Loaded& part_;
};

Loaded with_gateway(yaml::Loaded file, const std::string& path) {
  Loaded loaded{.file = std::move(file)};
  if (!loaded.file.readable) return loaded;
  Gateway gateway;
  bool found = false;
  yaml::Loaded part = yaml::parse_part(loaded.file.text, path, "gateway", settings(), &gateway, found);
  if (!found) return loaded;
  make_absolute(gateway);
  loaded.file.config.positions.merge(part.config.positions);
  if (part.ok() && loaded.file.ok()) Checks(loaded.file.config, gateway, part).run();
  for (ConfigProblem& problem : part.problems) {
    problem.file = path;
    loaded.file.problems.push_back(std::move(problem));
  }
  for (ConfigProblem& warning : part.warnings) {
    warning.file = path;
    loaded.file.warnings.push_back(std::move(warning));
  }
  loaded.gateway = std::move(gateway);
  return loaded;
}

}  // namespace

std::pair<std::string_view, std::string_view> header_of(const Route& route) {
  const std::string_view text = route.header;
  const std::size_t colon = text.find(':');
  if (colon == text.npos) return {text, {}};
  const std::size_t value = text.find_first_not_of(' ', colon + 1);
  return {text.substr(0, colon), value == text.npos ? std::string_view() : text.substr(value)};
}

Loaded load(const std::string& path) { return with_gateway(yaml::load(path), path); }

Loaded parse(const std::string& text, const std::string& path) {
  return with_gateway(yaml::parse(text, path), path);
}

}  // namespace bulkhead::gateway
