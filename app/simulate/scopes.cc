#include "app/simulate/scopes.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "adapters/redis/fleet_limit.h"
#include "shared/lease.h"
#include "shared/limit_state.h"

namespace bulkhead::simulate {
namespace {

constexpr Nanos kEpoch = 3'600'000'000'000;  // leases take 0 for "never"
constexpr Nanos kSoonest = 1'000'000;        // between two looks of a member at its lease

thread_local const sim::Engine* engine_of_thread = nullptr;
std::int64_t virtual_now() noexcept { return kEpoch + (engine_of_thread ? engine_of_thread->now() : 0); }

// The units of one limit on one host.
struct HostLimit {
  struct Seat {
    UnitUser* user = nullptr;
    std::uint32_t in_use = 0;
    bool waits = false;
    UnitSource::Head head{};
  };
  std::uint32_t limit = 1, in_use = 0;
  std::vector<std::shared_ptr<Seat>> seats;

  static bool before(const UnitSource::Head& a, const UnitSource::Head& b) noexcept {
    return a.priority != b.priority ? a.priority < b.priority : a.since < b.since;
  }
  Seat* first() const noexcept {
    Seat* best = nullptr;
    for (const auto& seat : seats)
      if (seat->user && seat->waits && (!best || before(seat->head, best->head))) best = seat.get();
    return best;
  }
};

}  // namespace

struct Scopes::World : std::enable_shared_from_this<Scopes::World> {
  World(sim::Engine& e, const Load& l, const FleetSettings& f)
      : engine(e), load(l), fleet(f), times(shared::LeaseTimes::from(f.lease.count(), f.grace.count())) {
    for (const StoreFault& fault : load.faults)
      if (fault.kind == StoreFault::Kind::forgets) engine.at(fault.from, [this] { limits.clear(); });
  }

  bool unreachable(std::uint32_t replica) const {
    for (const StoreFault& f : load.faults) {
      if (engine.now() < f.from || engine.now() >= f.to) continue;
      if (f.kind == StoreFault::Kind::down || (f.kind == StoreFault::Kind::cut_off && f.replica == replica))
        return true;
    }
    return false;
  }
  Nanos
  delay() {  // exponential above a half of the mean: most messages take about the mean, some much longer
    const double u = static_cast<double>(engine.random()() >> 11) * 0x1p-53;
    return 1 + static_cast<Nanos>(static_cast<double>(load.network.delay) * (0.5 - 0.5 * std::log1p(-u)));
  }
  bool lost() {
    return load.network.loss > 0 &&
           static_cast<double>(engine.random()() >> 11) * 0x1p-53 < load.network.loss;
  }

  sim::Engine& engine;
  const Load& load;
  const FleetSettings fleet;
  const shared::LeaseTimes times;
  const std::string run = "simulated";
  std::map<std::string, shared::LimitState, std::less<>> limits;
  std::map<std::pair<std::string, std::uint32_t>, std::shared_ptr<HostLimit>> hosts;  // by name and host
  std::uint64_t requests = 0;
  std::uint64_t members = 0;
};

namespace {

using World = Scopes::World;

// A limit of the fleet in one replica, with the part of the client that talks to the store.
class Member : public std::enable_shared_from_this<Member> {
 public:
  Member(std::shared_ptr<World> world, std::uint32_t replica, const UnitSources::Request& r, UnitUser& user)
      : world_(std::move(world)),
        replica_(replica),
        limit_(
            std::string(r.bulkhead), options(r), world_->fleet.mode, r.max_queue > 0, user,
            [this] { wake(); }, {}, virtual_now) {}

  void wake() {
    if (!woken_ && !outstanding_ && alive_) {
      woken_ = true;
      step_at(world_->engine.now());
    }
  }
  void leave() {
    limit_.mute();
    alive_ = false;
    if (world_->unreachable(replica_)) return;
    world_->engine.at(world_->engine.now() + world_->delay(),
                      [world = world_, name = limit_.name(), r = limit_.leave(world_->run)] {
                        decide(world->limits[name], r, milliseconds(*world));
                      });
  }
  redis::FleetLimit& limit() noexcept { return limit_; }

