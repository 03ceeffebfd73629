// stuck.h - work for a pool that stays until told to go; declare it before the pool.
#pragma once

#include <semaphore>

namespace bulkhead::tests {

struct Stuck {
  std::binary_semaphore begun{0}, go{0};
  auto work() {
    return [this] {
      begun.release();
      go.acquire();
      return 1;
    };
  }
};

}  // namespace bulkhead::tests
