#include "app/demo/live_shop.h"

#include <cmath>
#include <random>
#include <thread>

namespace bulkhead::demo {
namespace {

using std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

// How soon a call under way notices that its trouble is over.
constexpr std::chrono::milliseconds kSlice{50};

class Alive {
 public:
  explicit Alive(std::atomic<std::uint32_t>& jobs) noexcept : jobs_(jobs) { jobs_.fetch_add(1); }
  ~Alive() { jobs_.fetch_sub(1); }
  Alive(const Alive&) = delete;
  Alive& operator=(const Alive&) = delete;

 private:
  std::atomic<std::uint32_t>& jobs_;
};

}  // namespace

LiveShop::LiveShop(const Story& story, Registry& registry) : story_(story) {
  database_ = registry.add({.options = {.name = "database",
                                        .max_concurrent = story_.connections,
                                        .max_queue = story_.line,
                                        .max_wait = story_.max_wait},
                            .type = "shared"});
  for (std::size_t i = 0; i < kRoutes; ++i) {
    const RouteSpec& spec = story_.routes[i];
    Registration r{.options = {.name = std::string(spec.name),
                               .max_concurrent = spec.share,
                               .max_queue = story_.line_of(spec),
                               .max_wait = story_.max_wait},
                   .type = "route"};
    if (i == 0) {
      r.criticality = Priority::critical;
      r.options.breaker =
          BreakerOptions{.window_calls = 100, .minimum_calls = 50, .open_for = std::chrono::seconds(5)};
    }
    if (i == story_.slow_route) r.criticality = Priority::best_effort;
    routes_[i] = {&spec, registry.add(r)};
  }
  for (std::size_t i = 0; i < kRoutes; ++i) customers(routes_[i], story_.seed * kRoutes + i);
}

LiveShop::~LiveShop() {
  loop_.hurry();
  // Those in line are woken by the gates' timers, not by the loop, so it has to run until the last has left.
  while (jobs_.load() != 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  loop_.stop();
}

void LiveShop::set_bulkheads(bool on) {
  for (Route& route : routes_) {
    BulkheadOptions o = route.bulkhead->options();
    o.enabled = on;
    route.bulkhead->update(o);
  }
  bulkheads_.store(on);
}

Job LiveShop::customers(Route& route, std::uint64_t seed) {
  Alive alive(jobs_);
  std::mt19937_64 random(seed);
  std::exponential_distribution<double> gap(route.spec->per_second);
  std::lognormal_distribution<double> service(std::log(Seconds(route.spec->service).count()), story_.spread);
  for (TimePoint next = steady_clock::now();;) {
    next += std::chrono::duration_cast<nanoseconds>(Seconds(gap(random)));
    co_await sleep_until(loop_, next);
    if (loop_.hurried()) co_return;
    serve(route, std::chrono::duration_cast<nanoseconds>(Seconds(service(random))));
  }
}

Job LiveShop::serve(Route& route, nanoseconds service) {
  Alive alive(jobs_);
  Result<Call> place = co_await route.bulkhead->co_acquire();
  if (!place || loop_.hurried()) co_return;
  Result<Call> connection = co_await database_->co_acquire();
  if (!connection) {
    place->finish(CallVerdict::failure);
    co_return;
  }
  const TimePoint start = steady_clock::now();
  const bool may_be_slow = route.spec == &story_.slow_spec();
  if (may_be_slow && slow()) {
    const TimePoint end = start + std::chrono::duration_cast<nanoseconds>(service * story_.slowdown);
    while (slow() && !loop_.hurried() && steady_clock::now() < end)
      co_await sleep_until(loop_, steady_clock::now() + kSlice);
  }
  co_await sleep_until(loop_, std::max(start + service, steady_clock::now()));
  connection->finish(CallVerdict::success);
  place->finish(CallVerdict::success);
}

}  // namespace bulkhead::demo
