// store.h - what the store of a fleet has to carry, measured against a real redis-server.
#pragma once

namespace bulkhead::bench {

// 40 members in one process, each with its own connection, on one limit in `block` mode. Prints a table; false: a run asked
// the store more than 2000 times per second.
bool measure_store(bool quick);

}  // namespace bulkhead::bench
