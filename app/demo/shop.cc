#include "app/demo/shop.h"

#include <cmath>
#include <random>

namespace bulkhead::demo {
namespace {

using std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

std::uint64_t since(TimePoint start, TimePoint end) noexcept {
  return end > start ? static_cast<std::uint64_t>((end - start).count()) : 0;
}

// Counts a coroutine for as long as its frame lives.
class Alive {
 public:
  explicit Alive(std::atomic<std::uint32_t>& jobs) noexcept : jobs_(jobs) {
    jobs_.fetch_add(1, std::memory_order_relaxed);
  }
  ~Alive() { jobs_.fetch_sub(1, std::memory_order_release); }  // finished() sees all that was counted
  Alive(const Alive&) = delete;
  Alive& operator=(const Alive&) = delete;

 private:
  std::atomic<std::uint32_t>& jobs_;
};

}  // namespace

Shop::Shop(const Story& story, Bulkheads bulkheads)
    : story_(story),
      opens_(steady_clock::now() + std::chrono::milliseconds(20)),
      database_({.name = "database",
                 .max_concurrent = story.connections,
                 .max_queue = story.line,
                 .max_wait = story.max_wait,
                 .deadlines = &loop_}) {
  for (std::size_t i = 0; i < kRoutes; ++i) {
    const RouteSpec& spec = story_.routes[i];
    routes_[i].spec = &spec;
    if (bulkheads == Bulkheads::on)
      routes_[i].bulkhead = std::make_unique<Gate>(GateOptions{.name = std::string(spec.name),
                                                               .max_concurrent = spec.share,
                                                               .max_queue = story_.line_of(spec),
                                                               .max_wait = story_.max_wait,
                                                               .deadlines = &loop_});
  }
  for (std::size_t i = 0; i < kRoutes; ++i) customers(routes_[i], story_.seed * kRoutes + i);
}

Shop::~Shop() { loop_.stop(); }  // before the gates and tallies its jobs use

Job Shop::customers(Route& route, std::uint64_t seed) {
  Alive alive(jobs_);
  std::mt19937_64 random(seed);
  std::exponential_distribution<double> gap(route.spec->per_second);
  std::lognormal_distribution<double> service(std::log(Seconds(route.spec->service).count()), story_.spread);
  const TimePoint closes = opens_ + story_.act();
  for (TimePoint next = opens_;;) {
    next += std::chrono::duration_cast<nanoseconds>(Seconds(gap(random)));
    if (next >= closes) co_return;
    co_await sleep_until(loop_, next);
    if (loop_.hurried()) co_return;
    serve(route, {next, std::chrono::duration_cast<nanoseconds>(Seconds(service(random)))});
  }
}

Job Shop::serve(Route& route, Call call) {
  Alive alive(jobs_);
  Tally& tally = route.tallies[static_cast<std::size_t>(story_.phase_at(elapsed(call.arrives)))];
  tally.call();

  route.waiting.enter();
  Result<Permit> place;
  Result<Permit> connection;
  if (route.bulkhead) place = co_await route.bulkhead->co_acquire();
  if (place) connection = co_await database_.co_acquire();
  route.waiting.leave();
  if (!place || !connection) {
    tally.reject(place ? connection.error().reason : place.error().reason);
    co_return;
  }

  const TimePoint start = steady_clock::now();
  tally.admit(since(call.arrives, start));
  route.in_flight.enter();
  connections_.enter();
  co_await sleep_until(loop_, done_at(route, start, call.service));  // the query
  connections_.leave();
  route.in_flight.leave();
  tally.serve(since(call.arrives, steady_clock::now()));
}

// The slow route's calls are held up while its trouble lasts; when it is over, those under way
// finish as usual.
TimePoint Shop::done_at(const Route& route, TimePoint start, nanoseconds service) const noexcept {
  const bool slow = route.spec == &story_.slow_spec() && story_.phase_at(elapsed(start)) == Phase::slow;
  if (!slow) return start + service;
  const auto held_up = std::chrono::duration_cast<nanoseconds>(service * story_.slowdown);
  return std::min(start + held_up, opens_ + story_.calm + story_.slow + service);
}

Reading Shop::read() const {
  Reading reading;
  reading.elapsed = elapsed(steady_clock::now());
  reading.phase = story_.phase_at(reading.elapsed);
  const Snapshot database = database_.snapshot();
  reading.in_flight = database.in_flight;
  reading.limit = database.max_concurrent;
  reading.waiting = database.waiting;
  reading.line = database.max_queue;
  for (std::size_t i = 0; i < kRoutes; ++i) {
    const Route& route = routes_[i];
    Reading::Route& seen = reading.routes[i];
    for (const Tally& tally : route.tallies) seen.total += tally.read();
    seen.in_flight = route.in_flight.now();
    seen.waiting = route.waiting.now();
    seen.limit = route.bulkhead ? route.spec->share : story_.connections;
    seen.line = route.bulkhead ? story_.line_of(*route.spec) : story_.line;
    if (route.bulkhead) reading.waiting += seen.waiting;
  }
  return reading;
}

Count Shop::result(std::size_t route, Phase phase) const noexcept {
  return routes_[route].tallies[static_cast<std::size_t>(phase)].read();
}

}  // namespace bulkhead::demo
