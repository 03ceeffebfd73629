// outcome.h - how a call ended, in one word for permits, breakers, limiters, judges and bulkheads.
//
//   static_assert(bulkhead::is_failure(bulkhead::Outcome::timeout));
//
// Given to Permit::release, Call::finish, Breaker::complete and AdaptiveLimiter::completed; returned by judges (judge.h).
#pragma once

#include "bulkhead/detail/language.h"

#include <cstdint>
#include <string_view>

namespace bulkhead {

enum class Outcome : std::uint8_t {
  success,
  failure,  // the dependency failed, however fast
  timeout,  // a failure: the call took longer than its execution_timeout
  ignored,  // says nothing about the dependency: cancelled, rejected by a bulkhead, the caller's own mistake
};

constexpr bool is_failure(Outcome outcome) noexcept {
  return outcome == Outcome::failure || outcome == Outcome::timeout;
}

constexpr std::string_view to_string(Outcome outcome) noexcept {
  switch (outcome) {
    case Outcome::success:
      return "success";
    case Outcome::failure:
      return "failure";
    case Outcome::timeout:
      return "timeout";
    case Outcome::ignored:
      return "ignored";
  }
  return "unknown";
}

}  // namespace bulkhead
