// watcher.h - tells when the other end of a connection closes or the time is up, while the thread that serves it waits
// for something else.
//
//   { const Watcher::Watch watch(watcher, socket, stop);  wait(stop.get_token()); }
//
// One thread for all connections, started with the first. Threads: any.
#pragma once

#include <map>
#include <mutex>
#include <stop_token>
#include <thread>

#include "bulkhead/clock.h"

namespace bulkhead::httplib {

class Watcher {
 public:
  Watcher();
  ~Watcher();
  Watcher(const Watcher&) = delete;
  Watcher& operator=(const Watcher&) = delete;

  class Watch {
   public:
    Watch(Watcher& watcher, int socket, std::stop_source stop, TimePoint until = no_deadline);
    ~Watch();  // afterwards the socket is not looked at
    Watch(const Watch&) = delete;
    Watch& operator=(const Watch&) = delete;

   private:
    Watcher& watcher_;
    int socket_;
  };

 private:
  void loop();
  void wake() const;

  // Invariants, under mutex_: watched_ is what the thread is to look at; a socket is in it at most once.
  std::mutex mutex_;
  struct Watched {
    std::stop_source stop;
    TimePoint until;
  };
  std::map<int, Watched> watched_;
  bool ending_ = false;
  int wake_;  // an eventfd: what is watched has changed
  std::thread thread_;
};

}  // namespace bulkhead::httplib
