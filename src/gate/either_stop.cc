#include <new>
#include <utility>

#include "bulkhead/gate.h"

namespace bulkhead::detail {
namespace {

std::stop_source new_source() noexcept {  // without a state: no memory
#if defined(__cpp_exceptions)
  try {
    return {};
  } catch (const std::bad_alloc&) {
    return std::stop_source(std::nostopstate);
  }
#else
  return {};
#endif
}

}  // namespace

// A state of its own only if both can fire; without memory for it, the first token is used alone.
EitherStop::EitherStop(const std::stop_token& one, std::stop_token other) {
  if (!other.stop_possible()) {
    token_ = one;
  } else if (!one.stop_possible()) {
    token_ = std::move(other);
  } else {
    std::stop_source both = new_source();
    if (!both.stop_possible()) {
      token_ = one;
      return;
    }
    token_ = both.get_token();
    one_.emplace(one, Forward{both});
    other_.emplace(std::move(other), Forward{std::move(both)});
  }
}

}  // namespace bulkhead::detail
