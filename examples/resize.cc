// Live resize, and a list of the calls that hold permits.
#include <bulkhead/gate.h>

#include <cstdio>

int main() {
  bulkhead::Gate gate{{.name = "pool", .max_concurrent = 3, .track_holders = true}};
  auto a = gate.acquire({.label = "nightly report"});
  auto b = gate.acquire({.cost = 2, .label = "export"});  // a call may cost more than one unit

  gate.resize(1);  // running calls continue; none is admitted until fewer than 1 unit is in use
  std::printf("%u/%u running\n", gate.snapshot().in_flight, gate.snapshot().max_concurrent);
  for (const bulkhead::Holder& holder : gate.holders())
    std::printf("%s holds %u since line %u\n", holder.label.c_str(), holder.cost, holder.where.line());

  b->release();
  std::printf("%s\n", gate.try_acquire() ? "admitted" : "still full");
  a->release();
  std::printf("%s\n", gate.try_acquire() ? "admitted" : "still full");
}
