// status.h - the gRPC status of a rejection, and what a status says about the method that returned it.
//
//   const ::grpc::Status status = bulkhead::grpc::status_of(rejection, {}, {.trusted = true});
//   // RESOURCE_EXHAUSTED: bulkhead "shop" rejected (queue_limit): 32/32 running, 64/64 waiting
//
// RESOURCE_EXHAUSTED says that the server or the client's share of it is full, UNAVAILABLE that the server or its
// dependency is not there. Teams disagree which of the two a client should retry, so every reason has a setting.
// Every rejection also carries two trailing metadata entries: `grpc-retry-pushback-ms`, which retrying gRPC clients
// obey (gRFC A6; negative: do not retry), and `bulkhead-reason`, the word of the reason.
//
// Pure; threads: plain values and functions. Cost: a status allocates its message.
#pragma once

#include <grpcpp/support/status.h>

#include <chrono>
#include <cstdint>
#include <string>

#include "bulkhead/http.h"
#include "bulkhead/judge.h"
#include "bulkhead/rejection.h"

namespace bulkhead::grpc {

inline constexpr const char* kPushbackKey = "grpc-retry-pushback-ms";
inline constexpr const char* kReasonKey = "bulkhead-reason";

// `deadline`: the RPC is late, also after a wait in line; `deadline_unreachable`: it would be late before its turn.
struct StatusFor {
  ::grpc::StatusCode concurrency_limit = ::grpc::StatusCode::RESOURCE_EXHAUSTED;
  ::grpc::StatusCode queue_limit = ::grpc::StatusCode::RESOURCE_EXHAUSTED;
  ::grpc::StatusCode timeout = ::grpc::StatusCode::RESOURCE_EXHAUSTED;
  ::grpc::StatusCode evicted = ::grpc::StatusCode::RESOURCE_EXHAUSTED;
  ::grpc::StatusCode rate_limit = ::grpc::StatusCode::RESOURCE_EXHAUSTED;
  ::grpc::StatusCode tenant_limit = ::grpc::StatusCode::RESOURCE_EXHAUSTED;
  ::grpc::StatusCode deadline_unreachable = ::grpc::StatusCode::RESOURCE_EXHAUSTED;
  ::grpc::StatusCode deadline = ::grpc::StatusCode::DEADLINE_EXCEEDED;
  ::grpc::StatusCode breaker_open = ::grpc::StatusCode::UNAVAILABLE;
  ::grpc::StatusCode execution_timeout = ::grpc::StatusCode::DEADLINE_EXCEEDED;
  ::grpc::StatusCode draining = ::grpc::StatusCode::UNAVAILABLE;
  ::grpc::StatusCode shutdown = ::grpc::StatusCode::UNAVAILABLE;  // closed, or not in the registry
  ::grpc::StatusCode cancelled = ::grpc::StatusCode::CANCELLED;
  ::grpc::StatusCode budget_limit = ::grpc::StatusCode::RESOURCE_EXHAUSTED;
  ::grpc::StatusCode holdback = ::grpc::StatusCode::RESOURCE_EXHAUSTED;
  ::grpc::StatusCode injected_fault = ::grpc::StatusCode::UNAVAILABLE;  // a rehearsal: the dependency fails
};

struct RejectionOptions {
  StatusFor status_for{};
  http::ExposeNames expose_names = http::ExposeNames::trusted;  // of bulkheads, in the status message
  // The pushback when the rejection has no time of its own: `retry` times 1, 2 or 4 by priority, and up to half as
  // much again at random, so that calls rejected together are not retried together.
  std::chrono::milliseconds retry{200};
};

struct Rejected {
  Priority priority = Priority::normal;
  bool trusted = false;      // the peer is
  bool late = false;         // its deadline has passed
  std::uint32_t random = 0;  // 32 random bits, for the jitter
};

::grpc::StatusCode code_of(Reason reason, const StatusFor& status_for, bool late = false) noexcept;
::grpc::Status status_of(const Rejection& why, const RejectionOptions& options = {},
                         const Rejected& how = {});
// Milliseconds for `grpc-retry-pushback-ms`; -1: a retry makes no sense, the RPC is late, cancelled, or asks for more than a
// budget ever gives.
std::chrono::milliseconds pushback_of(const Rejection& why, const RejectionOptions& options = {},
                                      const Rejected& how = {}) noexcept;

// What a status says about the method, for breaker and adaptive limiter. Failures: UNKNOWN, DEADLINE_EXCEEDED,
// UNIMPLEMENTED, INTERNAL, UNAVAILABLE, DATA_LOSS. Ignored: CANCELLED, and RESOURCE_EXHAUSTED, because a rejection by a
// further server is not a failure of this one. All other codes name mistakes of the client: success.
Outcome verdict(::grpc::StatusCode code) noexcept;

}  // namespace bulkhead::grpc
