// holder.h - keeps refused connections for a while without their threads, then answers and closes them.
//
//   holder.hold(socket, "HTTP/1.1 503 ...", now + 300ms);
//
// One thread for all of them, started with the first. Threads: any. Cost: a held connection is its socket and the
// text of its response.
#pragma once

#include <condition_variable>
#include <map>
#include <mutex>
#include <string>
#include <thread>

#include "bulkhead/clock.h"

namespace bulkhead::httplib {

class Holder {
 public:
  Holder() = default;
  ~Holder();  // answers those it has at once
  Holder(const Holder&) = delete;
  Holder& operator=(const Holder&) = delete;

  void hold(int socket, std::string response, TimePoint until);  // the socket is its own from here on

 private:
  struct Held {
    int socket;
    std::string response;
  };
  static void answer(const Held& held) noexcept;
  void loop();

  // Invariants, under mutex_: the thread runs once there was one to hold, and sleeps until the first of held_ is due.
  std::mutex mutex_;
  std::condition_variable earlier_;
  std::multimap<TimePoint, Held> held_;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace bulkhead::httplib
