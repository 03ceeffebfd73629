#include "app/gateway/nginx_conf.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

namespace bulkhead::gateway {
namespace {

std::string variable_of(std::string_view header) {  // $http_x_tenant_id
  std::string name = "$http_";
  for (const char c : header) name += c == '-' ? '_' : c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  return name;
}

std::string ms(std::chrono::nanoseconds span) {
  return fmt::format("{}ms",
                     std::max<std::int64_t>(1, std::chrono::ceil<std::chrono::milliseconds>(span).count()));
}

std::string head(const Gateway& g, const NginxOptions& o) {
  // nginx's tables of hosts, maps and variables must have room for the longest word, and for all.
  std::size_t longest = 64;
  for (const Route& r : g.routes) longest = std::max({longest, r.host.size(), r.header.size()});
  std::string temps;
  for (const char* const kind : {"client_body", "proxy", "fastcgi", "uwsgi", "scgi"})
    temps += fmt::format("  {0}_temp_path {1}/{0};\n", kind, o.directory);
  return fmt::format(R"(# Written by bulkhead run from {file}; changes here are lost.
{user}load_module {module};
daemon off;
worker_processes {workers};
worker_rlimit_nofile {descriptors};
pid {directory}/nginx.pid;
error_log stderr notice;
events {{
  worker_connections {connections};
}}
http {{
{temps}  bulkhead_config {copy};
  bulkhead_board {directory}/board;
  server_tokens off;
  client_max_body_size {max_body};
  server_names_hash_bucket_size {bucket};
  map_hash_bucket_size {bucket};
  variables_hash_bucket_size 128;
  variables_hash_max_size {variables};
)",
                     fmt::arg("file", o.file), fmt::arg("copy", o.copy.empty() ? o.file : o.copy),
                     fmt::arg("user", o.user.empty() ? "" : "user " + o.user + ";\n"),
                     fmt::arg("descriptors", o.descriptors), fmt::arg("workers", g.workers),
                     fmt::arg("module", o.module), fmt::arg("connections", o.connections),
                     fmt::arg("directory", o.directory), fmt::arg("temps", temps),
                     fmt::arg("max_body", g.max_body), fmt::arg("bucket", std::bit_ceil(longest + 64)),
                     fmt::arg("variables", std::bit_ceil(1024 + 4 * g.routes.size())));
}

// Trusted peers, and the hints in their headers.
std::string hints(const Gateway& g) {
  std::string geo;
  for (const std::string& peer : g.trusted_peers) geo += fmt::format("    {} 1;\n", peer);
  std::string text = fmt::format(R"(
  geo $realip_remote_addr $bulkhead_peer_trusted {{
    default 0;
{}  }}
  map "$bulkhead_peer_trusted:{}" $bulkhead_given_priority {{
    default "";
    "~^1:(?<given_priority>.+)$" $given_priority;
  }}
  map "$bulkhead_peer_trusted:{}" $bulkhead_given_tenant {{
    default "";
    "~^1:(?<given_tenant>.+)$" $given_tenant;
  }}
  map "$bulkhead_peer_trusted:$http_x_forwarded_proto" $bulkhead_forwarded_proto {{
    default $scheme;
    "~^1:(?<given_proto>https?)$" $given_proto;
  }}
  map "$bulkhead_peer_trusted:$http_x_forwarded_host" $bulkhead_forwarded_host {{
    default $host;
    "~^1:(?<given_host>.+)$" $given_host;
  }}
  map $http_upgrade $bulkhead_connection {{
    default upgrade;
    "" "";
  }}
)",
                                 geo, variable_of(g.priority_header), variable_of(g.tenant_header));
  std::set<Priority> priorities;
  for (const Route& r : g.routes) priorities.insert(r.priority);
  for (const Priority priority : priorities)
    text += fmt::format(
        "  map $bulkhead_given_priority $bulkhead_priority_or_{0} {{\n    default "
        "$bulkhead_given_priority;\n    "
        "\"\" {0};\n  }}\n",
        to_string(priority));
  return text;
}

std::string log(const Gateway& g) {
  if (g.access_log.empty()) return "  access_log off;\n";
  return fmt::format(R"(
  log_format bulkhead escape=json
    '{{"time":"$time_iso8601","client":"$remote_addr","method":"$request_method","host":"$host","path":"$uri",'
    '"status":$status,"seconds":$request_time,"bytes":$bytes_sent,"upstream":"$upstream_addr",'
    '"upstream_seconds":"$upstream_response_time","bulkhead":"$bulkhead","reason":"$bulkhead_reason",'
    '"wait_seconds":"$bulkhead_wait","priority":"$bulkhead_priority","traceparent":"$http_traceparent"}}';
  access_log {} bulkhead;
)",
                     g.access_log);
}

std::string upstream(const Upstream& u) {
  std::string text = fmt::format("\n  upstream {} {{\n", u.name);
  if (u.balance == Upstream::Balance::least_in_flight) text += "    least_conn;\n";
  for (const std::string& server : u.servers)
    text += fmt::format("    server {} max_fails={} fail_timeout={}s;\n", server, u.max_fails,
                        std::chrono::ceil<std::chrono::seconds>(u.fail_timeout).count());
  if (u.keep_alive > 0) text += fmt::format("    keepalive {};\n", u.keep_alive);
  return text + "  }\n";
}

std::string location(const Gateway& g, const Config& config, std::size_t index, const std::string& place) {
  const Route& r = g.routes[index];
  const Upstream& u = *std::ranges::find(g.upstreams, r.upstream, &Upstream::name);
  const bool grpc = u.protocol == Upstream::Protocol::grpc;
  std::string text = fmt::format("    location {} {{\n", place);
  if (!r.bulkhead.empty()) {
    text += fmt::format(
        "      bulkhead {};\n      bulkhead_priority $bulkhead_priority_or_{};\n      bulkhead_deadline "
        "{};\n",
        r.bulkhead, to_string(r.priority), grpc ? "$http_grpc_timeout" : variable_of(g.deadline_header));
    if (config.find_tenants(r.bulkhead)) text += "      bulkhead_tenant $bulkhead_given_tenant;\n";
    if (r.hold == Route::Hold::response) text += "      bulkhead_hold response;\n";
    // The service works on after its client has gone; its place must stay taken, or the cap would not hold there. A gRPC
    // service sees that its client has cancelled, and can end its work; so can one that sends a stream, which may have no end.
    if (!grpc && !r.streaming) text += "      proxy_ignore_client_abort on;\n";
    if (!grpc) text += fmt::format("      proxy_set_header {} $bulkhead_time_left;\n", g.deadline_header);
  }
  const auto both = [&](std::string_view setting, std::string_view value) {
    text += fmt::format("      {}_{} {};\n", grpc ? "grpc" : "proxy", setting, value);
  };
  both("pass", fmt::format("{}://{}", grpc ? "grpc" : "http", u.name));
  both("connect_timeout", ms(u.connect_timeout));
  both("read_timeout", ms(u.read_timeout));
  both("next_upstream", "error");
  // nginx does not count a kept connection that turns out to be closed, so that 1 allows that, too.
  both("next_upstream_tries", std::to_string(u.tries));
  both("set_header", "Host $host");
  both("set_header", "X-Forwarded-For $proxy_add_x_forwarded_for");
  both("set_header", "X-Forwarded-Proto $bulkhead_forwarded_proto");
  both("set_header", "X-Forwarded-Host $bulkhead_forwarded_host");
  if (!grpc) {
    both("http_version", "1.1");
    if (r.websocket) both("set_header", "Upgrade $http_upgrade");
    both("set_header", r.websocket ? "Connection $bulkhead_connection" : "Connection \"\"");
    if (r.streaming) both("buffering", "off");
  }
  return text + "    }\n";
}

// A server of nginx has one certificate: listeners with another one need a server of their own.
using Certificate = std::pair<std::string, std::string>;  // empty: without TLS

Certificate certificate_of(const Listener& l) {
  return l.tls ? Certificate(l.tls->certificate, l.tls->private_key) : Certificate();
}

std::string listen(const Gateway& g, const Certificate& certificate, bool any_host) {
  std::string text;
  bool proxied = false;
  for (const Listener& l : g.listeners) {
    if (certificate_of(l) != certificate) continue;
    text +=
        fmt::format("    listen {}{}{}{}{};\n", l.address, any_host ? " default_server" : "",
                    l.tls ? " ssl" : "", l.http2 ? " http2" : "", l.proxy_protocol ? " proxy_protocol" : "");
    proxied |= l.proxy_protocol;
  }
  if (!certificate.first.empty())
    text += fmt::format("    ssl_certificate {};\n    ssl_certificate_key {};\n", certificate.first,
                        certificate.second);
  if (proxied)
    text +=
        "    real_ip_header proxy_protocol;\n    set_real_ip_from 0.0.0.0/0;\n    set_real_ip_from ::/0;\n";
  return text;
}

// One prefix of the paths of a host, and the routes that a request there may take: the first that fits it. Which one that is
// says a chain of maps by its method and one header each; it gets there through an error_page, which keeps method and body.
struct Place {
  std::string path;
  std::vector<std::size_t> routes;
};

bool fits_all(const Route& r) { return r.methods.empty() && r.header.empty(); }

// Routes of the host before those of any host, long paths before short ones, then those with a header, then those with
// methods; of equals the first given. The first that fits every request is the last.
std::vector<std::size_t> choices(const Gateway& g, const std::string& host, const std::string& path) {
  std::vector<std::size_t> routes;
  for (std::size_t i = 0; i < g.routes.size(); ++i) {
    const Route& r = g.routes[i];
    if ((r.host.empty() || r.host == host) && path.starts_with(r.path)) routes.push_back(i);
  }
  std::ranges::sort(routes, {}, [&g](std::size_t i) {
    const Route& r = g.routes[i];
    return std::tuple(r.host.empty(), -static_cast<std::ptrdiff_t>(r.path.size()), r.header.empty(),
                      r.methods.empty(), i);
  });
  const auto last = std::ranges::find_if(routes, [&g](std::size_t i) { return fits_all(g.routes[i]); });
  if (last != routes.end()) routes.erase(last + 1, routes.end());
  return routes;
}

std::vector<Place> places_of(const Gateway& g, const std::string& host) {
  std::vector<Place> places;
  for (const Route& r : g.routes) {
    if ((!r.host.empty() && r.host != host) ||
        std::ranges::find(places, r.path, &Place::path) != places.end())
      continue;
    Place place{.path = r.path, .routes = choices(g, host, r.path)};
    // Otherwise a shorter path says it all.
    if (std::ranges::any_of(place.routes, [&](std::size_t i) { return g.routes[i].path == r.path; }))
      places.push_back(std::move(place));
  }
  return places;
}

bool is_plain(const Gateway& g, const Place& p) {
  const Route& r = g.routes[p.routes.front()];
  return fits_all(r) && r.path == p.path;
}

// The map of one route: its own location if the request fits, else what the next route says. `chain` makes their names unique.
std::string choice(const Gateway& g, const Place& p, const std::string& chain, std::size_t at) {
  const std::size_t index = p.routes[at];
  const Route& r = g.routes[index];
  if (fits_all(r)) return "";
  const auto [header, value] = header_of(r);
  std::string next = "@none";
  if (at + 1 < p.routes.size())
    next = fits_all(g.routes[p.routes[at + 1]]) ? fmt::format("@route_{}", p.routes[at + 1])
                                                : fmt::format("${}_{}", chain, p.routes[at + 1]);
  std::string text =
      fmt::format("  map \"={}={}\" ${}_{} {{\n    default {};\n", r.methods.empty() ? "" : "$request_method",
                  header.empty() ? "" : variable_of(header), chain, index, next);
  const std::vector<std::string> any{""};
  for (const std::string& method : r.methods.empty() ? any : r.methods)
    text += header.empty() || !value.empty()
                ? fmt::format("    \"={}={}\" @route_{};\n", method, value, index)
                : fmt::format("    \"~^={}=.\" @route_{};\n", method, index);
  return text + "  }\n";
}

}  // namespace

