#include <algorithm>
#include <atomic>
#include <charconv>
#include <random>

#include "base/text.h"
#include "bulkhead/http_guard.h"
#include "bulkhead/metrics.h"
#include "http/pacer.h"
#include "http/response_cache.h"

namespace bulkhead::http {
namespace {

// The path of a target as routes are written: without scheme, authority and query, decoded, without "." and ".."
// and empty segments. Whoever wrote "/%72eports" or "//reports" would otherwise find a route with another
// bulkhead, and a handler that is less strict. `storage` is for paths that are not plain.
std::string_view path_of(std::string_view target, std::string& storage) {
  if (const std::size_t scheme = target.find("://");
      scheme != std::string_view::npos && scheme < target.find('/')) {
    const std::size_t path = target.find_first_of("/?#", scheme + 3);
    target = path == std::string_view::npos ? std::string_view("/") : target.substr(path);
  }
  target = target.substr(0, target.find_first_of("?#"));
  if (target.find('%') == std::string_view::npos && target.find("//") == std::string_view::npos &&
      target.find("/.") == std::string_view::npos) [[likely]]
    return target.empty() ? std::string_view("/") : target;

  std::string decoded;
  for (std::size_t i = 0; i < target.size(); ++i) {
    unsigned byte = 0;
    const char* const digits = target.data() + i + 1;
    if (target[i] == '%' && i + 2 < target.size() &&
        std::from_chars(digits, digits + 2, byte, 16).ptr == digits + 2) {
      decoded += static_cast<char>(byte);
      i += 2;
    } else {
      decoded += target[i];
    }
  }
  storage.clear();
  for (std::string_view rest = decoded; !rest.empty();) {
    rest.remove_prefix(std::min(rest.find_first_not_of('/'), rest.size()));
    const std::string_view segment = rest.substr(0, rest.find('/'));
    rest.remove_prefix(segment.size());
    if (segment == "..")
      storage.erase(std::min(storage.rfind('/'), storage.size()));
    else if (!segment.empty() && segment != ".")
      storage.append("/").append(segment);
  }
  if (storage.empty() || decoded.ends_with('/')) storage += '/';
  return storage;
}

bool below(std::string_view path, std::string_view prefix) noexcept {
  if (!path.starts_with(prefix)) return false;
  return path.size() == prefix.size() || prefix.ends_with('/') || path[prefix.size()] == '/';
}

void check(const Registry& registry, const Route& route) {
  const auto refuse = [&](std::string_view problem) {
    base::throw_invalid(base::join({"http: route \"", route.path, "\": ", problem}));
  };
  if (!route.path.starts_with('/')) refuse("path must begin with '/': give \"/orders\"");
  if (route.cost == 0) refuse("cost = 0 is out of range: give 1 or more");
  if (!route.bulkhead.empty() && !registry.find(route.bulkhead))
    refuse(base::join({"there is no bulkhead \"", route.bulkhead, "\": add it to the registry first"}));
}

// Says that a response may not be kept for others.
bool is_private(std::string_view cache_control) noexcept {
  return cache_control.find("private") != std::string_view::npos ||
         cache_control.find("no-store") != std::string_view::npos;
}

}  // namespace

struct Guard::State {
  State(Registry& r, GuardOptions o)
      : registry(r),
        options(std::move(o)),
        peers(options.trusted_peers),
        cache(options.cache_entries, options.cache_entry_bytes),
        seed(options.seed ? options.seed : (std::uint64_t{std::random_device()()} << 32 | 1)),
        pacer(options.storm, seed) {}

  // The finaliser of splitmix64, over a counter that threads share.
  std::uint32_t random() noexcept {
    // relaxed: every caller gets another value, in whatever order
    std::uint64_t z = seed.fetch_add(0x9e3779b97f4a7c15, std::memory_order_relaxed);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return static_cast<std::uint32_t>((z ^ (z >> 31)) >> 32);
  }

