// sync_point.h - named places in the slow paths at which a test can hold a thread, to force one interleaving. Compiled in
// with BULKHEAD_SYNC_POINTS only; otherwise a call does nothing.
#pragma once

#include <atomic>

namespace bulkhead::base {

#if defined(BULKHEAD_SYNC_POINTS)
using SyncPointHandler = void (*)(const char* name);
inline std::atomic<SyncPointHandler> sync_point_handler{nullptr};

inline void sync_point(const char* name) {
  if (auto* handler = sync_point_handler.load(std::memory_order_acquire)) handler(name);
}
#else
inline void sync_point(const char*) {}
#endif

}  // namespace bulkhead::base
