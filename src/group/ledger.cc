#include "group/ledger.h"

#include <algorithm>
#include <limits>
#include <thread>
#include <utility>

#include "base/sync_point.h"
#include "gate/completions.h"

namespace bulkhead::group {

// ---- a member ----

namespace {

GateOptions gate_options(MemberOptions& o) {
  o.gate.name = o.name;
  return std::move(o.gate);
}

// Because it was full.
std::uint64_t rejected_by(const Member& m) {
  const Snapshot s = m.gate.snapshot();
  return s.rejected(Reason::concurrency_limit) + s.rejected(Reason::queue_limit) +
         s.rejected(Reason::timeout) + s.rejected(Reason::evicted);
}

}  // namespace

Member::Member(Ledger& owner, MemberOptions options, const Quota& quota, std::uint32_t allotment)
    : ledger(owner),
      name(options.name),
      guaranteed_share(options.guaranteed),
      max_share(options.max),
      guaranteed(quota.guaranteed),
      max(quota.max),
      max_follows(quota.max_follows),
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
void Member::change_lease(std::uint32_t id, std::uint32_t cost) noexcept {
  ledger.change_lease(*this, id, cost);
}

// ---- a call that needs more than its member has ----

Ledger::Ledger(const Settings& s)
    : clock_(s.clock), lend_(s.lend), keep_(s.keep), total_(s.total), free_(s.total) {}

bool Ledger::admit(Member& m, const Waiter& w, bool can_wait) noexcept {
  if (m.gate.at_ceiling()) return false;
  bool claimed = false;
  if (try_admit(m, w, can_wait ? nullptr : &claimed)) return true;
  if (!claimed) return false;
  work();  // borrowers that release in a stop callback free units for this call
  return try_admit(m, w, nullptr);
}

// With `claimed`, units are called back for a call that is rejected although it is within the guarantee.
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
      const UnitRequest mine{&m, lack.units, true, m.allotted + lack.units <= m.guaranteed};
      const UnitRequest best = best_request(&m);
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
      if (!admitted) continue;  // a call on the fast path took the units
      top_up(m, wakes);
      break;
    }
  }
  m.gate.unpin_and_tell(wakes);
  return admitted;
}

// A member that is below its guarantee gets the rest of it too, as far as other members do not need it: one slow call
// instead of one for each unit.
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

// Claims the units of a rejected call on top of those in flight and those claimed before.
void Ledger::claim(Member& m, std::uint32_t units) noexcept {
  const std::uint32_t base = std::max(m.gate.in_flight(), target(m));
  m.keep = std::min(m.guaranteed, base + std::min(units, m.guaranteed));
  const std::int64_t now = now_ns();
  constexpr std::int64_t kForever = std::numeric_limits<std::int64_t>::max();
  m.keep_until = now > 0 && keep_.count() > kForever - now ? kForever : now + keep_.count();
}

// The units that it must have before others may borrow.
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

// Frees up to `units` idle units: first those that others have borrowed, then those that they are guaranteed.
void Ledger::gather(const Member& m, std::uint32_t units) noexcept {
  for (auto& other : members_)
    if (other.get() != &m) take_idle(*other, other->guaranteed, units);
  for (auto& other : members_)
    if (other.get() != &m) take_idle(*other, target(*other), units);
}

void Ledger::call_back(Member& from, std::uint32_t units) noexcept {
  base::sync_point("group.call_back");
  const std::uint32_t idle = from.gate.call_back(units);
  from.allotted -= units;
  from.debt += units;
  pay(from, idle);
}

// Cancels a debt of a member that gets units now. False: it has no debt, or a lowered total needs the units.
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

// Takes units back as if one by one from the member that has borrowed most: all borrowers go down to one level, which is
// at least `above`, and the rest is taken one each from the first members at that level.
void Ledger::call_back_most(std::int64_t units, std::int64_t above, const Member* but) noexcept {
  const auto beyond = [&](std::int64_t level) {
    std::int64_t sum = 0;
    for (const auto& m : members_)
      if (m.get() != but) sum += std::max<std::int64_t>(m->excess() - level, 0);
    return sum;
  };
  std::int64_t level = above, high = above;
  for (const auto& m : members_)
    if (m.get() != but) high = std::max(high, m->excess());
  while (level < high) {  // find the lowest level above which there are at most `units`
    const std::int64_t middle = level + (high - level) / 2;
    if (beyond(middle) <= units)
      high = middle;
    else
      level = middle + 1;
  }
  std::int64_t left = level > above ? units - beyond(level) : 0;
  for (auto& m : members_) {
    if (m.get() == but || m->excess() < level) continue;
    std::int64_t back = m->excess() - level;
    if (left > 0) ++back, --left;
    if (back > 0) call_back(*m, static_cast<std::uint32_t>(back));
  }
}

