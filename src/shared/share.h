// share.h - how one limit is divided between members that need different amounts. Pure.
//
// If all needs fit, each member gets its need, and a part of the rest for bursts: at most its slack, and if the slacks do not
// fit, in proportion to them. What is left stays with the store. If the needs do not fit, the limit is divided by weighted
// max-min over the needs: no member gets more than it needs, and those that get less get the same per weight, which no
// other member exceeds. The units that this leaves over go to different members in each time slot, so that with fewer
// units than members none starves.
#pragma once

#include <cstdint>

#include "shared/limit_state.h"

namespace bulkhead::shared {

// The share of `own`, which is in the table of `state`. Takes O(members) per round, and few rounds.
std::uint32_t share_of(const MemberState& own, const LimitState& state, std::int64_t slot);

}  // namespace bulkhead::shared
