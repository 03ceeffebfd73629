// connection_holder.h - holds rejected connections for a while without their threads, then answers and closes them.
//
//   holder.hold(socket, "HTTP/1.1 503 ...", now + 300ms);
//
// One thread serves all of them. It starts in the constructor, which throws std::system_error without a thread: during a storm
// it may be too late. Threads: any. Cost of a held connection: its socket and the text of its response.
#pragma once

#include <condition_variable>
#include <map>
#include <string>
#include <thread>

#include "bulkhead/clock.h"
#include "bulkhead/detail/std_mutex.h"

namespace bulkhead::httplib {

class ConnectionHolder {
 public:
  ConnectionHolder();
  ~ConnectionHolder();  // answers all at once
  ConnectionHolder(const ConnectionHolder&) = delete;
  ConnectionHolder& operator=(const ConnectionHolder&) = delete;

  // Takes ownership of the socket. Without memory it answers at once.
  void hold(int socket, std::string response, TimePoint until) noexcept;
  void release();  // answers all now

 private:
  struct Held {
    int socket;
    std::string response;
  };
  static void answer(const Held& held) noexcept;
  void loop();

  // Invariant, under mutex_: the thread sleeps until the first of held_ is due.
  detail::StdMutex mutex_;
  std::condition_variable earlier_;
  std::multimap<TimePoint, Held> held_ BULKHEAD_GUARDED_BY(mutex_);
  bool ending_ BULKHEAD_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace bulkhead::httplib