// Units that are owed come from the members that have borrowed most. Beyond the guarantees, a member that has borrowed
// less gets units of a member that has borrowed more, but no stop_token fires for that.
void Ledger::call_back_for(const UnitRequest& request) noexcept {
  if (!request.owed) {
    const std::int64_t above = std::max<std::int64_t>(request.member->excess() + 1, 0);
    const std::int64_t missing = request.units - free_ - debts();
    if (missing > 0) call_back_most(missing, above, request.member);
    return;
  }
  const std::int64_t owed = owed_in_all();
  const std::int64_t missing = owed - free_ - debts();
  if (missing > 0) call_back_most(missing, 0, request.member);
  if (lend_.mode != Lend::Mode::revocable) return;
  // A limiter lowers the total often and for a short time: no call is asked to stop for that.
  std::int64_t told = std::max<std::int64_t>(free_, 0);
  for (const auto& m : members_) told += m->to_stop;
  for (auto& m : members_) {
    const std::int64_t more = std::min<std::int64_t>(m->debt - m->to_stop, owed - told);
    if (more <= 0) continue;
    m->to_stop += static_cast<std::uint32_t>(more);
    told += more;
  }
}

// ---- what each member needs ----

// What the member is owed of its guarantee comes before what its line needs beyond it.
Ledger::UnitRequest Ledger::request_of(Member& m) noexcept {
  UnitRequest request;
  if (!m.gone && !m.closed) {
    const std::uint32_t wanted = target(m);
    if (m.allotted < wanted) {
      request = {&m, wanted - m.allotted, false, true};
    } else if (m.hungry) {
      const auto hunger = m.gate.hunger();
      m.hungry = hunger.line > 0 || hunger.head > 0;
      if (hunger.head > 0 && m.allotted + std::uint64_t{hunger.head} <= m.ceiling)
        request = {&m, hunger.head, true, m.allotted + hunger.head <= m.guaranteed};
    }
  }
  track_wait(m, request.member && request.owed);
  return request;
}

Ledger::UnitRequest Ledger::best_request(const Member* but) noexcept {
  UnitRequest best;
  for (auto& m : members_) {
    if (m.get() == but) continue;
    const UnitRequest request = request_of(*m);
    if (request.member && (!best.member || request.before(best))) best = request;
  }
  return best;
}

// All units that members lack of their guarantees, for their whole lines, so that they are called back at once.
std::int64_t Ledger::owed_in_all() noexcept {
  std::int64_t sum = 0;
  for (auto& m : members_) {
    const UnitRequest request = request_of(*m);
    if (!request.member || !request.owed) continue;
    const std::uint32_t line = m->hungry ? m->gate.hunger().line : 0;
    sum += std::min(std::max(request.units, line), m->guaranteed - m->allotted);
  }
  return sum;
}

// Measures the time from calling units back until the member has them.
void Ledger::track_wait(Member& m, bool waits) noexcept {
  if (waits == m.waiting_since.has_value()) return;
  const std::int64_t now = now_ns();
  if (waits) {
    m.waiting_since = now;
    return;
  }
  const std::int64_t waited = now - *std::exchange(m.waiting_since, std::nullopt);
  ++m.waits;
  m.total_wait += waited;
  m.longest_wait = std::max(m.longest_wait, waited);
}

// ---- serving them ----

// While a member waits, all other gates are watched, because their releases may free units for it.
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

