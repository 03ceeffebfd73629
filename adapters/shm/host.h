// host.h - limits for all processes of one host, for bulkheads with Scope::host.
//
//   bulkhead::shm::Host host{{.region = "/run/shop/bulkhead"}};
//   bulkhead::Registry registry{{.sources = &host}};
//   auto gpu = registry.add({.options = {.name = "gpu", .max_concurrent = 4, .max_queue = 20,
//                                        .scope = bulkhead::Scope::host}});
//   auto done = gpu->execute(work);        // at most 4 at once in all processes that use the region
//
// Threads: every member may be called from any thread. The host outlives the bulkheads that were made with it. Handlers and
//   coroutines of calls that have waited run on one thread of the host: one that takes long delays other calls of this process
//   that wait for a limit of the host, and calls of other processes by at most 2 ms. Hand long work to an executor.
// Order: first by priority, then the process whose first call in line is the oldest; FIFO within a process. A call never
//   overtakes an older one of its own or a higher priority, unless the process of that one does not answer for 2 ms
//   (it is stopped, or the machine is overloaded).
// Promises: the cap holds at every instant, also when processes are killed, stopped, forked or replaced, and across
//   resize(). What a killed process held is free within 2 ms of its end if a call waits for it, otherwise at the
//   next call that finds the limit full. No call ever waits for another process, except for its units.
// Not promised: that all processes state the same max_concurrent. The latest statement counts: a new process, a changed
//   configuration, an override.
// Limits: max_concurrent up to 4096 (the max of a budget: any), 32 bulkheads and budgets and 256 processes in one region.
//   fairness is fifo; no groups, threads or tenants, and no adaptive limit.
// Cost: 32 ns for a call that need not wait, without a lock (docs/design/shm.md). While a call waits, one thread of its
//   process looks every millisecond; without waiting calls nothing runs.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "bulkhead/detail/std_mutex.h"
#include "bulkhead/scope.h"

namespace bulkhead::shm {

class Region;

struct HostOptions {
  std::string
      region{};  // path of a file, created if it does not exist; on a file system in memory, such as /run
  // Instead of a path: Region::make_private(), for a process and the children it forks.
  std::shared_ptr<Region> shared{};
  // For the child of a fork: a limit that the region has keeps its number, whatever max_concurrent is given.
  bool joins = false;
};

class Host final : public UnitSources, public HostLeases {
 public:
  explicit Host(HostOptions options);  // the region is opened by the first bulkhead
  ~Host();
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  // For a path that becomes known later; without effect once a bulkhead has opened the region.
  void set_region(const std::string& path);

  std::unique_ptr<UnitSource> open(const Request& request, UnitUser& user) override;
  void check(const Request& request) const override;

  // For redis::Fleet.
  std::unique_ptr<HostLease> open_lease(const Request& request, std::string_view store, UnitUser& user,
                                        std::function<void()> on_call) override;
  bool available() const noexcept override;
  void check_lease(const Request& request) const override;

 private:
  std::shared_ptr<Region> region_for(const std::string& name) BULKHEAD_REQUIRES(mutex_);
  struct Opened {
    std::weak_ptr<Region> region;
    std::string name;
  };
  mutable detail::StdMutex mutex_;
  HostOptions options_ BULKHEAD_GUARDED_BY(mutex_);
  std::shared_ptr<Region> region_ BULKHEAD_GUARDED_BY(mutex_);
  // Names in use; a second bulkhead of one name gets a registration of its own.
  std::vector<Opened> opened_ BULKHEAD_GUARDED_BY(mutex_);
};

}  // namespace bulkhead::shm
