// std_mutex.h - the mutexes of the standard library with annotations, a lock that can be released in between, and a lock
// for readers.
//
//   StdMutex mutex_;
//   int jobs_ BULKHEAD_GUARDED_BY(mutex_) = 0;
//   std::condition_variable changed_;
//
//   UniqueLock lock(mutex_);
//   while (jobs_ == 0) changed_.wait(lock);       // a loop: Clang does not see the lock inside a predicate
//
// They behave and cost as the standard ones. Where the lock is not released in between, use MutexLock (mutex.h).
#pragma once

#include <mutex>
#include <shared_mutex>

#include "bulkhead/detail/annotations.h"
#include "bulkhead/detail/mutex.h"

namespace bulkhead::detail {

template <class Standard>
class BULKHEAD_CAPABILITY Annotated : public Standard {
 public:
  using Native = Standard;
  void lock() BULKHEAD_ACQUIRE() { Standard::lock(); }
  void unlock() BULKHEAD_RELEASE() { Standard::unlock(); }
  bool try_lock() BULKHEAD_TRY_ACQUIRE(true) { return Standard::try_lock(); }
  // For readers, if Standard has them.
  void lock_shared() BULKHEAD_ACQUIRE_SHARED() { Standard::lock_shared(); }
  void unlock_shared() BULKHEAD_RELEASE_SHARED() { Standard::unlock_shared(); }
  void assert_held() const noexcept BULKHEAD_ASSERT_HELD(this) {}
};
using StdMutex = Annotated<std::mutex>;
using RecursiveMutex = Annotated<std::recursive_mutex>;
using SharedMutex = Annotated<std::shared_mutex>;

// An annotated std::shared_lock for one scope. To write, use MutexLock.
template <class M>
class BULKHEAD_SCOPED_CAPABILITY SharedLock {
 public:
  explicit SharedLock(M& mutex) BULKHEAD_ACQUIRE_SHARED(mutex) : mutex_(mutex) { mutex_.lock_shared(); }
  ~SharedLock() BULKHEAD_RELEASE() { mutex_.unlock_shared(); }
  SharedLock(const SharedLock&) = delete;
  SharedLock& operator=(const SharedLock&) = delete;

 private:
  M& mutex_;
};

// A std::unique_lock that is locked when it is made; std::condition_variable accepts it.
template <class M>
class BULKHEAD_SCOPED_CAPABILITY UniqueLock : public std::unique_lock<typename M::Native> {
  using Standard = std::unique_lock<typename M::Native>;

 public:
  explicit UniqueLock(M& mutex) BULKHEAD_ACQUIRE(mutex) : Standard(mutex) {}
  ~UniqueLock() BULKHEAD_RELEASE() {}
  UniqueLock(const UniqueLock&) = delete;
  UniqueLock& operator=(const UniqueLock&) = delete;
  void lock() BULKHEAD_ACQUIRE() { Standard::lock(); }
  void unlock() BULKHEAD_RELEASE() { Standard::unlock(); }
};

}  // namespace bulkhead::detail