// Gives units to the member that comes first by UnitRequest::before(). Null: no member lacks units, or there are none
// now; then they have been called back, and no other member gets units before this one.
Member* Ledger::serve(Wakes& wakes) noexcept {
  const UnitRequest request = best_request(nullptr);
  if (!request.member) {
    unwatch();
    return nullptr;
  }
  Member& m = *request.member;
  if (forgive(m, wakes)) return &m;
  gather(m, request.units);
  if (free_ < request.units) {
    watch_others(m);
    base::sync_point("group.serve.watched");
    gather(m, request.units);
  }
  if (free_ < request.units) call_back_for(request);
  const std::int64_t units =
      request.whole && free_ < request.units ? 0 : std::min<std::int64_t>(free_, request.units);
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

// Units that are kept for a member are free for others at the end of their time; without an alarm no thread would notice.
void Ledger::await_keeps() noexcept {
  constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();
  std::int64_t first = kNever;
  for (const auto& m : members_)
    if (m->keep > m->floor) first = std::min(first, m->keep_until);
  if (first == kNever || std::exchange(alarm_.armed, true)) return;
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
               std::memory_order_release);  // the destructor waits for it, so nothing is accessed afterwards
}

Ledger::~Ledger() {
  clock_.deadlines().disarm(alarm_);
  while (alarm_.firing.load(std::memory_order_acquire)) std::this_thread::yield();
}

// A permit that is released inside a stop callback calls this again. The inner call may serve, but leaves further stops
// to the outer loop, so that they do not nest.
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

// One unit of work under the lock; hooks, handlers and stop callbacks run after it (G5).
bool Ledger::step(bool may_stop) noexcept {
  Wakes wakes;
  std::stop_source stop(std::nostopstate);
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
  if (!stop.stop_possible()) return false;
  const Firing firing(*this);
  stop.request_stop();
  return true;
}

std::stop_source Ledger::next_stop() noexcept {
  for (auto& m : members_) {
    if (m->to_stop <= m->leases.stopping()) continue;
    if (auto stop = m->leases.next_to_stop(); stop.stop_possible()) return stop;
  }
  return std::stop_source(std::nostopstate);
}

// After a change of the member's line or a slow release: collects its debt, then serves all needs (G4).
void Ledger::settle(Member* m) noexcept {
  base::sync_point("group.settle.before_lock");
  if (m) {
    Wakes wakes;
    m->gate.pin();
    {
      const Lock lock(mutex_);
      if (!m->gone) {
        if (!m->closed && m->gate.closed()) retire(*m);
        repay(*m);
        m->hungry = true;
      }
    }
    m->gate.unpin_and_tell(wakes);
  }
  work();
}

// ---- permits that can be called back ----

std::stop_token Ledger::lease(Member& m, std::uint32_t& id, std::uint32_t cost) noexcept {
  if (lend_.mode != Lend::Mode::revocable) return {};
  std::stop_token token;
  bool late = false;
#if defined(__cpp_exceptions)
  try {
    late = add_lease(m, id, cost, token);
  } catch (const std::bad_alloc&) {
    return {};  // no memory: the token of this permit never fires
  }
#else
  late = add_lease(m, id, cost, token);
#endif
  if (late) work();
  return token;
}

bool Ledger::add_lease(Member& m, std::uint32_t& id, std::uint32_t cost, std::stop_token& token) {
  if (id == 0) {
    std::optional<std::stop_source> made;
    made.emplace();  // before the lock: it allocates
    const Lock lock(mutex_);
    id = m.leases.add(*made, cost);
  }
  const Lock lock(mutex_);
  token = m.leases.token(id);
  return m.to_stop > m.leases.stopping();
}

void Ledger::end_lease(Member& m, std::uint32_t id) noexcept {
  const Lock lock(mutex_);
  m.leases.remove(id);
}

void Ledger::change_lease(Member& m, std::uint32_t id, std::uint32_t cost) noexcept {
  bool late = false;
  {
    const Lock lock(mutex_);
    late = m.leases.change(id, cost) && m.to_stop > m.leases.stopping();
  }
  if (late) work();
}

// ---- another shape ----

// A closed member has no guarantee: the others may use its idle units.
void Ledger::retire(Member& m) noexcept {
  m.closed = true;
  m.guaranteed = m.floor = m.keep = 0;
  set_ceilings();
  m.gate.reshape(0, m.ceiling);  // its line is empty or is being emptied
}

