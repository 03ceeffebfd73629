#include "pool.h"

#include <algorithm>

namespace bulkhead::postgres {
namespace {

ResourceOptions<Connection> resource_options(const PoolOptions& o) {
  const auto timeout = o.reset_timeout;
  return {.name = o.name,
          .max = o.max,
          .min_idle = o.min_idle,
          .open = [options = o.connection](const Opening& opening) -> Result<Connection, std::string> {
            auto made = Connection::open(options, opening.deadline, opening.stop);
            if (!made) return Unexpected(made.error().message());
            return *std::move(made);
          },
          .validate = [timeout](Connection& c) { return c.ping(timeout); },
          .dirty =
              [](Connection& c) {
                c.set_deadline(no_deadline);  // it was this caller's; the next may come by another way
                return !c.good() || !c.clean();
              },
          .reset = [timeout](Connection& c) { return c.reset(timeout); },
          .dispose = [](Connection& c) { c.close(); },
          .validate_after = o.validate_after,
          .keepalive = o.keepalive,
          .idle_timeout = o.idle_timeout,
          .max_lifetime = o.max_lifetime,
          .connect_timeout = o.connect_timeout,
          .backoff = o.backoff,
          .gate = o.gate,
          .histograms = o.histograms,
          .seed = o.seed,
          .on = o.on,
          .budget = o.budget};
}

PoolOptions named(PoolOptions o) {
  if (o.on) o.name = o.on->name();
  if (o.connection.application_name.empty()) o.connection.application_name = o.name;
  return o;
}

}  // namespace

Pool::Pool(PoolOptions options) : options_(named(std::move(options))), pool_(resource_options(options_)) {}

TimePoint Pool::waits_until(std::chrono::nanoseconds timeout) const noexcept {
  if (timeout == gate_default) timeout = options_.gate.max_wait;
  return saturating_add(std::chrono::steady_clock::now(), std::max(timeout, std::chrono::nanoseconds(0)));
}

ResourceError Pool::rejection(Priority priority, Reason reason) noexcept {
  return {.rejection = pool_.gate().reject(priority, reason), .name = name()};
}

ResourceResult<Connection> Pool::acquire(const AcquireOptions& options) {
  ResourceResult<Connection> lease = pool_.acquire(options);
  if (lease) (*lease)->set_deadline(options.deadline);
  return lease;
}

ResourceResult<Connection> Pool::try_acquire(const AcquireOptions& options) {
  ResourceResult<Connection> lease = pool_.try_acquire(options);
  if (lease) (*lease)->set_deadline(options.deadline);
  return lease;
}

}  // namespace bulkhead::postgres
