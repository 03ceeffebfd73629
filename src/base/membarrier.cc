#include "base/membarrier.h"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace bulkhead::base {
namespace {

bool ask(int command) noexcept { return syscall(SYS_membarrier, command, 0, 0) == 0; }

}  // namespace

bool membarrier_works() noexcept {
  static const bool works =
      ask(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) && ask(MEMBARRIER_CMD_PRIVATE_EXPEDITED);
  return works;
}

// It can only fail in a process that has not registered: one that was forked off, with some kernels.
void membarrier() noexcept {
  while (!ask(MEMBARRIER_CMD_PRIVATE_EXPEDITED)) ask(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED);
}

}  // namespace bulkhead::base
