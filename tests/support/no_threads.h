// no_threads.h - lets the creation of threads fail, as the system does at its limit of threads.
//
//   { const NoThreads none;  pool.submit(work); }    // every pthread_create gives EAGAIN, whichever thread calls it
//   { const NoThreads after(2);  server.run(); }     // two more succeed
//
// Linking no_threads.cc replaces pthread_create by one that can fail. One at a time.
#pragma once

#include <cstdint>

namespace bulkhead::tests {

class NoThreads {
 public:
  explicit NoThreads(std::int64_t left = 0) noexcept;
  ~NoThreads();
  NoThreads(const NoThreads&) = delete;
  NoThreads& operator=(const NoThreads&) = delete;

  static int failed() noexcept;  // creations that failed since the last NoThreads began
};

}  // namespace bulkhead::tests
