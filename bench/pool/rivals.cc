#include "bench/pool/rival_asio.h"
#include "bench/pool/rival_async.h"
#include "bench/pool/rival_bulkhead.h"
#include "bench/pool/rival_mutex.h"
#include "bench/pool/rival_tbb.h"

namespace bench {

std::span<const PoolEntry> all_pools() {
  static const PoolEntry entries[] = {
      pool_entry<BulkheadPool>(), pool_entry<AsioPool>(), pool_entry<TbbArena>(),
      pool_entry<MutexPool>(),    pool_entry<StdAsync>(),
  };
  return entries;
}

}  // namespace bench
