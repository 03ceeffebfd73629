// plot.h - limits over time as a picture.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "app/sim/world.h"

namespace bulkhead::sim {

struct Line {
  std::string_view name, colour;
  const Run* run = nullptr;
};

// An SVG. The band of 0.8 to 1.5 capacities is shaded; the limit's axis is logarithmic.
std::string plot(std::string_view title, const std::vector<Line>& lines, double seconds);

}  // namespace bulkhead::sim
