// connection_holder.h - holds rejected connections for a while without their threads, then answers and closes them.
//
//   holder.hold(socket, "HTTP/1.1 503 ...", now + 300ms);
//
// One thread serves all of them; the first starts it. Threads: any. Cost of a held connection: its socket and the text of
// its response.
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
  ConnectionHolder() = default;
  ~ConnectionHolder();  // answers all at once
  ConnectionHolder(const ConnectionHolder&) = delete;
  ConnectionHolder& operator=(const ConnectionHolder&) = delete;

  void hold(int socket, std::string response, TimePoint until);  // takes ownership of the socket
  void release();                                                // answers all now

 private:
  struct Held {
    int socket;
    std::string response;
  };
  static void answer(const Held& held) noexcept;
  void loop();

  // Invariants, under mutex_: the thread exists after the first hold(), and sleeps until the first of held_ is due.
  detail::StdMutex mutex_;
  std::condition_variable earlier_;
  std::multimap<TimePoint, Held> held_ BULKHEAD_GUARDED_BY(mutex_);
  bool ending_ BULKHEAD_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace bulkhead::httplib
