// ledger.h - the accounts of a group's members, and how units move between them.
//
// Invariants (docs/design/group.md explains them). All under mutex_; `in flight` is the number in the gate's word.
//  G1  The sum of `allotted` and `debt` over all members, plus free_, is total_. free_ is negative only while more units
//      are in flight than a lowered total allows; then no member is allotted more.
//  G2  A member's limit is `allotted`, and its units in flight are at most allotted + debt. A debt counts as in flight
//      until the gate has collected it, so no unit is counted twice. With G1, the total is never exceeded.
//  G3  allotted >= floor, unless a member is new or its guarantee was raised; then free units go there first. No member
//      is called back below its guarantee.
//  G4  Free units do not stay beside a member that waits for them: a thread that frees units or joins a line calls
//      settle() afterwards. Releases of other members do so while their gates are watched.
//  G5  This lock is taken before the locks of gates. No user code runs under it or under the lock of Group: waiters that a
//      Change admits are notified after both are unlocked.
//  G6  No hold of the lock visits more than one batch of waiters of one gate and every member a few times, however many
//      units move.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "bulkhead/detail/mutex.h"
#include "bulkhead/detail/std_mutex.h"
#include "bulkhead/group.h"
#include "gate/member_gate.h"
#include "group/leases.h"
#include "group/shares.h"

namespace bulkhead::group {

class Ledger;

struct Member final : detail::Backing {
  Member(Ledger& owner, MemberOptions options, const Quota& quota, std::uint32_t allotment);

  bool admit(const detail::MemberGate::Waiter& w, bool can_wait) noexcept override;
  void settle() noexcept override;
  std::stop_token lease(std::uint32_t& id, std::uint32_t cost) noexcept override;
  void end_lease(std::uint32_t id) noexcept override;
  void change_lease(std::uint32_t id, std::uint32_t cost) noexcept override;
  bool at_its_share() const noexcept override {
    return gate.full_at_ceiling() && follows.load(std::memory_order_relaxed);  // relaxed: for statistics
  }

  std::int64_t excess() const { return std::int64_t{allotted} - guaranteed; }

  Ledger& ledger;
  const std::string name;
  Share guaranteed_share, max_share;  // guarded by Group::Core::shape
  bool removing = false;              // also by shape

  // Guarded by Ledger::mutex_.
  std::uint32_t guaranteed, max;
  bool max_follows = false;   // see Quota
  std::uint32_t ceiling;      // the most it can get: max, or what the floors of the others leave
  std::uint32_t allotted;     // the limit of its gate
  std::uint32_t floor = 0;    // the part of `allotted` that is never lent
  std::uint32_t debt = 0;     // called back and still in flight
  std::uint32_t to_stop = 0;  // the part of `debt` for which stop_tokens have to fire: lenders wait for it
  bool hungry = false;        // may have a waiter that lacks units
  bool watched = false;
  bool closed = false;  // found closed: its guarantee is 0 now
  bool gone = false;    // taken out of the group

  std::atomic<bool> follows{false};  // a higher total would raise the ceiling; also read without the mutex

  // For calls that were rejected although they were within the guarantee: allot this much until `keep_until`.
  std::uint32_t keep = 0;
  std::int64_t keep_until = 0;

  std::optional<std::int64_t>
      waiting_since;  // ns; since when it waits for lent units; empty: it does not wait
  std::uint64_t waits = 0;
  std::int64_t total_wait = 0, longest_wait = 0;
  Leases leases;

  detail::MemberGate gate;  // last: its destructor waits for calls that use the other members
};

class Ledger {
 public:
  struct Settings {
    std::uint32_t total;
    Lend lend;
    std::chrono::nanoseconds keep;
    Clock& clock;
  };
  explicit Ledger(const Settings& settings);
  ~Ledger();
  Ledger(const Ledger&) = delete;
  Ledger& operator=(const Ledger&) = delete;

  using Waiter = detail::MemberGate::Waiter;
  bool admit(Member& m, const Waiter& w, bool can_wait) noexcept;
  void settle(Member* m) noexcept;
  std::stop_token lease(Member& m, std::uint32_t& id, std::uint32_t cost) noexcept;
  void end_lease(Member& m, std::uint32_t id) noexcept;
  void change_lease(Member& m, std::uint32_t id, std::uint32_t cost) noexcept;

  // Changes of the shape. The caller holds a lock so that they run one at a time, and has checked that the guarantees fit.
  class Change;
  void reshape(std::uint32_t total, const std::vector<Quota>& quotas, Change& change) noexcept;
  void add(std::unique_ptr<Member> m, Change& change);
  std::unique_ptr<Member> take_out(Member& m) noexcept;

  // The list changes under the caller's lock and mutex_; these functions need the caller's lock.
  const std::vector<std::unique_ptr<Member>>& members() const { return members_; }
  std::uint32_t total() const noexcept {
    const Lock lock(mutex_);
    return total_;
  }
  Member* find(std::string_view name) const noexcept;
  std::uint32_t floor_of(std::uint32_t guaranteed) const;
  void fill(GroupSnapshot& s) const;
  // The sum over all members. If another thread is adding it up, the sum of that one or of the last one: so no call waits
  // for another one here.
  std::uint32_t in_flight() const noexcept;
  std::uint64_t rejected() const noexcept;  // by full members, so far; also by members that were removed

