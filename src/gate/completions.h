// completions.h - runs the handlers and coroutines of decided acquisitions one after the other, without a lock.
//
// A handler that releases a permit admits the next waiter. If the handler of that one ran inside, a long line would
// overflow the stack. So a completion that arises while another one runs on this thread waits until that one returns.
#pragma once

#include "bulkhead/async_acquire.h"

namespace bulkhead::detail {

class Completions {
 public:
  static void post(AsyncAcquire& op) noexcept;
  // Runs the completions that wait on this thread, even from inside one: a thread that is about to block must not delay
  // them.
  static void flush() noexcept;
  static bool remove(AsyncAcquire& op) noexcept;

  // Delays completions until its destructor: one that runs may destroy others, so all have to be posted first.
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
