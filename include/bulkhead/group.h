// group.h - gates that share one resource: guaranteed shares, what is idle is lent, and one hard total.
//
//   bulkhead::Group db{{.name = "db", .total = 100, .lend = bulkhead::Lend::revocable(), .members = {
//       {.name = "checkout", .guaranteed = {.percent = 50}},
//       {.name = "search",   .guaranteed = {.percent = 30}, .gate = {.max_queue = 64}},
//       {.name = "reports",  .guaranteed = {.percent = 15}, .max = {.percent = 60}},
//       {.name = "admin",    .guaranteed = {.units = 5}}}}};
//   bulkhead::Gate& reports = db.member("reports");       // an ordinary gate, in every way of waiting
//   auto permit = reports.acquire();
//   copy_rows(permit->stop_token());                      // fires when a lender wants its units back
//
// Threads: every member may be called from any thread. A handler or hook must not destroy the group, nor
//   remove the member it serves.
// Promises: the units in flight of all members together never exceed `total`, not for an instant. A member
//   below its guarantee is admitted at once unless its units are lent. If they are, they are called back:
//   borrowers admit nobody until they have given back, and with Lend::revocable their newest permits are told
//   to stop. A call that queues waits for that in its gate's line; one that does not is refused, but the unit
//   it asked for is called back all the same and then kept for the member (GroupOptions::keep).
//   Several members that want more are served in this order: who is owed part of its guarantee, the most
//   first; then who has borrowed least. Units have no names: which of a borrower's calls go on does not
//   matter, only their number.
// Not promised: that what is borrowed stays. Order between members.
// Cost: an admission within what a member is allotted now is that of a plain gate. One beyond takes the
//   group's lock and looks at the other members, and so does a refusal, unless the member is at its `max`. While
//   a member waits for units of others, releases everywhere in the group take the slow path.
// The destructor closes all members and waits for their permits.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "bulkhead/gate.h"

namespace bulkhead {

// A part of a group's total: so many units, or so many per cent of it; not both. Guarantees in per cent are
// rounded together (largest remainder), so that 100 % are exactly the total; a max is rounded up.
struct Share {
  double percent = 0;
  std::uint32_t units = 0;
};

// What becomes of the guaranteed units that a member does not use.
struct Lend {
  enum class Mode : std::uint8_t {
    none,       // they stay idle; only what nobody is guaranteed can be borrowed
    headroom,   // they are lent, all but `units` of each guarantee; they come back when borrowers finish
    revocable,  // the same, and borrowers are told to finish
  };
  Mode mode = Mode::headroom;
  std::uint32_t units = 0;  // of each guarantee these are never lent: so many arrivals never wait

  static constexpr Lend none() { return {Mode::none, 0}; }
  static constexpr Lend headroom(std::uint32_t units) { return {Mode::headroom, units}; }
  static constexpr Lend revocable(std::uint32_t headroom = 0) { return {Mode::revocable, headroom}; }
};

struct MemberOptions {
  std::string name{};
  Share guaranteed{};
  Share max{.percent = 100};  // what it can have in flight at most, its own and borrowed
  // Its line, hooks, fairness ...: all but name and max_concurrent. critical_reserve is a share of the
  // guarantee, and that part is never lent.
  GateOptions gate{};
};

struct GroupOptions {
  std::string name{};
  std::uint32_t total = 1;  // units in flight at most: 1 to 268'435'455
  Lend lend{};
  std::vector<MemberOptions> members{};
  // How long a unit that was called back for a refused call waits for the next call of its member before it
  // can be lent again.
  std::chrono::nanoseconds keep = std::chrono::seconds(1);
  Clock* clock = nullptr;  // default: Clock::steady(); also for members that name none
};

// All numbers are units of cost, and of one instant; those in flight may change while it is taken, but never
// add up to more than the group allows.
struct GroupSnapshot {
  struct Member {
    std::string name;
    std::uint32_t guaranteed = 0, max = 0;
    std::uint32_t allotted = 0;   // what it may have in flight now
    std::uint32_t in_flight = 0;  // at most allotted + called_back
    std::uint32_t waiting = 0;    // calls in its line
    std::uint32_t called_back =
        0;  // in flight above what it is allotted: to be given back by its next releases
    std::uint32_t lent = 0, borrowed = 0;
    bool closed = false;
    std::uint64_t revoked = 0;  // permits told to stop
    // As a lender: how often it had to wait for units to come back, and how long until it had them.
    std::uint64_t waits = 0;
    std::chrono::nanoseconds total_wait{}, longest_wait{};
  };
  // Units have no names: the sums are exact, who has them from whom is worked out in the order of members.
  struct Loan {
    std::string lender;  // empty: from what nobody is guaranteed
    std::string borrower;
    std::uint32_t units = 0;
  };
  std::string name;
  std::uint32_t total = 0, in_flight = 0;
  std::uint32_t free = 0;  // allotted to nobody
  std::vector<Member> members;
  std::vector<Loan> loans;

  const Member* find(std::string_view member) const noexcept;
};

class Group {
 public:
  explicit Group(GroupOptions options);  // std::invalid_argument naming the setting
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  Gate& member(std::string_view name);         // std::invalid_argument if there is none
  Gate* find(std::string_view name) noexcept;  // null if there is none

  // At once and never blocking, like Gate::resize: nobody is cut, and while more is in flight than is allowed
  // now, nobody is admitted. Shares in per cent follow the total. std::invalid_argument if the guarantees do
  // not fit.
  void resize(std::uint32_t total);
  void update(std::string_view member, Share guaranteed, Share max = {.percent = 100});

  // The same for several at once, which need only fit together; the others keep theirs. check() throws what
  // update() would, and changes nothing; it takes those that are not members for some that will be.
  struct NewShare {
    std::string member{};
    Share guaranteed{};
    Share max{.percent = 100};
  };
  void update(std::uint32_t total, const std::vector<NewShare>& shares);
  void check(std::uint32_t total, const std::vector<NewShare>& shares) const;
  std::uint32_t total() const;

  Gate& add(MemberOptions member);
  // Closes the member, which frees its guarantee for the others at once; waits until its permits are back, and
  // destroys its gate. False: `until` came first (it stays closed, call again), or there is no such member.
  bool remove(std::string_view name, TimePoint until = no_deadline);

  GroupSnapshot snapshot() const;
  std::string_view name() const noexcept;

 private:
  struct Core;
  std::unique_ptr<Core> core_;
};

}  // namespace bulkhead
