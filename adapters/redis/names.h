// names.h - the addresses of a host name, until a deadline. The system's lookup has none: a name server that does not answer
// would stop the thread that renews the leases for many seconds. So it runs on a thread of its own, which may outlive the call,
// and the addresses found last are used as long as there is no answer.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "bulkhead/detail/std_mutex.h"

namespace bulkhead::redis {

class Names {
 public:
  using Until = std::chrono::steady_clock::time_point;
  using Addresses = std::vector<std::string>;                        // such as "192.0.2.7" or "2001:db8::7"
  using Lookup = std::function<Addresses(const std::string& host)>;  // std::runtime_error says why not

  explicit Names(Lookup lookup) : lookup_(std::move(lookup)) {}
  // By any thread. Not empty; std::runtime_error says why there is none. With addresses of before, at most half of the time
  // that is left is spent.
  Addresses find(const std::string& host, Until until);

 private:
  // Shared with the thread of the lookup.
  struct Answer {
    detail::StdMutex mutex;
    std::condition_variable ready;
    bool done BULKHEAD_GUARDED_BY(mutex) = false;
    Addresses addresses BULKHEAD_GUARDED_BY(mutex);
    std::string problem BULKHEAD_GUARDED_BY(mutex);
  };
  struct Entry {
    Addresses last;
    std::shared_ptr<Answer> asked;  // null: no lookup is under way
  };

  const Lookup lookup_;
  detail::StdMutex mutex_;
  std::map<std::string, Entry> entries_ BULKHEAD_GUARDED_BY(mutex_);
};

Names& system_names();

}  // namespace bulkhead::redis
