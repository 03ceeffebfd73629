// last_in_line.h - resumes coroutines after everything else that is ready, and only a few per round of the event loop.
//
//   co_await LastInLine::turn(executor, 16);
//
// Connections whose requests were rejected wait here before their next request is read, so that a storm of them delays the
// others by one small batch. There is one for each execution context. Threads: any. Cost: an allocation, and a post per
// batch.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/execution_context.hpp>
#include <cstddef>
#include <deque>
#include <functional>

#include "base/unique_function.h"
#include "bulkhead/detail/std_mutex.h"

namespace bulkhead::beast {

class LastInLine final : public boost::asio::execution_context::service {
 public:
  using key_type = LastInLine;
  inline static boost::asio::execution_context::id id;

  explicit LastInLine(boost::asio::execution_context& context) : service(context) {}
  static boost::asio::awaitable<void> turn(boost::asio::any_io_executor executor, std::size_t per_round);

 private:
  struct Waiter {
    boost::asio::any_io_executor executor;
    bulkhead::base::UniqueFunction<void()> go;
  };
  void shutdown() noexcept override;
  void enter(Waiter waiter, std::size_t per_round);
  void round(std::size_t per_round);

  // Invariants, under mutex_: a round is posted while rolling_, and only while a coroutine waits.
  detail::StdMutex mutex_;
  std::deque<Waiter> waiting_ BULKHEAD_GUARDED_BY(mutex_);
  bool rolling_ BULKHEAD_GUARDED_BY(mutex_) = false;
};

}  // namespace bulkhead::beast
