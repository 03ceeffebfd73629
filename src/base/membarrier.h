// membarrier.h - "store, then load" where one side does it millions of times a second and the other hardly ever: the
// kernel makes all threads pass a barrier when the rare side asks, so that the other needs none.
//
//   often:  flag.store(1, relaxed); compiler barrier; look at the pointer
//   rarely: change the pointer; membarrier(); look at the flag       // one of the two sees the other's store
//
// Cost: some microseconds for the rare side. Where the kernel has no such call, the often side needs a barrier.
#pragma once

namespace bulkhead::base {

bool membarrier_works() noexcept;  // asks the kernel once
void membarrier() noexcept;        // only where it works

}  // namespace bulkhead::base
