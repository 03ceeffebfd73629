// simulate.h - the command `bulkhead simulate`: predict what a configuration does under a load, on virtual time.
#pragma once

#include <functional>

namespace CLI {
class App;
}

namespace bulkhead::simulate {

std::function<int()> add_simulate(CLI::App& app, const char* version);

}  // namespace bulkhead::simulate
