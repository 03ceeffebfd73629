#include "bulkhead/group.h"

#include <algorithm>
#include <atomic>
#include <new>
#include <utility>

#include "base/text.h"
#include "bulkhead/detail/std_mutex.h"
#include "group/ledger.h"

namespace bulkhead {

using group::Ledger;
using group::Member;
using group::Part;

namespace {

[[noreturn]] void reject(std::string_view group, std::string_view problem) {
  base::throw_invalid(base::join({"group \"", group, "\": ", problem}));
}

void check_total(std::string_view group, std::uint32_t total) {
  if (total >= 1 && total <= detail::word::kMaxLimit) return;
  reject(group, base::join({"total = ", std::to_string(total), " is out of range: give 1 to ",
                            std::to_string(detail::word::kMaxLimit)}));
}

void check_member(std::string_view group, const MemberOptions& m) {
  if (m.name.empty()) reject(group, "a member has no name: give each one its own");
  if (!m.gate.name.empty() && m.gate.name != m.name)
    reject(group, base::join({"member \"", m.name, "\" has gate.name = \"", m.gate.name,
                              "\": leave it out, the gate is called like the member"}));
  if (m.gate.max_concurrent != 1)
    reject(group, base::join({"member \"", m.name, "\" has gate.max_concurrent = ",
                              std::to_string(m.gate.max_concurrent), ": give guaranteed and max instead"}));
}

Clock& clock_of(const GroupOptions& o) { return o.clock ? *o.clock : Clock::steady(); }

}  // namespace

struct Group::Core {
  explicit Core(GroupOptions& o)
      : name((check_total(o.name, o.total), std::move(o.name))),
        clock(clock_of(o)),
        given_total(o.total),
        ledger({.total = o.total, .lend = o.lend, .keep = o.keep, .clock = clock}) {}
  ~Core() {
    for (const auto& m : ledger.members()) m->gate.close();
    while (!ledger.members().empty()) {
      Member& m = *ledger.members().front();
      m.gate.drain();
      const auto out = ledger.take_out(m);
    }
  }
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;

  std::vector<Part> parts() const {
    std::vector<Part> parts;
    for (const auto& m : ledger.members())
      parts.push_back({m->name, m->gate.closed() ? Share{} : m->guaranteed_share, m->max_share});
    return parts;
  }
  // The shares after these have changed or these members were added.
  std::vector<Part> parts_with(const std::vector<NewShare>& shares) const {
    std::vector<Part> parts = this->parts();
    for (const NewShare& share : shares) {
      const auto same = [&](const Part& part) { return part.name == share.member; };
      const auto part = std::find_if(parts.begin(), parts.end(), same);
      if (part == parts.end())
        parts.push_back({share.member, share.guaranteed, share.max});
      else
        *part = {part->name, share.guaranteed, share.max};
    }
    return parts;
  }
  // Gives these parts, one for each member, their units of the total in force; `total` is the one they are given for.
  // Throws if they do not fit that one, before anything has changed.
  std::vector<group::Quota> quotas(std::uint32_t total, const std::vector<Part>& parts) const
      BULKHEAD_REQUIRES(shape) {
    std::vector<group::Quota> given = group::quotas(name, total, parts);
    return adapted ? group::shrunk_quotas(ledger.total(), parts) : given;
  }
  std::uint32_t total_in_force(std::uint32_t given) const BULKHEAD_REQUIRES(shape) {
    return adapted ? ledger.total() : given;
  }
  Member& existing(std::string_view member) const {
    Member* m = ledger.find(member);
    if (!m) reject(name, base::join({"it has no member \"", member, "\": add it first, or check the name"}));
    return *m;
  }
  void adapt(std::uint32_t total);
  void insert(MemberOptions o, const group::Quota& quota, std::uint32_t allotted, Ledger::Change& change) {
    if (!o.gate.clock) o.gate.clock = &clock;
    ledger.add(std::make_unique<Member>(ledger, std::move(o), quota, allotted), change);
  }

