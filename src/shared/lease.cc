#include "shared/lease.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/text.h"

namespace bulkhead::shared {
namespace {

constexpr std::int64_t kMilli = 1'000'000;
constexpr std::int64_t kFullMemo = 5 * kMilli;  // how long a member believes that the limit is full

}  // namespace

Lease::Lease(LeaseOptions options, HostLease* host) : host_(host), o_(std::move(options)), limit_(o_.limit) {
  if (o_.limit == 0 || o_.limit > kMaxUnits || o_.weight == 0 || o_.weight > kMaxWeight)
    base::throw_invalid("lease: a limit or a weight is out of range");
  if (o_.when_cut_off == WhenCutOff::local) {
    static_cap_ = local_cap();
    static_until_ = std::numeric_limits<std::int64_t>::max();
  }
}

std::uint32_t Lease::local_cap() const noexcept {
  const auto share = std::max(1u, static_cast<std::uint32_t>(limit() * o_.max_share + 1e-9));
  return host_ ? std::min(share, host_->capacity()) : share;
}

void Lease::void_all() noexcept {
  static_until_ = 0;
  static_cap_ = 0;
  deadline_ = 0;
}

void Lease::set_cap(std::uint32_t cap) noexcept {
  if (host_) return host_->set_cap(cap);
  std::uint64_t w = word_.load(std::memory_order_relaxed);
  while (!word_.compare_exchange_weak(w, std::uint64_t{cap} << 32 | in_use(w), std::memory_order_acq_rel,
                                      std::memory_order_relaxed)) {
  }
}

void Lease::drop_idle(std::uint32_t keep) noexcept {
  if (host_) {
    const std::uint32_t most = std::max(keep, host_->in_use_by_all());
    if (most < host_->cap()) host_->set_cap(most);
    return;
  }
  std::uint64_t w = word_.load(std::memory_order_relaxed);
  while (std::max(keep, in_use(w)) < cap(w) &&
         !word_.compare_exchange_weak(w, std::uint64_t{std::max(keep, in_use(w))} << 32 | in_use(w),
                                      std::memory_order_acq_rel, std::memory_order_relaxed)) {
  }
}

// While the store learns it grants nothing new, so nothing is given back. While units are spare, a member keeps what it
// will soon need again: its calls then need no request, and run on while the store is silent or learns.
std::uint32_t Lease::keeps(const Needs& needs, std::int64_t now) const noexcept {
  if (now < learning_until_) return std::numeric_limits<std::uint32_t>::max();
  return roomy_ ? needs.need : 0;
}

std::uint32_t Lease::safe_share() const noexcept {
  return std::min(local_cap(), limit() / std::max({1u, members_, o_.replicas}));
}

// C3. If all members claim this part at the first start, the sum is within the limit, so the fleet need not wait until the
// store has learned that there are no others. Calls that still run count: `in_use` has to fall below the new cap before a
// call is admitted.
std::uint32_t Lease::claim(std::int64_t now) noexcept {
  std::uint32_t units = o_.when_cut_off == WhenCutOff::local ? std::min(cap(), safe_share()) : allowed(now);
  if (renewed_at_ == 0 && o_.replicas != 0 && o_.when_cut_off != WhenCutOff::closed) units = safe_share();
  set_cap(units);
  return units;
}

bool Lease::needs_sync(const Needs& needs, std::int64_t now) const noexcept {
  if (full_ || restated_ || hungry_ || !valid(now) || now < learning_until_) return true;
  if (o_.direct) return false;
  return needs.rejected || needs.line > 0 || needs.need != sent_need_ || needs.slack != sent_slack_;
}

// Its units are missing elsewhere, so the request is sent before the next heartbeat.
bool Lease::needs_much_less(const Needs& needs) const noexcept {
  return 2 * (std::uint64_t{needs.need} + needs.slack) < std::uint64_t{sent_need_} + sent_slack_;
}

// The next heartbeat, or earlier if calls wait or units can go back. One request at a time: until its reply, its
// timeout.
std::int64_t Lease::due(const Needs& needs) const noexcept {
  if (!sent_any_) return 0;
  if (outstanding_) return sent_at_ + o_.times.reply_timeout;
  if (restated_) return sent_at_;
  std::int64_t at = sent_at_ + o_.times.heartbeat;
  const auto sooner = [&](std::int64_t t) { at = std::min(at, t); };
  if (full_ || hungry_ || held() < granted_) sooner(sent_at_ + o_.times.min_sync);
  const std::uint64_t w = word();
  if (o_.direct) {
    if (needs.line > 0)
      sooner(held() < local_cap() ? std::max({sent_at_, full_until_, learning_until_})
                                  : sent_at_ + o_.times.min_sync);
    if (needs.line == 0 && cap(w) > std::max(in_use(w), keeps(needs, sent_at_))) sooner(sent_at_);
  } else if (needs.rejected || needs.line > 0 || needs_much_less(needs)) {
    sooner(sent_at_ + o_.times.min_sync);
  }
  return at;
}

// The part that every request has. Its number makes a late or repeated one harmless (F2 in limit_state.h).
StoreRequest Lease::request(StoreOp op, const std::string& run, std::int64_t now) {
  StoreRequest r;
  r.op = op;
  r.member = o_.member;
  r.seq = ++seq_;
  r.weight = o_.weight;
  r.tie = o_.tie;
  r.ttl = o_.times.ttl / kMilli;
  r.grace = o_.times.grace / kMilli;
  r.gap = o_.times.gap / kMilli;
  r.run = run;
  r.seen_ver = seen_ver_;
  r.seen_at = seen_at_;
  r.since = seen_at_ != 0 ? (now - heard_at_) / kMilli : 0;
  r.limit = o_.limit;
  r.limit_version = o_.limit_version;
  return r;
}

std::optional<StoreRequest> Lease::next(const Needs& needs, const std::string& run, std::int64_t now) {
  if (now < due(needs)) return std::nullopt;
  const bool sync = needs_sync(needs, now);
  StoreRequest r = request(StoreOp::sync, run, now);
  // C1: lowered first, sent afterwards.
  if (!valid(now)) {
    r.have = claim(now);
  } else {
    if (o_.direct && needs.line == 0) drop_idle(keeps(needs, now));
    r.have = held();
  }
  // What is given back now is not used without a lease either.
  if (!o_.direct && o_.when_cut_off != WhenCutOff::local && r.have < static_cap_) static_cap_ = r.have;
  const std::uint32_t used = in_use();
  r.need = std::min(local_cap(), o_.direct ? used + needs.line : needs.need);
  r.slack = o_.direct ? 0 : std::min(local_cap() - r.need, needs.slack);
  // Calls wait now: what the past needed is not enough. A heavy call needs all its units at once.
  if (!o_.direct && (needs.line > 0 || needs.first > 1))
    r.need =
        std::min(local_cap(), std::max(r.need, used + std::max(needs.first, std::min(needs.line, used + 1))));
  if (!sync) {
    std::uint32_t more = o_.direct ? std::min(needs.line, local_cap() - std::min(local_cap(), r.have)) : 0;
    if (more > 0 && contended_ && r.have < granted_ && r.have >= target_) {
      // Other members wait, and this one has its share: others may fetch what it gives back before it asks again.
      more = 0;
      full_until_ = now + kFullMemo;
    }
    r.op = more > 0 ? StoreOp::borrow : r.have < granted_ ? StoreOp::give_back : StoreOp::renew;
    r.want = more;
  }
  sent_op_ = r.op;
  sent_have_ = r.have;
  sent_want_ = r.have + r.want;
  sent_need_ = o_.direct ? r.need : needs.need;
  sent_slack_ = needs.slack;
  sent_at_ = now;
  sent_any_ = outstanding_ = true;
  restated_ = false;
  publish();  // the number of the request, before it is sent
  return r;
}

bool Lease::on_reply(std::uint64_t seq, const StoreReply& reply, std::int64_t now) noexcept {
  if (!outstanding_ || seq != seq_) return false;
  outstanding_ = false;
  seen_ver_ = std::max(seen_ver_, reply.ver);
  if (reply.limit_version > o_.limit_version) {
    o_.limit = reply.limit;
    o_.limit_version = reply.limit_version;
  }
  seen_at_ = reply.status == StoreStatus::ok ? reply.at : 0;
  heard_at_ = now;
  if (reply.status != StoreStatus::ok) {
    full_ = true;
    publish();
    return true;
  }
  const bool synced = sent_op_ == StoreOp::sync;
  full_ = false;
  contended_ = reply.hungry;
  hungry_ = reply.hungry && !synced && now - synced_at_ >= o_.times.min_sync;
  learning_until_ = reply.learning > 0 ? now + reply.learning * kMilli : 0;
  limit_ = reply.limit;
  if (reply.members > 0) members_ = reply.members;
  granted_ = reply.granted;
  publish();  // what is granted, before it is used
  // A sync says anew what this member's share is; the others only add to the cap what they have fetched.
  std::uint32_t most = cap() + (reply.granted - std::min(reply.granted, sent_have_));
  roomy_ = !reply.hungry && 4 * std::uint64_t{reply.spare} >= reply.limit;
  if (synced) {
    synced_at_ = now;
    target_ = reply.target;
    // What it may give back it cannot get again while the store learns.
    most = (o_.direct || reply.learning > 0) && reply.spare > 0 ? reply.granted : target_;
  }
  set_cap(std::min({reply.granted, local_cap(), most}));
  if (o_.direct && reply.granted < sent_want_) {
    full_until_ = now + kFullMemo;
    // Units of dead members come back by a sync only.
    if (now - synced_at_ > o_.times.heartbeat / 4) full_ = true;
  }
  renewed_at_ = sent_at_;
  const std::int64_t deadline = sent_at_ + o_.times.ttl - o_.times.margin;
  std::uint32_t degraded = 0;
  if (o_.when_cut_off == WhenCutOff::safe_share)
    // A direct member holds next to nothing between its calls, so its last lease says nothing.
    degraded = o_.direct ? safe_share() : std::min(cap(), safe_share());
  else if (o_.when_cut_off == WhenCutOff::keep)
    degraded = cap();
  else if (o_.when_cut_off == WhenCutOff::local)
    degraded = local_cap();
  static_cap_.store(degraded, std::memory_order_relaxed);
  const std::int64_t most_static = std::numeric_limits<std::int64_t>::max() - deadline;
  static_until_.store(deadline + std::min(o_.static_for, most_static), std::memory_order_relaxed);
  deadline_.store(deadline, std::memory_order_release);  // after the cap: see allowed()
  publish();
  return true;
}

StoreRequest Lease::leave_request(const std::string& run, std::int64_t now) {
  set_cap(0);
  void_all();
  granted_ = 0;
  StoreRequest r = request(StoreOp::leave, run, now);
  publish();
  return r;
}

bool Lease::set_limit(std::uint32_t limit) noexcept {
  if (limit == 0 || limit > kMaxUnits) return false;
  if (limit == o_.limit && limit == this->limit()) return true;
  o_.limit = limit;
  limit_ = limit;
  ++o_.limit_version;
  restated_ = true;
  return true;
}

void Lease::adopt_limit(std::uint32_t limit, std::uint64_t version) noexcept {
  if (version <= o_.limit_version || limit == 0 || limit > kMaxUnits) return;
  o_.limit = limit;
  o_.limit_version = version;
  limit_ = limit;
  restated_ = true;
}

LeaseTerms Lease::terms() const noexcept {
  return {.deadline = deadline_.load(),
          .static_until = static_until_.load(),
          .static_cap = static_cap_.load(),
          .granted = granted_,
          .members = members_,
          .limit = limit(),
          .limit_version = o_.limit_version,
          .seq = seq_,
          .seen_ver = seen_ver_,
          .renewed_at = renewed_at_,
          .learning_until = learning_until_,
          .direct = o_.direct};
}

void Lease::resume(const LeaseTerms& t) noexcept {
  if (t.seq == 0) return;  // no agent has sent a request yet
  static_until_ = t.static_until;
  static_cap_ = t.static_cap;
  granted_ = t.granted;
  members_ = t.members;
  seq_ = t.seq;
  seen_ver_ = t.seen_ver;
  renewed_at_ = t.renewed_at;
  learning_until_ = t.learning_until;
  o_.direct = t.direct;
  if (t.limit != 0 && t.limit_version >= o_.limit_version) {
    o_.limit_version = t.limit_version;
    limit_ = o_.limit = t.limit;
  }
  deadline_ = t.deadline;
  full_ = true;
  seen_at_ = 0;  // another process heard it
  roomy_ = false;
  sent_any_ = outstanding_ = false;
}

void Lease::identify() {
  if (host_) host_->identify(o_.member, o_.tie);
}

FleetState Lease::state(std::int64_t now) const noexcept {
  if (renewed_at_ == 0) return FleetState::joining;
  if (!valid(now)) return FleetState::degraded;
  return now < learning_until_ ? FleetState::learning : FleetState::leased;
}

}  // namespace bulkhead::shared
