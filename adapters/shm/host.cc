#include "host.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "seat.h"

namespace bulkhead::shm {
namespace {

[[noreturn]] void invalid(std::string_view bulkhead, const std::string& problem) {
  throw std::invalid_argument("bulkhead \"" + std::string(bulkhead) + "\": " + problem);
}

}  // namespace

Host::Host(HostOptions options) : options_(std::move(options)), region_(options_.shared) {}
Host::~Host() = default;

void Host::set_region(const std::string& path) {
  const std::lock_guard lock(mutex_);
  if (!region_) options_.region = path;
}

void Host::check(const Request& r) const {
  const std::lock_guard lock(mutex_);
  if (r.scope != Scope::host)
    invalid(r.bulkhead, "scope = " + std::string(to_string(r.scope)) +
                            " is not available in this build: give process or host");
  if (options_.region.empty() && !options_.shared)
    invalid(r.bulkhead,
            "scope = host needs a region of memory: give host.region, such as /run/shop/bulkhead");
  if (r.max_concurrent > kUnits)
    invalid(r.bulkhead, "max_concurrent = " + std::to_string(r.max_concurrent) +
                            " is out of range for scope = host: give 1 to " + std::to_string(kUnits));
  constexpr std::size_t longest = (kNameWords - 1) * 8;
  if (r.bulkhead.empty() || r.bulkhead.size() > longest)
    invalid(r.bulkhead,
            "its name is too long for scope = host: give 1 to " + std::to_string(longest) + " bytes");
}

std::unique_ptr<UnitSource> Host::open(const Request& r, UnitUser& user) {
  check(r);
  const std::lock_guard lock(mutex_);
  if (!region_) region_ = Region::open(options_.region);
  std::erase_if(opened_, [](const Opened& o) { return o.region.expired(); });
  // One registration has one line for each name. While a removed bulkhead of this name still has calls, the new one
  // registers on its own.
  std::shared_ptr<Region> region = region_;
  const bool taken =
      std::any_of(opened_.begin(), opened_.end(), [&](const Opened& o) { return o.name == r.bulkhead; });
  if (taken) region = region_->path().empty() ? Region::adopt(region_->fd()) : Region::open(region_->path());
  // The seat and this entry share one owner of the region, so that the entry expires with the seat.
  auto owner = std::make_shared<std::shared_ptr<Region>>(std::move(region));
  std::shared_ptr<Region> kept(owner, owner->get());
  opened_.push_back({kept, std::string(r.bulkhead)});
  return std::make_unique<Seat>(std::move(kept), r, user);
}

}  // namespace bulkhead::shm
