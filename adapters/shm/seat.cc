#include "seat.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace bulkhead::shm {
namespace {

// Smaller goes first: the tier, then the time. Never 0.
std::uint64_t key_of(Priority tier, TimePoint since) noexcept {
  constexpr std::uint64_t kLatest = (std::uint64_t{1} << 62) - 1;
  const std::int64_t ns = since.time_since_epoch().count();
  const std::uint64_t time =
      since == no_deadline ? kLatest : static_cast<std::uint64_t>(std::max<std::int64_t>(ns, 1));
  return static_cast<std::uint64_t>(tier) << 62 | std::min(time, kLatest);
}

// The unit that this thread took or gave back last is probably free, or its own, and in the cache of this core.
struct LastUnit {
  const Limit* limit = nullptr;
  std::uint32_t unit = 0;
};
constinit thread_local LastUnit last_unit;

// Before the first unit is taken. A program of another language may join a limit that others have made weighed.
bool weigh(Limit& limit, bool asked) noexcept {
  if (asked) limit.weighed.store(1);
  return limit.weighed.load() != 0;
}

}  // namespace

Seat::Seat(std::shared_ptr<Region> region, Limit& limit, const UnitSources::Request& request, UnitUser& user,
           std::function<void()> on_call)
    : region_(std::move(region)),
      limit_(limit),
      user_(user),
      weighed_(weigh(limit, request.weighed)),
      critical_reserve_(request.critical_reserve),
      token_(region_->token()),
      on_call_(std::move(on_call)) {
  if (!on_call_ && request.max_concurrent != 0) Region::resize(limit_, request.max_concurrent);
  region_->sweep(limit_);
  region_->add(*this);
}

Seat::~Seat() {
  mute();
  stop_leading();
  leave_line();
  // What a child of a fork holds beyond its own calls, see without_inherited().
  if (token_.load() != region_->token() || token_.load() == 0) return;
  if (weighed_)
    counts().give_back_everything();
  else
    table().give_back_everything();
}

void Seat::mute() noexcept {
  if (!std::exchange(muted_, true)) region_->remove(*this);
}

inline Table Seat::table() const noexcept {
  const std::uint64_t token = token_.load(std::memory_order_relaxed);
  return last_unit.limit == &limit_ ? Table(limit_, token, last_unit.unit) : Table(limit_, token);
}

// After a fork this process has another token, and none of the units of its parent.
inline bool Seat::registered() noexcept {
  const std::uint64_t token = region_->token();
  const std::uint64_t before = token_.load(std::memory_order_relaxed);
  if (token != before) [[unlikely]] {
    if (before != 0) inherited_.store(user_.usage().in_flight);
    in_line_.store(false);
    token_.store(token);
  }
  if (token != 0 && weighed_ && slot_of(token) >= limit_.high.load(std::memory_order_relaxed)) [[unlikely]]
    Region::reserve(limit_, slot_of(token) + 1);
  return token != 0;
}

bool Seat::take(const Head& head) noexcept {
  if (!registered()) return false;
  const std::uint32_t without = head.priority == Priority::critical ? 0 : reserve();
  if (!table().any_line() || may_go_first(key_of(head.priority, head.since)))
    if (grab(head.cost, without)) return true;
  if (!region_->sweep_is_due(limit_) || region_->sweep(limit_) == 0) return false;
  return may_go_first(key_of(head.priority, head.since)) && grab(head.cost, without);
}

// The unit is remembered for the next call of this thread: its word is in the cache, and probably free again.
bool Seat::grab(std::uint32_t cost, std::uint32_t reserve) noexcept {
  if (on_call_) return grab_of_lease(cost);
  if (weighed_) return counts().take(cost, reserve, coarse_now_ns());
  Table units = table();
  if (cost == 1) {
    const std::uint32_t unit = units.take(reserve);
    if (unit == Table::kNone) return false;
    limit_.since[unit].store(coarse_now_ns(), std::memory_order_relaxed);
    last_unit = {&limit_, unit};
    return true;
  }
  if (!units.take_all(cost, reserve, coarse_now_ns())) return false;
  last_unit = {&limit_, units.hint()};
  return true;
}

