#include "app/demo/live_shop.h"

#include <cmath>
#include <random>
#include <thread>

#include "bulkhead/detail/mutex.h"

namespace bulkhead::demo {
namespace {

using std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

}  // namespace

LiveShop::LiveShop(const Story& story, Store& store, Registry& registry)
    : story_(story),
      connections_(store.pool("connections", story.connections, {.max_queue = 10 * story.line})),
      attached_(registry.attach({.name = "connections",
                                 .kind = std::string(store.kind()),
                                 .snapshot = [this] { return connections_->snapshot(); },
                                 .bulkhead = "database"})),
      queries_(workers_for("queries", story.connections, false)),
      reports_(workers_for("reports", story.connections, true)) {
  database_ = registry.add({.options = {.name = "database",
                                        .max_concurrent = story_.connections,
                                        .max_queue = story_.line,
                                        .max_wait = story_.max_wait,
                                        .nested = true},
                            .type = "shared",
                            .criticality = Priority::critical});
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
    routes_[i].spec = &spec;
    routes_[i].bulkhead = registry.add(r);
  }
  for (std::size_t i = 0; i < kRoutes; ++i) customers(routes_[i], story_.seed * kRoutes + i);
}

LiveShop::~LiveShop() {
  loop_.hurry();
  set_slow(false);
  // Those in line are woken by the gates' timers, not by the loop, so it has to run until the last has left.
  while (jobs_.load() != 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  loop_.join();
}

void LiveShop::set_slow(bool on) {
  const detail::MutexLock lock(mutex_);
  if (on == (slowness_.stop_possible() && !slowness_.stop_requested())) return;
  if (on)
    slowness_ = std::stop_source();
  else
    slowness_.request_stop();
}

std::stop_token LiveShop::slowness() const {
  const detail::MutexLock lock(mutex_);
  return slowness_.get_token();
}

bool LiveShop::slow() const {
  const std::stop_token token = slowness();
  return token.stop_possible() && !token.stop_requested();
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

auto LiveShop::ask(Held& held, Ask what, std::stop_token slow) {
  const bool report = what == Ask::pairs;
  const auto value = report ? orders_to_compare() : static_cast<std::int64_t>(++asked_ % 30);
  return on_thread(loop_, report ? reports_ : queries_,
                   [&held, what, value, slow = std::move(slow)] { return held.ask(what, value, slow); });
}

Job LiveShop::serve(Route& route, nanoseconds service) {
  Alive alive(jobs_);
  const TimePoint arrived = steady_clock::now();
  route.tally.call();
  Result<Call> place = co_await route.bulkhead->co_acquire();
  if (loop_.hurried()) co_return;
  if (!place) {
    route.tally.reject(place.error().reason);
    co_return;
  }
  Result<Call> admitted = co_await database_->co_acquire();
  if (!admitted) {
    route.tally.reject(admitted.error().reason);
    place->finish(Outcome::failure);
    co_return;
  }
  const TimePoint start = steady_clock::now();
  ConnectionPool::Answer connection = co_await connection_of(loop_, *connections_);
  bool done = false;
  if (connection) {
    Held& held = **connection;
    Result<void, AskError> said;
    const std::stop_token slow = slowness();
    const bool report = route.spec == &story_.slow_spec() && slow.stop_possible() && !slow.stop_requested();
    if (report) said = co_await ask(held, Ask::pairs, slow);
    // One that is under way when the trouble is over is stopped, and asks again for what takes little.
    if (!report || (!said && said.error().stopped)) {
      said = co_await ask(held, route.spec->asks, {});
      if (said) co_await sleep_until(loop_, start + service);
      if (said) said = co_await ask(held, route.spec->asks, {});
    }
    done = said.has_value();
    connection->reset();
  }
  if (done)
    route.tally.serve(static_cast<std::uint64_t>((steady_clock::now() - arrived).count()));
  else
    route.tally.fail();
  const Outcome verdict = done ? Outcome::success : Outcome::failure;
  admitted->finish(verdict);
  place->finish(verdict);
}

}  // namespace bulkhead::demo