 private:
  static std::int64_t milliseconds(const World& world) {
    return 1'700'000'000'000 + world.engine.now() / 1'000'000;
  }
  shared::LeaseOptions options(const UnitSources::Request& r) {
    shared::LeaseOptions o = redis::lease_options(world_->fleet, r);
    o.member = "replica-" + std::to_string(replica_) + "-" + std::to_string(++world_->members);
    o.tie = static_cast<std::uint32_t>(world_->engine.random()());
    return o;
  }

  void step_at(Nanos when) {
    world_->engine.at(when, [self = shared_from_this(), turn = ++turn_] {
      if (self->turn_ == turn && self->alive_) self->step();
    });
  }
  // As the thread of a fleet: one request at a time, over a network with delay and loss.
  void step() {
    woken_ = false;
    if (outstanding_) return;
    auto request = limit_.next(world_->run, virtual_now());
    if (!request) return step_at(std::max(world_->engine.now() + kSoonest, limit_.due() - kEpoch));
    outstanding_ = true;
    ++world_->requests;
    const Nanos sent = world_->engine.now();
    const std::uint64_t seq = request->seq;
    const auto self = shared_from_this();
    if (world_->unreachable(replica_) || world_->lost())
      return fail_at(sent + world_->times.reply_timeout, seq);
    world_->engine.at(sent + world_->delay(), [self, sent, seq, r = std::move(*request)] {
      World& world = *self->world_;
      if (world.unreachable(self->replica_)) return self->fail_at(sent + world.times.reply_timeout, seq);
      const shared::StoreReply reply = decide(world.limits[self->limit_.name()], r, milliseconds(world));
      const Nanos back = world.engine.now() + world.delay();
      if (world.lost() || back > sent + world.times.reply_timeout)
        return self->fail_at(sent + world.times.reply_timeout, seq);
      world.engine.at(back, [self, sent, seq, reply] {
        if (!self->alive_) return;
        self->outstanding_ = false;
        self->failures_ = 0;
        const double took = static_cast<double>(self->world_->engine.now() - sent) / 1e9;
        self->round_trip_ =
            self->round_trip_ == 0 ? took : self->round_trip_ + 0.1 * (took - self->round_trip_);
        self->limit_.on_reply(seq, &reply, self->round_trip_);
        if (self->limit_.has_news()) self->limit_.tell();
        self->wake();
      });
    });
  }
  // As the client does: the request counts as lost, and the next comes after a pause that grows.
  void fail_at(Nanos when, std::uint64_t seq) {
    world_->engine.at(when, [self = shared_from_this(), seq] {
      if (!self->alive_) return;
      self->outstanding_ = false;
      self->limit_.on_reply(seq, nullptr, 0);
      const double most = std::min(1e9, static_cast<double>(self->world_->times.heartbeat) / 2);
      const double pause = std::min(most, 2e7 * std::exp2(std::min(self->failures_++, 10)));
      self->woken_ = true;
      self->step_at(self->world_->engine.now() + static_cast<Nanos>(pause));
    });
  }

  const std::shared_ptr<World> world_;
  const std::uint32_t replica_;
  redis::FleetLimit limit_;
  bool woken_ = false, outstanding_ = false, alive_ = true;
  std::uint64_t turn_ = 0;
  int failures_ = 0;
  double round_trip_ = 0;
};

class FleetSource final : public UnitSource {
 public:
  explicit FleetSource(std::shared_ptr<Member> member) : member_(std::move(member)) {}
  ~FleetSource() override { member_->leave(); }
  bool take(const Head& head) noexcept override { return member_->limit().take(head); }
  void give_back(std::uint32_t units) noexcept override { member_->limit().give_back(units); }
  std::uint32_t in_use() const noexcept override { return member_->limit().in_use(); }
  void set_head(const Head* head) noexcept override { member_->limit().set_head(head); }
  std::uint32_t limit() const noexcept override { return member_->limit().limit(); }
  bool resize(std::uint32_t limit) noexcept override { return member_->limit().resize(limit); }
  void mute() noexcept override { member_->limit().mute(); }
  bool describe(FleetSnapshot& now) const override {
    member_->limit().describe(now);
    return true;
  }

