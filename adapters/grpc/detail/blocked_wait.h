// blocked_wait.h - a thread waits for a decision, and asks at intervals whether its RPC was cancelled.
//
// For server_guard.cc. gRPC's synchronous API has no event for a cancellation: the tag of the operation that reports it is private,
// and AsyncNotifyWhenDone() is for completion queues. IsCancelled() asks gRPC's core.
#pragma once

#include <chrono>
#include <semaphore>

namespace bulkhead::grpc::detail {

inline constexpr std::chrono::milliseconds kCancelPoll(5);  // a cancelled RPC may stay in line for 10 ms

// Returns when `decided` is released. Asks gone() every kCancelPoll. After the first yes it calls leave() and asks no more: the
// decision still comes.
template <class Gone, class Leave>
void blocked_wait(std::binary_semaphore& decided, const Gone& gone, const Leave& leave) {
  while (!decided.try_acquire_for(kCancelPoll)) {
    if (!gone()) continue;
    leave();
    return decided.acquire();
  }
}

}  // namespace bulkhead::grpc::detail
