#include "last_in_line.h"

#include <algorithm>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <iterator>
#include <utility>
#include <vector>

#include "bulkhead/detail/mutex.h"

namespace bulkhead::beast {
namespace asio = boost::asio;

asio::awaitable<void> LastInLine::turn(asio::any_io_executor executor, std::size_t per_round) {
  auto& line = asio::use_service<LastInLine>(asio::query(executor, asio::execution::context));
  return asio::async_initiate<const asio::use_awaitable_t<>, void()>(
      [&line, executor = std::move(executor), per_round](auto handler) {
        line.enter({.executor = executor,
                    .go = [executor, handler = std::move(
                                         handler)]() mutable { asio::post(executor, std::move(handler)); }},
                   per_round);
      },
      asio::use_awaitable);
}

void LastInLine::enter(Waiter waiter, std::size_t per_round) {
  const asio::any_io_executor executor = waiter.executor;
  {
    const detail::MutexLock lock(mutex_);
    waiting_.push_back(std::move(waiter));
    if (std::exchange(rolling_, true)) return;
  }
  asio::post(executor, [this, per_round] { round(per_round); });
}

// The next round is posted after the resumed ones, so that the loop polls for new events in between.
void LastInLine::round(std::size_t per_round) {
  std::vector<Waiter> now;
  asio::any_io_executor next;
  {
    const detail::MutexLock lock(mutex_);
    const auto end = waiting_.begin() + static_cast<std::ptrdiff_t>(std::min(per_round, waiting_.size()));
    std::move(waiting_.begin(), end, std::back_inserter(now));
    waiting_.erase(waiting_.begin(), end);
    rolling_ = !waiting_.empty();
    if (rolling_) next = waiting_.front().executor;
  }
  for (Waiter& waiter : now) waiter.go();
  if (next) asio::post(next, [this, per_round] { round(per_round); });
}

void LastInLine::shutdown() noexcept {
  std::deque<Waiter> gone;  // destroys their coroutines outside the lock
  const detail::MutexLock lock(mutex_);
  gone.swap(waiting_);
}

}  // namespace bulkhead::beast
