#include "shared/limit_state.h"

#include <algorithm>

#include "shared/member_list.h"
#include "shared/share.h"

namespace bulkhead::shared {
namespace {

// In the order of the script.
StoreReply reply(StoreStatus status, const LimitState& s, const StoreRequest& r, std::int64_t now) {
  StoreReply answer{
      .status = status, .ver = s.ver, .limit = s.limit, .limit_version = s.limit_version, .at = now};
  if (s.limit > s.sum) answer.spare = static_cast<std::uint32_t>(s.limit - s.sum);
  if (s.learn > now) answer.learning = s.learn - now;
  answer.hungry = s.hungry > 0 && now - s.hungry < r.ttl;
  return answer;
}

std::uint64_t sum_of(const LimitState& s) {
  std::uint64_t sum = 0;
  for (const auto& [id, m] : s.members) sum += m.granted;
  return sum;
}

// True: since the latest request, of any member, the clock has not stepped by more than `gap`: see F3.
bool measured(const LimitState& s, const StoreRequest& r, std::int64_t now) {
  return r.seen_at > 0 && r.seen_at <= s.last && r.seen_ver > s.doubted && r.since < r.ttl &&
         now - r.seen_at - r.since <= r.gap;
}

bool is_another_table(const LimitState& s, const StoreRequest& r, std::int64_t now) {
  return !s.known || s.run != r.run || r.seen_ver > s.ver || now < s.last;
}

// With an empty table there is no lease that a step of the clock could have ended too early.
bool may_have_stepped(const LimitState& s, const StoreRequest& r, std::int64_t now) {
  return now - s.last > r.gap && s.sum > 0 && !measured(s, r, now);
}

void note(LimitState& s, MemberState& m, const StoreRequest& r, std::uint32_t granted, std::int64_t now) {
  m = {granted, r.need, r.slack, r.weight, r.tie, now + r.ttl, r.seq};
  if (granted < r.need) s.hungry = now;
  s.last = now;
  ++s.ver;
}

StoreReply sync(LimitState& s, const StoreRequest& r, std::int64_t now) {
  const auto known = s.members.find(r.member);
  if (known != s.members.end() && r.seq <= known->second.seq) return reply(StoreStatus::stale, s, r, now);
  std::uint64_t sum = sum_of(s);
  const bool lost = is_another_table(s, r, now) || s.sum != sum;
  const bool doubt = lost || may_have_stepped(s, r, now);
  // Either this request is late and its sender no longer waits: then the table is not in doubt. Or its sender reads the
  // reply and sends the request again, without a time.
  if (doubt && !lost && r.seen_at > 0) return reply(StoreStatus::full, s, r, now);
  if (!s.known) {
    s.known = true;
    s.limit = r.limit;
    s.limit_version = r.limit_version;
  }
  s.run = r.run;
  s.ver = std::max(s.ver, r.seen_ver);
  if (doubt) {
    s.learn = now + r.ttl + r.grace;
    s.doubted = s.ver;
  }
  const bool learning = now < s.learn;
  if (!learning)
    s.members.erase_if([&](const auto& m) {
      if (now < m.second.expires + r.grace) return false;
      sum -= m.second.granted;
      return true;
    });

  const auto own = s.members.find(r.member);
  const bool live = own != s.members.end() && now < own->second.expires;
  // The only member may state its number, unless a newer configuration is known.
  const bool alone = s.members.empty() || (s.members.size() == 1 && own != s.members.end());
  if (r.limit_version > s.limit_version ||
      (alone && r.limit_version >= s.limit_version - s.limit_version % kVersionStep)) {
    s.limit = r.limit;
    s.limit_version = r.limit_version;
  }

  const std::uint32_t before = live ? own->second.granted : 0;
  MemberState& m = s.members[r.member];
  const std::uint64_t others = sum - m.granted;
  const auto free = static_cast<std::uint32_t>(s.limit > others ? s.limit - others : 0);
  m.need = r.need;
  m.slack = r.slack;
  m.weight = r.weight;
  m.tie = r.tie;
  const std::uint32_t target = share_of(m, s, now / r.ttl);
  std::uint32_t granted = r.have;
  if (!learning) granted = std::max(std::min(r.have, before), std::min(std::max(r.have, target), free));
  note(s, m, r, granted, now);
  s.sum = others + granted;
  StoreReply answer = reply(StoreStatus::ok, s, r, now);
  answer.granted = granted;
  answer.target = target;
  answer.members = static_cast<std::uint32_t>(s.members.size());
  return answer;
}

// renew, borrow, give_back: read and write one member, so their cost does not grow with the table.
StoreReply fast(LimitState& s, const StoreRequest& r, std::int64_t now) {
  const auto own = s.members.find(r.member);
  if (own != s.members.end() && r.seq <= own->second.seq) return reply(StoreStatus::stale, s, r, now);
  if (own == s.members.end() || is_another_table(s, r, now) || may_have_stepped(s, r, now) || now < s.learn ||
      now >= own->second.expires || r.have > own->second.granted || s.sum < own->second.granted ||
      r.limit_version > s.limit_version)
    return reply(StoreStatus::full, s, r, now);
  const std::uint64_t used = s.sum - own->second.granted + r.have;
  const std::uint64_t free = s.limit > used ? s.limit - used : 0;
  const std::uint32_t more =
      r.op == StoreOp::borrow ? static_cast<std::uint32_t>(std::min<std::uint64_t>(r.want, free)) : 0;
  note(s, own->second, r, r.have + more, now);
  s.sum = used + more;
  StoreReply answer = reply(StoreStatus::ok, s, r, now);
  answer.granted = answer.target = r.have + more;
  answer.members = static_cast<std::uint32_t>(s.members.size());
  return answer;
}

StoreReply leave(LimitState& s, const StoreRequest& r, std::int64_t now) {
  const auto own = s.members.find(r.member);
  if (own == s.members.end() || !s.known) return reply(StoreStatus::ok, s, r, now);
  if (r.seq <= own->second.seq) return reply(StoreStatus::stale, s, r, now);
  s.sum = s.sum >= own->second.granted ? s.sum - own->second.granted : 0;
  s.members.erase(own);
  ++s.ver;
  return reply(StoreStatus::ok, s, r, now);
}

// A list is made at most once per heartbeat, and less often in a large fleet, however many members ask for it.
StoreReply list(LimitState& s, const StoreRequest& r, std::int64_t now) {
  StoreReply answer = reply(StoreStatus::ok, s, r, now);
  if (!s.known) return answer;
  answer.members = static_cast<std::uint32_t>(s.members.size());
  if (r.want > kListedMembers) {
    answer.list = list_of(s, r.want, now);
    return answer;
  }
  const std::int64_t age = now - s.listed;
  if (s.list.empty() || age < 0 || age >= std::max<std::int64_t>(r.ttl / 5, answer.members)) {
    s.list = list_of(s, kListedMembers, now);
    s.listed = now;
  }
  answer.list = s.list;
  answer.list_age = now - s.listed;
  return answer;
}

}  // namespace

StoreReply decide(LimitState& state, const StoreRequest& request, std::int64_t now) {
  switch (request.op) {
    case StoreOp::sync:
      return sync(state, request, now);
    case StoreOp::leave:
      return leave(state, request, now);
    case StoreOp::list:
      return list(state, request, now);
    default:
      return fast(state, request, now);
  }
}

}  // namespace bulkhead::shared
