// last_in_line.h - a turn once everything else that is ready has had one: of those who wait here, so many go on in a
// round of the event loop, however many they are.
//
//   co_await LastInLine::turn(executor, 16);
//
// It is how refused connections come last: their requests are not even read before their turn, so a storm of
// them delays the others by one small batch. One for each execution context. Threads: any. Cost: an allocation, and a
// post per batch.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/execution_context.hpp>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>

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
    std::move_only_function<void()> go;
  };
  void shutdown() noexcept override;
  void enter(Waiter waiter, std::size_t per_round);
  void round(std::size_t per_round);

  // Invariants, under mutex_: a round is on its way while rolling_, and only while somebody waits.
  std::mutex mutex_;
  std::deque<Waiter> waiting_;
  bool rolling_ = false;
};

}  // namespace bulkhead::beast
