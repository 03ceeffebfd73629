#include "group/ledger.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "base/sync_point.h"

namespace bulkhead::group {

// ---- a member ----

namespace {

GateOptions gate_options(MemberOptions& o) {
  o.gate.name = o.name;
  return std::move(o.gate);
}

}  // namespace

Member::Member(Ledger& owner, MemberOptions options, const Quota& quota, std::uint32_t allotment)
    : ledger(owner),
      name(options.name),
      guaranteed_share(options.guaranteed),
      max_share(options.max),
      guaranteed(quota.guaranteed),
      max(quota.max),
      ceiling(quota.max),
      allotted(allotment),
      floor(owner.floor_of(quota.guaranteed)),
      gate(gate_options(options), {this, allotment, quota.guaranteed, quota.max}) {}

bool Member::admit(const Ledger::Waiter& w, bool can_wait) noexcept {
  return ledger.admit(*this, w, can_wait);
}
void Member::settle() noexcept { ledger.settle(this); }
std::stop_token Member::lease(std::uint32_t& id, std::uint32_t cost) noexcept {
  return ledger.lease(*this, id, cost);
}
void Member::end_lease(std::uint32_t id) noexcept { ledger.end_lease(*this, id); }

// ---- a call that needs more than its member has ----

Ledger::Ledger(const Settings& s)
    : clock_(s.clock), lend_(s.lend), keep_(s.keep), total_(s.total), free_(s.total) {}

bool Ledger::admit(Member& m, const Waiter& w, bool can_wait) noexcept {
  if (m.gate.at_ceiling()) return false;
  bool claimed = false;
  if (try_admit(m, w, can_wait ? nullptr : &claimed)) return true;
  if (!claimed) return false;
  work();  // a borrower that gives back while it is told to stop does so in time for this call
  return try_admit(m, w, nullptr);
}

// With `claimed`, a call that is refused although it is within the guarantee has its units called back.
bool Ledger::try_admit(Member& m, const Waiter& w, bool* claimed) noexcept {
  base::sync_point("group.admit.before_lock");
  bool admitted = false;
  Wakes wakes;
  m.gate.pin();
  {
    const Lock lock(mutex_);
    while (!m.closed && !m.gone) {
      const auto lack = m.gate.try_enter(w);
      admitted = !lack.waits && lack.units == 0;
      if (admitted || lack.waits || m.allotted + std::uint64_t{lack.units} > m.ceiling) break;
      const Wish mine{&m, lack.units, true, m.allotted + lack.units <= m.guaranteed};
      const Wish best = best_wish(&m);
      const bool first = !best.member || mine.before(best);
      if (first && forgive(m, wakes)) continue;
      if (first) gather(m, lack.units);
      if (!first || free_ < lack.units) {
        if (claimed && mine.owed) {
          claim(m, w.cost);
          call_back_for(mine);
          *claimed = true;
        }
        break;
      }
      free_ -= lack.units;
      m.allotted += lack.units;
      admitted = m.gate.grow_for(w, lack.units, wakes);
      repay(m);
      if (!admitted) continue;  // somebody on the fast path was quicker
      top_up(m, wakes);
      break;
    }
  }
  m.gate.unpin_and_tell(wakes);
  return admitted;
}

// A member that is back within its guarantee gets the rest of it as well, as far as nobody has a use for it:
// one slow call then, instead of one for each unit.
void Ledger::top_up(Member& m, Wakes& wakes) noexcept {
  if (watching_ || m.allotted >= m.guaranteed) return;
  const std::uint32_t rest = m.guaranteed - m.allotted;
  for (auto& other : members_)
    if (other.get() != &m && free_ < rest) take_idle(*other, other->guaranteed, rest);
  if (free_ <= 0) return;
  const auto units = static_cast<std::uint32_t>(std::min<std::int64_t>(rest, free_));
  free_ -= units;
  m.allotted += units;
  m.gate.grow(units, wakes);
}

// The units it asked for, on top of what it has in flight or has claimed before: each refused call counts.
void Ledger::claim(Member& m, std::uint32_t units) noexcept {
  const std::uint32_t base = std::max(m.gate.in_flight(), target(m));
  m.keep = std::min(m.guaranteed, base + std::min(units, m.guaranteed));
  m.keep_until = now_ns() + keep_.count();
}

// What it must have before others may borrow.
std::uint32_t Ledger::target(Member& m) noexcept {
  if (m.keep > 0 && now_ns() >= m.keep_until) m.keep = 0;
  return std::max(m.floor, m.keep);
}

std::uint32_t Ledger::floor_of(std::uint32_t guaranteed) const {
  return lend_.mode == Lend::Mode::none ? guaranteed : std::min(lend_.units, guaranteed);
}

// ---- moving units ----

void Ledger::take_idle(Member& from, std::uint32_t keeps, std::int64_t up_to) noexcept {
  if (from.gone || from.allotted <= keeps || free_ >= up_to) return;
  const std::int64_t most = std::min<std::int64_t>(from.allotted - keeps, up_to - free_);
  const std::uint32_t units = from.gate.shrink_idle(static_cast<std::uint32_t>(most));
  from.allotted -= units;
  free_ += units;
}

// Makes `units` free, or as many as there are: first what others have borrowed and do not use, then what they
// are guaranteed and do not use.
void Ledger::gather(const Member& m, std::uint32_t units) noexcept {
  for (auto& other : members_)
    if (other.get() != &m) take_idle(*other, other->guaranteed, units);
  for (auto& other : members_)
    if (other.get() != &m) take_idle(*other, target(*other), units);
}

void Ledger::call_back(Member& from, std::uint32_t units) noexcept {
  const std::uint32_t idle = from.gate.call_back(units);
  from.allotted -= units;
  from.debt += units;
  pay(from, idle);
}

// A member whose turn it is need not give back what was called back before. False: there is nothing to forgive,
// or the total was lowered and needs it.
bool Ledger::forgive(Member& m, Wakes& wakes) noexcept {
  if (m.debt == 0 || free_ < 0) return false;
  free_ -= m.debt;
  m.allotted += m.debt;
  m.gate.grow(m.debt, wakes);
  repay(m);
  return true;
}

void Ledger::repay(Member& m) noexcept {
  if (m.debt > 0) pay(m, m.gate.collect());
}

void Ledger::pay(Member& m, std::uint32_t units) noexcept {
  m.debt -= units;
  m.to_stop = std::min(m.to_stop, m.debt);
  free_ += units;
}

std::int64_t Ledger::debts() const noexcept {
  std::int64_t sum = 0;
  for (const auto& m : members_) sum += m->debt;
  return sum;
}

Member* Ledger::greatest_borrower(std::int64_t above, const Member* but) noexcept {
  Member* found = nullptr;
  for (auto& m : members_) {
    if (m.get() == but || m->allotted == 0 || m->excess() <= above) continue;
    if (!found || m->excess() > found->excess()) found = m.get();
  }
  return found;
}

// What is owed comes from those who have borrowed most. Beyond the guarantees, a member that has borrowed less
// gets units of one that has more, but nobody is told to stop for that.
void Ledger::call_back_for(const Wish& wish) noexcept {
  if (!wish.owed) {
    const std::int64_t above = std::max<std::int64_t>(wish.member->excess() + 1, 0);
    while (free_ + debts() < wish.units) {
      Member* from = greatest_borrower(above, wish.member);
      if (!from) return;
      call_back(*from, 1);
    }
    return;
  }
  const std::int64_t owed = owed_in_all();
  while (free_ + debts() < owed) {
    Member* from = greatest_borrower(0, wish.member);
    if (!from) break;
    call_back(*from, 1);
  }
  if (lend_.mode != Lend::Mode::revocable) return;
  std::int64_t told = free_;
  for (const auto& m : members_) told += m->to_stop;
  for (auto& m : members_) {
    const std::int64_t more = std::min<std::int64_t>(m->debt - m->to_stop, owed - told);
    if (more <= 0) continue;
    m->to_stop += static_cast<std::uint32_t>(more);
    told += more;
  }
}

// ---- who wants how much ----

Ledger::Wish Ledger::wish_of(Member& m) noexcept {
  Wish wish;
  if (!m.gone && !m.closed) {
    const std::uint32_t wanted = target(m);
    if (m.allotted < wanted) {
      wish = {&m, wanted - m.allotted, false, true};
    } else if (m.hungry) {
      const auto hunger = m.gate.hunger();
      m.hungry = hunger.line > 0 || hunger.head > 0;
      if (hunger.head > 0 && m.allotted + std::uint64_t{hunger.head} <= m.ceiling)
        wish = {&m, hunger.head, true, m.allotted + hunger.head <= m.guaranteed};
    }
  }
  track_wait(m, wish.member && wish.owed);
  return wish;
}

Ledger::Wish Ledger::best_wish(const Member* but) noexcept {
  Wish best;
  for (auto& m : members_) {
    if (m.get() == but) continue;
    const Wish wish = wish_of(*m);
    if (wish.member && (!best.member || wish.before(best))) best = wish;
  }
  return best;
}

// All that members lack of their guarantees, their whole lines counted, so that it is called back at once and
// not one unit after the other.
std::int64_t Ledger::owed_in_all() noexcept {
  std::int64_t sum = 0;
  for (auto& m : members_) {
    const Wish wish = wish_of(*m);
    if (!wish.member || !wish.owed) continue;
    const std::uint32_t line = m->hungry ? m->gate.hunger().line : 0;
    sum += std::min(std::max(wish.units, line), m->guaranteed - m->allotted);
  }
  return sum;
}

// From the moment its units are on the way back to the moment it has them.
void Ledger::track_wait(Member& m, bool waits) noexcept {
  if (waits == (m.waiting_since != 0)) return;
  const std::int64_t now = now_ns();
  if (waits) {
    m.waiting_since = now;
    return;
  }
  const std::int64_t waited = now - std::exchange(m.waiting_since, 0);
  ++m.waits;
  m.total_wait += waited;
  m.longest_wait = std::max(m.longest_wait, waited);
}

// ---- serving them ----

// While a member waits, releases of all others come by: what they free may be for it.
void Ledger::watch_others(const Member& m) noexcept {
  watching_ = true;
  for (auto& other : members_) {
    if (other.get() == &m || std::exchange(other->watched, true)) continue;
    other->gate.watch(true);
  }
}

void Ledger::unwatch() noexcept {
  if (!std::exchange(watching_, false)) return;
  for (auto& m : members_)
    if (std::exchange(m->watched, false)) m->gate.watch(false);
}

// Gives the member that deserves it most what it lacks. Null: nobody lacks anything, or it is not to be had
// now; then it has been called back, and nobody else gets units that this one waits for.
Member* Ledger::serve(Wakes& wakes) noexcept {
  const Wish wish = best_wish(nullptr);
  if (!wish.member) {
    unwatch();
    return nullptr;
  }
  Member& m = *wish.member;
  if (forgive(m, wakes)) return &m;
  gather(m, wish.units);
  if (free_ < wish.units) {
    watch_others(m);
    base::sync_point("group.serve.watched");
    gather(m, wish.units);
  }
  if (free_ < wish.units) call_back_for(wish);
  const std::int64_t units = wish.whole && free_ < wish.units ? 0 : std::min<std::int64_t>(free_, wish.units);
  if (units <= 0) {
    await_keeps();
    return nullptr;
  }
  free_ -= units;
  m.allotted += static_cast<std::uint32_t>(units);
  m.gate.grow(static_cast<std::uint32_t>(units), wakes);
  repay(m);
  return &m;
}

// A unit that is kept for a member is free for others when its time is up, and nobody else would notice.
void Ledger::await_keeps() noexcept {
  std::int64_t first = 0;
  for (const auto& m : members_)
    if (m->keep > m->floor && (first == 0 || m->keep_until < first)) first = m->keep_until;
  if (first == 0 || std::exchange(alarm_.armed, true)) return;
  alarm_.at = TimePoint(std::chrono::nanoseconds(first));
  clock_.deadlines().arm(alarm_);
}

bool Ledger::KeepAlarm::expire() noexcept {
  firing.store(true, std::memory_order_relaxed);
  return true;
}

void Ledger::KeepAlarm::expired() noexcept {
  {
    const Lock lock(ledger_.mutex_);
    armed = false;
  }
  ledger_.work();
  firing.store(false,
               std::memory_order_release);  // the destructor waits for it: nothing is touched afterwards
}

Ledger::~Ledger() {
  clock_.deadlines().disarm(alarm_);
  while (alarm_.firing.load(std::memory_order_acquire)) std::this_thread::yield();
}

// A permit given back inside a stop callback comes by here again. It may serve, but leaves further stops to
// the loop outside, so that a thousand of them do not become a stack of a thousand.
struct Ledger::Firing {
  explicit Firing(const Ledger& l) : ledger(l), outer(std::exchange(innermost, this)) {}
  ~Firing() { innermost = outer; }
  Firing(const Firing&) = delete;
  Firing& operator=(const Firing&) = delete;

