// The pool itself, as users have it: bounded queue, priorities, counters.
#pragma once

#include <cstdio>
#include <cstdlib>

#include "bench/pool/rival.h"
#include "bulkhead/pool.h"

namespace bench {

class BulkheadPool {
 public:
  static constexpr std::string_view name = kPool;
  static constexpr bool has_workers = true;
  static constexpr unsigned batch = 64;
  explicit BulkheadPool(unsigned workers)
      : pool_({.name = "bench", .max_concurrent = workers, .max_queue = Outstanding::window}) {}
  ~BulkheadPool() {  // a rejected task would be a fast one
    if (pool_.snapshot().gate.rejected() == 0) return;
    std::fputs("bulkhead_pool_bench: the pool has rejected work\n", stderr);
    std::abort();
  }

  template <class F>
  void post(F f) {
    (void)pool_.post(std::move(f));  // what is rejected is counted, see above
  }
  template <class F>
  bulkhead::Task<int> submit(F f) {
    return pool_.submit(std::move(f));
  }

 private:
  bulkhead::Pool pool_;
};

}  // namespace bench
