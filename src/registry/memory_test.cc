// What a change leaves behind when memory runs out in the middle of it: everything or nothing.
#include <gtest/gtest.h>

#include <new>
#include <string>

#include "bulkhead/manual_clock.h"
#include "bulkhead/registry.h"
#include "tests/support/allocations.h"

namespace bulkhead {
namespace {

// All of a registry that a change can change, as text.
std::string described(Registry& registry) {
  std::string text;
  const RegistrySnapshot s = registry.snapshot();
  for (const auto& e : s.bulkheads)
    text += e.name + " " + e.type + " " + e.group + " " + std::to_string(e.configured.max_concurrent) + " " +
            std::to_string(e.configured.max_queue) + (e.configured.breaker ? " breaker " : " ") +
            std::string(to_string(e.criticality)) + (e.now.gate.closed ? " closed" : "") + "\n";
  for (const auto& g : s.groups) {
    text += g.name + " " + std::to_string(g.total);
    for (const auto& m : g.members) text += " " + m.name + "=" + std::to_string(m.guaranteed);
    text += "\n";
  }
  for (const auto& t : s.tenants) text += t.name + " " + std::to_string(t.max) + "\n";
  return text;
}

TEST(Memory, AChangeIsMadeAsAWholeOrNotAtAllAlsoWhenMemoryRunsOut) {
  const RegistryChange change{
      .types = {{"api", {.max_concurrent = 3}}},
      .add_groups = {{.name = "cpu", .total = 4}},
      .resize_groups = {{"pg", 20}},
      .add = {{.options = {.name = "b"}, .group = "pg", .guaranteed = {.units = 15}},
              {.options = {.name = "c"}, .group = "cpu", .guaranteed = {.units = 4}}},
      .update = {{.options = {.name = "a", .max_queue = 7},
                  .type = "a type with a name that needs memory",
                  .group = "pg",
                  .guaranteed = {.units = 5},
                  .criticality = Priority::critical},
                 {.options = {.name = "d", .max_concurrent = 9, .breaker = BreakerOptions{}}}},
      .remove = {"old", "member"},
      .add_tenants = {{.name = "t", .each = {}}},
      .update_tenants = {{.name = "orders", .each = {.max_concurrent = 5}, .max_tenants = 7}}};
  if (!tests::can_fail_allocations()) GTEST_SKIP() << "the operator new of a sanitizer does not fail";
  std::string after;
  for (long n = 0; after.empty(); ++n) {
    ASSERT_LT(n, 100'000);
    ManualClock clock;
    Registry registry{{.clock = &clock, .seed = 1}};
    registry.add_group({.name = "pg", .total = 10});
    registry.add({.options = {.name = "a"}, .group = "pg", .guaranteed = {.units = 6}});
    registry.add({.options = {.name = "member"}, .group = "pg", .guaranteed = {.units = 2}});
    registry.add({.options = {.name = "d", .max_concurrent = 2}});
    registry.add({.options = {.name = "old"}});
    registry.define_tenants({.name = "orders", .each = {.max_concurrent = 4}, .max_tenants = 3});
    (void)registry.tenant("orders", "acme");
    const std::string before = described(registry);
    bool failed = false;
    tests::thread_memory() = {.left = n, .once = true};
    try {
      registry.apply(change);
    } catch (const std::bad_alloc&) {
      failed = true;
    }
    tests::thread_memory() = {};
    if (failed)
      ASSERT_EQ(described(registry), before) << "allocation " << n;
    else
      after = described(registry);
    EXPECT_NE(after, before);
  }
  EXPECT_NE(after.find("d  "), std::string::npos);
  EXPECT_EQ(after.find("member"), std::string::npos);
  EXPECT_NE(after.find("orders 7"), std::string::npos);
}

}  // namespace
}  // namespace bulkhead
