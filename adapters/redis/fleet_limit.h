// fleet_limit.h - one limit of the fleet as one bulkhead of this process uses it, between the threads that make calls and the
// thread that talks to the store.
#pragma once

#include <time.h>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "bulkhead/scope.h"
#include "shared/demand.h"
#include "shared/lease.h"

namespace bulkhead::redis {

// Also counts while the machine sleeps: a lease that ended then is not valid afterwards.
inline std::int64_t boot_now() noexcept {
  timespec now{};
  ::clock_gettime(CLOCK_BOOTTIME, &now);
  return now.tv_sec * 1'000'000'000 + now.tv_nsec;
}

// Counts the forks of this process: the thread of a fleet does not exist in a child.
extern std::atomic<std::uint32_t> forks;
void watch_forks();

class FleetLimit {
 public:
  FleetLimit(std::string name, shared::LeaseOptions options, FleetMode mode, bool has_line, UnitUser& user,
             std::function<void()> wake);

  const std::string& name() const noexcept { return name_; }

  // ---- threads that make calls ----
  bool take(const UnitSource::Head& head) noexcept;
  void give_back(std::uint32_t units) noexcept {
    lease_.give_back(units);
    if (direct_.load(std::memory_order_relaxed)) return_idle();
  }
  std::uint32_t in_use() const noexcept { return lease_.in_use(); }
  void set_head(const UnitSource::Head* head) noexcept;
  std::uint32_t limit() const noexcept { return lease_.limit(); }
  bool resize(std::uint32_t limit) noexcept;
  void mute() noexcept;
  void describe(FleetSnapshot& now) const;

  // ---- the thread of the fleet ----
  std::optional<shared::StoreRequest> next(const std::string& run, std::int64_t now);
  std::int64_t due() const;
  // Null: no reply. Empty, or how the mode has changed.
  std::string on_reply(std::uint64_t seq, const shared::StoreReply* reply, double round_trip);
  shared::StoreRequest leave(const std::string& run);

 private:
  shared::Lease::Wish wish() const noexcept;
  void return_idle() noexcept;
  UnitUser::Usage usage() noexcept;
  void sample(const UnitUser::Usage& usage, std::int64_t now) noexcept;
  std::string choose_mode(double round_trip);
  void tell() noexcept;

  const std::string name_;
  const FleetMode mode_;
  const bool has_line_;
  const std::uint32_t forks_;
  const std::function<void()> wake_;

  mutable std::mutex mutex_;  // of what only one thread may use of the lease, and of the estimate
  shared::Lease lease_;
  shared::Demand demand_;
  std::int64_t sampled_at_ = 0;
  std::uint64_t requests_ = 0;
  UnitUser::Usage sampled_;

  std::atomic<std::uint32_t> line_{0};
  std::atomic<bool> rejected_{false}, direct_;
  std::atomic<bool> asked_{false};  // a call has come since the last sample

  std::mutex telling_;  // held while the user is told, and to forget it
  std::atomic<std::thread::id> teller_{};
  UnitUser* user_;
};

}  // namespace bulkhead::redis
