// member_list.h - who shares a limit of the fleet, as the store lists it for people: sums over all members, and those that hold
// or need most. A text, because it is kept in the store. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "shared/limit_state.h"

namespace bulkhead::shared {

// The most members of a list that the store keeps: some 6 kB. The script has the same number.
inline constexpr std::uint32_t kListedMembers = 100;

struct MemberList {
  struct Member {
    std::string name;  // as it calls itself in its requests
    std::uint32_t held = 0, needed = 0;
    std::int64_t left = 0;  // ms until its lease ends; 0 or less: it has lapsed
    bool operator==(const Member&) const = default;
  };
  std::uint32_t leased = 0, lapsed = 0;  // members
  std::uint64_t held = 0, needed = 0;    // units, of members with a lease
  std::uint64_t lapsed_held = 0;         // units that are not free yet
  std::vector<Member> members{};         // larger of held and needed first
  bool operator==(const MemberList&) const = default;
};

// A line of sums, and a line for each of the first `most` members.
std::string list_of(const LimitState& state, std::uint32_t most, std::int64_t now);
// False: it is not such a text.
bool read_list(std::string_view text, MemberList& list);

}  // namespace bulkhead::shared
