// core.h - the inside of a Pool.
#pragma once

#include <mutex>

#include "gate/posting.h"
#include "pool/workers.h"

namespace bulkhead {

struct PoolCore {
  explicit PoolCore(PoolOptions options);

  const std::chrono::nanoseconds execution_timeout;
  const OnReject on_reject;
  const ContextHooks context;
  Clock& clock;
  std::atomic<bool> accepting{true};
  std::atomic<std::uint64_t> caller_runs{0};
  std::shared_ptr<Workers> workers;

  // Guards the lists and counts below.
  mutable std::mutex mutex;
  struct Abandoned {
    const detail::TaskState* task;
    TimePoint since;
  };
  std::vector<Abandoned> abandoned;  // still running, for a caller that has given up; oldest first
  std::uint64_t abandoned_total = 0;
  std::vector<detail::TaskState*> stoppable;  // running, with a stop_token
  bool stopping = false;                      // work that begins now is asked to stop at once

  detail::Inbox<detail::StdPlatform> inbox;  // of the gate's line
  Gate gate;                                 // last: it is destroyed first, and waits for the permits
  const bool plain;                          // work that asks for nothing needs no TaskExtras
};

}  // namespace bulkhead
