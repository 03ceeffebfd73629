// time_limit.h - ends an RPC when the execution_timeout of its bulkhead is over.
//
// The other side sees the status at once, and the handler sees that its RPC is cancelled. The place is not given back by this:
// it is kept until the handler has ended.
#pragma once

#include <grpc/grpc.h>
#include <grpcpp/support/status.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>

#include "bulkhead/clock.h"

namespace bulkhead::grpc {

class TimeLimit {
 public:
  TimeLimit() noexcept;
  ~TimeLimit();
  TimeLimit(const TimeLimit&) = delete;
  TimeLimit& operator=(const TimeLimit&) = delete;

  // Once. Allocates.
  void start(grpc_call* call, std::chrono::nanoseconds limit, ::grpc::Status with);
  void stop() noexcept;  // the RPC has ended
  bool passed() const noexcept;

 private:
  struct Timer;
  std::shared_ptr<Timer> timer_;
};

}  // namespace bulkhead::grpc
