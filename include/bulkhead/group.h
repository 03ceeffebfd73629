// group.h - gates that share one resource: guaranteed shares, lending of idle units, and one hard total.
//
//   bulkhead::Group db{{.name = "db", .total = 100, .lend = bulkhead::Lend::revocable(), .members = {
//       {.name = "checkout", .guaranteed = {.percent = 50}},
//       {.name = "search",   .guaranteed = {.percent = 30}, .gate = {.max_queue = 64}},
//       {.name = "reports",  .guaranteed = {.percent = 15}, .max = {.percent = 60}},
//       {.name = "admin",    .guaranteed = {.units = 5}}}}};
//   bulkhead::Gate& reports = db.member("reports");       // an ordinary gate
//   auto permit = reports.acquire();
//   copy_rows(permit->stop_token());                      // fires when the group calls the units back
//
// Threads: every member may be called from any thread, and from hooks, handlers and stop callbacks, which run without
//   a lock of the group. But a handler must not destroy the group or remove its own member, and a hook must not remove
//   any member.
// Promises: the units in flight of all members together never exceed `total`, at any instant. A member below its
//   guarantee is admitted at once unless its units are lent. Lent units are called back: borrowers admit no call until
//   they have given them back, and with Lend::revocable the stop_tokens of their newest permits fire. Meanwhile a call
//   that queues waits in the line of its gate; a call that does not queue is rejected, but its units are still called
//   back and then kept for the member (GroupOptions::keep). If several members need units, members below their
//   guarantee come first, the one that lacks most before the others; then the member that has borrowed least.
// Not promised: how long a borrower keeps borrowed units; order between members.
// Cost: an admission within the units that a member is allotted costs as much as in a plain gate. An admission or
//   rejection beyond them takes the group's lock and looks at the other members; a rejection at `max` does not. While a
//   member waits for lent units, all releases in the group take the slow path. A call holds the lock for a few passes
//   over all members, however many units it moves (1000 members: 0.3 ms). A member takes about 2 KB, and 64 bytes
//   for each of its permits with a stop_token.
// The destructor closes all members and waits for their permits.
//
// An AdaptiveLimiter (limiter.h) can move the total to the capacity of what is behind the group:
//
//   bulkhead::AdaptiveLimiter limiter{db, {.floor = 10, .ceiling = 300}};        // one, for the calls of all members
//   bulkhead::Bulkhead search{{.gate = &db.member("search"), .limiter = &limiter}};
//
// Then `total` is where it starts, guarantees in per cent follow the total in force, and all guarantees shrink in proportion
// while they add up to more than it; each of them keeps a unit as long as there is one for each.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "bulkhead/adaptable.h"
#include "bulkhead/gate.h"

namespace bulkhead {

// A part of a group's total, in units or in per cent; not both. Guarantees in per cent are rounded together (largest
// remainder), so that 100 % are exactly the total; a max is rounded up.
struct Share {
  double percent = 0;
  std::uint32_t units = 0;
};

// What the group does with guaranteed units that their member does not use.
struct Lend {
  enum class Mode : std::uint8_t {
    none,       // they stay idle; only units that no member is guaranteed can be borrowed
    headroom,   // all but `units` of each guarantee are lent; they come back when the calls of borrowers end
    revocable,  // as headroom, and the stop_tokens of borrowers fire
  };
  Mode mode = Mode::headroom;
  std::uint32_t units =
      0;  // of each guarantee, never lent: this many calls at once never wait for a borrower

