// fairness.h - whether a released unit goes to the head of the line or to the next call that asks.
//
//   bulkhead::Gate cache{{.name = "cache", .max_concurrent = 8, .max_queue = 64, .fairness = bulkhead::Fairness::adaptive}};
#pragma once

#include "bulkhead/detail/language.h"

#include <cstdint>

namespace bulkhead {

enum class Fairness : std::uint8_t {
  fifo,  // a released unit goes straight to the head of the line; no call overtakes another of its priority
  barging,  // a released unit is free for any call; fastest for very short calls, with long worst waits
  // barging until the head of the line has waited GateOptions::max_barge, then straight to the head; and a thread
  // tries for about 40 us before it joins the line
  adaptive,
};

}  // namespace bulkhead
