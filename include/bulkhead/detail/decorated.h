// decorated.h - wraps a function so that other code runs around every call. Not for direct use.
#pragma once

#include "bulkhead/detail/language.h"

#include <type_traits>
#include <utility>

namespace bulkhead::detail {

// Calls around(fn, arguments...). It can be called as const if fn can.
template <class F, class Around>
class Decorated {
 public:
  Decorated(F fn, Around around) : fn_(std::move(fn)), around_(std::move(around)) {}

  template <class... Args>
    requires std::is_invocable_v<F&, Args...>
  auto operator()(Args&&... args) {
    return around_(fn_, std::forward<Args>(args)...);
  }
  template <class... Args>
    requires std::is_invocable_v<const F&, Args...>
  auto operator()(Args&&... args) const {
    return around_(fn_, std::forward<Args>(args)...);
  }

 private:
  F fn_;
  Around around_;
};

}  // namespace bulkhead::detail
