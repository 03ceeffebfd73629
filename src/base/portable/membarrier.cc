// membarrier.h where there is no such system call: the frequent side uses a barrier of its own.
#include "base/membarrier.h"

#include <cstdlib>

namespace bulkhead::base {

bool membarrier_works() noexcept { return false; }
void membarrier() noexcept { std::abort(); }  // only where it works

}  // namespace bulkhead::base
