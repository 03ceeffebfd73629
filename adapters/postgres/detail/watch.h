// watch.h - waits on an event loop for a socket of libpq. Not for direct use.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <utility>

#include "../../asio/detail/operation.h"
#include "bulkhead/clock.h"

namespace bulkhead::postgres::detail {

enum class Waited : std::uint8_t {
  ready,
  timed_out,
  cancelled,  // by the stop_token, or by the coroutine's cancellation slot
};

// The socket stays libpq's.
class Watch {
 public:
  Watch(const boost::asio::any_io_executor& executor, int socket, const std::stop_token& stop = {})
      : shared_(std::make_shared<Shared>(executor, socket)), timer_(executor) {
    if (stop.stop_possible())
      on_stop_.emplace(stop, Interrupt{executor, asio_detail::DoorKeeper::door_of(executor), shared_});
  }
  ~Watch() { shared_->descriptor.release(); }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  boost::asio::awaitable<Waited> ready(bool read, bool write, TimePoint deadline) {
    using Wait = boost::asio::posix::descriptor_base;
    if (shared_->stopped) co_return Waited::cancelled;
    const std::uint64_t wait = ++shared_->waits;
    shared_->late = false;
    if (deadline != no_deadline) {
      timer_.expires_at(deadline);
      // It may be called, though cancelled, when this wait is over, or the Watch gone.
      timer_.async_wait([shared = shared_, wait](boost::system::error_code e) {
        if (e || shared->waits != wait) return;
        shared->late = true;
        shared->descriptor.cancel(e);
      });
    }
    boost::system::error_code error;
    const auto what = write && !read ? Wait::wait_write : Wait::wait_read;
    co_await shared_->descriptor.async_wait(what,
                                            boost::asio::redirect_error(boost::asio::use_awaitable, error));
    ++shared_->waits;
    if (deadline != no_deadline) timer_.cancel();
    if (error != boost::asio::error::operation_aborted) co_return Waited::ready;
    co_return shared_->late ? Waited::timed_out : Waited::cancelled;
  }

 private:
  struct Shared {
    Shared(const boost::asio::any_io_executor& executor, int socket) : descriptor(executor, socket) {}
    boost::asio::posix::stream_descriptor descriptor;
    std::uint64_t waits = 0;
    bool late = false, stopped = false;
  };
  // On the thread that requests the stop, which may not know the io_context.
  struct Interrupt {
    boost::asio::any_io_executor executor;
    std::shared_ptr<asio_detail::Door> door;
    std::weak_ptr<Shared> watched;
    void operator()() const {
      door->pass([this] {
        boost::asio::post(executor, [watched = watched] {
          if (const auto shared = watched.lock()) {
            boost::system::error_code ignored;
            shared->stopped = true;
            shared->descriptor.cancel(ignored);
          }
        });
      });
    }
  };
  std::shared_ptr<Shared> shared_;
  boost::asio::steady_timer timer_;
  std::optional<std::stop_callback<Interrupt>> on_stop_;
};

}  // namespace bulkhead::postgres::detail
