#include "shared/share.h"

#include <algorithm>
#include <vector>

namespace bulkhead::shared {

std::uint32_t share_of(const MemberState& own, const LimitState& state, std::int64_t slot) {
  std::uint64_t needs = 0, slacks = 0;
  for (const auto& [id, m] : state.members) {
    needs += m.need;
    slacks += m.slack;
  }
  if (needs <= state.limit) {
    const std::uint64_t rest = state.limit - needs;
    if (slacks <= rest) return own.need + own.slack;
    return own.need + static_cast<std::uint32_t>(rest * own.slack / slacks);
  }
  std::vector<const MemberState*> left;
  for (const auto& [id, m] : state.members)
    if (m.need > 0) left.push_back(&m);
  std::uint64_t units = state.limit;
  for (;;) {
    std::uint64_t weights = 0;
    for (const MemberState* m : left) weights += m->weight;
    const std::uint64_t round = units;
    const auto satisfied = [&](const MemberState& m) { return m.need * weights <= round * m.weight; };
    if (own.need == 0 || (!left.empty() && satisfied(own))) return own.need;
    const std::size_t before = left.size();
    std::erase_if(left, [&](const MemberState* m) {
      if (!satisfied(*m)) return false;
      units -= m->need;
      return true;
    });
    if (left.size() != before) continue;
    // What is left over goes to members that follow each other in the order of their ties. The next time slot continues where
    // this one ends, so that each gets its turn, whatever the ties are.
    std::uint64_t over = units, ahead = 0;
    for (const MemberState* m : left) {
      over -= units * m->weight / weights;
      if (m->tie < own.tie) ++ahead;
    }
    const std::uint64_t count = left.size();
    const std::uint64_t begin = static_cast<std::uint64_t>(slot) % count * over % count;
    return static_cast<std::uint32_t>(units * own.weight / weights) +
           ((ahead + count - begin) % count < over ? 1 : 0);
  }
}

}  // namespace bulkhead::shared
