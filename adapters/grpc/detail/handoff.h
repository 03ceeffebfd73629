// handoff.h - tells ThreadSanitizer that gRPC has passed an object from one thread to another.
//
//   give(this);      // before gRPC may use the object on another thread
//   take(this);      // where gRPC calls it
//
// gRPC calls an interceptor and a reactor from several threads, one after the other. Debian's libgrpc is not instrumented, so the
// sanitizer does not see what orders these calls. Without the sanitizer both do nothing.
#pragma once

#if defined(__SANITIZE_THREAD__)
#define BULKHEAD_GRPC_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define BULKHEAD_GRPC_TSAN 1
#endif
#endif

#if defined(BULKHEAD_GRPC_TSAN)
extern "C" void __tsan_acquire(void* address);
extern "C" void __tsan_release(void* address);
#endif

namespace bulkhead::grpc::detail {

#if defined(BULKHEAD_GRPC_TSAN)
inline void give(void* object) noexcept { __tsan_release(object); }
inline void take(void* object) noexcept { __tsan_acquire(object); }
#else
inline void give(void* /*object*/) noexcept {}
inline void take(void* /*object*/) noexcept {}
#endif

}  // namespace bulkhead::grpc::detail
