// host_lease.h - a lease of a fleet in a region: its units are those of a limit, its terms are beside them.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "bulkhead/scope.h"
#include "seat.h"

namespace bulkhead::shm {

class LeaseOfHost final : public HostLease {
 public:
  LeaseOfHost(std::shared_ptr<Region> region, const UnitSources::Request& request, std::string_view store,
              UnitUser& user, std::function<void()> on_call);
  ~LeaseOfHost() override;

  bool take(const Head& head) noexcept override { return seat_.take(head); }
  void give_back(std::uint32_t units) noexcept override { seat_.give_back(units); }
  std::uint32_t in_use() const noexcept override { return seat_.in_use(); }
  void set_head(const Head* head) noexcept override { seat_.set_head(head); }
  std::uint32_t limit() const noexcept override { return lease_.limit.load(std::memory_order_relaxed); }
  bool resize(std::uint32_t limit) noexcept override;
  void mute() noexcept override { seat_.mute(); }

  bool lead() noexcept override { return seat_.lead(); }
  void stop_leading() noexcept override { seat_.stop_leading(); }
  bool alone() const noexcept override;
  std::string problem() const override;
  void set_problem(const std::string& problem) noexcept override;
  void identify(std::string& member, std::uint32_t& tie) noexcept override;
  std::uint32_t capacity() const noexcept override { return seat_.weighed() ? kMostWeighed : kUnits; }
  std::uint32_t cap() const noexcept override;
  void set_cap(std::uint32_t units) noexcept override;
  std::uint32_t in_use_by_all() const noexcept override;
  LeaseTerms terms() const noexcept override;
  void set_terms(const LeaseTerms& terms) noexcept override;
  void report(const UnitUser::Usage& usage) noexcept override;
  Sum sum() noexcept override;
  void state_limit(std::uint32_t limit, std::uint64_t version) noexcept override;
  void call_agent() noexcept override { seat_.call_agent(); }

 private:
  struct Seen {
    std::uint32_t generation = 0;
    std::uint64_t arrived = 0, admitted = 0;
  };
  bool uses(
      std::uint32_t slot) const noexcept;  // the process of this slot uses the lease, or did until it died
  Part& own() const noexcept { return limit_.parts[slot_of(token_)]; }

  const std::shared_ptr<Region> region_;
  Limit& limit_;
  Lease& lease_;
  const std::uint64_t token_;
  std::vector<Seen> seen_;
  Seat seat_;  // last: it may call on_call
};

}  // namespace bulkhead::shm