  const std::string name;
  Clock& clock;
  std::atomic<std::uint32_t> given_total;  // written under `shape`
  Ledger ledger;
  // Held while the total, the shares or the members change; never while waiting for permits or running user code. A
  // Ledger::Change, made before it is locked, tells admitted waiters after it is unlocked.
  detail::StdMutex shape;
  // A limiter has moved the total in force since resize(). It fits the guarantees to it, so that they need to fit the given
  // total only.
  bool adapted BULKHEAD_GUARDED_BY(shape) = false;
};

// All shares are checked together before the first gate is made.
Group::Group(GroupOptions o) {
  if (o.keep < std::chrono::nanoseconds(0)) reject(o.name, "keep is negative: give 0 or more");
  std::vector<Part> parts;
  for (const MemberOptions& m : o.members) {
    check_member(o.name, m);
    for (const Part& other : parts)
      if (other.name == m.name)
        reject(o.name, base::join({"two members are called \"", m.name, "\": give each one its own name"}));
    parts.push_back({m.name, m.guaranteed, m.max});
  }
  check_total(o.name, o.total);
  const std::vector<group::Quota> quotas = group::quotas(o.name, o.total, parts);
  core_ = std::make_unique<Core>(o);
  for (std::size_t i = 0; i < quotas.size(); ++i) {
    Ledger::Change change(core_->ledger);
    change.prepare();
    core_->insert(std::move(o.members[i]), quotas[i], quotas[i].guaranteed, change);
  }
}

Group::~Group() = default;

Gate& Group::member(std::string_view name) { return core_->existing(name).gate; }

Gate* Group::find(std::string_view name) noexcept {
  Member* m = core_->ledger.find(name);
  return m ? &m->gate : nullptr;
}

void Group::resize(std::uint32_t total) {
  check_total(core_->name, total);
  Ledger::Change change(core_->ledger);
  const detail::MutexLock lock(core_->shape);
  change.prepare();
  const std::vector<group::Quota> quotas = group::quotas(core_->name, total, core_->parts());
  core_->given_total = total;
  core_->adapted = false;
  core_->ledger.reshape(total, quotas, change);
}

bool Group::adapt(std::uint32_t total) noexcept {
#if defined(__cpp_exceptions)
  try {
    core_->adapt(total);
  } catch (const std::bad_alloc&) {
    return false;
  }
#else
  core_->adapt(total);
#endif
  return true;
}

void Group::Core::adapt(std::uint32_t total) {
  Ledger::Change change(ledger);
  const detail::MutexLock lock(shape);
  change.prepare();
  const std::vector<group::Quota> quotas = group::shrunk_quotas(total, parts());
  adapted = true;
  ledger.reshape(total, quotas, change);
}

void Group::update(std::string_view member, Share guaranteed, Share max) {
  Ledger::Change change(core_->ledger);
  const detail::MutexLock lock(core_->shape);
  change.prepare();
  Member& m = core_->existing(member);
  const Share old_guaranteed = std::exchange(m.guaranteed_share, guaranteed);
  const Share old_max = std::exchange(m.max_share, max);
  std::vector<group::Quota> quotas;
  {
    // Throws before anything has changed.
    struct Undo {
      Member* m;
      Share guaranteed, max;
      ~Undo() {
        if (!m) return;
        m->guaranteed_share = guaranteed;
        m->max_share = max;
      }
    } undo{&m, old_guaranteed, old_max};
    quotas = core_->quotas(core_->given_total, core_->parts());
    undo.m = nullptr;
  }
  core_->ledger.reshape(core_->total_in_force(core_->given_total), quotas, change);
}

void Group::update(std::uint32_t total, const std::vector<NewShare>& shares) {
  check_total(core_->name, total);
  Ledger::Change change(core_->ledger);
  const detail::MutexLock lock(core_->shape);
  change.prepare();
  for (const NewShare& share : shares) core_->existing(share.member);
  const std::vector<group::Quota> quotas = core_->quotas(total, core_->parts_with(shares));
  for (const NewShare& share : shares) {
    Member& m = core_->existing(share.member);
    m.guaranteed_share = share.guaranteed;
    m.max_share = share.max;
  }
  core_->given_total = total;
  core_->ledger.reshape(core_->total_in_force(total), quotas, change);
}

void Group::check(std::uint32_t total, const std::vector<NewShare>& shares) const {
  check_total(core_->name, total);
  const detail::MutexLock lock(core_->shape);
  (void)group::quotas(core_->name, total, core_->parts_with(shares));
}

std::uint32_t Group::total() const { return core_->given_total; }

std::string Group::label() const { return base::join({"group \"", core_->name, "\""}); }
Clock& Group::clock() const noexcept { return core_->clock; }
std::uint32_t Group::limit() const noexcept { return core_->ledger.total(); }
std::uint64_t Group::rejected() const noexcept { return core_->ledger.rejected(); }

// A member that is full at its share of the total presses against the total, although others leave units free.
std::uint32_t Group::in_flight(const Gate& gate) const noexcept {
  const std::uint32_t all = core_->ledger.in_flight();
  return detail::MemberGate::at_its_share(gate) ? std::max(all, limit()) : all;
}

Gate& Group::add(MemberOptions o) {
  check_member(core_->name, o);
  Ledger::Change change(core_->ledger);
  const detail::MutexLock lock(core_->shape);
  change.prepare();
  if (core_->ledger.find(o.name))
    reject(core_->name, base::join({"it has a member \"", o.name, "\" already: remove that first"}));
  std::vector<Part> parts = core_->parts();
  parts.push_back({o.name, o.guaranteed, o.max});
  const std::vector<group::Quota> quotas = core_->quotas(core_->given_total, parts);
  const group::Quota mine = quotas.back();
  const std::string name = o.name;
  core_->insert(std::move(o), mine, 0, change);
  // All members: shares in per cent are rounded together.
  core_->ledger.reshape(core_->total_in_force(core_->given_total), quotas, change);
  return core_->existing(name).gate;
}

bool Group::remove(std::string_view name, TimePoint until) {
  Member* m = nullptr;
  {
    const detail::MutexLock lock(core_->shape);
    m = core_->ledger.find(name);
    if (!m || std::exchange(m->removing, true)) return false;
  }
  m->gate.close();
  const bool drained = m->gate.drain(until);
  std::unique_ptr<Member> out;  // destroyed without the lock: its gate waits for calls that still use it
  Ledger::Change change(core_->ledger);
  const detail::MutexLock lock(core_->shape);
  if (drained)
    out = core_->ledger.take_out(*m);
  else
    m->removing = false;
  change.prepare();
  core_->ledger.reshape(core_->total_in_force(core_->given_total),
                        core_->quotas(core_->given_total, core_->parts()), change);
  return drained;
}

std::string_view Group::name() const noexcept { return core_->name; }

GroupSnapshot Group::snapshot() const {
  GroupSnapshot s;
  s.name = core_->name;
  core_->ledger.fill(s);
  return s;
}

const GroupSnapshot::Member* GroupSnapshot::find(std::string_view member) const noexcept {
  for (const Member& m : members)
    if (m.name == member) return &m;
  return nullptr;
}

}  // namespace bulkhead
