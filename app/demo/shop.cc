#include "app/demo/shop.h"

#include <cmath>
#include <random>
#include <thread>

#include "bulkhead/detail/mutex.h"

namespace bulkhead::demo {
namespace {

using std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

std::uint64_t since(TimePoint start, TimePoint end) noexcept {
  return end > start ? static_cast<std::uint64_t>((end - start).count()) : 0;
}

std::vector<std::unique_ptr<ConnectionPool>> pools_of(const Story& story, Store& store, Bulkheads bulkheads,
                                                      EventLoop& loop) {
  const auto gate = [&](std::uint32_t line) {
    return GateOptions{.max_queue = line, .max_wait = story.max_wait, .deadlines = &loop};
  };
  std::vector<std::unique_ptr<ConnectionPool>> pools;
  if (bulkheads == Bulkheads::off) {
    pools.push_back(store.pool("shared", story.connections, gate(story.line)));
    return pools;
  }
  for (const RouteSpec& route : story.routes)
    pools.push_back(store.pool(std::string(route.name), route.share, gate(story.line_of(route))));
  return pools;
}

}  // namespace

Shop::Shop(const Story& story, Store& store, Bulkheads bulkheads)
    : story_(story),
      bulkheads_(bulkheads),
      pools_(pools_of(story, store, bulkheads, loop_)),
      opens_(steady_clock::now() + std::chrono::milliseconds(20)),
      queries_(workers_for("queries", story.connections, false)),
      reports_(workers_for("reports", story.connections, true)) {
  for (std::size_t i = 0; i < kRoutes; ++i) {
    routes_[i].spec = &story_.routes[i];
    routes_[i].pool = pools_[bulkheads == Bulkheads::on ? i : 0].get();
  }
  mend();
  for (std::size_t i = 0; i < kRoutes; ++i) customers(routes_[i], story_.seed * kRoutes + i);
}

Shop::~Shop() {
  abandon();
  // Calls that wait for a database thread return to the loop, so the loop has to run until the last one has ended.
  while (!finished()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  loop_.join();
}

void Shop::abandon() noexcept {
  loop_.hurry();
  slowness_.request_stop();
}

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

Job Shop::mend() {
  Alive alive(jobs_);
  co_await sleep_until(loop_, opens_ + story_.calm + story_.slow);
  slowness_.request_stop();
}

bool Shop::slow_now(const Route& route) const noexcept {
  return route.spec == &story_.slow_spec() && story_.phase_at(elapsed(steady_clock::now())) == Phase::slow;
}

auto Shop::ask(Held& held, Ask what) {
  const bool report = what == Ask::pairs;
  const auto value = report ? orders_to_compare() : static_cast<std::int64_t>(++asked_ % 30);
  return on_thread(loop_, report ? reports_ : queries_,
                   [&held, what, value, stop = report ? slowness_.get_token() : std::stop_token()] {
                     return held.ask(what, value, stop);
                   });
}

void Shop::failed(Tally& tally, std::string why) {
  tally.fail();
  const detail::MutexLock lock(mutex_);
  if (first_failure_.empty()) first_failure_ = std::move(why);
}

Job Shop::serve(Route& route, Call call) {
  Alive alive(jobs_);
  Tally& tally = route.tallies[static_cast<std::size_t>(story_.phase_at(elapsed(call.arrives)))];
  tally.call();

  route.waiting.enter();
  ConnectionPool::Answer connection = co_await connection_of(loop_, *route.pool);
  route.waiting.leave();
  if (!connection) {
    if (const auto& rejection = connection.error().rejection)
      tally.reject(rejection->reason);
    else
      failed(tally, connection.error().message());
    co_return;
  }

  const TimePoint start = steady_clock::now();
  tally.admit(since(call.arrives, start));
  route.in_flight.enter();
  connections_.enter();
  Held& held = **connection;
  Result<void, AskError> said;
  if (slow_now(route)) {
    said = co_await ask(held, Ask::pairs);
    reports_took_.record(since(start, steady_clock::now()));
  }
  // One that is under way when the trouble is over is stopped, and asks again for what takes little.
  if (!slow_now(route) && (said || said.error().stopped)) {
    said = co_await ask(held, route.spec->asks);
    if (said) co_await sleep_until(loop_, start + call.service);  // over already, if the trouble held it up
    if (said) said = co_await ask(held, route.spec->asks);
  }
  connections_.leave();  // before another call has it
  route.in_flight.leave();
  connection->reset();
  const TimePoint end = steady_clock::now();
  if (said)
    tally.serve(since(call.arrives, end));
  else
    failed(tally, said.error().text);
}

Reading Shop::read() const {
  Reading reading;
  reading.elapsed = elapsed(steady_clock::now());
  reading.phase = story_.phase_at(reading.elapsed);
  reading.in_flight = connections_.now();
  reading.limit = story_.connections;
  for (std::size_t i = 0; i < kRoutes; ++i) {
    const Route& route = routes_[i];
    Reading::Route& seen = reading.routes[i];
    for (const Tally& tally : route.tallies) seen.total += tally.read();
    seen.in_flight = route.in_flight.now();
    seen.waiting = route.waiting.now();
    seen.limit = bulkheads_ == Bulkheads::on ? route.spec->share : story_.connections;
    reading.waiting += seen.waiting;
  }
  return reading;
}

Count Shop::result(std::size_t route, Phase phase) const noexcept {
  return routes_[route].tallies[static_cast<std::size_t>(phase)].read();
}

std::string Shop::first_failure() const {
  const detail::MutexLock lock(mutex_);
  return first_failure_;
}

}  // namespace bulkhead::demo
