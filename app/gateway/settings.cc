// The settings table of `gateway:`.
#include "app/gateway/gateway.h"
#include "config/table.h"

namespace bulkhead::gateway {
namespace {
using namespace bulkhead::config;

constexpr std::string_view kBalance[] = {"round_robin", "least_in_flight"};
constexpr std::string_view kProtocol[] = {"http", "grpc"};
constexpr std::string_view kPriority[] = {"critical", "normal", "best_effort"};
constexpr std::string_view kHold[] = {"upstream", "response"};

// clang-format off: a table is read by rows.
constexpr SettingRow kTlsRows[] = {
    {.name = "certificate", .kind = Kind::text, .access = AT(TlsConfig, certificate), .required = true, .live = false,
     .says = "The certificate and its chain, a PEM file.", .example = "/etc/ssl/shop.crt"},
    {.name = "private_key", .kind = Kind::text, .access = AT(TlsConfig, private_key), .required = true, .live = false,
     .says = "Its key, a PEM file.", .example = "/etc/ssl/shop.key"},
};
constexpr Section kTls{.name = "listener_tls", .says = "TLS of a listener.", .rows = kTlsRows, .fresh = fresh<TlsConfig>};

constexpr SettingRow kListenerRows[] = {
    {.name = "address", .kind = Kind::text, .access = AT(Listener, address), .required = true,
     .says = "Address and port.", .example = "0.0.0.0:8080"},
    {.name = "tls", .kind = Kind::section, .access = OPTIONAL(Listener, tls), .section = &kTls, .optional = true,
     .says = "TLS with this certificate.", .example = "{certificate: /etc/ssl/shop.crt, private_key: /etc/ssl/shop.key}"},
    {.name = "http2", .kind = Kind::flag, .access = AT(Listener, http2),
     .says = "Whether it serves HTTP/2; without tls, only HTTP/2 with prior knowledge.", .example = "true"},
    {.name = "proxy_protocol", .kind = Kind::flag, .access = AT(Listener, proxy_protocol),
     .says = "Whether a load balancer in front sends the PROXY protocol.", .example = "true"},
};
constexpr Section kListener{.name = "listener", .says = "The addresses that accept requests.", .rows = kListenerRows, .fresh = fresh<Listener>};

constexpr SettingRow kUpstreamRows[] = {
    {.name = "servers", .kind = Kind::texts, .access = AT(Upstream, servers), .required = true,
     .says = "The servers of the service, each as address and port.", .example = "[127.0.0.1:9000]"},
    {.name = "protocol", .kind = Kind::word, .access = AT(Upstream, protocol), .words = kProtocol,
     .says = "What the servers speak: HTTP/1.1, or gRPC, whose clients need a listener with http2.", .example = "grpc"},
    {.name = "balance", .kind = Kind::word, .access = AT(Upstream, balance), .words = kBalance,
     .says = "How a server is chosen: in turn, or the one with the fewest requests.", .example = "round_robin"},
    {.name = "keep_alive", .kind = Kind::count, .access = AT(Upstream, keep_alive), .low = 0, .high = 65'536,
     .says = "The maximum number of idle connections to keep; use at least max_concurrent of the bulkhead.", .example = "64"},
    {.name = "connect_timeout", .kind = Kind::duration, .access = AT(Upstream, connect_timeout), .low = kMilli, .high = kDay,
     .says = "The longest time to connect to a server.", .example = "500ms"},
    {.name = "read_timeout", .kind = Kind::duration, .access = AT(Upstream, read_timeout), .low = kMilli, .high = kDay,
     .says = "The longest time without a byte from the server; use more than execution_timeout of the bulkhead.", .example = "30s"},
    {.name = "max_fails", .kind = Kind::count, .access = AT(Upstream, max_fails), .low = 0, .high = 1'000'000,
     .says = "How many requests to a server fail within fail_timeout before it is left out; 0: it never is. A single server never is, either.",
     .example = "5"},
    {.name = "fail_timeout", .kind = Kind::duration, .access = AT(Upstream, fail_timeout), .low = kSecond, .high = kDay,
     .says = "The time in which failures of a server are counted, and for which it is then left out; in whole seconds.", .example = "10s"},
    {.name = "tries", .kind = Kind::count, .access = AT(Upstream, tries), .low = 1, .high = 64,
     .says = "The servers a request is tried on, when one cannot be reached or closes the connection; with more than one, a server may have run a GET or PUT that is repeated. A kept connection that the server has just closed is not counted.",
     .example = "2"},
};
constexpr Section kUpstream{.name = "upstream", .says = "A service.", .rows = kUpstreamRows, .fresh = fresh<Upstream>};

constexpr SettingRow kRouteRows[] = {
    {.name = "host", .kind = Kind::text, .access = AT(Route, host),
     .says = "The Host of the requests; empty: any. Routes of a request's host come before those of any host.", .example = "shop.example"},
    {.name = "path", .kind = Kind::text, .access = AT(Route, path),
     .says = "The prefix of their path; of the routes that fit a request, the one with the longest applies.", .example = "/reports"},
    {.name = "methods", .kind = Kind::texts, .access = AT(Route, methods),
     .says = "The methods of the requests; empty: any. Among routes of one host and path, those with a method or a header come first.",
     .example = "[POST, PUT]"},
    {.name = "header", .kind = Kind::text, .access = AT(Route, header),
     .says = "A header the requests have, with its value, or with any value if none is given. Values are compared without case.",
     .example = "\"X-Beta: 1\""},
    {.name = "bulkhead", .kind = Kind::name, .access = AT(Route, bulkhead),
     .says = "The bulkhead, or the set of tenants, that protects the route; empty: none, as for health checks.",
     .example = "reports"},
    {.name = "upstream", .kind = Kind::name, .access = AT(Route, upstream), .required = true,
     .says = "The upstream that serves them.", .example = "shop"},
    {.name = "priority", .kind = Kind::word, .access = AT(Route, priority), .words = kPriority,
     .says = "The priority of requests without a priority header, or from peers that are not trusted.", .example = "critical"},
    {.name = "hold", .kind = Kind::word, .access = AT(Route, hold), .words = kHold,
     .says = "When a request gives its place back: when the service has responded, or when the client has received the response.",
     .example = "response"},
    {.name = "websocket", .kind = Kind::flag, .access = AT(Route, websocket),
     .says = "Whether connections may be upgraded; each keeps its place until it is closed.", .example = "true"},
    {.name = "streaming", .kind = Kind::flag, .access = AT(Route, streaming),
     .says = "Whether each part of a response is sent to the client as soon as it arrives, as event streams need; otherwise nginx collects it.",
     .example = "true"},
};
constexpr Section kRoute{.name = "route", .says = "Requests that go to one bulkhead and one service.", .rows = kRouteRows, .fresh = fresh<Route>};

constexpr SettingRow kGatewayRows[] = {
    {.name = "listeners", .kind = Kind::map, .access = NAMED(Gateway, listeners), .section = &kListener, .required = true,
     .says = "The addresses that accept requests.", .example = "{http: {address: 0.0.0.0:8080}}"},
    {.name = "upstreams", .kind = Kind::map, .access = NAMED(Gateway, upstreams), .section = &kUpstream, .required = true,
     .says = "The services.", .example = "{shop: {servers: [127.0.0.1:9000]}}"},
    {.name = "routes", .kind = Kind::map, .access = NAMED(Gateway, routes), .section = &kRoute, .required = true,
     .says = "Which requests go to which bulkhead and service.", .example = "{reports: {path: /reports, bulkhead: reports, upstream: shop}}"},
    {.name = "trusted_peers", .kind = Kind::texts, .access = AT(Gateway, trusted_peers),
     .says = "Addresses and networks whose priority and tenant headers are trusted, and X-Forwarded-Proto and X-Forwarded-Host passed on.", .example = "[10.0.0.0/8]"},
    {.name = "priority_header", .kind = Kind::text, .access = AT(Gateway, priority_header),
     .says = "The header with the priority, as a word or as in RFC 9218.", .example = "Priority"},
    {.name = "tenant_header", .kind = Kind::text, .access = AT(Gateway, tenant_header),
     .says = "The header with the tenant.", .example = "X-Tenant-Id"},
    {.name = "deadline_header", .kind = Kind::text, .access = AT(Gateway, deadline_header),
     .says = "The header with the milliseconds that the client waits; the service receives the remaining ones in it.",
     .example = "X-Request-Timeout-Ms"},
    {.name = "max_body", .kind = Kind::size, .access = AT(Gateway, max_body), .low = 1024, .high = 1099511627776,
     .says = "The largest request body; a larger one gets 413. nginx reads it, to a file if it is large, before the request takes a place.",
     .example = "100MiB"},
    {.name = "workers", .kind = Kind::count, .access = AT(Gateway, workers), .low = 1, .high = 64,
     .says = "Worker processes of nginx; with more than one, every bulkhead of a route needs scope: host.", .example = "2"},
    {.name = "max_connections", .kind = Kind::count, .access = AT(Gateway, max_connections), .low = 64, .high = 1'000'000,
     .says = "The most connections of one worker, of clients and to services together; a request that is passed on has two.",
     .example = "65536"},
    {.name = "user", .kind = Kind::text, .access = AT(Gateway, user),
     .says = "The user of nginx's workers if root runs the gateway; by default www-data, or another one without rights that exists.",
     .example = "shop"},
    {.name = "access_log", .kind = Kind::text, .access = AT(Gateway, access_log),
     .says = "The file that logs requests, one JSON object per line.", .example = "/var/log/bulkhead/access.jsonl"},
    {.name = "nginx", .kind = Kind::text, .access = AT(Gateway, nginx),
     .says = "The path of nginx; by default the one on the PATH or in /usr/sbin.", .example = "/usr/sbin/nginx"},
    {.name = "module", .kind = Kind::text, .access = AT(Gateway, module),
     .says = "The path of the nginx module; by default where it is installed.",
     .example = "/usr/lib/nginx/modules/ngx_http_bulkhead_module.so"},
};
constexpr Section kGateway{.name = "gateway", .says = "nginx as an HTTP proxy with bulkheads, in front of a service.", .rows = kGatewayRows, .fresh = fresh<Gateway>};
// clang-format on

}  // namespace

std::string& name_of(Listener& l) { return l.name; }
std::string& name_of(Upstream& u) { return u.name; }
std::string& name_of(Route& r) { return r.name; }

const Section& settings() { return kGateway; }

std::vector<Setting> settings_of(const Loaded& file) {
  std::vector<Setting> all = bulkhead::settings(file.file.config);
  if (!file.gateway) return all;
  for (Setting& setting : config::settings_of(file.file.config, "gateway", kGateway, &*file.gateway))
    all.push_back(std::move(setting));
  return all;
}

const Section& root() {
  static const std::vector<SettingRow> rows = [] {
    std::vector<SettingRow> all(root_section().rows.begin(), root_section().rows.end());
    SettingRow gateway{};
    gateway.name = "gateway";
    gateway.kind = Kind::section;
    gateway.section = &kGateway;
    gateway.optional = true;
    gateway.says = "nginx as an HTTP proxy in front of services, run by bulkhead run.";
    gateway.example =
        "{listeners: {http: {address: 0.0.0.0:8080}}, upstreams: {shop: {servers: [127.0.0.1:9000]}}, "
        "routes: {all: {upstream: shop}}}";
    all.push_back(gateway);
    return all;
  }();
  static const Section whole = [] {
    Section section = root_section();
    section.rows = rows;
    return section;
  }();
  return whole;
}

}  // namespace bulkhead::gateway
