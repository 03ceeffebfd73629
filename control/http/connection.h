// connection.h - serves one connection: reads requests, writes responses, sends the stream of snapshots.
//
// Threads: only that of the event loop, but for handlers that run on the worker.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <cstdint>
#include <list>
#include <memory>
#include <set>

#include "adapters/beast/listener.h"
#include "byte_stream.h"
#include "front.h"

namespace bulkhead::control {

struct Waiter {
  ByteStream& stream;
  bool waits = true;  // for a request, or for the rest of one
  bool idle = true;   // and no byte of it has arrived
  void close() {      // its coroutine ends later
    waits = idle = false;
    stream.close();
  }
};

// The connections of one listener. Those that have waited longest for a request come first.
class Connections {
 public:
  explicit Connections(std::size_t max) : max_(max) {}
  // At the maximum, closes the connection that has waited longest for a request, so that slow clients do not keep others
  // out. False: none waits.
  bool make_room();
  void close_idle();  // those that have received no byte of a request

  // One of them, for the time it lasts.
  class Slot {
   public:
    Slot(Connections& all, ByteStream& stream);
    ~Slot() { all_.list_.erase(self_); }
    Slot(const Slot&) = delete;
    Slot& operator=(const Slot&) = delete;
    void wait();                                    // for the next request
    void begin() noexcept { self_->idle = false; }  // its first byte has arrived
    void end_wait() noexcept { self_->waits = self_->idle = false; }

   private:
    Connections& all_;
    std::list<Waiter>::iterator self_;
  };

 private:
  const std::size_t max_;
  std::list<Waiter> list_;
};

// What the connections of a server share.
struct Shared {
  Core& core;
  Front& front;
  boost::asio::io_context& io;
  boost::asio::thread_pool& worker;
  std::set<boost::asio::steady_timer*> subscribers{};  // of the stream: they wait for the next frame
  std::uint64_t requests = 0;
};

boost::asio::awaitable<void> serve(Shared& shared, std::unique_ptr<ByteStream> stream, Connections& all,
                                   Caller caller, beast::OpenConnections::Token token);

}  // namespace bulkhead::control