 private:
  const std::shared_ptr<Member> member_;
};

class HostSource final : public UnitSource {
 public:
  HostSource(std::shared_ptr<World> world, std::shared_ptr<HostLimit> limit, UnitUser& user)
      : world_(std::move(world)), limit_(std::move(limit)), seat_(std::make_shared<HostLimit::Seat>()) {
    seat_->user = &user;
    limit_->seats.push_back(seat_);
  }
  ~HostSource() override {
    limit_->in_use -= seat_->in_use;
    std::erase(limit_->seats, seat_);
    tell();
  }
  bool take(const Head& head) noexcept override {
    if (limit_->in_use + head.cost > limit_->limit) return false;
    const HostLimit::Seat* const first = limit_->first();
    if (first && first != seat_.get() && !HostLimit::before(head, first->head)) return false;
    limit_->in_use += head.cost;
    seat_->in_use += head.cost;
    return true;
  }
  void give_back(std::uint32_t units) noexcept override {
    limit_->in_use -= units;
    seat_->in_use -= units;
    tell();
  }
  std::uint32_t in_use() const noexcept override { return seat_->in_use; }
  void set_head(const Head* head) noexcept override {
    seat_->waits = head != nullptr;
    if (head) seat_->head = *head;
    if (limit_->in_use < limit_->limit) tell();
  }
  std::uint32_t limit() const noexcept override { return limit_->limit; }
  bool resize(std::uint32_t limit) noexcept override {
    limit_->limit = limit;
    tell();
    return true;
  }
  void mute() noexcept override { seat_->user = nullptr; }

 private:
  // Not at once: the gate that gives units back holds a lock.
  void tell() noexcept {
    if (!limit_->first() || limit_->first() == seat_.get()) return;
    world_->engine.at(world_->engine.now(), [limit = limit_] {
      if (HostLimit::Seat* const first = limit->first()) first->user->units_may_be_free();
    });
  }

  const std::shared_ptr<World> world_;
  const std::shared_ptr<HostLimit> limit_;
  const std::shared_ptr<HostLimit::Seat> seat_;
};

class Sources final : public UnitSources {
 public:
  Sources(std::shared_ptr<World> world, std::uint32_t replica)
      : world_(std::move(world)), replica_(replica) {}
  std::unique_ptr<UnitSource> open(const Request& r, UnitUser& user) override {
    if (r.scope == Scope::fleet) {
      auto member = std::make_shared<Member>(world_, replica_, r, user);
      member->wake();
      return std::make_unique<FleetSource>(std::move(member));
    }
    auto& host = world_->hosts[{std::string(r.bulkhead), replica_ % world_->load.hosts}];
    if (!host) host = std::make_shared<HostLimit>();
    host->limit = r.max_concurrent;
    return std::make_unique<HostSource>(world_, host, user);
  }
  void check(const Request&) const override {}

 private:
  const std::shared_ptr<World> world_;
  const std::uint32_t replica_;
};

}  // namespace

Scopes::Scopes(sim::Engine& engine, const Load& load, const FleetSettings& fleet)
    : world_(std::make_shared<World>(engine, load, fleet)) {
  engine_of_thread = &engine;
}

Scopes::~Scopes() { engine_of_thread = nullptr; }

std::shared_ptr<UnitSources> Scopes::of(std::uint32_t replica) {
  return std::make_shared<Sources>(world_, replica);
}

std::uint64_t Scopes::store_requests() const noexcept { return world_->requests; }

}  // namespace bulkhead::simulate
