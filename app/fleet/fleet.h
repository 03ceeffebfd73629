// fleet.h - the command that shows the limits which the processes of a fleet share.
#pragma once

#include <functional>

namespace CLI {
class App;
}

namespace bulkhead::fleet {

// Adds `bulkhead fleet` and gives what to run if it was chosen: the exit code.
std::function<int()> add_fleet(CLI::App& app);

}  // namespace bulkhead::fleet