// The clock is read here, and not by the agent's thread: a process that was stopped does not use a lease that has ended meanwhile.
bool Seat::grab_of_lease(std::uint32_t cost) noexcept {
  const Lease& lease = limit_.lease;
  const std::int64_t until = lease.deadline.load(), now = boot_now_ns();
  if (weighed_) {
    Counts units = counts();
    if (now < until) return units.take(cost, 0, coarse_now_ns());
    if (now >= lease.static_until.load() ||
        !units.take_within(cost, lease.static_cap.load(), coarse_now_ns()))
      return false;
    if (lease.deadline.load() == until) return true;
    units.give_back(cost);  // as below
    return false;
  }
  Table units = table();
  if (now < until) {
    if (cost == 1) {
      const std::uint32_t unit = units.take();
      if (unit == Table::kNone) return false;
      limit_.since[unit].store(coarse_now_ns(), std::memory_order_relaxed);
      last_unit = {&limit_, unit};
      return true;
    }
    if (!units.take_all(cost, 0, coarse_now_ns())) return false;
  } else {
    if (now >= lease.static_until.load() ||
        !units.take_within(cost, lease.static_cap.load(), coarse_now_ns()))
      return false;
    if (lease.deadline.load() != until) {  // renewed meanwhile: the agent may have counted before
      units.give_back_any(cost);
      return false;
    }
  }
  last_unit = {&limit_, units.hint()};
  return true;
}

void Seat::give_back(std::uint32_t units) noexcept {
  if (!registered()) return;
  if (inherited_.load(std::memory_order_relaxed) != 0) [[unlikely]]
    units = without_inherited(units);
  if (weighed_) {
    counts().give_back(units);
    return offer();
  }
  Table own = table();
  own.give_back_any(units);
  last_unit = {&limit_, own.hint()};
  offer();
}

// In the child of a fork it is not known whether a call that ends is its own or one of its parent. Calls of the parent count
// first, so that no unit in use is given back.
std::uint32_t Seat::without_inherited(std::uint32_t units) noexcept {
  std::uint32_t inherited = inherited_.load();
  while (!inherited_.compare_exchange_weak(inherited, inherited - std::min(inherited, units))) {
  }
  return units - std::min(inherited, units);
}

std::uint32_t Seat::in_use() const noexcept {
  return weighed_ ? counts().held_by_owner() : table().held_by_owner();
}

std::uint32_t Seat::held_by_all() const noexcept {
  // A sum of several instants may be more than a word has.
  if (weighed_) return static_cast<std::uint32_t>(std::min<std::uint64_t>(Counts::held(limit_), UINT32_MAX));
  return table().held(std::min(limit_.high.load(), kUnits));
}

std::optional<std::uint32_t> Seat::host_in_use() const noexcept { return held_by_all(); }

// False: a process with an older call waits and goes first. If units are free, its bell is rung; until it has looked, or
// the grace of the region is over, it keeps its turn.
bool Seat::may_go_first(std::uint64_t key) noexcept {
  const std::uint32_t own = slot_of(token_.load(std::memory_order_relaxed));
  const std::int64_t now = now_ns();
  const std::int64_t grace = region_->image().header.grace.load(std::memory_order_relaxed);
  std::uint32_t first = kSlots;
  for (std::uint32_t i = 0; i < kSlots / 64; ++i) {
    for (std::uint64_t bits = limit_.waiting[i].load(); bits != 0; bits &= bits - 1) {
      const auto slot = i * 64 + static_cast<std::uint32_t>(__builtin_ctzll(bits));
      if (slot == own) continue;
      const std::uint64_t other = limit_.lines[slot].head.load();
      const std::int64_t called = limit_.lines[slot].called_at.load();
      if (other == 0 || other >= key || (called != 0 && now - called > grace)) continue;
      key = other;
      first = slot;
    }
  }
  if (first == kSlots) return true;
  std::int64_t not_called = 0;
  if (any_free() && limit_.lines[first].called_at.compare_exchange_strong(not_called, now))
    region_->ring(first);
  return false;
}

