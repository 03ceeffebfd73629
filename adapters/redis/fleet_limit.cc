#include "fleet_limit.h"

#include <pthread.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "fleet_report.h"
#include "shared/member_list.h"

namespace bulkhead::redis {
namespace {

constexpr std::int64_t kSampleEvery = 20'000'000;
constexpr std::int64_t kLookEvery = 100'000'000;  // of a process that is not the agent, for a dead agent
std::string milliseconds(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f ms", seconds * 1e3);
  return text;
}
constexpr double kNoDemand = 0.1;  // units
// What a store carries without trouble, and how much longer than the round trip a call has to take.
constexpr double kDirectOps = 10'000, kRoundTrips = 5;

}  // namespace

std::atomic<std::uint32_t> forks{0};

void watch_forks() {
  static const int watched =
      ::pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1, std::memory_order_relaxed); });
  (void)watched;
}

shared::LeaseOptions lease_options(const FleetSettings& s, const UnitSources::Request& r) {
  shared::LeaseOptions o;
  o.times = shared::LeaseTimes::from(s.lease.count(), s.grace.count());
  o.when_cut_off = s.when_cut_off;
  o.static_for = s.cut_off_for.count();
  o.max_share = s.max_share;
  o.weight = s.weight;
  o.replicas = s.replicas;
  o.limit = r.max_concurrent;
  o.limit_version = s.version * shared::kVersionStep;
  o.direct = s.mode != FleetMode::block && r.max_queue > 0;
  return o;
}

FleetLimit::FleetLimit(std::string name, shared::LeaseOptions options, FleetMode mode, bool has_line,
                       UnitUser& user, std::function<void()> wake, const OpenLease& open_lease, Now now)
    : name_(std::move(name)),
      mode_(mode),
      has_line_(has_line),
      forks_(forks.load()),
      wake_(std::move(wake)),
      now_(now),
      host_(open_lease ? open_lease([this] { called(); }) : nullptr),
      lease_(std::move(options), host_.get()),
      direct_(lease_.options().direct),
      user_(&user) {
  if (host_) host_->state_limit(lease_.options().limit, lease_.options().limit_version);
}

bool FleetLimit::take(const UnitSource::Head& head) noexcept {
  if (forked()) return false;
  if (!asked_.load(std::memory_order_relaxed)) asked_.store(true, std::memory_order_relaxed);
  if (host_ ? host_->take(head) : lease_.take(head.cost, now_())) return true;
  // The cost stays until the store is asked, so that a storm of rejections wakes the thread once.
  if (!direct_.load(std::memory_order_relaxed) && rejected_.load(std::memory_order_relaxed) < head.cost) {
    rejected_.store(head.cost);
    wake_();
  }
  return false;
}

// A call of a process of this host has found no unit or left one, and this process is the agent.
void FleetLimit::called() noexcept {
  std::uint32_t none = 0;
  if (!direct_.load(std::memory_order_relaxed) && !rejected_.compare_exchange_strong(none, 1)) return;
  wake_();
}

void FleetLimit::give_back_to_host(std::uint32_t units) noexcept {
  if (forked()) return;
  host_->give_back(units);
  if (direct_.load(std::memory_order_relaxed)) host_->call_agent();
}

// In `direct` mode each longer line is a reason to ask; in `block` mode only the first call in line.
void FleetLimit::set_head(const UnitSource::Head* head) noexcept {
  const std::uint32_t line = head ? std::max(head->line, head->cost) : 0;
  const std::uint32_t before = line_.exchange(line);
  first_.store(head ? head->cost : 0);
  if (host_) {
    if (forked()) return;
    host_->set_head(head);
    if (direct_.load(std::memory_order_relaxed) ? line > before || line == 0 : line > 0 && before == 0)
      host_->call_agent();
    return;
  }
  const bool direct = direct_.load(std::memory_order_relaxed);
  if (direct ? line > before : line > 0 && before == 0)
    wake_();
  else if (direct)
    return_idle();
}

// In `direct` mode, units that no call uses or waits for go back to the store.
void FleetLimit::return_idle() noexcept {
  if (line_.load(std::memory_order_relaxed) == 0 &&
      lease_.cap() > std::max(lease_.in_use(), kept_.load(std::memory_order_relaxed)))
    wake_();
}

bool FleetLimit::resize(std::uint32_t limit) noexcept {
  if (host_) return limit <= shared::kMaxUnits && host_->resize(limit);
  {
    const detail::MutexLock lock(mutex_);
    if (!lease_.set_limit(limit)) return false;
  }
  wake_();
  return true;
}

void FleetLimit::mute() noexcept {
  if (host_) host_->mute();
  if (teller_.load() == std::this_thread::get_id()) {
    telling_.assert_held();  // by tell(), which this call is inside
    return forget_user();
  }
  const detail::MutexLock told(telling_);
  forget_user();
}

