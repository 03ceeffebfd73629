// util.h - what the parts of a resource pool share.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>

#include "bulkhead/clock.h"

namespace bulkhead::detail {

// Times far away mean for ever, instead of overflowing into the past.
inline TimePoint after(TimePoint now, std::chrono::nanoseconds wait) {
  return wait >= no_deadline - now ? no_deadline : now + wait;
}

inline std::int64_t ns_of(TimePoint t) { return t.time_since_epoch().count(); }

// Runs one of the user's functions; what it throws becomes `otherwise(text)`.
template <class F, class Otherwise>
auto guarded(F&& fn, [[maybe_unused]] Otherwise&& otherwise) noexcept -> decltype(fn()) {
#if defined(__cpp_exceptions)
  try {
    return fn();
  } catch (const std::exception& e) {
    return otherwise(e.what());
  } catch (...) {
    return otherwise("an exception that is no std::exception");
  }
#else
  return fn();
#endif
}

}  // namespace bulkhead::detail
