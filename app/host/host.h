// host.h - the command that shows the limits which the processes of this host share.
#pragma once

#include <functional>

namespace CLI {
class App;
}

namespace bulkhead::host {

// Adds `bulkhead host` and gives what to run if it was chosen: the exit code.
std::function<int()> add_host(CLI::App& app);

}  // namespace bulkhead::host
