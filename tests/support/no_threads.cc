#include "tests/support/no_threads.h"

#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <cerrno>

namespace {

using Create = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);

std::atomic<bool> failing = false;
std::atomic<std::int64_t> left = 0;
std::atomic<int> failed = 0;

}  // namespace

// Sanitizers that are linked statically replace pthread_create under this name, and have to know every thread.
extern "C" int __interceptor_pthread_create(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*)
    __attribute__((weak));

extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*body)(void*),
                              void* argument) noexcept {
  if (failing && left.fetch_sub(1) <= 0) {
    ++failed;
    return EAGAIN;
  }
  static const Create next = __interceptor_pthread_create
                                 ? &__interceptor_pthread_create
                                 : reinterpret_cast<Create>(::dlsym(RTLD_NEXT, "pthread_create"));
  return next(thread, attributes, body, argument);
}

namespace bulkhead::tests {

NoThreads::NoThreads(std::int64_t n) noexcept {
  ::failed = 0;
  left = n;
  failing = true;
}
NoThreads::~NoThreads() { failing = false; }
int NoThreads::failed() noexcept { return ::failed; }

}  // namespace bulkhead::tests