bool Seat::any_free() const noexcept {
  if (on_call_ && boot_now_ns() >= limit_.lease.deadline.load())
    return held_by_all() < limit_.lease.static_cap.load();
  if (weighed_) return held_by_all() < limit_.most.load();
  const std::uint32_t limit = std::min(Shape::of(limit_.shape.load()).limit, kUnits);
  return table().held(limit) < limit;
}

void Seat::offer() noexcept {
  if (table().any_line()) [[unlikely]]
    may_go_first(std::numeric_limits<std::uint64_t>::max());
}

void Seat::set_head(const Head* head) noexcept {
  if (!registered()) return;
  if (!head) {
    leave_line();
    return offer();
  }
  const std::uint32_t slot = slot_of(token_.load(std::memory_order_relaxed));
  Line& line = limit_.lines[slot];
  line.cost.store(head->cost, std::memory_order_relaxed);
  line.units.store(std::max(head->line, head->cost), std::memory_order_relaxed);
  line.head.store(key_of(head->priority, head->since));
  line.called_at.store(0);  // a look follows
  if (in_line_.exchange(true)) return;
  limit_.waiting[slot / 64].fetch_or(std::uint64_t{1} << slot % 64);
  region_->watch_line();
}

void Seat::leave_line() noexcept {
  if (!in_line_.exchange(false)) return;
  const std::uint32_t slot = slot_of(token_.load(std::memory_order_relaxed));
  limit_.lines[slot].head.store(0);
  limit_.lines[slot].called_at.store(0);
  limit_.waiting[slot / 64].fetch_and(~(std::uint64_t{1} << slot % 64));
}

std::uint32_t Seat::limit() const noexcept {
  if (weighed_) return limit_.most.load(std::memory_order_relaxed);
  return Shape::of(limit_.shape.load(std::memory_order_relaxed)).limit;
}

bool Seat::resize(std::uint32_t limit) noexcept {
  if (limit > kUnits && !weighed_) return false;
  Region::resize(limit_, limit);
  if (registered()) offer();
  return true;
}

std::uint32_t Seat::reserve() const noexcept {
  if (critical_reserve_ == 0) return 0;
  const std::uint32_t limit = this->limit();
  const auto wanted = static_cast<std::uint32_t>(std::ceil(critical_reserve_ * limit - 1e-9));
  return limit == 0 ? 0 : std::min(wanted, limit - 1);
}

void Seat::attend() noexcept {
  if (called()) {
    limit_.lease.wanted.store(0);
    on_call_();
  }
  if (in_line_.load()) user_.units_may_be_free();
}

bool Seat::lead() noexcept {
  if (leads_.load()) return true;
  if (!registered() || !region_->lead(limit_)) return false;
  limit_.lease.agent.store(slot_of(token_.load()) + 1);
  leads_.store(true);
  region_->watch_line();  // from now on its bell is answered
  return true;
}

void Seat::stop_leading() noexcept {
  if (leads_.exchange(false)) region_->stop_leading(limit_);
}

void Seat::call_agent() noexcept {
  if (leads_.load()) return on_call_();
  if (limit_.lease.wanted.exchange(1) != 0) return;
  if (const std::uint32_t agent = limit_.lease.agent.load(); agent != 0) region_->ring(agent - 1);
}

void Seat::after_fork(bool in_child) noexcept {
  if (in_child) {
    leads_.store(false);  // the lock is the parent's
    registered();
  }
  user_.after_fork(in_child);
}

}  // namespace bulkhead::shm
