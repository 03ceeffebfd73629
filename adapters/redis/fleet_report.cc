#include "fleet_report.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "connection.h"
#include "shared/member_list.h"
#include "store.h"

namespace bulkhead::redis {
namespace {

constexpr auto kPatience = std::chrono::seconds(5);
constexpr std::int64_t kLongest = std::int64_t{365} * 86'400'000;  // ms that a lapsed member is listed

// Without the number at its end, which makes it unique.
std::string for_people(const std::string& member) {
  const std::size_t end = member.rfind('-');
  const bool numbered = end != member.npos && end + 1 < member.size() &&
                        member.find_first_not_of("0123456789", end + 1) == member.npos;
  return numbered ? member.substr(0, end) : member;
}

// Each attempt is at the next address.
void connect(Store& store, std::size_t addresses, Store::Until until) {
  for (std::size_t left = addresses;; --left) try {
      return store.connect(part_of(until, left));
    } catch (const std::runtime_error&) {
      if (left == 1) throw;
    }
}

}  // namespace

shared::StoreRequest list_request(std::int64_t ttl, std::uint32_t most) {
  shared::StoreRequest r;
  r.op = shared::StoreOp::list;
  r.want = most;
  r.ttl = ttl;
  return r;
}

// A member sends its lease with each request, and all members of a fleet have the same.
bool read_list(const shared::StoreReply& reply, std::int64_t ttl, std::string_view own, FleetList& out) {
  shared::MemberList list;
  if (!shared::read_list(reply.list, list)) return false;
  out = {.leased = list.leased,
         .lapsed = list.lapsed,
         .held = list.held,
         .needed = list.needed,
         .lapsed_held = list.lapsed_held};
  for (const auto& m : list.members)
    out.members.push_back({.name = for_people(m.name),
                           .held = m.held,
                           .needed = m.needed,
                           .lease_age = std::chrono::milliseconds(ttl - std::clamp(m.left, -kLongest, ttl)),
                           .lapsed = m.left <= 0,
                           .own = !own.empty() && m.name == own});
  return true;
}

FleetReport report(const FleetSettings& s, const std::vector<std::string>& limits, std::uint32_t most) {
  StoreOptions options = store_options(s);
  const std::size_t addresses = options.url.sentinel_master.empty() ? options.url.addresses.size() : 1;
  Store store(std::move(options));
  const std::int64_t ttl = std::chrono::duration_cast<std::chrono::milliseconds>(s.lease).count();
  std::vector<Store::Question> questions;
  for (const std::string& name : limits) questions.push_back({name, list_request(ttl, most)});
  const auto until = std::chrono::steady_clock::now() + kPatience;
  FleetReport report;
  std::vector<Store::Answer> answers;
  for (bool again = true; again;) {  // a cluster may send us to another node
    connect(store, addresses, until);
    report.store = store.address();
    report.warnings = store.warnings();
    if (questions.empty()) return report;
    answers = store.exchange(questions, until);
    again = !store.connected() && std::ranges::all_of(answers, [](const auto& a) {
      return !a.ok && (a.problem.starts_with("MOVED ") || a.problem.starts_with("ASK "));
    });
  }
  for (std::size_t i = 0; i < answers.size(); ++i) {
    if (!answers[i].ok) throw std::runtime_error("the store answered: " + answers[i].problem);
    const shared::StoreReply& reply = answers[i].reply;
    FleetReport::Limit& limit = report.limits.emplace_back();
    limit.name = limits[i];
    limit.known = read_list(reply, ttl, "", limit.list);
    limit.limit = reply.limit;
    limit.spare = reply.spare;
    limit.limit_version = reply.limit_version;
    limit.learning = std::chrono::milliseconds(reply.learning);
    limit.list_age = std::chrono::milliseconds(reply.list_age);
  }
  return report;
}

}  // namespace bulkhead::redis
