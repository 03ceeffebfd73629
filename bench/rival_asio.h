// boost::asio's channel as a semaphore: a message in the buffer is a place taken. A thread that must wait
// does so on a future, which the channel completes through a thread pool of one thread; an Asio program
// would co_await instead.
#pragma once

#include <boost/asio/experimental/concurrent_channel.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_future.hpp>

#include "bench/workload.h"

namespace bench {

class AsioChannel {
 public:
  static constexpr std::string_view name = "boost::asio channel";
  static constexpr Guarantees guarantees{.fifo = true};
  explicit AsioChannel(unsigned limit) : channel_(pool_, limit) {}

  template <class F>
  bool try_call(F&& body) {
    if (!channel_.try_send(boost::system::error_code())) return false;
    body();
    release();
    return true;
  }
  template <class F>
  void call(F&& body) {
    if (!channel_.try_send(boost::system::error_code()))
      channel_.async_send(boost::system::error_code(), boost::asio::use_future).get();
    body();
    release();
  }

 private:
  void release() {
    channel_.try_receive([](boost::system::error_code) {});
  }

  boost::asio::thread_pool pool_{1};
  boost::asio::experimental::concurrent_channel<void(boost::system::error_code)> channel_;
};

}  // namespace bench
