// What a group shows of itself, and who has borrowed how much from whom.
#include <algorithm>

#include "group/ledger.h"

namespace bulkhead::group {
namespace {

// Lenders and borrowers in the order of members. What nobody is guaranteed is lent first.
std::vector<GroupSnapshot::Loan> loans(const GroupSnapshot& s, std::int64_t unguaranteed) {
  std::vector<GroupSnapshot::Loan> result;
  const auto lend = [&](const std::string& lender, std::uint32_t units, std::vector<std::uint32_t>& wants) {
    for (std::size_t i = 0; i < wants.size() && units > 0; ++i) {
      const std::uint32_t n = std::min(units, wants[i]);
      if (n == 0) continue;
      wants[i] -= n;
      units -= n;
      result.push_back({lender, s.members[i].name, n});
    }
  };
  std::vector<std::uint32_t> wants;
  wants.reserve(s.members.size());
  std::int64_t borrowed = 0, lent = 0;
  for (const auto& m : s.members) {
    wants.push_back(m.borrowed);
    borrowed += m.borrowed;
    lent += m.lent;
  }
  // Units that are free are not borrowed, whoever is guaranteed them.
  const std::int64_t from_nobody = std::clamp<std::int64_t>(unguaranteed, 0, borrowed);
  lend("", static_cast<std::uint32_t>(std::max(from_nobody, borrowed - lent)), wants);
  for (const auto& m : s.members) lend(m.name, m.lent, wants);
  return result;
}

}  // namespace

void Ledger::fill(GroupSnapshot& s) const {
  const Lock lock(mutex_);
  s.total = total_;
  s.free = static_cast<std::uint32_t>(std::max<std::int64_t>(free_, 0));
  std::int64_t unguaranteed = std::int64_t{total_};
  for (const auto& m : members_) {
    GroupSnapshot::Member& out = s.members.emplace_back();
    out.name = m->name;
    out.guaranteed = m->guaranteed;
    out.max = m->max;
    out.allotted = m->allotted;
    out.in_flight = m->gate.in_flight();  // its limit does not move under our lock
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
  s.loans = loans(s, unguaranteed);
}

}  // namespace bulkhead::group
