#include "host.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "host_lease.h"
#include "seat.h"

namespace bulkhead::shm {
namespace {

constexpr std::size_t kLongestName = (kNameWords - 1) * 8;

[[noreturn]] void invalid(std::string_view bulkhead, const std::string& problem) {
  throw std::invalid_argument("bulkhead \"" + std::string(bulkhead) + "\": " + problem);
}

}  // namespace

Host::Host(HostOptions options) : options_(std::move(options)), region_(options_.shared) {}
Host::~Host() = default;

void Host::set_region(const std::string& path) {
  const detail::MutexLock lock(mutex_);
  if (!region_) options_.region = path;
}

// Each message names the bulkhead and what to give instead.
void Host::check(const Request& r) const {
  const detail::MutexLock lock(mutex_);
  if (r.scope != Scope::host)
    invalid(r.bulkhead, "scope = " + std::string(to_string(r.scope)) +
                            " is not available in this build: give process or host");
  if (options_.region.empty() && !options_.shared)
    invalid(r.bulkhead,
            "scope = host needs a region of memory: give host.region, such as /run/shop/bulkhead");
  if (r.max_concurrent > kUnits && !r.weighed)
    invalid(r.bulkhead, "max_concurrent = " + std::to_string(r.max_concurrent) +
                            " is out of range for scope = host: give 1 to " + std::to_string(kUnits));
  if (r.bulkhead.empty() || r.bulkhead.size() > kLongestName)
    invalid(r.bulkhead,
            "its name is too long for scope = host: give 1 to " + std::to_string(kLongestName) + " bytes");
}

// One registration has one line for each name. While a removed bulkhead of this name still has calls, the new one registers
// on its own.
std::shared_ptr<Region> Host::region_for(const std::string& name) {
  if (!region_) region_ = Region::open(options_.region);
  std::erase_if(opened_, [](const Opened& o) { return o.region.expired(); });
  std::shared_ptr<Region> region = region_;
  const bool taken =
      std::any_of(opened_.begin(), opened_.end(), [&](const Opened& o) { return o.name == name; });
  if (taken) region = region_->path().empty() ? Region::adopt(region_->fd()) : Region::open(region_->path());
  // The seat and this entry share one owner of the region, so that the entry expires with the seat.
  auto owner = std::make_shared<std::shared_ptr<Region>>(std::move(region));
  std::shared_ptr<Region> kept(owner, owner->get());
  opened_.push_back({kept, name});
  return kept;
}

std::unique_ptr<UnitSource> Host::open(const Request& r, UnitUser& user) {
  check(r);
  const detail::MutexLock lock(mutex_);
  auto region = region_for(std::string(r.bulkhead));
  Limit& limit = region->limit(r.bulkhead);
  Request stated = r;
  if (options_.joins && Shape::of(limit.shape.load()).limit != 0)
    stated.max_concurrent = 0;  // states nothing
  return std::make_unique<Seat>(std::move(region), limit, stated, user);
}

std::unique_ptr<HostLease> Host::open_lease(const Request& r, std::string_view store, UnitUser& user,
                                            std::function<void()> on_call) {
  check_lease(r);
  const detail::MutexLock lock(mutex_);
  auto region = region_for("lease of " + std::string(store) + " " + std::string(r.bulkhead));
  return std::make_unique<LeaseOfHost>(std::move(region), r, store, user, std::move(on_call));
}

bool Host::available() const noexcept {
  const detail::MutexLock lock(mutex_);
  return region_ || !options_.region.empty();
}

void Host::check_lease(const Request& r) const {
  if (r.bulkhead.empty() || r.bulkhead.size() > kLongestName)
    invalid(r.bulkhead, "its name is too long for a region of the host: give 1 to " +
                            std::to_string(kLongestName) + " bytes");
}

}  // namespace bulkhead::shm