  static constexpr Lend none() { return {Mode::none, 0}; }
  static constexpr Lend headroom(std::uint32_t units) { return {Mode::headroom, units}; }
  static constexpr Lend revocable(std::uint32_t headroom = 0) { return {Mode::revocable, headroom}; }
};

struct MemberOptions {
  std::string name{};
  Share guaranteed{};
  Share max{.percent = 100};  // the maximum in flight, own and borrowed
  // The options of its queue; name and max_concurrent must not be set. critical_reserve is a share of the guarantee, and
  // that part is never lent.
  GateOptions gate{};
};

struct GroupOptions {
  std::string name{};
  std::uint32_t total = 1;  // the maximum of units in flight: 1 to 268'435'455
  Lend lend{};
  std::vector<MemberOptions> members{};
  // How long a unit that was called back for a rejected call is kept for its member before it can be lent again;
  // wait_forever: until the member uses it.
  std::chrono::nanoseconds keep = std::chrono::seconds(1);
  Clock* clock = nullptr;  // default: Clock::steady(); also for members that name none
};

// All numbers are units of cost at one instant, except those in flight: they may change while the snapshot is taken, but
// their sum never exceeds the total.
struct GroupSnapshot {
  struct Member {
    std::string name;
    std::uint32_t guaranteed = 0, max = 0;
    std::uint32_t allotted = 0;     // its limit now
    std::uint32_t in_flight = 0;    // at most allotted + called_back
    std::uint32_t waiting = 0;      // calls in its line
    std::uint32_t called_back = 0;  // in flight above `allotted`: its next releases give them back
    std::uint32_t lent = 0, borrowed = 0;
    bool closed = false;
    std::uint64_t revoked = 0;  // permits whose stop_token was fired
    // As a lender: how often it waited for lent units to come back, and how long.
    std::uint64_t waits = 0;
    std::chrono::nanoseconds total_wait{}, longest_wait{};
  };
  // Units are not marked with their lender. The sums are exact; the pairs are assigned in the order of members.
  struct Loan {
    std::string lender;  // empty: units that no member is guaranteed
    std::string borrower;
    std::uint32_t units = 0;
  };
  std::string name;
  std::uint32_t total = 0;  // in force; Group::total() is the one that was given
  std::uint32_t in_flight = 0;
  std::uint32_t free = 0;  // allotted to no member
  std::vector<Member> members;
  std::vector<Loan> loans;

  const Member* find(std::string_view member) const noexcept;
};

class Group final : public Adaptable {
 public:
  explicit Group(GroupOptions options);  // std::invalid_argument; GroupOptions{...} names a wrong field
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  Gate& member(std::string_view name);         // std::invalid_argument if there is none
  Gate* find(std::string_view name) noexcept;  // null if there is none

  // Takes effect at once and never blocks, like Gate::resize: no call is interrupted, and no call is admitted while more
  // units are in flight than allowed. Shares in per cent follow the total. Throws std::invalid_argument if the guarantees
  // do not fit.
  void resize(std::uint32_t total);
  void update(std::string_view member, Share guaranteed, Share max = {.percent = 100});

  // Changes several shares at once; only the result has to fit. Other members keep their shares. check() throws what
  // update() would throw and changes nothing; it treats unknown names as members that will be added.
  struct NewShare {
    std::string member{};
    Share guaranteed{};
    Share max{.percent = 100};
  };
  void update(std::uint32_t total, const std::vector<NewShare>& shares);
  void check(std::uint32_t total, const std::vector<NewShare>& shares) const;
  std::uint32_t total() const;  // as given last; a limiter moves the one in force

  Gate& add(MemberOptions member);
  // Closes the member, which frees its guarantee for the others at once, waits until its permits are back, and destroys
  // its gate. False: `until` came first (the member stays closed; call again), or no member has this name.
  bool remove(std::string_view name, TimePoint until = no_deadline);

  GroupSnapshot snapshot() const;
  std::string_view name() const noexcept;

  // For an AdaptiveLimiter. Once adapt() was called, update() moves only the shares and the total that was given, which the
  // guarantees have to fit; resize() also ends the adaptation.
  std::string label() const override;
  Clock& clock() const noexcept override;
  std::uint32_t limit() const noexcept override;
  std::uint64_t rejected() const noexcept override;
  std::uint32_t in_flight(const Gate& gate) const noexcept override;
  bool adapt(std::uint32_t total) noexcept override;

 private:
  struct Core;
  std::unique_ptr<Core> core_;
};

}  // namespace bulkhead