std::string nginx_conf(const Gateway& g, const Config& config, const NginxOptions& options) {
  std::string text = head(g, options) + log(g) + hints(g);
  for (const Upstream& u : g.upstreams) text += upstream(u);
  std::set<Certificate> certificates;
  for (const Listener& l : g.listeners) certificates.insert(certificate_of(l));
  std::set<std::string> hosts{""};  // any host first
  for (const Route& r : g.routes) hosts.insert(r.host);
  std::size_t chains = 0;
  for (const std::string& host : hosts) {
    const std::vector<Place> places = places_of(g, host);
    std::string maps, server;
    if (!host.empty()) server += fmt::format("    server_name {};\n", host);
    std::set<std::size_t> chosen;  // routes with a location of their own
    for (const Place& p : places) {
      if (is_plain(g, p)) {
        server += location(g, config, p.routes.front(), p.path);
        continue;
      }
      const std::string chain = fmt::format("bulkhead_route_{}", chains++);
      for (std::size_t i = p.routes.size(); i-- > 0;) {
        maps += choice(g, p, chain, i);
        if (chosen.insert(p.routes[i]).second)
          server += location(g, config, p.routes[i], fmt::format("@route_{}", p.routes[i]));
      }
      server += fmt::format("    location {} {{\n      error_page 418 = ${}_{};\n      return 418;\n    }}\n",
                            p.path, chain, p.routes.front());
    }
    if (!chosen.empty()) server += "    location @none {\n      return 404;\n    }\n";
    if (std::ranges::find(places, "/", &Place::path) == places.end())
      server += "    location / {\n      return 404;\n    }\n";
    if (!maps.empty()) text += "\n" + maps;
    for (const Certificate& certificate : certificates)
      text += "\n  server {\n" + listen(g, certificate, host.empty()) + server + "  }\n";
  }
  return text + "}\n";
}

}  // namespace bulkhead::gateway