 private:
  using Lock = detail::MutexLock<detail::Mutex>;
  using Wakes = detail::MemberGate::Wakes;

  struct UnitRequest {
    Member* member = nullptr;
    std::uint32_t units = 0;
    bool whole = false;  // fewer units are of no use
    bool owed = false;   // within the guarantee
    // The member that is owed most comes first, then the one that has borrowed least.
    bool before(const UnitRequest& other) const {
      return owed != other.owed ? owed : member->excess() < other.member->excess();
    }
  };
  class KeepAlarm final : public Alarm {
   public:
    explicit KeepAlarm(Ledger& ledger) : ledger_(ledger) {}
    bool expire() noexcept override;
    void expired() noexcept override;
    std::atomic<bool> firing{false};
    bool armed = false;  // guarded by mutex_ of the ledger

   private:
    Ledger& ledger_;
  };
  struct Firing;

  bool try_admit(Member& m, const Waiter& w, bool* claimed) noexcept;
  void top_up(Member& m, Wakes& wakes) noexcept BULKHEAD_REQUIRES(mutex_);
  void work() noexcept;
  bool step(bool may_stop) noexcept;
  std::stop_source next_stop() noexcept;
  Member* serve(Wakes& wakes) noexcept BULKHEAD_REQUIRES(mutex_);
  UnitRequest request_of(Member& m) noexcept BULKHEAD_REQUIRES(mutex_);
  UnitRequest best_request(const Member* but) noexcept BULKHEAD_REQUIRES(mutex_);
  void gather(const Member& m, std::uint32_t units) noexcept BULKHEAD_REQUIRES(mutex_);
  void take_idle(Member& from, std::uint32_t keeps, std::int64_t up_to) noexcept BULKHEAD_REQUIRES(mutex_);
  void watch_others(const Member& m) noexcept BULKHEAD_REQUIRES(mutex_);
  void unwatch() noexcept BULKHEAD_REQUIRES(mutex_);
  void call_back_for(const UnitRequest& request) noexcept BULKHEAD_REQUIRES(mutex_);
  bool forgive(Member& m, Wakes& wakes) noexcept BULKHEAD_REQUIRES(mutex_);
  void repay(Member& m) noexcept BULKHEAD_REQUIRES(mutex_);
  void pay(Member& m, std::uint32_t units) noexcept BULKHEAD_REQUIRES(mutex_);
  void call_back(Member& from, std::uint32_t units) noexcept BULKHEAD_REQUIRES(mutex_);
  void call_back_most(std::int64_t units, std::int64_t above, const Member* but) noexcept
      BULKHEAD_REQUIRES(mutex_);
  std::int64_t owed_in_all() noexcept BULKHEAD_REQUIRES(mutex_);
  void claim(Member& m, std::uint32_t units) noexcept BULKHEAD_REQUIRES(mutex_);
  bool add_lease(Member& m, std::uint32_t& id, std::uint32_t cost, std::stop_token& token);
  void await_keeps() noexcept BULKHEAD_REQUIRES(mutex_);
  void retire(Member& m) noexcept BULKHEAD_REQUIRES(mutex_);
  void set_ceilings() noexcept BULKHEAD_REQUIRES(mutex_);
  void copy(GroupSnapshot& s, std::int64_t& unguaranteed) const;
  void track_wait(Member& m, bool waits) noexcept BULKHEAD_REQUIRES(mutex_);
  std::uint32_t target(Member& m) noexcept BULKHEAD_REQUIRES(mutex_);
  std::int64_t now_ns() const noexcept { return clock_.now().time_since_epoch().count(); }
  std::int64_t debts() const noexcept BULKHEAD_REQUIRES(mutex_);

  Clock& clock_;
  const Lend lend_;
  const std::chrono::nanoseconds keep_;
  KeepAlarm alarm_{*this};

  mutable detail::Mutex mutex_;
  std::uint32_t total_ BULKHEAD_GUARDED_BY(mutex_);
  std::int64_t free_ BULKHEAD_GUARDED_BY(mutex_);
  bool watching_ BULKHEAD_GUARDED_BY(mutex_) = false;
  std::vector<std::unique_ptr<Member>> members_;  // written under all three locks, read under each

  // The third lock on the list of members, for in_flight() and rejected(); taken last.
  mutable detail::StdMutex sums_;
  mutable std::atomic<std::uint32_t> last_in_flight_{0};
  std::uint64_t rejected_before_ BULKHEAD_GUARDED_BY(sums_) = 0;  // by removed members
};

// Collects the waiters that a change of the shape decides. Made before Group locks and destroyed after it unlocks: the
// destructor tells the waiters and moves units to members that lack them. The gates are pinned until then.
class Ledger::Change {
 public:
  explicit Change(Ledger& ledger) noexcept : ledger_(ledger) {}
  ~Change();
  Change(const Change&) = delete;
  Change& operator=(const Change&) = delete;

  // With the lock held and before any change: reserves memory for what refit() collects, for each member twice and one
  // more member.
  void prepare() { refitted_.reserve(2 * (ledger_.members_.size() + 1)); }
  // Rejects waiters of `m` that can never fit, and serves the others.
  void refit(Member& m) noexcept;

 private:
  Ledger& ledger_;
  struct Refitted {
    Member* member;
    Wakes wakes;
  };
  std::vector<Refitted> refitted_;
};

}  // namespace bulkhead::group
