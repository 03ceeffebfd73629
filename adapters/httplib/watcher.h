// watcher.h - fires a stop source when a client disconnects or its time is over, while the thread of the connection is busy.
//
//   { const Watcher::Watch watch(watcher, socket, stop);  wait(stop.get_token()); }
//
// One thread watches all connections. It starts in the constructor, which throws std::system_error without a thread or a file
// descriptor: a connection without a watch would wait for ever. Threads: any.
#pragma once

#include <map>
#include <stop_token>
#include <thread>

#include "bulkhead/clock.h"
#include "bulkhead/detail/std_mutex.h"

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
    ~Watch();  // then the socket is not used any more
    Watch(const Watch&) = delete;
    Watch& operator=(const Watch&) = delete;

   private:
    Watcher& watcher_;
    int socket_;
  };

 private:
  void loop();
  void wake() const;

  // Invariants, under mutex_: the thread watches watched_; a socket is in it at most once.
  detail::StdMutex mutex_;
  struct Watched {
    std::stop_source stop;
    TimePoint until;
  };
  std::map<int, Watched> watched_ BULKHEAD_GUARDED_BY(mutex_);
  bool ending_ BULKHEAD_GUARDED_BY(mutex_) = false;
  int wake_;  // an eventfd: watched_ has changed
  std::thread thread_;
};

}  // namespace bulkhead::httplib
