#include <array>

#include "bench/rival_absl.h"
#include "bench/rival_asio.h"
#include "bench/rival_condvar.h"
#include "bench/rival_floor.h"
#include "bench/rival_gate.h"
#include "bench/rival_moodycamel.h"
#include "bench/rival_mutex_gate.h"
#include "bench/rival_posix.h"
#include "bench/rival_std.h"

namespace bench {

std::span<const Entry> all_rivals() {
  static const std::array entries{
      entry<AddSub>(),
      entry<CasSub>(),
      entry<GuessedCasSub>(),
      entry<GateRival<bulkhead::Fairness::fifo>>(),
      entry<GateRival<bulkhead::Fairness::adaptive>>(),
      entry<GateRival<bulkhead::Fairness::barging>>(),
      entry<MutexGate>(),
      entry<StdSemaphore>(),
      entry<Moodycamel>(),
      entry<PosixSemaphore>(),
      entry<CondvarSemaphore>(),
      entry<AbslSemaphore>(),
      entry<AsioChannel>(),
  };
  return entries;
}

}  // namespace bench
