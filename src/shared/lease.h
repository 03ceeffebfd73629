// lease.h - what one member holds of a limit of the fleet: admits calls within its lease without a request, and decides when
// to send which request to the store. Pure: time is an argument, in nanoseconds of a clock of this machine that also
// counts while it sleeps (CLOCK_BOOTTIME), and is never compared with the store's.
//
// Threads: take() and give_back() may be called by any thread; all else by one thread, that of the store's client.
//
// Invariants
//  C1  While the lease is valid (now < deadline), held() is at most what the store has granted: the cap is raised only by the
//      reply to the latest request, and lowered before a request says so. deadline is ttl - margin after that request was
//      *sent*, and the store counts the ttl from a later instant.
//  C2  `in_use` grows only while it stays within cap and the lease is valid, or within what the degraded mode allows.
//  C3  A member whose lease has lapsed claims what its degraded mode lets it use, and no more: 0 in `closed`. A member that
//      has not had a lease claims its part of the limit if it knows how many members there will be, and 0 in `closed`.
//  C4  A cap below what is in use (the member's share has become smaller) admits no call until enough calls have ended; their
//      units are held until then. Otherwise a member under load would never give units back.
//  T   gap >= 1.25 heartbeat: members that are well do not look like a step of the clock. margin >= gap + 2 % of ttl: a step
//      too small to be noticed cannot end a lease early. ttl - margin >= 3 heartbeats + reply_timeout: one lost reply
//      costs nothing.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>

#include "bulkhead/fleet.h"
#include "bulkhead/scope.h"
#include "shared/limit_state.h"

namespace bulkhead::shared {

// All in nanoseconds.
struct LeaseTimes {
  std::int64_t ttl, grace, heartbeat, gap, margin, reply_timeout, min_sync;
  static LeaseTimes from(std::int64_t lease, std::int64_t grace) noexcept {
    // 5 s: heartbeat 1 s, gap 1.25 s, margin 1.4 s, reply timeout 0.5 s, at most 50 demand syncs per second. The end of a
    // process waits for one reply, so the timeout does not grow with very long leases.
    constexpr std::int64_t longest_reply = 2'000'000'000;
    return {lease,
            grace,
            lease / 5,
            lease / 4,
            lease / 4 + lease * 3 / 100,
            lease / 10 < longest_reply ? lease / 10 : longest_reply,
            lease / 250 + 1};
  }
  bool hold() const noexcept {  // see T
    return heartbeat > 0 && 4 * gap >= 5 * heartbeat && margin >= gap + ttl / 50 &&
           ttl - margin >= 3 * heartbeat + reply_timeout;
  }
};

struct LeaseOptions {
  std::string member{};
  LeaseTimes times = LeaseTimes::from(5'000'000'000, 0);
  WhenCutOff when_cut_off = WhenCutOff::safe_share;
  std::int64_t static_for = 300'000'000'000;  // how long a degraded mode admits anything
  double max_share = 1;                       // of the limit that this process uses, always
  std::uint32_t weight = 1, tie = 0;
  std::uint32_t replicas = 0;  // how many members there will be; 0: not known
  std::uint32_t limit = 1;
  std::uint64_t limit_version = 0;
  bool direct = false;  // hold what calls use, instead of what they probably will
};

class Lease {
 public:
  // With a host, the units are those of all its processes: take() and give_back() are the host's, and this object says what
  // its agent does. In the other processes it only shows the terms.
  explicit Lease(LeaseOptions options, HostLease* host = nullptr);

  // ---- any thread ----
  bool take(std::uint32_t cost, std::int64_t now) noexcept {
    std::uint64_t w = word_.load(std::memory_order_relaxed);
    do {
      if (std::uint64_t{in_use(w)} + cost > allowed(w, now)) return false;
    } while (!word_.compare_exchange_weak(w, w + cost, std::memory_order_acquire, std::memory_order_relaxed));
    return true;
  }
  void give_back(std::uint32_t units) noexcept { word_.fetch_sub(units, std::memory_order_release); }
  std::uint32_t in_use() const noexcept { return in_use(word()); }
  std::uint32_t cap() const noexcept { return cap(word()); }
  std::uint32_t allowed(std::int64_t now) const noexcept { return allowed(word(), now); }
  bool valid(std::int64_t now) const noexcept { return now < deadline_.load(std::memory_order_acquire); }
  std::uint32_t limit() const noexcept { return limit_.load(std::memory_order_relaxed); }
  std::uint32_t local_cap() const noexcept;  // what max_share allows
  // Admits nothing any more, from any mode: for the child of a fork().
  void void_all() noexcept;

