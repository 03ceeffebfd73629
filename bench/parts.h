// parts.h - a table of loops that take turns, each beside the bare pair of atomic operations.
#pragma once

#include <string>
#include <vector>

#include "bench/workloads.h"

namespace bench {

struct Part {
  std::string name;
  Loop loop;
};

Part bare_pair();

// Nothing if the settings leave the table out.
void add_parts(const Settings& settings, Results& results, Table table, const std::vector<Part>& parts);

}  // namespace bench
