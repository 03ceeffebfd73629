// pool_core.h - the implementation of Pool.
#pragma once

#include "bulkhead/detail/std_mutex.h"
#include "gate/posting.h"
#include "pool/workers.h"

namespace bulkhead {

struct PoolCore {
  explicit PoolCore(const PoolOptions& options);

  const std::chrono::nanoseconds execution_timeout;
  const OnReject on_reject;
  const ContextHooks context;
  Clock& clock;
  std::atomic<bool> accepting{true};
  std::atomic<std::uint64_t> caller_runs{0};
  std::shared_ptr<Workers> workers;

  // When the caller of the oldest abandoned task gave up; `now` if there is none.
  TimePoint oldest_abandoned(TimePoint now) const noexcept BULKHEAD_REQUIRES(mutex);
  // A stop_source that shutdown has not used yet; without a state if there is none.
  std::stop_source next_to_stop() noexcept;

  mutable detail::StdMutex mutex;
  detail::TaskState* running BULKHEAD_GUARDED_BY(mutex) =
      nullptr;                                             // tasks with a stop_token, and abandoned tasks
  std::uint32_t abandoned BULKHEAD_GUARDED_BY(mutex) = 0;  // running tasks whose caller has given up
  std::uint64_t abandoned_total BULKHEAD_GUARDED_BY(mutex) = 0;
  bool stopping BULKHEAD_GUARDED_BY(mutex) = false;  // tasks that begin now are requested to stop at once

  detail::Inbox<detail::StdPlatform> inbox;  // see gate/posting.h
  Gate gate;                                 // last, so that it is destroyed first: it waits for the permits
  const bool plain;                          // work without options needs no TaskExtras
};

}  // namespace bulkhead