  // ---- one thread ----
  // What the store has to count for this member: the cap, and the calls above it.
  std::uint32_t held() const noexcept {
    const std::uint64_t w = word();
    const std::uint32_t above = in_use(w) < granted_ ? in_use(w) : granted_;
    return cap(w) > above ? cap(w) : above;
  }
  struct Needs {
    std::uint32_t need = 0, slack = 1;
    std::uint32_t line = 0;  // units that calls wait for
    std::uint32_t first =
        0;                  // of these, what the first call needs at once; or what a rejected call has needed
    bool rejected = false;  // a call has found too few units since the last request
  };
  // `direct`: units that stay here although no call uses or waits for them.
  std::uint32_t keeps(const Needs& needs, std::int64_t now) const noexcept;
  // When next() has to be called at the latest, if the needs stay as they are.
  std::int64_t due(const Needs& needs) const noexcept;
  // The request to send now, or none. The one before counts as lost if its reply has not come in time.
  std::optional<StoreRequest> next(const Needs& needs, const std::string& run, std::int64_t now);
  // False: it is not the reply to the latest request, and changes nothing.
  bool on_reply(std::uint64_t seq, const StoreReply& reply, std::int64_t now) noexcept;
  // The store lists a member whose lease has ended. Only a sync drops it, and in an idle fleet no member sends one.
  void on_lapsed_member() noexcept { full_ = true; }
  void on_lost() noexcept { outstanding_ = false; }  // the latest request has no reply
  StoreRequest leave_request(const std::string& run, std::int64_t now);
  // For all members; false: out of range.
  bool set_limit(std::uint32_t limit) noexcept;
  // A number of a configuration or an operator, if its version is higher than the one in force.
  void adopt_limit(std::uint32_t limit, std::uint64_t version) noexcept;
  // Continues where the previous agent stopped, or shows what the agent has done.
  void resume(const LeaseTerms& terms) noexcept;
  LeaseTerms terms() const noexcept;
  void identify();  // as the member that the host is

  FleetState state(std::int64_t now) const noexcept;
  std::uint32_t members() const noexcept { return members_; }
  std::uint32_t target() const noexcept { return target_; }
  std::uint64_t limit_version() const noexcept { return o_.limit_version; }
  std::int64_t renewed_at() const noexcept { return renewed_at_; }  // when the request was sent; 0: never
  std::int64_t deadline() const noexcept { return deadline_.load(std::memory_order_relaxed); }
  const LeaseOptions& options() const noexcept { return o_; }
  void set_direct(bool direct) noexcept { o_.direct = direct; }

 private:
  std::uint64_t word() const noexcept {
    return host_ ? std::uint64_t{host_->cap()} << 32 | host_->in_use_by_all()
                 : word_.load(std::memory_order_relaxed);
  }
  void publish() noexcept {
    if (host_) host_->set_terms(terms());
  }
  static constexpr std::uint32_t in_use(std::uint64_t w) noexcept { return static_cast<std::uint32_t>(w); }
  static constexpr std::uint32_t cap(std::uint64_t w) noexcept { return static_cast<std::uint32_t>(w >> 32); }
  std::uint32_t allowed(std::uint64_t w, std::int64_t now) const noexcept {
    // acquire: a thread that sees a deadline sees the cap that was lowered before it
    if (now < deadline_.load(std::memory_order_acquire)) return cap(w);
    return now < static_until_.load(std::memory_order_relaxed) ? static_cap_.load(std::memory_order_relaxed)
                                                               : 0;
  }
  void set_cap(std::uint32_t cap) noexcept;
  void drop_idle(std::uint32_t keep) noexcept;  // the cap becomes what is in use, or `keep`, if that is less
  std::uint32_t safe_share() const noexcept;
  std::uint32_t claim(std::int64_t now) noexcept;
  bool needs_sync(const Needs& needs, std::int64_t now) const noexcept;
  bool needs_much_less(const Needs& needs) const noexcept;
  StoreRequest request(StoreOp op, const std::string& run, std::int64_t now);

  HostLease* const host_;
  LeaseOptions o_;  // limit and limit_version: the newest that is known

  std::atomic<std::uint64_t> word_{0};  // cap, in_use
  std::atomic<std::int64_t> deadline_{0};
  std::atomic<std::int64_t> static_until_{0};
  std::atomic<std::uint32_t> static_cap_{0};
  std::atomic<std::uint32_t> limit_;

  std::uint64_t seq_ = 0, seen_ver_ = 0;
  bool outstanding_ = false, full_ = true, hungry_ = false, restated_ = false, roomy_ = false;
  bool contended_ = false;  // the latest reply: a member has fewer units than it needs
  StoreOp sent_op_ = StoreOp::sync;
  std::uint32_t granted_ = 0;  // by the last reply
  std::uint32_t sent_have_ = 0, sent_want_ = 0, sent_need_ = 0, sent_slack_ = 0;
  std::int64_t sent_at_ = 0, synced_at_ = 0, renewed_at_ = 0, learning_until_ = 0, full_until_ = 0;
  std::int64_t seen_at_ = 0, heard_at_ = 0;  // the store's time in the latest reply, and when it came
  bool sent_any_ = false;
  std::uint32_t members_ = 0, target_ = 0;
};

}  // namespace bulkhead::shared
