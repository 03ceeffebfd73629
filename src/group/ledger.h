// ledger.h - what a group knows of its members, and how it moves units between them.
//
// Invariants (docs/design/group.md explains them). All under mutex_; `in flight` is what the gate's word says.
//  G1  The sum of `allotted` and `debt` over all members, plus free_, is total_. free_ is negative only while
//      more is in flight than a total that was lowered allows, and then nothing is allotted to anybody.
//  G2  A member's limit is `allotted`, and its units in flight are at most allotted + debt. A debt counts as in
//      flight until its gate has collected it, so a unit is never in two places. With G1: the cap.
//  G3  allotted >= floor, unless a member is new or its guarantee was raised; then what becomes free goes there
//      first. Nobody is called back below its guarantee.
//  G4  Free units and a member that waits for them do not stay together: whoever frees units, or joins a line,
//      settles afterwards. A release that another member waits for does so because its gate is watched.
//  G5  The lock is taken before those of the gates, and nothing of the user runs under it.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "bulkhead/detail/mutex.h"
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

  std::int64_t excess() const { return std::int64_t{allotted} - guaranteed; }

  Ledger& ledger;
  const std::string name;
  Share guaranteed_share, max_share;  // guarded by the lock of those who change the group's shape
  bool removing = false;              // the same

  // Guarded by Ledger::mutex_.
  std::uint32_t guaranteed, max;
  std::uint32_t ceiling;      // what it can get at most: max, or what the others' floors leave
  std::uint32_t allotted;     // the limit of its gate
  std::uint32_t floor = 0;    // of what is allotted, this is never lent
  std::uint32_t debt = 0;     // called back, and still in flight
  std::uint32_t to_stop = 0;  // of the debt, so much is to be told to stop: lenders wait for it
  bool hungry = false;        // may have somebody in line who lacks units
  bool watched = false;
  bool closed = false;  // seen closed: it is guaranteed nothing any more
  bool gone = false;    // taken out of the group

  // For calls that were refused although they were within the guarantee: so much is to be allotted, until then.
  std::uint32_t keep = 0;
  std::int64_t keep_until = 0;

  std::int64_t waiting_since = 0;  // ns; since when it waits for units to come back; 0: it does not
  std::uint64_t waits = 0;
  std::int64_t total_wait = 0, longest_wait = 0;
  Leases leases;

  detail::MemberGate gate;  // last: its destructor waits for calls that use the rest
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

  // Changes of the shape, one at a time: the caller sees to that. The guarantees fit the total.
  void reshape(std::uint32_t total, const std::vector<Quota>& quotas);
  void add(std::unique_ptr<Member> m);
  std::unique_ptr<Member> take_out(Member& m);

  // The list changes under the caller's lock and under this one: these are for those who hold the former.
  const std::vector<std::unique_ptr<Member>>& members() const { return members_; }
  std::uint32_t total() const { return total_; }
  Member* find(std::string_view name) const noexcept;
  std::uint32_t floor_of(std::uint32_t guaranteed) const;
  void fill(GroupSnapshot& s) const;

 private:
  using Wakes = detail::MemberGate::Wakes;
  using Lock = std::lock_guard<detail::Mutex>;

  struct Wish {
    Member* member = nullptr;
    std::uint32_t units = 0;
    bool whole = false;  // less than all of it is no use
    bool owed = false;   // within the guarantee
    // The most owed first, then who has borrowed least.
    bool before(const Wish& other) const {
      return owed != other.owed ? owed : member->excess() < other.member->excess();
    }
  };
  class KeepAlarm final : public Alarm {
   public:
    explicit KeepAlarm(Ledger& ledger) : ledger_(ledger) {}
    bool expire() noexcept override;
    void expired() noexcept override;
    std::atomic<bool> firing{false};
    bool armed = false;  // guarded by mutex_

   private:
    Ledger& ledger_;
  };
  struct Firing;

  bool try_admit(Member& m, const Waiter& w, bool* claimed) noexcept;
  void top_up(Member& m, Wakes& wakes) noexcept;
  void work() noexcept;
  bool step(bool may_stop) noexcept;
  std::optional<std::stop_source> next_stop() noexcept;
  Member* serve(Wakes& wakes) noexcept;
  Wish wish_of(Member& m) noexcept;
  Wish best_wish(const Member* but) noexcept;
  void gather(const Member& m, std::uint32_t units) noexcept;
  void take_idle(Member& from, std::uint32_t keeps, std::int64_t up_to) noexcept;
  void watch_others(const Member& m) noexcept;
  void unwatch() noexcept;
  void call_back_for(const Wish& wish) noexcept;
  bool forgive(Member& m, Wakes& wakes) noexcept;
  void repay(Member& m) noexcept;
  void pay(Member& m, std::uint32_t units) noexcept;
  void call_back(Member& from, std::uint32_t units) noexcept;
  Member* greatest_borrower(std::int64_t above, const Member* but) noexcept;
  std::int64_t owed_in_all() noexcept;
  void claim(Member& m, std::uint32_t units) noexcept;
  void await_keeps() noexcept;
  void retire(Member& m, Wakes& wakes) noexcept;
  void set_ceilings() noexcept;
  void track_wait(Member& m, bool waits) noexcept;
  std::uint32_t target(Member& m) noexcept;
  void refit(Member& m);
  std::int64_t now_ns() const noexcept { return clock_.now().time_since_epoch().count(); }
  std::int64_t debts() const noexcept;

  Clock& clock_;
  const Lend lend_;
  const std::chrono::nanoseconds keep_;
  KeepAlarm alarm_{*this};

  mutable detail::Mutex mutex_;
  std::uint32_t total_;
  std::int64_t free_;
  bool watching_ = false;
  std::vector<std::unique_ptr<Member>> members_;
};

}  // namespace bulkhead::group
