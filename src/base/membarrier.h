// membarrier.h - "store, then load" where one side runs millions of times a second and the other rarely: the rare side asks
// the kernel to make all threads pass a barrier, so that the frequent side needs none.
//
//   often:  flag.store(1, relaxed); compiler barrier; read the pointer
//   rarely: change the pointer; membarrier(); read the flag          // one of the two sees the other's store
//
// Cost: some microseconds for the rare side. If the kernel has no such call, the frequent side needs a barrier.
// A seccomp filter may forbid the call later. Then membarrier() prints a message once on stderr and uses a slower way: it
// makes a page read-only, which interrupts every core that runs a thread of this process (only on x86-64, and not on AMD
// processors with INVLPGB; some tens of microseconds). If that is not possible, it waits for 20 ms, longer than any
// processor delays a store.
#pragma once

namespace bulkhead::base {

bool membarrier_works() noexcept;  // asks the kernel once
void membarrier() noexcept;        // only if membarrier_works()

}  // namespace bulkhead::base