  Registry& registry;
  const GuardOptions options;
  const TrustedPeers peers;
  ResponseCache cache;
  Metrics page;
  std::atomic<std::uint64_t> seed;
  RefusalPacer pacer;
};

Guard::Guard(Registry& registry, GuardOptions options) {
  for (const Route& route : options.routes) check(registry, route);
  // The longest first, and a method before none, so that the first match is the one that counts. Of equals the
  // first given (std::stable_sort would do, but for a function of libstdc++ that Clang calls deprecated).
  const auto before = [](const Route& a, const Route& b) {
    if (a.path.size() != b.path.size()) return a.path.size() > b.path.size();
    return !a.method.empty() && b.method.empty();
  };
  std::vector<Route> sorted;
  for (Route& route : options.routes)
    sorted.insert(std::ranges::upper_bound(sorted, route, before), std::move(route));
  options.routes = std::move(sorted);
  state_ = std::make_unique<State>(registry, std::move(options));
}
Guard::~Guard() = default;

const Route* Guard::match(std::string_view method, std::string_view target) const {
  std::string storage;
  return route_of(method, path_of(target, storage));
}

const Route* Guard::route_of(std::string_view method, std::string_view path) const noexcept {
  for (const Route& route : state_->options.routes)
    if ((route.method.empty() || route.method == method) && below(path, route.path)) return &route;
  return nullptr;
}

Visit Guard::arrive(const Request& request, TimePoint now) {
  State& s = *state_;
  const GuardOptions& o = s.options;
  Visit visit;
  visit.trusted = s.peers.trusts(request.peer);
  std::string storage;
  const std::string_view path = path_of(request.target, storage);
  if (request.method == "GET" && (visit.trusted || !o.pages_for_trusted_only)) {
    if (!o.metrics_path.empty() && path == o.metrics_path) {
      visit.answer = metrics(request.header("Accept"));
      return visit;
    }
    if (!o.health_path.empty() && path == o.health_path) {
      visit.answer = health();
      return visit;
    }
  }
  visit.route = route_of(request.method, path);
  if (!visit.route) return visit;
  const Route& route = *visit.route;
  const Hints hints = read_hints(request.header,
                                 {.max_timeout = route.max_timeout,
                                  .absolute_deadline = o.absolute_deadline,
                                  .priority = route.priority,
                                  .priority_header = o.priority_header,
                                  .tenant_header = o.tenant_header},
                                 visit.trusted, request.unix_now);
  if (hints.timeout < no_deadline - now) visit.deadline = now + hints.timeout;
  visit.options = {
      .priority = hints.priority, .cost = route.cost, .deadline = visit.deadline, .label = route.path};
  if (route.cache_for.count() > 0 && request.method == "GET" && request.header("Authorization").empty() &&
      request.header("Cookie").empty())
    visit.cache_key = base::join({hints.tenant, " ", request.target});

  if (!route.tenants.empty() && (!hints.tenant.empty() || route.bulkhead.empty())) {
    auto own = s.registry.tenant(route.tenants, hints.tenant);
    if (!own) {
      visit.answer = refuse(visit, own.error(), now);
      visit.refused = true;
      return visit;
    }
    visit.bulkhead = *std::move(own);
    const std::string_view name = visit.bulkhead->name();
    visit.tenants_own = !hints.tenant.empty() && name.ends_with(hints.tenant) &&
                        name.size() == route.tenants.size() + 1 + hints.tenant.size();
  } else if (!route.bulkhead.empty()) {
    visit.bulkhead = s.registry.find(route.bulkhead);
    if (!visit.bulkhead) {
      visit.answer = refuse(visit, {.reason = Reason::shutdown, .name = route.bulkhead}, now);
      visit.refused = true;
    }
  }
  return visit;
}

Response Guard::refuse(const Visit& visit, const Rejection& why, TimePoint now) {
  State& s = *state_;
  static const ResponseOptions defaults;
  const ResponseOptions& options = visit.route ? visit.route->responses : defaults;
  if (!visit.cache_key.empty() && why.reason != Reason::shutdown && why.reason != Reason::cancelled) {
    if (auto kept = s.cache.get(visit.cache_key, now)) {
      const auto age = std::chrono::duration_cast<std::chrono::seconds>(now - kept->stored).count();
      return {.status = 200,
              .headers = {{"Content-Type", std::move(kept->content_type)},
                          {"Age", std::to_string(age)},
                          {"X-Bulkhead-Fallback", "cached"},
                          {"X-Bulkhead-Reason", std::string(to_string(why.reason))}},
              .body = std::move(kept->body)};
    }
  }
  return refusal(why, options,
                 {.priority = visit.options.priority,
                  .trusted = visit.trusted,
                  .tenants_own = visit.tenants_own,
                  .late = visit.deadline <= now,
                  .random = s.random()});
}

std::chrono::nanoseconds Guard::hold(TimePoint now) noexcept { return state_->pacer.hold(now); }

void Guard::answered(const Visit& visit, int status, std::string_view content_type, std::string_view body,
                     std::string_view cache_control, bool set_cookie, TimePoint now) {
  if (visit.cache_key.empty() || status != 200 || set_cookie || is_private(cache_control)) return;
  const auto keep = visit.route->cache_for;
  state_->cache.put({.key = visit.cache_key,
                     .content_type = std::string(content_type),
                     .body = std::string(body),
                     .stored = now,
                     .until = keep < no_deadline - now ? now + keep : no_deadline});
}

Response Guard::metrics(std::string_view accept) {
  const MetricsFormat format = negotiate(accept);
  Response r;
  state_->page.render(r.body, state_->registry.snapshot(), format, {.process = process_stats()});
  r.headers = {{"Content-Type", std::string(content_type(format))}, {"Cache-Control", "no-store"}};
  return r;
}

Response Guard::health() {
  Response r;
  state_->page.render(r.body, state_->registry.snapshot(), MetricsFormat::json);
  r.headers = {{"Content-Type", std::string(content_type(MetricsFormat::json))},
               {"Cache-Control", "no-store"}};
  return r;
}

Registry& Guard::registry() const noexcept { return state_->registry; }
const GuardOptions& Guard::options() const noexcept { return state_->options; }

}  // namespace bulkhead::http
