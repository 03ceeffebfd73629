// scoped_gate.h - a gate whose units come from a source that other processes share. For callers it is a gate like any other,
// with its own line.
//
// Invariants
//  S1  Each call in flight holds units of the source: they are taken before the gate counts the call, and given back before
//      the gate stops counting it. The limit of the gate is 0, so the gate admits no call by itself.
//  S2  While no call of this process waits, calls enter and leave without a lock (src/gate/scoped.cc).
//  S3  mutex_ guards the line: while a call waits, the source has the first call of the line, and a call that the source has
//      units for is admitted. A release that finds a line settles (see U1 in bulkhead/detail/turnstile.h).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>

#include "bulkhead/detail/mutex.h"
#include "bulkhead/scope.h"
#include "gate/member_gate.h"

namespace bulkhead::shared {

class ScopedGate final : detail::Backing, UnitUser {
 public:
  // weighed: see UnitSources::Request. std::invalid_argument
  ScopedGate(GateOptions options, Scope scope, UnitSources& sources, bool weighed = false);
  ~ScopedGate();
  ScopedGate(const ScopedGate&) = delete;
  ScopedGate& operator=(const ScopedGate&) = delete;

  // Throws what the constructor would because of these options, and changes nothing.
  static void check(const GateOptions& options, Scope scope, const UnitSources& sources,
                    bool weighed = false);

  Gate& gate() noexcept { return gate_; }
  bool describe(FleetSnapshot& now) const { return source_->describe(now); }
  std::optional<std::uint32_t> host_in_use() const noexcept { return source_->host_in_use(); }

 private:
  using Waiter = detail::MemberGate::Waiter;
  using Wakes = detail::MemberGate::Wakes;

  bool admit(const Waiter& w, bool waits) noexcept override;
  void settle() noexcept override;
  std::stop_token lease(std::uint32_t&, std::uint32_t) noexcept override { return {}; }
  void end_lease(std::uint32_t) noexcept override {}
  bool resize(std::uint32_t limit) noexcept override;
  std::uint32_t limit(std::uint32_t) const noexcept override { return source_->limit(); }
  // The word also counts calls whose units have just gone back, which another call may have taken since.
  std::uint32_t in_flight(std::uint32_t counted) const noexcept override;
  bool full_means_saturated() const noexcept override { return false; }

  void units_may_be_free() noexcept override;
  Usage usage() const noexcept override;
  // The lock is held across fork(), from one function to the other.
  void before_fork() noexcept override BULKHEAD_UNCHECKED_LOCKS { mutex_.lock(); }
  void after_fork(bool) noexcept override BULKHEAD_UNCHECKED_LOCKS { mutex_.unlock(); }

  bool follow_limit() noexcept BULKHEAD_REQUIRES(mutex_);
  void serve(Wakes& wakes) noexcept BULKHEAD_REQUIRES(mutex_);

  detail::Mutex mutex_;
  std::uint32_t ceiling_ BULKHEAD_GUARDED_BY(mutex_) = 0;  // the limit as the gate knows it
  std::atomic<bool> whole_{false};  // constructed: the source may call before gate_ exists
  std::unique_ptr<UnitSource> source_;
  detail::MemberGate gate_;  // last: its destructor waits for calls that use the rest
};

}  // namespace bulkhead::shared
