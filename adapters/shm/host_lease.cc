#include "host_lease.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace bulkhead::shm {
namespace {

using Words = Cell<std::uint64_t>[kNameWords];

void write_text(Words& words, std::string_view text) noexcept {
  std::uint64_t bytes[kNameWords] = {};
  std::memcpy(bytes, text.data(), std::min(text.size(), sizeof bytes - 8));
  for (std::uint32_t i = 0; i < kNameWords; ++i) words[i].store(bytes[i], std::memory_order_relaxed);
}

std::string read_text(const Words& words) {
  char bytes[kNameWords * 8 + 1] = {};
  for (std::uint32_t i = 0; i < kNameWords; ++i) {
    const std::uint64_t word = words[i].load(std::memory_order_relaxed);
    std::memcpy(bytes + i * 8, &word, 8);
  }
  return bytes;
}

}  // namespace

LeaseOfHost::LeaseOfHost(std::shared_ptr<Region> region, const UnitSources::Request& request,
                         std::string_view store, UnitUser& user, std::function<void()> on_call)
    : region_(std::move(region)),
      limit_(region_->limit(request.bulkhead, store)),
      lease_(limit_.lease),
      token_(region_->token()),
      seat_(region_, limit_, request, user, std::move(on_call)) {
  std::uint32_t unknown = 0;
  lease_.limit.compare_exchange_strong(unknown, request.max_concurrent);
  Part& part = own();
  part.stated_version.store(0);
  part.arrived.store(0);
  part.admitted.store(0);
  part.generation.store(static_cast<std::uint32_t>(token_));
}

LeaseOfHost::~LeaseOfHost() {
  // In the child of a fork the slot is the parent's.
  if (region_->token() == token_) own().generation.store(0);
}

bool LeaseOfHost::uses(std::uint32_t slot) const noexcept {
  const std::uint32_t generation = limit_.parts[slot].generation.load();
  return generation != 0 && generation == region_->image().slots[slot].generation.load();
}

bool LeaseOfHost::alone() const noexcept {
  for (std::uint32_t slot = 0; slot < kSlots; ++slot)
    if (slot != slot_of(token_) && uses(slot) && region_->alive(slot)) return false;
  return true;
}

std::string LeaseOfHost::problem() const { return read_text(lease_.problem); }
void LeaseOfHost::set_problem(const std::string& problem) noexcept { write_text(lease_.problem, problem); }

void LeaseOfHost::identify(std::string& member, std::uint32_t& tie) noexcept {
  if (std::string known = read_text(lease_.member); !known.empty()) {
    member = std::move(known);
    tie = lease_.tie.load();
    return;
  }
  lease_.tie.store(tie);
  write_text(lease_.member, member);
}

std::uint32_t LeaseOfHost::cap() const noexcept { return seat_.limit(); }

void LeaseOfHost::set_cap(std::uint32_t units) noexcept {
  const std::uint32_t before = cap();
  Region::resize(limit_, units);
  if (units > before) seat_.offer();
}

std::uint32_t LeaseOfHost::in_use_by_all() const noexcept { return seat_.held_by_all(); }

LeaseTerms LeaseOfHost::terms() const noexcept {
  return {.deadline = lease_.deadline.load(),
          .static_until = lease_.static_until.load(),
          .static_cap = lease_.static_cap.load(),
          .granted = lease_.granted.load(),
          .members = lease_.members.load(),
          .limit = lease_.limit.load(),
          .limit_version = lease_.limit_version.load(),
          .seq = lease_.seq.load(),
          .seen_ver = lease_.seen_ver.load(),
          .renewed_at = lease_.renewed_at.load(),
          .learning_until = lease_.learning_until.load(),
          .direct = lease_.direct.load() != 0};
}

// The agent may be killed between any two of these. The next one must not use an old number of a request again, take the
// old limit for that of a new version, or believe in a deadline whose cap and grant it does not see.
void LeaseOfHost::set_terms(const LeaseTerms& t) noexcept {
  lease_.seq.store(t.seq);
  lease_.seen_ver.store(t.seen_ver);
  lease_.granted.store(t.granted);
  lease_.limit.store(t.limit);
  lease_.limit_version.store(t.limit_version);
  lease_.members.store(t.members);
  lease_.renewed_at.store(t.renewed_at);
  lease_.learning_until.store(t.learning_until);
  lease_.direct.store(t.direct);
  if (!seat_.weighed()) Region::reserve(limit_, t.static_cap);
  lease_.static_cap.store(t.static_cap);
  lease_.static_until.store(t.static_until);
  lease_.deadline.store(t.deadline);
}

void LeaseOfHost::report(const UnitUser::Usage& usage) noexcept {
  own().arrived.store(usage.arrived, std::memory_order_relaxed);
  own().admitted.store(usage.admitted, std::memory_order_relaxed);
}

HostLease::Sum LeaseOfHost::sum() noexcept {
  if (region_->sweep_is_due(limit_)) region_->sweep(limit_);
  const bool first = seen_.empty();  // what was before counts as seen
  seen_.resize(kSlots);
  Sum sum;
  for (std::uint32_t slot = 0; slot < kSlots; ++slot) {
    if (limit_.lines[slot].head.load() != 0) {
      sum.line += limit_.lines[slot].units.load();
      sum.first = std::max(sum.first, limit_.lines[slot].cost.load());
    }
    if (!uses(slot)) continue;
    const Part& part = limit_.parts[slot];
    Seen now{part.generation.load(), part.arrived.load(), part.admitted.load()};
    Seen& before = seen_[slot];
    if (before.generation != now.generation) before = {.generation = now.generation};
    if (!first) {
      sum.arrived += now.arrived - std::min(now.arrived, before.arrived);
      sum.admitted += now.admitted - std::min(now.admitted, before.admitted);
    }
    before = now;
    const std::uint64_t version = part.stated_version.load();
    if (version > sum.stated_version) {
      sum.stated_version = version;
      sum.stated_limit = part.stated_limit.load();
    }
  }
  return sum;
}

void LeaseOfHost::state_limit(std::uint32_t limit, std::uint64_t version) noexcept {
  own().stated_limit.store(limit);
  own().stated_version.store(version);
  seat_.call_agent();
}

bool LeaseOfHost::resize(std::uint32_t limit) noexcept {
  if (limit == 0) return false;
  lease_.limit.store(limit);  // until the agent has sent it to the store
  state_limit(limit, std::max(lease_.limit_version.load(), own().stated_version.load()) + 1);
  return true;
}

}  // namespace bulkhead::shm
