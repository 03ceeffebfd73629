// Group::snapshot(), and the assignment of borrowed units to lenders.
#include <algorithm>

#include "group/ledger.h"

namespace bulkhead::group {
namespace {

// Assigns lenders to borrowers in the order of members. Units without a guarantee are lent first.
std::vector<GroupSnapshot::Loan> loans(const GroupSnapshot& s, std::int64_t unguaranteed) {
  std::vector<GroupSnapshot::Loan> result;
  std::vector<std::uint32_t> wants;
  std::size_t i = 0;  // earlier borrowers are complete
  const auto lend = [&](const std::string& lender, std::uint32_t units) {
    for (; i < wants.size() && units > 0; i += wants[i] == 0) {
      const std::uint32_t n = std::min(units, wants[i]);
      if (n == 0) continue;
      wants[i] -= n;
      units -= n;
      result.push_back({lender, s.members[i].name, n});
    }
  };
  wants.reserve(s.members.size());
  std::int64_t borrowed = 0, lent = 0;
  for (const auto& m : s.members) {
    wants.push_back(m.borrowed);
    borrowed += m.borrowed;
    lent += m.lent;
  }
  // Free units are not borrowed, even if a member is guaranteed them.
  const std::int64_t from_nobody = std::clamp<std::int64_t>(unguaranteed, 0, borrowed);
  lend("", static_cast<std::uint32_t>(std::max(from_nobody, borrowed - lent)));
  for (const auto& m : s.members) lend(m.name, m.lent);
  return result;
}

}  // namespace

// Reads under the lock only what must be of one instant.
void Ledger::fill(GroupSnapshot& s) const {
  std::int64_t unguaranteed = 0;
  copy(s, unguaranteed);
  s.loans = loans(s, unguaranteed);
}

void Ledger::copy(GroupSnapshot& s, std::int64_t& unguaranteed) const {
  const Lock lock(mutex_);
  s.members.reserve(members_.size());
  s.total = total_;
  s.free = static_cast<std::uint32_t>(std::max<std::int64_t>(free_, 0));
  unguaranteed = std::int64_t{total_};
  for (const auto& m : members_) {
    GroupSnapshot::Member& out = s.members.emplace_back();
    out.name = m->name;
    out.guaranteed = m->guaranteed;
    out.max = m->max;
    out.allotted = m->allotted;
    out.in_flight = m->gate.in_flight();  // its limit does not change under our lock
    out.waiting = m->gate.waiting();
    out.called_back = m->debt;
    const std::int64_t excess = m->excess() + m->debt;
    out.borrowed = excess > 0 ? static_cast<std::uint32_t>(excess) : 0;
    out.lent = m->excess() < 0 ? static_cast<std::uint32_t>(-m->excess()) : 0;
    out.closed = m->gate.closed();
    out.revoked = m->leases.stopped();
    out.waits = m->waits;
    out.total_wait = std::chrono::nanoseconds(m->total_wait);
    out.longest_wait = std::chrono::nanoseconds(m->longest_wait);
    s.in_flight += out.in_flight;
    unguaranteed -= m->guaranteed;
  }
}

}  // namespace bulkhead::group
