// The C interface: a gate on a region, and a table of its permits.
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "bulkhead/detail/std_mutex.h"
#include "bulkhead/host.h"
#include "host.h"
#include "layout.h"
#include "region.h"
#include "shared/scoped_gate.h"

using namespace bulkhead;

namespace {

std::atomic<unsigned> forks{0};  // how often this process is a child of the one that opened handles

void count_forks() {
  static const int once = pthread_atfork(nullptr, nullptr, [] { ++forks; });
  (void)once;
}

GateOptions gate_options(const std::string& name, std::uint32_t max_concurrent, std::uint32_t max_queue) {
  return {.name = name, .max_concurrent = max_concurrent, .max_queue = max_queue};
}

// What belongs to one process. After a fork the child makes its own: threads of the parent may have been anywhere in this.
struct Local {
  Local(const std::shared_ptr<shm::Region>& region, const GateOptions& options, bool joins = false)
      : host({.shared = region, .joins = joins}), scoped(options, Scope::host, host) {}

  struct Entry {
    Permit permit;
    std::uint32_t serial = 0;
  };
  shm::Host host;
  shared::ScopedGate scoped;
  detail::StdMutex mutex;
  std::vector<Entry> entries BULKHEAD_GUARDED_BY(mutex);  // after `scoped`, to which its end gives back
  std::vector<std::uint32_t> free BULKHEAD_GUARDED_BY(mutex);
  const unsigned epoch = forks.load();
};

}  // namespace

struct bulkhead_host {
  std::string name;
  std::uint32_t max_queue;
  std::shared_ptr<shm::Region> region;
  shm::Limit* limit;
  std::atomic<Local*> local{nullptr};
  // Goes on in children, so that no permit has the number of one of its parent.
  std::atomic<std::uint32_t> serial{0};
  detail::StdMutex renewing;  // held to make `local` anew

  Local* of_this_process() {
    Local* found = local.load();
    if (found->epoch == forks.load()) [[likely]]
      return found;
    const detail::MutexLock lock(renewing);
    found = local.load();
    if (found->epoch == forks.load()) return found;
    const std::uint32_t units = shm::Shape::of(limit->shape.load()).limit;  // in force, and stays so
    // The parent's is not destroyed: it would wait for calls that run in the parent.
    // Nor is the number stated again, which another process may change meanwhile.
    found = new Local(region, gate_options(name, std::max(units, 1u), max_queue), true);
    local.store(found);
    return found;
  }
};

bulkhead_host* bulkhead_host_open(const char* region, const char* name, uint32_t max_concurrent,
                                  uint32_t max_queue, char* error, size_t error_size) {
  const auto fail = [&](const char* why) -> bulkhead_host* {
    if (error && error_size > 0) {
      std::strncpy(error, why, error_size - 1);
      error[error_size - 1] = 0;
    }
    return nullptr;
  };
  if (!name) return fail("bulkhead_host_open: name is null: give the name of the limit");
  try {
    count_forks();
    auto host = std::make_unique<bulkhead_host>();
    host->name = name;
    host->max_queue = max_queue;
    host->region = region ? shm::Region::open(region) : shm::Region::make_private();
    host->limit = &host->region->limit(name);
    host->local = new Local(host->region, gate_options(host->name, max_concurrent, max_queue));
    return host.release();
  } catch (const std::exception& e) {
    return fail(e.what());
  }
}

int bulkhead_host_acquire(bulkhead_host* host, uint32_t cost, int priority, int64_t timeout_ns,
                          uint64_t* permit) {
  if (!host || !permit) return -1;
  try {
    Local& local = *host->of_this_process();
    detail::UniqueLock lock(local.mutex);
    if (local.free.empty()) {  // before the units are taken: this allocates
      local.free.reserve(local.entries.size() + 1);
      local.entries.emplace_back();
      local.free.push_back(static_cast<std::uint32_t>(local.entries.size() - 1));
    }
    const std::uint32_t index = local.free.back();
    local.free.pop_back();
    lock.unlock();
    Result<Permit> got = local.scoped.gate().acquire(
        {.priority = static_cast<Priority>(std::clamp(priority, 0, 2)),
         .cost = cost,
         .timeout = timeout_ns < 0 ? wait_forever : std::chrono::nanoseconds(timeout_ns)});
    lock.lock();
    if (!got) {
      local.free.push_back(index);
      return 1 + static_cast<int>(got.error().reason);
    }
    Local::Entry& entry = local.entries[index];
    entry.permit = *std::move(got);
    entry.serial = ++host->serial;
    *permit = std::uint64_t{entry.serial} << 32 | index;
    return 0;
  } catch (const std::exception&) {  // no memory, or no place in the region for a forked child
    return 1 + static_cast<int>(Reason::concurrency_limit);
  }
}

int bulkhead_host_release(bulkhead_host* host, uint64_t permit) {
  if (!host) return -1;
  try {
    Local& local = *host->of_this_process();
    Permit ended;
    const detail::MutexLock lock(local.mutex);
    const auto index = static_cast<std::uint32_t>(permit);
    if (index >= local.entries.size()) return -1;
    Local::Entry& entry = local.entries[index];
    if (entry.serial != permit >> 32 || !entry.permit) return -1;
    ended = std::move(entry.permit);
    local.free.push_back(index);
    return 0;  // the units go back with `ended`, after the lock
  } catch (const std::exception&) {
    return -1;
  }
}

int bulkhead_host_resize(bulkhead_host* host, uint32_t max_concurrent) {
  if (!host) return -1;
  try {
    host->of_this_process()->scoped.gate().resize(max_concurrent);
    return 0;
  } catch (const std::exception&) {
    return -1;
  }
}

// Without memory for this process's part of the handle all numbers are 0.
void bulkhead_host_stat(bulkhead_host* host, bulkhead_host_stats* stats) {
  if (!stats) return;
  *stats = {};
  if (!host) return;
  try {
    shared::ScopedGate& scoped = host->of_this_process()->scoped;
    const Snapshot s = scoped.gate().snapshot();
    stats->max_concurrent = s.max_concurrent;
    stats->in_flight = scoped.host_in_use().value_or(0);
    stats->own_in_flight = s.in_flight;
    stats->own_waiting = s.waiting;
    stats->own_admitted = s.admitted;
    stats->own_rejected = s.rejected();
  } catch (const std::exception&) {
    return;
  }
}

const char* bulkhead_host_reason(int result) {
  if (result == 0) return "admitted";
  if (result < 0 || result > static_cast<int>(kReasons)) return "unknown";
  return to_string(static_cast<Reason>(result - 1)).data();
}

void bulkhead_host_close(bulkhead_host* host) {
  if (!host) return;
  Local* const local = host->local.load();
  if (local->epoch == forks.load()) delete local;  // gives back what its entries hold
  delete host;
}
