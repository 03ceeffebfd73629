#include <algorithm>
#include <atomic>
#include <charconv>
#include <random>
#include <stdexcept>
#include <utility>

#include "base/text.h"
#include "bulkhead/http_guard.h"
#include "http/cacheable.h"
#include "http/cost.h"
#include "http/pacer.h"
#include "http/pages.h"
#include "http/response_cache.h"

namespace bulkhead::http {
namespace {

// The path of a target as routes are written: without scheme, authority and query, decoded, without "." and ".."
// and empty segments. Otherwise a client could send "/%72eports" or "//reports" to reach the same handler
// through a route with another bulkhead. `storage` is for paths that are not plain.
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

// A bulkhead may be removed later; one that is missing from the start is taken for a misspelt name.
void check(const Registry& registry, const Route& route) {
  const auto reject = [&](std::string_view problem) {
    base::throw_invalid(base::join({"http: route \"", route.path, "\": ", problem}));
  };
  if (!route.path.starts_with('/')) reject("path must begin with '/': give \"/orders\"");
  if (route.cost == 0) reject("cost = 0 is out of range: give 1 or more");
  if ((route.cost_header.empty() ? 0 : 1) + (route.bytes_per_unit > 0 ? 1 : 0) + (route.cost_of ? 1 : 0) > 1)
    reject("has more than one of cost_header, bytes_per_unit and cost_of: leave the others out");
  if (!route.bulkhead.empty() && !registry.find(route.bulkhead))
    reject(base::join({"there is no bulkhead \"", route.bulkhead, "\": add it to the registry first"}));
  if (route.tenants.empty()) return;
  const auto sets = registry.snapshot().tenants;
  if (std::ranges::none_of(sets, [&](const auto& set) { return set.name == route.tenants; }))
    reject(
        base::join({"there is no set of tenants \"", route.tenants, "\": define it in the registry first"}));
}

// The registry throws for a set of tenants that it does not have. A set that was removed while requests arrive is
// rejected like a removed bulkhead.
Result<std::shared_ptr<Bulkhead>> tenant_of(Registry& registry, const Route& route, std::string_view tenant) {
#if defined(__cpp_exceptions)
  try {
    return registry.tenant(route.tenants, tenant);
  } catch (const std::invalid_argument&) {
    return Result<std::shared_ptr<Bulkhead>>(unexpect,
                                             Rejection{.reason = Reason::shutdown, .name = route.tenants});
  }
#else
  return registry.tenant(route.tenants, tenant);
#endif
}

}  // namespace

struct Guard::State {
  State(Registry& r, GuardOptions o)
      : registry(r),
        options(std::move(o)),
        peers(options.trusted_peers),
        cache(options.cache_entries, options.cache_entry_bytes),
        page(options.metrics),
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
  RejectionPacer pacer;
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

// Pages first, then the route, then what the request's headers ask for, which the route and the trust in the peer
// bound.
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
  visit.deadline = saturating_add(now, hints.timeout);
  visit.options = {.priority = hints.priority,
                   .cost = cost_of(route, request, visit.trusted),
                   .deadline = visit.deadline,
                   .flow = hints.tenant.empty() ? 0 : flow_of(hints.tenant),
                   .label = route.path};
  if (!route.budget.empty())
    visit.options.costs = Costs{Cost(route.budget, std::exchange(visit.options.cost, 1U))};
  const auto given = [&](const std::string& name) { return !request.header(name).empty(); };
  if (route.cache_for.count() > 0 && request.method == "GET" &&
      std::ranges::none_of(o.credential_headers, given) && !forbids_storing(request.header("Cache-Control")))
    visit.cache_key = cache_key(hints.tenant, request.target, request.header);

  if (!route.tenants.empty() && (!hints.tenant.empty() || route.bulkhead.empty())) {
    Result<std::shared_ptr<Bulkhead>> own = tenant_of(s.registry, route, hints.tenant);
    if (!own) {
      visit.answer = reject(visit, own.error(), now);
      visit.rejected = true;
      return visit;
    }
    visit.bulkhead = *std::move(own);
    const std::string_view name = visit.bulkhead->name();
    visit.tenants_own = !hints.tenant.empty() && name.ends_with(hints.tenant) &&
                        name.size() == route.tenants.size() + 1 + hints.tenant.size();
  } else if (!route.bulkhead.empty()) {
    visit.bulkhead = s.registry.find(route.bulkhead);
    if (!visit.bulkhead) {
      visit.answer = reject(visit, {.reason = Reason::shutdown, .name = route.bulkhead}, now);
      visit.rejected = true;
    }
  }
  return visit;
}

// While the bulkhead is closed or draining no kept response is sent: clients should go to another instance.
Response Guard::reject(const Visit& visit, const Rejection& why, TimePoint now) {
  State& s = *state_;
  static const ResponseOptions defaults;
  const ResponseOptions& options = visit.route ? visit.route->responses : defaults;
  if (!visit.cache_key.empty() && why.reason != Reason::shutdown && why.reason != Reason::draining &&
      why.reason != Reason::cancelled) {
    if (auto kept = s.cache.get(visit.cache_key, now)) {
      const auto age = std::chrono::duration_cast<std::chrono::seconds>(now - kept->stored).count();
      Response r{.status = 200, .headers = std::move(kept->headers), .body = std::move(kept->body)};
      r.headers.push_back({"Age", std::to_string(age)});
      r.headers.push_back({"X-Bulkhead-Fallback", "cached"});
      r.headers.push_back({"X-Bulkhead-Reason", std::string(to_string(why.reason))});
      return r;
    }
  }
  return rejection(why, options,
                   {.priority = visit.options.priority,
                    .trusted = visit.trusted,
                    .tenants_own = visit.tenants_own,
                    .random = s.random()});
}

std::chrono::nanoseconds Guard::hold(TimePoint now) noexcept { return state_->pacer.hold(now); }

void Guard::answered(const Visit& visit, const Answered& response, TimePoint now) {
  if (visit.cache_key.empty() || response.status != 200) return;
  const std::optional<unsigned> varies = cacheable(response.headers);
  if (!varies) return;
  state_->cache.put({.key = variant_key(visit.cache_key, *varies),
                     .headers = kept_headers(response.headers),
                     .body = std::string(response.body),
                     .stored = now,
                     .until = saturating_add(now, visit.route->cache_for)},
                    *varies);
}

Response Guard::metrics(std::string_view accept) {
  const auto& extras = state_->options.metrics_extras;
  return metrics_page(state_->page, state_->registry.snapshot(), accept, extras ? extras() : MetricsExtras{});
}

Response Guard::health() { return health_page(state_->page, state_->registry.snapshot(), {}); }

Registry& Guard::registry() const noexcept { return state_->registry; }
const GuardOptions& Guard::options() const noexcept { return state_->options; }

}  // namespace bulkhead::http