  static bool inside(const Ledger& l) {
    for (const Firing* f = innermost; f; f = f->outer)
      if (&f->ledger == &l) return true;
    return false;
  }

  const Ledger& ledger;
  Firing* const outer;
  static constinit thread_local Firing* innermost;
};
constinit thread_local Ledger::Firing* Ledger::Firing::innermost = nullptr;

void Ledger::work() noexcept {
  const bool may_stop = !Firing::inside(*this);
  while (step(may_stop)) {
  }
}

bool Ledger::step(bool may_stop) noexcept {
  Wakes wakes;
  std::optional<std::stop_source> stop;
  Member* served = nullptr;
  {
    const Lock lock(mutex_);
    served = serve(wakes);
    if (served)
      served->gate.pin();
    else if (may_stop)
      stop = next_stop();
  }
  if (served) {
    served->gate.unpin_and_tell(wakes);
    return true;
  }
  if (!stop) return false;
  const Firing firing(*this);
  stop->request_stop();
  return true;
}

std::optional<std::stop_source> Ledger::next_stop() noexcept {
  for (auto& m : members_) {
    if (m->to_stop <= m->leases.stopping()) continue;
    if (auto stop = m->leases.next_to_stop()) return stop;
  }
  return std::nullopt;
}

void Ledger::settle(Member* m) noexcept {
  base::sync_point("group.settle.before_lock");
  if (m) {
    Wakes wakes;
    m->gate.pin();
    {
      const Lock lock(mutex_);
      if (!m->gone) {
        if (!m->closed && m->gate.closed()) retire(*m, wakes);
        repay(*m);
        m->hungry = true;
      }
    }
    m->gate.unpin_and_tell(wakes);
  }
  work();
}

// ---- permits that can be told to stop ----

std::stop_token Ledger::lease(Member& m, std::uint32_t& id, std::uint32_t cost) noexcept {
  if (lend_.mode != Lend::Mode::revocable) return {};
  std::stop_token token;
  bool late = false;
  {
    const Lock lock(mutex_);
    if (id == 0) id = m.leases.add(cost);
    token = m.leases.token(id);
    late = m.to_stop > m.leases.stopping();
  }
  if (late) work();
  return token;
}

void Ledger::end_lease(Member& m, std::uint32_t id) noexcept {
  const Lock lock(mutex_);
  m.leases.remove(id);
}

// ---- another shape ----

// A closed member is guaranteed nothing: what it does not use is there for the others.
void Ledger::retire(Member& m, Wakes& wakes) noexcept {
  m.closed = true;
  m.guaranteed = m.floor = m.keep = 0;
  set_ceilings();
  m.gate.reshape(0, m.ceiling, wakes);
}

// What others never lend, nobody can get; a call that costs more than the rest is refused, not queued for ever.
void Ledger::set_ceilings() noexcept {
  std::uint64_t fixed = 0;
  const auto part = [](const Member& m) { return std::max(m.floor, m.gate.reserve(m.guaranteed)); };
  for (const auto& m : members_) fixed += part(*m);
  for (auto& m : members_) {
    const std::int64_t most = std::int64_t{total_} - static_cast<std::int64_t>(fixed - part(*m));
    m->ceiling = std::min(m->max, static_cast<std::uint32_t>(std::max<std::int64_t>(most, m->guaranteed)));
    m->gate.set_ceiling(m->ceiling);
  }
}

void Ledger::reshape(std::uint32_t total, const std::vector<Quota>& quotas) {
  {
    const Lock lock(mutex_);
    free_ += std::int64_t{total} - total_;
    total_ = total;
    for (std::size_t i = 0; i < members_.size(); ++i) {
      Member& m = *members_[i];
      m.guaranteed = m.closed ? 0 : quotas[i].guaranteed;
      m.max = quotas[i].max;
      m.floor = floor_of(m.guaranteed);
      m.keep = std::min(m.keep, m.guaranteed);
    }
    set_ceilings();
    for (auto& m : members_)
      if (m->allotted > m->max) call_back(*m, m->allotted - m->max);
    // What is in flight above a lower total comes back before anybody is admitted: the cap goes before the
    // guarantees.
    for (auto& m : members_) take_idle(*m, m->guaranteed, 0);
    for (auto& m : members_) take_idle(*m, 0, 0);
    for (auto& m : members_)
      if (free_ < 0 && m->allotted > 0) call_back(*m, m->allotted);
  }
  for (auto& m : members_) refit(*m);
  work();
}

// Outside the lock for telling: the list of members stays as it is, see members().
void Ledger::refit(Member& m) {
  Wakes wakes;
  m.gate.pin();
  {
    const Lock lock(mutex_);
    m.gate.reshape(m.guaranteed, m.ceiling, wakes);
  }
  m.gate.unpin_and_tell(wakes);
}

void Ledger::add(std::unique_ptr<Member> m) {
  {
    const Lock lock(mutex_);
    free_ -= m->allotted;
    members_.push_back(std::move(m));
    set_ceilings();
  }
  for (auto& other : members_) refit(*other);
  work();
}

std::unique_ptr<Member> Ledger::take_out(Member& m) {
  std::unique_ptr<Member> out;
  {
    const Lock lock(mutex_);
    m.gone = true;
    free_ += std::int64_t{m.allotted} + m.debt;
    const auto i = std::find_if(members_.begin(), members_.end(), [&](auto& p) { return p.get() == &m; });
    out = std::move(*i);
    members_.erase(i);
    set_ceilings();
  }
  work();
  return out;
}

Member* Ledger::find(std::string_view name) const noexcept {
  const Lock lock(mutex_);
  for (const auto& m : members_)
    if (m->name == name) return m.get();
  return nullptr;
}

}  // namespace bulkhead::group
