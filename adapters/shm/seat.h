// seat.h - what one bulkhead of this process holds of a limit, and its place in the order of the processes.
//
// The units that a process holds are all alike: a release gives back any of them. So a seat stores no list of units, and
// threads take and give back without a lock.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>

#include "bulkhead/scope.h"
#include "counts.h"
#include "region.h"
#include "table.h"

namespace bulkhead::shm {

class Seat final : public UnitSource, Region::Client {
 public:
  // on_call: the limit is a lease of a fleet, and this is called when a process calls its agent and this one is it.
  Seat(std::shared_ptr<Region> region, Limit& limit, const UnitSources::Request& request, UnitUser& user,
       std::function<void()> on_call = {});
  ~Seat() override;
  Seat(const Seat&) = delete;
  Seat& operator=(const Seat&) = delete;

  bool take(const Head& head) noexcept override;
  void give_back(std::uint32_t units) noexcept override;
  std::uint32_t in_use() const noexcept override;
  std::optional<std::uint32_t> host_in_use() const noexcept override;
  void set_head(const Head* head) noexcept override;
  std::uint32_t limit() const noexcept override;
  bool resize(std::uint32_t limit) noexcept override;
  void mute() noexcept override;

  // For a lease.
  bool lead() noexcept;
  void stop_leading() noexcept;
  void call_agent() noexcept;
  void offer() noexcept;  // units may be free: rings the process whose call is first
  bool weighed() const noexcept { return weighed_; }
  std::uint32_t held_by_all() const noexcept;

 private:
  bool waits() const noexcept override { return in_line_.load() || called(); }
  void attend() noexcept override;
  bool called() const noexcept { return leads_.load() && limit_.lease.wanted.load() != 0; }
  void before_fork() noexcept override { user_.before_fork(); }
  void after_fork(bool in_child) noexcept override;

  Table table() const noexcept;
  Counts counts() const noexcept { return {limit_, token_.load(std::memory_order_relaxed)}; }
  bool registered() noexcept;
  bool grab(std::uint32_t cost, std::uint32_t reserve) noexcept;
  bool grab_of_lease(std::uint32_t cost) noexcept;
  std::uint32_t without_inherited(std::uint32_t units) noexcept;
  bool may_go_first(std::uint64_t key) noexcept;
  bool any_free() const noexcept;
  std::uint32_t reserve() const noexcept;
  void leave_line() noexcept;

  const std::shared_ptr<Region> region_;
  Limit& limit_;
  UnitUser& user_;
  const bool weighed_;  // see T7 in layout.h
  const double critical_reserve_;
  std::atomic<std::uint64_t> token_;         // of this process
  std::atomic<std::uint32_t> inherited_{0};  // after a fork: units in flight that the parent holds
  const std::function<void()> on_call_;
  std::atomic<bool> in_line_{false}, leads_{false};
  bool muted_ = false;
};

}  // namespace bulkhead::shm