// No member can get units that others never lend; a call that costs more than the rest is rejected instead of queued.
void Ledger::set_ceilings() noexcept {
  std::uint64_t fixed = 0;
  const auto part = [](const Member& m) { return std::max(m.floor, m.gate.reserve(m.guaranteed)); };
  for (const auto& m : members_) fixed += part(*m);
  for (auto& m : members_) {
    const std::int64_t most = std::int64_t{total_} - static_cast<std::int64_t>(fixed - part(*m));
    m->ceiling = std::min(m->max, static_cast<std::uint32_t>(std::max<std::int64_t>(most, m->guaranteed)));
    m->gate.set_ceiling(m->ceiling);
    m->follows.store(m->max_follows || m->ceiling < m->max, std::memory_order_relaxed);  // see at_its_share()
  }
}

void Ledger::reshape(std::uint32_t total, const std::vector<Quota>& quotas, Change& change) noexcept {
  {
    const Lock lock(mutex_);
    free_ += std::int64_t{total} - total_;
    total_ = total;
    for (std::size_t i = 0; i < members_.size(); ++i) {
      Member& m = *members_[i];
      m.guaranteed = m.closed ? 0 : quotas[i].guaranteed;
      m.max = quotas[i].max;
      m.max_follows = quotas[i].max_follows;
      m.floor = floor_of(m.guaranteed);
      m.keep = std::min(m.keep, m.guaranteed);
    }
    set_ceilings();
    for (auto& m : members_)
      if (m->allotted > m->max) call_back(*m, m->allotted - m->max);
    // Units in flight above a lower total come back before any call is admitted: the total has precedence over the
    // guarantees.
    for (auto& m : members_) take_idle(*m, m->guaranteed, 0);
    for (auto& m : members_) take_idle(*m, 0, 0);
    for (auto& m : members_)
      if (free_ < 0 && m->allotted > 0) call_back(*m, m->allotted);
  }
  for (auto& m : members_) change.refit(*m);
}

void Ledger::add(std::unique_ptr<Member> m, Change& change) {
  {
    const Lock lock(mutex_);
    const std::uint32_t allotted = m->allotted;
    {
      const detail::MutexLock sums(sums_);
      members_.push_back(std::move(m));
    }
    free_ -= allotted;
    set_ceilings();
  }
  for (auto& other : members_) change.refit(*other);
}

// The caller still holds the lock that protects the list of members.
void Ledger::Change::refit(Member& m) noexcept {
  Refitted& refitted = refitted_.emplace_back(Refitted{&m, {}});  // prepare() has reserved the memory
  m.gate.pin();
  {
    const Lock lock(ledger_.mutex_);
    m.gate.reshape(m.guaranteed, m.ceiling);
  }
  m.gate.refit(refitted.wakes);
}

// Handlers run after all gates are unpinned, because they may remove members.
Ledger::Change::~Change() {
  {
    const detail::Completions::Together all;
    for (Refitted& r : refitted_) r.member->gate.unpin_and_tell(r.wakes);
  }
  ledger_.work();
}

std::unique_ptr<Member> Ledger::take_out(Member& m) noexcept {
  std::unique_ptr<Member> out;
  {
    const Lock lock(mutex_);
    m.gone = true;
    free_ += std::int64_t{m.allotted} + m.debt;
    const auto i = std::find_if(members_.begin(), members_.end(), [&](auto& p) { return p.get() == &m; });
    {
      const detail::MutexLock sums(sums_);
      rejected_before_ += rejected_by(m);
      out = std::move(*i);
      members_.erase(i);
    }
    set_ceilings();
  }
  return out;
}

std::uint32_t Ledger::in_flight() const noexcept {
  // Relaxed: a statistic, which orders no other memory.
  if (!sums_.try_lock()) return last_in_flight_.load(std::memory_order_relaxed);
  std::uint32_t sum = 0;
  for (const auto& m : members_) sum += m->gate.in_flight();
  last_in_flight_.store(sum, std::memory_order_relaxed);
  sums_.unlock();
  return sum;
}

std::uint64_t Ledger::rejected() const noexcept {
  const detail::MutexLock sums(sums_);
  std::uint64_t sum = rejected_before_;
  for (const auto& m : members_) sum += rejected_by(*m);
  return sum;
}

Member* Ledger::find(std::string_view name) const noexcept {
  const Lock lock(mutex_);
  for (const auto& m : members_)
    if (m->name == name) return m.get();
  return nullptr;
}

}  // namespace bulkhead::group
