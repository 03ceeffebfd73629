// fleet_report.h - who shares the limits of a fleet, for people: read from the store, by a process that need not be a member.
//
// A look changes no limit. A list of at most 100 members is the one that the store keeps for all who ask, and may be as old as a
// heartbeat, or a millisecond per member; a longer one is made anew, and costs the store as much as a sync.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bulkhead/fleet.h"
#include "shared/limit_state.h"

namespace bulkhead::redis {

struct FleetReport {
  struct Limit {
    std::string name;
    bool known = false;                  // false: no process uses it, or the store has lost it
    std::uint32_t limit = 0, spare = 0;  // spare: units that no member holds
    std::uint64_t limit_version = 0;
    std::chrono::milliseconds learning{};  // 0: not learning
    FleetList list{};
    std::chrono::milliseconds list_age{};
  };
  std::string store;                    // its address, without a password
  std::vector<std::string> warnings{};  // settings of the store that endanger the limits
  std::vector<Limit> limits{};
};

// With at most `most` members of each limit. std::runtime_error: the store cannot be reached; std::invalid_argument: a setting.
FleetReport report(const FleetSettings& settings, const std::vector<std::string>& limits, std::uint32_t most);

shared::StoreRequest list_request(std::int64_t ttl, std::uint32_t most);  // ttl: ms
// False: the reply has no list. `own`: the name of this member in the store.
bool read_list(const shared::StoreReply& reply, std::int64_t ttl, std::string_view own, FleetList& list);

}  // namespace bulkhead::redis
