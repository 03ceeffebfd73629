// compose.h - gates in series, and functions that carry their gate with them.
//
//   auto permits = bulkhead::acquire_all({.timeout = 50ms}, process, database);    // both, or neither
//   auto charge = bulkhead::wrap(database, [](int cents) { return pay(cents); });  // decorate once ...
//   bulkhead::Result<Receipt> r = charge(995);                                     // ... call protected
//
// acquire_all takes each gate with options.cost, and gives the permits in the order named. The order in which the gates
// are taken, the timeout and all promises are those of acquire_all.h, which has other forms and a cost for each gate. Name
// no gate twice. Threads: any. Cost: that of the acquires; no allocation.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <functional>
#include <type_traits>
#include <utility>

#include "bulkhead/acquire_all.h"
#include "bulkhead/detail/decorated.h"
#include "bulkhead/gate.h"

namespace bulkhead {

template <std::same_as<Gate>... Gates>
Result<std::array<Permit, sizeof...(Gates)>> acquire_all(const AcquireOptions& options,
                                                         Gates&... gates) noexcept {
  static_assert(sizeof...(Gates) > 0, "name at least one gate");
  using Permits = std::array<Permit, sizeof...(Gates)>;
  static_assert(sizeof...(Gates) <= kMostGatesAtOnce, "at most kMostGatesAtOnce gates at once");
  Result<AllPermits> all =
      acquire_all(GateCosts(GateCost(gates, options.cost)...), {.priority = options.priority,
                                                                .timeout = options.timeout,
                                                                .deadline = options.deadline,
                                                                .stop = options.stop,
                                                                .flow = options.flow,
                                                                .label = options.label,
                                                                .where = options.where});
  if (!all) return Result<Permits>(unexpect, all.error());
  return Result<Permits>(Permits{std::move(*all->of(gates))...});
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
