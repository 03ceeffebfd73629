// completions.h - runs the handlers and coroutines that were decided, outside all locks, one after the other.
//
// A handler that releases a permit decides the next one: if that ran inside, a long line would overflow the
// stack. So a completion that arises while another runs on this thread waits for it to return.
#pragma once

#include "bulkhead/async_acquire.h"

namespace bulkhead::detail {

class Completions {
 public:
  static void post(AsyncAcquire& op) noexcept;
  // Runs those still waiting on this thread, even from inside one of them: whoever is about to block must not
  // hold them up.
  static void flush() noexcept;
  static bool remove(AsyncAcquire& op) noexcept;

  // Holds back what is posted while it lives: whoever runs may destroy the others, so all are posted first.
  class Together {
   public:
    Together() noexcept;
    ~Together();
    Together(const Together&) = delete;
    Together& operator=(const Together&) = delete;

   private:
    const bool inner_;
  };

 private:
  static void run_all() noexcept;
};

}  // namespace bulkhead::detail