void FleetLimit::forget_user() noexcept {
  const detail::MutexLock lock(looking_);
  user_ = nullptr;
}

void FleetLimit::tell() noexcept {
  const detail::MutexLock lock(telling_);
  if (!user_) return;
  teller_ = std::this_thread::get_id();
  user_->units_may_be_free();
  teller_ = std::thread::id();
}

shared::Lease::Needs FleetLimit::needs() const noexcept {
  const auto units = demand_.units(lease_.limit());
  const std::uint32_t rejected = rejected_.load();
  return {.need = units.need,
          .slack = units.slack,
          .line = line(),
          .first = std::max(host_ ? host_first_ : first_.load(), rejected),
          .rejected = rejected > 0};
}

UnitUser::Usage FleetLimit::usage() noexcept {
  const detail::MutexLock lock(looking_);
  return user_ ? user_->usage() : sampled_;
}

void FleetLimit::sample(const UnitUser::Usage& usage, std::int64_t now) noexcept {
  if (now - sampled_at_ < kSampleEvery) return;
  const auto since = [](std::uint64_t before, std::uint64_t after) {
    return after - std::min(before, after);
  };
  std::uint64_t arrived = since(sampled_.arrived, usage.arrived),
                admitted = since(sampled_.admitted, usage.admitted);
  if (host_) {  // each process estimates the demand of all, so that any of them can become the agent
    arrived = std::exchange(since_sample_.arrived, 0);
    admitted = std::exchange(since_sample_.admitted, 0);
  }
  if (sampled_at_ != 0)
    demand_.sample(static_cast<double>(now - sampled_at_) * 1e-9, arrived, admitted, lease_.in_use());
  sampled_at_ = now;
  sampled_ = usage;
  asked_.store(false, std::memory_order_relaxed);
}

bool FleetLimit::tend(std::int64_t now) {
  if (!host_) return true;
  const UnitUser::Usage used = usage();
  bool limit_changed = false;
  {
    const detail::MutexLock lock(mutex_);
    host_->report(used);
    const HostLease::Sum sum = host_->sum();
    since_sample_.arrived += sum.arrived;
    since_sample_.admitted += sum.admitted;
    host_line_ = sum.line;
    host_first_ = sum.first;
    if (!leads_) {
      looked_at_ = now;
      leads_ = host_->lead();
      LeaseTerms terms = host_->terms();
      if (leads_) {
        host_->set_problem("");
        lease_.identify();
        // As for a process that is the only member: the number of its configuration counts again, unless a newer one is known.
        if (host_->alone() && lease_.options().limit_version >=
                                  terms.limit_version - terms.limit_version % shared::kVersionStep)
          terms.limit = 0;
      }
      lease_.resume(terms);
      if (leads_ && mode_ != FleetMode::automatic) lease_.set_direct(mode_ == FleetMode::direct);
      direct_.store(lease_.options().direct, std::memory_order_relaxed);
      sample(used, now);
      if (!leads_ && rejected_.load() && now - called_at_ >= lease_.options().times.min_sync) {
        rejected_.store(0);
        called_at_ = now;
        host_->call_agent();
      }
    }
    if (leads_) lease_.adopt_limit(sum.stated_limit, sum.stated_version);
    const std::uint32_t before = std::exchange(known_limit_, host_->limit());
    limit_changed = before != known_limit_;
  }
  if (limit_changed) news_.store(true);
  const detail::MutexLock lock(mutex_);
  return leads_;
}

bool FleetLimit::asks() const {
  const detail::MutexLock lock(mutex_);
  return !host_ || leads_;
}

std::optional<shared::StoreRequest> FleetLimit::next(const std::string& run, std::int64_t now) {
  const UnitUser::Usage used = usage();  // outside the lock: it asks the gate
  const detail::MutexLock lock(mutex_);
  if (host_ && !leads_) return std::nullopt;
  sample(used, now);
  auto request = lease_.next(needs(), run, now);
  kept_.store(lease_.keeps(needs(), now), std::memory_order_relaxed);
  if (request) {
    rejected_.store(0);
    ++requests_;
  }
  return request;
}

std::int64_t FleetLimit::due() const {
  const detail::MutexLock lock(mutex_);
  // While calls come, the estimate follows them; afterwards it falls.
  const bool busy =
      lease_.in_use() > 0 || asked_.load(std::memory_order_relaxed) || demand_.load() > kNoDemand;
  if (host_ && !leads_) {
    const shared::LeaseTimes& times = lease_.options().times;
    if (rejected_.load()) return called_at_ + times.min_sync;
    return looked_at_ + (busy ? std::min(kLookEvery, times.heartbeat / 2) : times.heartbeat / 2);
  }
  const std::int64_t due = lease_.due(needs());
  return busy ? std::min(due, sampled_at_ + 5 * kSampleEvery) : due;
}

