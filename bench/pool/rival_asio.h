#pragma once

#include <boost/asio/post.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_future.hpp>
#include <future>

#include "bench/pool/rival.h"

namespace bench {

class AsioPool {
 public:
  static constexpr std::string_view name = kAsioPool;
  static constexpr bool has_workers = true;
  static constexpr unsigned batch = 64;
  explicit AsioPool(unsigned workers) : pool_(workers) {}
  ~AsioPool() { pool_.join(); }

  template <class F>
  void post(F f) {
    boost::asio::post(pool_, std::move(f));
  }
  template <class F>
  std::future<int> submit(F f) {
    return boost::asio::post(pool_, boost::asio::use_future(std::move(f)));
  }

 private:
  boost::asio::thread_pool pool_;
};

}  // namespace bench
