// fleet.h - settings and current numbers of limits that processes on many hosts share: Scope::fleet.
//
//   const bulkhead::RegistrySnapshot all = registry.snapshot();
//   for (const auto& entry : all.bulkheads)
//     if (entry.now.fleet && entry.now.fleet->state == bulkhead::FleetState::degraded) std::cerr << entry.now.fleet->problem;
//
// The engine is adapters/redis/fleet.h. docs/how-to/one-limit-for-a-fleet.md says what it promises.
// Threads: plain values.
#pragma once

#include "bulkhead/detail/language.h"

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace bulkhead {

// What a process admits when the store has not answered for so long that its lease has ended. In every mode the calls in
// flight continue. If the number of processes is known (FleetSettings::replicas), `max_concurrent / processes` below is
// at most max_concurrent / replicas, and a process that starts while the store learns gets that share at once, except
// with `closed`.
enum class WhenCutOff : std::uint8_t {
  safe_share,  // up to its last lease, and at most max_concurrent / processes; FleetMode::direct: that number
  closed,      // nothing
  keep,        // up to its last lease
  local,       // up to its own cap: max_concurrent * max_share; also before the first lease
};
constexpr std::string_view to_string(WhenCutOff mode) noexcept {
  constexpr std::string_view kNames[] = {"safe_share", "closed", "keep", "local"};
  return kNames[static_cast<std::size_t>(mode)];
}

enum class FleetMode : std::uint8_t {
  automatic,  // direct if the store can carry two requests per call and answers in a fifth of a call's time, else block
  block,  // a process leases the units that it probably needs, and admits without asking: no call waits for the network
  direct,  // units are fetched for the calls in line, and go back at once: needs a line, no unit lies idle
};
constexpr std::string_view to_string(FleetMode mode) noexcept {
  constexpr std::string_view kNames[] = {"auto", "block", "direct"};
  return kNames[static_cast<std::size_t>(mode)];
}

// All processes of a fleet give the same lease, grace and prefix.
struct FleetSettings {
  std::string store{};  // redis://, rediss://, unix:// or redis+sentinel://, see adapters/redis/store_url.h
  std::chrono::nanoseconds lease = std::chrono::seconds(5);  // 500 ms to 10 minutes
  // The units of a process that is silent are used by others this much later than its lease ends: its calls that still run
  // are counted if they take no longer.
  std::chrono::nanoseconds grace{0};
  WhenCutOff when_cut_off = WhenCutOff::safe_share;
  std::chrono::nanoseconds cut_off_for = std::chrono::minutes(5);  // then as `closed`
  FleetMode mode = FleetMode::automatic;
  std::uint32_t weight = 1;  // of this process where the units do not suffice, 1 to 1000
  double max_share = 1;      // the most that this process takes of a limit, above 0 to 1
  // The version of the numbers in this configuration: where processes state different numbers, the higher version counts.
  std::uint32_t version = 0;
  std::string prefix = "bulkhead";  // of the keys
  std::string ca_file{};            // PEM; empty: the certificates of the system
  std::string password_file{};      // instead of a password in `store`
  std::uint32_t replicas = 0;       // how many processes there will be; 0: not known. See WhenCutOff
  bool operator==(const FleetSettings&) const = default;
};

enum class FleetState : std::uint8_t {
  joining,  // the store has not answered yet
  leased,   // the lease is valid
  learning,  // the store has lost its memory or its clock has stepped: no process gets more for the time of one lease
  degraded,  // the lease has ended: see WhenCutOff
};
constexpr std::string_view to_string(FleetState state) noexcept {
  constexpr std::string_view kNames[] = {"joining", "leased", "learning", "degraded"};
  return kNames[static_cast<std::size_t>(state)];
}

// A process, or a host whose processes share a lease.
struct FleetMember {
  std::string
      name{};  // host and process, such as "shop3-4711"; with host.region: the host. Empty: it gave none
  std::uint32_t held = 0, needed = 0;    // units
  std::chrono::nanoseconds lease_age{};  // since its latest request, when the list was made
  bool lapsed = false;                   // its lease has ended
  bool own = false;                      // this process, or its host
  bool operator==(const FleetMember&) const = default;
};

// All members of one limit, as the store has listed them.
struct FleetList {
  std::uint32_t leased = 0, lapsed = 0;  // members
  std::uint64_t held = 0, needed = 0;    // units, of the members with a lease
  std::uint64_t lapsed_held = 0;         // units of members whose lease has ended, and which are not free yet
  std::vector<FleetMember> members{};    // at most 100: those that hold or need most
  bool operator==(const FleetList&) const = default;
};

// The state of one limit in one process.
struct FleetSnapshot {
  FleetState state = FleetState::joining;
  bool direct = false;  // else block
  WhenCutOff when_cut_off = WhenCutOff::safe_share;
  std::uint32_t held = 0;                // units it may use now
  std::uint32_t needed = 0;              // units it needs, by arrivals and the time of a call
  std::uint32_t members = 0;             // processes that share the limit
  std::uint64_t limit_version = 0;       // as in force
  std::chrono::nanoseconds lease_age{};  // since it was last renewed
  std::chrono::nanoseconds degraded_for{};
  double pooling_loss =
      0;  // block: the predicted share of calls that find no unit here while others have some idle
  std::uint64_t requests = 0;  // to the store, of this limit
  // A snapshot asks for a new list, at most once per lease, and has the one before. Null: there is none yet, or another process
  // of this host talks to the store.
  std::shared_ptr<const FleetList> list{};
  std::chrono::nanoseconds list_age{};
  // Why the store cannot be reached, or which of its settings endanger the limit; empty: none.
  std::string problem{};
};

}  // namespace bulkhead