// With room between the two conditions, so that the mode does not swing.
std::string FleetLimit::choose_mode(double round_trip) {
  const double per_call = demand_.seconds_per_call();
  if (mode_ != FleetMode::automatic || !has_line_ || per_call <= 0) return "";
  const bool direct = direct_.load(std::memory_order_relaxed);
  const double ops = 2.0 * lease_.limit() / per_call, slack = direct ? 2 : 1;
  const bool better_direct = ops <= kDirectOps * slack && round_trip * kRoundTrips <= per_call * slack;
  if (better_direct == direct) return "";
  direct_.store(better_direct);
  lease_.set_direct(better_direct);
  return "bulkhead \"" + name_ + "\": mode " + (better_direct ? "direct" : "block") +
         " from now on: a call takes " + milliseconds(per_call) + ", the store answers in " +
         milliseconds(round_trip) + ", and direct means up to " +
         std::to_string(static_cast<std::uint64_t>(ops)) + " requests per second";
}

// tell() is due only if calls wait or the limit has changed; it runs on another thread.
std::string FleetLimit::on_reply(std::uint64_t seq, const shared::StoreReply* reply, double round_trip) {
  bool worth_a_look = false;
  std::string news;
  {
    const detail::MutexLock lock(mutex_);
    if (!reply) {
      lease_.on_lost();
      return "";
    }
    const std::uint32_t before = lease_.limit();
    lease_.on_reply(seq, *reply, now_());
    kept_.store(lease_.keeps(needs(), now_()), std::memory_order_relaxed);
    worth_a_look = line() > 0 || lease_.limit() != before;
    news = choose_mode(round_trip);
  }
  if (worth_a_look) news_.store(true);
  return news;
}

// describe() sets list_wanted_ at most once per lease, however often people and programs look.
std::optional<shared::StoreRequest> FleetLimit::list_request() {
  const detail::MutexLock lock(mutex_);
  if (!std::exchange(list_wanted_, false) || (host_ && !leads_)) return std::nullopt;
  list_asked_at_ = now_();
  ++requests_;
  return redis::list_request(lease_.options().times.ttl / 1'000'000, shared::kListedMembers);
}

void FleetLimit::on_list(const shared::StoreReply* reply) {
  if (!reply || reply->list.empty()) return;
  const detail::MutexLock lock(mutex_);
  auto list = std::make_shared<FleetList>();
  const shared::LeaseOptions& o = lease_.options();
  if (!read_list(*reply, o.times.ttl / 1'000'000, o.member, *list)) return;
  if (list->lapsed > 0 && reply->list_age == 0) lease_.on_lapsed_member();
  listed_at_ = now_() - reply->list_age * 1'000'000;
  list_ = std::move(list);
}

bool FleetLimit::has_to_leave() {
  const detail::MutexLock lock(mutex_);
  if (!host_) return true;
  if (leads_ && host_->alone()) return true;
  host_->stop_leading();
  leads_ = false;
  return false;
}

void FleetLimit::set_problem(const std::string& problem) noexcept {
  const detail::MutexLock lock(mutex_);
  if (host_ && leads_) host_->set_problem(problem);
}

std::string FleetLimit::problem_of_agent() const {
  const detail::MutexLock lock(mutex_);
  return host_ && !leads_ ? host_->problem() : "";
}

shared::StoreRequest FleetLimit::leave(const std::string& run) {
  const detail::MutexLock lock(mutex_);
  return lease_.leave_request(run, now_());
}

// Under the lock, so that state and numbers belong to one reply of the store.
void FleetLimit::describe(FleetSnapshot& s) const {
  const detail::MutexLock lock(mutex_);
  const std::int64_t now = now_();
  const shared::LeaseOptions& o = lease_.options();
  s.state = lease_.state(now);
  s.direct = direct_.load(std::memory_order_relaxed);
  s.when_cut_off = o.when_cut_off;
  s.held = lease_.allowed(now);
  const auto units = demand_.units(lease_.limit());
  s.needed = std::max(units.need, lease_.in_use() + line());
  s.members = lease_.members();
  s.limit_version = lease_.limit_version();
  if (lease_.renewed_at() != 0) s.lease_age = std::chrono::nanoseconds(now - lease_.renewed_at());
  if (s.state == FleetState::degraded) s.degraded_for = std::chrono::nanoseconds(now - lease_.deadline());
  if (!s.direct) s.pooling_loss = shared::erlang_b(s.held, demand_.load());
  s.requests = requests_;
  if (host_ && !leads_) return;
  s.list = list_;
  if (list_) s.list_age = std::chrono::nanoseconds(now - listed_at_);
  if (!list_wanted_ && (list_asked_at_ == 0 || now - list_asked_at_ >= o.times.ttl)) {
    list_wanted_ = true;
    wake_();
  }
}

}  // namespace bulkhead::redis
