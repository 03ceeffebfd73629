// signals.h - keeps signals away from the library's own threads.
#pragma once

#include <pthread.h>
#include <signal.h>

namespace bulkhead::base {

// While it lives, threads that this thread starts block all signals: signals are for the threads of the program.
class SignalsBlocked {
 public:
  SignalsBlocked() noexcept {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_{};
};

}  // namespace bulkhead::base
