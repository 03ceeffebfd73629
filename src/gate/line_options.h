// line_options.h - copies the options of a queue between GateOptions, PoolOptions and BulkheadOptions.
#pragma once

#include "bulkhead/gate.h"

namespace bulkhead {

// Copies the name and every row of BULKHEAD_LINE_OPTIONS. The caller sets the limit and the clock.
template <class To, class From>
void copy_line_options(To& to, const From& from) {
  to.name = from.name;
#define BULKHEAD_COPY_OPTION(type, name, otherwise) to.name = from.name;
  BULKHEAD_LINE_OPTIONS(BULKHEAD_COPY_OPTION)
#undef BULKHEAD_COPY_OPTION
}

template <class From>
GateOptions gate_of_line(const From& from, std::uint32_t max_concurrent) {
  GateOptions gate{.max_concurrent = max_concurrent, .clock = from.clock};
  copy_line_options(gate, from);
  return gate;
}

}  // namespace bulkhead
