// compose.h - gates in series, and functions that carry their gate with them.
//
//   auto permits = bulkhead::acquire_all({.timeout = 50ms}, process, database);    // both, or neither
//   auto charge = bulkhead::wrap(payments, [](int cents) { return pay(cents); });  // decorate once ...
//   Result<Receipt> r = charge(995);                                               // ... call protected
//
// acquire_all takes the gates in the order given and, when a later one refuses, gives back what it had
// taken, in reverse; there it counts as admitted and released. One timeout covers them all. Take gates in the
// same order everywhere, as with locks, or two calls may each hold what the other waits for; and no gate
// twice, or a call may wait for itself. Threads: any. Cost: that of the acquires; no
// allocation.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <functional>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>

#include "bulkhead/detail/decorated.h"
#include "bulkhead/gate.h"

namespace bulkhead {

namespace detail {
// What is left of options.timeout after `spent` since the start; gates without a timeout of their
// own keep theirs.
inline AcquireOptions with_time_left(const AcquireOptions& options, const Clock& clock,
                                     TimePoint start) noexcept {
  AcquireOptions rest = options;
  if (options.timeout != gate_default && options.timeout != wait_forever) {
    const auto spent = clock.now() - start;
    rest.timeout = options.timeout > spent ? options.timeout - spent : std::chrono::nanoseconds(0);
  }
  return rest;
}
}  // namespace detail

template <std::same_as<Gate>... Gates>
Result<std::array<Permit, sizeof...(Gates)>> acquire_all(const AcquireOptions& options,
                                                         Gates&... gates) noexcept {
  static_assert(sizeof...(Gates) > 0, "name at least one gate");
  std::array<Permit, sizeof...(Gates)> permits;
  Rejection why;
  Clock& clock = std::get<0>(std::tie(gates...)).clock();
  const bool bounded = options.timeout != gate_default && options.timeout != wait_forever;
  const TimePoint start = bounded ? clock.now() : TimePoint{};
  std::size_t taken = 0;
  const auto take = [&](Gate& gate) {
    Result<Permit> permit = taken == 0 || !bounded
                                ? gate.acquire(options)
                                : gate.acquire(detail::with_time_left(options, clock, start));
    if (!permit) {
      why = permit.error();
      return false;
    }
    permits[taken++] = *std::move(permit);
    return true;
  };
  if ((take(gates) && ...)) return permits;
  while (taken > 0) permits[--taken].release();
  return Result<std::array<Permit, sizeof...(Gates)>>(std::unexpect, why);
}

// A callable with fn's parameters whose result is a Result. The gate must outlive it, and so must options.label.
template <class F>
auto wrap(Gate& gate, F fn, AcquireOptions options = {}) {
  return detail::Decorated(std::move(fn), [&gate, options = std::move(options)]<class Fn, class... Args>(
                                              Fn& f, Args&&... args) {
    return gate.run(
        [&]() -> std::invoke_result_t<Fn&, Args...> { return std::invoke(f, std::forward<Args>(args)...); },
        options);
  });
}

}  // namespace bulkhead
