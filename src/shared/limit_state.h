// limit_state.h - the state of one limit in the store of a fleet, and how one request changes it. Pure: no clock, no network.
// The script adapters/redis/limit.lua is the same algorithm, and a test compares the two.
//
// A member is a process, or a host whose processes share one lease. It leases units for `ttl` ms; every request renews the
// lease. Times are milliseconds of the store's clock, which may step, stop or go back.
//
// Invariants
//  F1  After each request that is not in doubt, the units granted to members in the table are at most `limit`, or, after
//      `limit` was lowered, no more than before.
//  F2  A request whose seq is not larger than the last one of its member changes nothing. `have` is absolute, so that a
//      request may be lost, repeated or delayed.
//  F3  After any doubt about the table (it is missing, older than a member has seen, of another server run, or the clock
//      stepped) no grant grows for ttl + grace: each member claims what it has, and a member that does not has lapsed by then.
//      A request may detect a doubt; none but sync() ends it, so no other operation sets `last` while there is one.
//      Silence alone is a doubt, because a step of the clock looks like it, unless a member has measured it: by its own clock
//      nearly as much time has passed since its latest reply as by the store's. A member that has not heard of the store
//      since the latest doubt cannot do that. A request that states a time which does not fit either was delayed (it waited
//      in a store that hung), or the clock has stepped: it changes nothing. A member that reads the reply in time has
//      thereby excluded the delay, and sends the request again without a time.
//  F4  Only the member itself lowers its grant while its lease lasts.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace bulkhead::shared {

struct MemberState {
  std::uint32_t granted = 0;
  std::uint32_t need = 0, slack = 0;  // see share.h
  std::uint32_t weight = 1, tie = 0;
  std::int64_t expires = 0;
  std::uint64_t seq = 0;
  bool operator==(const MemberState&) const = default;
};

// Members by name, in one block of memory: each sync reads all of them, and a simulation has ten thousand.
class MemberTable {
 public:
  using Entry = std::pair<std::string, MemberState>;
  using iterator = std::vector<Entry>::iterator;
  using const_iterator = std::vector<Entry>::const_iterator;

  iterator begin() noexcept { return entries_.begin(); }
  iterator end() noexcept { return entries_.end(); }
  const_iterator begin() const noexcept { return entries_.begin(); }
  const_iterator end() const noexcept { return entries_.end(); }
  std::size_t size() const noexcept { return entries_.size(); }
  bool empty() const noexcept { return entries_.empty(); }

  iterator find(std::string_view name) noexcept {
    const auto at = place(name);
    return at != end() && at->first == name ? at : end();
  }
  const_iterator find(std::string_view name) const noexcept {
    return const_cast<MemberTable&>(*this).find(name);
  }
  bool contains(std::string_view name) const noexcept { return find(name) != end(); }
  const MemberState& at(std::string_view name) const { return find(name)->second; }  // it is there
  MemberState& operator[](std::string_view name) {
    const auto at = place(name);
    return at != end() && at->first == name ? at->second : entries_.emplace(at, name, MemberState())->second;
  }
  void erase(const_iterator member) { entries_.erase(member); }
  void clear() noexcept { entries_.clear(); }
  template <class Gone>
  void erase_if(const Gone& gone) {
    std::erase_if(entries_, gone);
  }
  bool operator==(const MemberTable&) const = default;

 private:
  iterator place(std::string_view name) noexcept {
    return std::lower_bound(entries_.begin(), entries_.end(), name,
                            [](const Entry& e, std::string_view n) { return e.first < n; });
  }
  std::vector<Entry> entries_;  // in the order of their names
};

struct LimitState {
  bool known = false;  // false: nothing is stored, or it was lost
  std::uint32_t limit = 0;
  std::uint64_t limit_version = 0;  // see kVersionStep
  std::uint64_t ver = 0;            // counts changes
  std::int64_t learn = 0;           // learning until then
  std::uint64_t doubted = 0;        // ver at the latest doubt
  std::int64_t last = 0;            // time of the latest sync(), renew(), borrow() or give_back()
  std::int64_t hungry = 0;          // when a member last got less than it needs
  std::uint64_t sum = 0;            // of `granted`; else a part of the state was lost
  std::string run{};                // of the server
  MemberTable members{};
  std::int64_t listed = 0;  // when `list` was made: a list costs a look at all members, so readers share one
  std::string list{};       // see member_list.h
  bool operator==(const LimitState&) const = default;
};

// A limit_version is the version of the configuration times this, plus the changes by operators since.
inline constexpr std::uint64_t kVersionStep = std::uint64_t{1} << 20;
inline constexpr std::uint32_t kMaxUnits =
    (std::uint32_t{1} << 24) - 1;  // products stay below 2^53, exact in Lua
inline constexpr std::uint32_t kMaxWeight = 1000;

enum class StoreOp : std::uint8_t {
  sync,       // the full operation: joins, claims, gives back, asks; reads all members
  renew,      // the lease goes on; reads one member, as the next two
  borrow,     // and `want` more units, or as many of them as there are
  give_back,  // and `have` is less than before
  leave,
  list,  // the members, for people; changes nothing that another operation reads
};
constexpr const char* to_string(StoreOp op) noexcept {
  constexpr const char* names[] = {"sync", "renew", "borrow", "give_back", "leave", "list"};
  return names[static_cast<std::size_t>(op)];
}

struct StoreRequest {
  StoreOp op = StoreOp::sync;
  std::string member{};
  std::uint64_t seq = 0;
  std::uint32_t have = 0;  // what the member holds and keeps, at most
  std::uint32_t want = 0;  // borrow: units beyond `have`; list: the most members to list
  std::uint32_t need = 0, slack = 0, weight = 1, tie = 0;
  std::int64_t ttl = 5000, grace = 0, gap = 1250;
  std::string run{};           // of the server that the member is connected to
  std::uint64_t seen_ver = 0;  // the largest ver of any reply to it
  std::int64_t seen_at = 0;    // the store's time in the latest reply, if that was `ok`; 0: none
  std::int64_t since = 0;      // by the member's clock, ms since it had that reply, rounded down
  std::uint32_t limit = 1;     // of its configuration
  std::uint64_t limit_version = 0;
};

enum class StoreStatus : std::uint8_t {
  ok,
  full,   // nothing was changed: send a sync, without seen_at
  stale,  // nothing was changed: a later request of this member has been here
};

struct StoreReply {
  StoreStatus status = StoreStatus::ok;
  std::uint64_t ver = 0;
  std::uint32_t granted = 0;
  std::uint32_t target = 0;   // the member's share; it should give back what it holds above this
  std::int64_t learning = 0;  // ms left; 0: not learning
  std::uint32_t members = 0;  // in the table, this one included; 0: not reported
  std::uint32_t limit = 0;
  std::uint64_t limit_version = 0;
  bool hungry = false;        // a member got less than it needs, within the last ttl
  std::int64_t at = 0;        // the store's time
  std::uint32_t spare = 0;    // units of the limit that no member holds
  std::string list{};         // for `list`: see member_list.h
  std::int64_t list_age = 0;  // ms since it was made
  bool operator==(const StoreReply&) const = default;
};

// Changes `state` as the request asks and gives the reply.
StoreReply decide(LimitState& state, const StoreRequest& request, std::int64_t now);

}  // namespace bulkhead::shared
