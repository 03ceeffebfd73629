// annotations.h - says which lock protects which member; Clang checks it (-Wthread-safety, an error in our Clang builds).
//
//   StdMutex mutex_;
//   std::vector<int> jobs_ BULKHEAD_GUARDED_BY(mutex_);       // an access without the lock does not compile
//   void run_next() BULKHEAD_REQUIRES(mutex_);                // nor does a call without it
//
// Other compilers ignore them. Clang does not check constructors, destructors, and data behind pointers or references. A
// lambda that runs under the lock calls `mutex_.assert_held()`, which costs nothing.
#pragma once

#include "bulkhead/detail/language.h"

#if defined(__clang__)
#define BULKHEAD_THREAD_SAFETY(attribute) __attribute__((attribute))
#else
#define BULKHEAD_THREAD_SAFETY(attribute)
#endif

// For classes: a lock; a lock holder.
#define BULKHEAD_CAPABILITY BULKHEAD_THREAD_SAFETY(capability("mutex"))
#define BULKHEAD_SCOPED_CAPABILITY BULKHEAD_THREAD_SAFETY(scoped_lockable)
// For members: the member; the data that it points to.
#define BULKHEAD_GUARDED_BY(mutex) BULKHEAD_THREAD_SAFETY(guarded_by(mutex))
#define BULKHEAD_PT_GUARDED_BY(mutex) BULKHEAD_THREAD_SAFETY(pt_guarded_by(mutex))
// For functions: the caller holds the lock; the caller does not hold it.
#define BULKHEAD_REQUIRES(...) BULKHEAD_THREAD_SAFETY(requires_capability(__VA_ARGS__))
#define BULKHEAD_EXCLUDES(...) BULKHEAD_THREAD_SAFETY(locks_excluded(__VA_ARGS__))
// For functions: locks; unlocks; locks if it returns true; states that the lock is held.
#define BULKHEAD_ACQUIRE(...) BULKHEAD_THREAD_SAFETY(acquire_capability(__VA_ARGS__))
#define BULKHEAD_RELEASE(...) BULKHEAD_THREAD_SAFETY(release_capability(__VA_ARGS__))
#define BULKHEAD_TRY_ACQUIRE(...) BULKHEAD_THREAD_SAFETY(try_acquire_capability(__VA_ARGS__))
#define BULKHEAD_ASSERT_HELD(...) BULKHEAD_THREAD_SAFETY(assert_capability(__VA_ARGS__))
// The same for a lock that readers share: they may read what it protects, and not write it.
#define BULKHEAD_ACQUIRE_SHARED(...) BULKHEAD_THREAD_SAFETY(acquire_shared_capability(__VA_ARGS__))
#define BULKHEAD_RELEASE_SHARED(...) BULKHEAD_THREAD_SAFETY(release_shared_capability(__VA_ARGS__))
// For functions that the analysis cannot follow; a comment says why they are right.
#define BULKHEAD_UNCHECKED_LOCKS BULKHEAD_THREAD_SAFETY(no_thread_safety_analysis)
