#include <utility>

#include "bulkhead/detail/mutex.h"
#include "registry/registry_core.h"

namespace bulkhead {

// A look at a source and its end exclude each other, so that a pool may go as soon as it is detached.
Attached Registry::attach(ResourceSource source) {  // NOLINT(performance-unnecessary-value-param): is moved
  registry::check_name("pool", source.name);
  if (!source.snapshot)
    registry::invalid("pool", source.name, "has no snapshot: give a function that makes one");
  registry::Resources& all = *core_->resources;
  const detail::MutexLock lock(all.mutex);
  std::string name = source.name;
  if (!all.sources.try_emplace(name, std::move(source)).second)
    registry::invalid("pool", name, "another pool of that name is attached: give one of them another name");
  return {core_->resources, std::move(name)};
}

Attached::Attached(std::shared_ptr<registry::Resources> all, std::string name) noexcept
    : all_(std::move(all)), name_(std::move(name)) {}

void Attached::detach() noexcept {
  if (const auto all = std::exchange(all_, nullptr)) {
    const detail::MutexLock lock(all->mutex);
    all->sources.erase(name_);
  }
}

std::vector<RegistrySnapshot::Resource> registry::Resources::snapshot() const {
  const detail::MutexLock lock(mutex);
  std::vector<RegistrySnapshot::Resource> told;
  told.reserve(sources.size());
  for (const auto& [name, source] : sources)
    told.push_back({name, source.kind, source.snapshot(), source.bulkhead});
  return told;
}

}  // namespace bulkhead
