// util.h - what the parts of a resource pool share.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <string>

#include "bulkhead/clock.h"
#include "bulkhead/pool.h"

namespace bulkhead::detail {

inline std::int64_t ns_of(TimePoint t) { return t.time_since_epoch().count(); }

// A thread for each resource that is being opened, validated, cleaned or closed, so that none waits for another, and one or two
// for maintenance.
inline std::uint32_t helper_threads(std::uint32_t max) { return max + 2; }

// Where there is no memory for it, it says so: that is short enough to need none.
inline std::string text_of(const char* text) noexcept {
#if defined(__cpp_exceptions)
  try {
    return text;
  } catch (...) {
    return "out of memory";
  }
#else
  return text;
#endif
}

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
