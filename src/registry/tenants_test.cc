// Tenants: made on demand, bounded, retired when idle, and nothing that a stranger's id could do to them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <malloc.h>

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "bulkhead/manual_clock.h"
#include "bulkhead/registry.h"
#include "registry/tenants.h"

namespace bulkhead {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

class TenantsTest : public testing::Test {
 protected:
  void define(std::uint32_t max_tenants, AtBound at_bound = AtBound::overflow) {
    registry.define_tenants(options(max_tenants, at_bound));
  }
  TenantOptions options(std::uint32_t max_tenants, AtBound at_bound = AtBound::overflow) {
    return {.name = "orders",
            .each = {.max_concurrent = 2, .max_queue = 1},
            .max_tenants = max_tenants,
            .at_bound = at_bound,
            .overflow = BulkheadOptions{.max_concurrent = 3},
            .idle_after = 60s,
            .max_id_length = 16};
  }
  std::shared_ptr<Bulkhead> tenant(std::string_view id) { return *registry.tenant("orders", id); }
  RegistrySnapshot::Tenants told() { return registry.snapshot().tenants.at(0); }

  ManualClock clock;
  Registry registry{{.clock = &clock}};
};

TEST_F(TenantsTest, ASnapshotListsABoundedNumberOverAllSets) {
  for (const char* const set : {"one", "two", "three", "four"}) {
    registry.define_tenants({.name = set, .each = {.max_concurrent = 2}, .max_tenants = 5});
    for (int i = 0; i < 5; ++i) ASSERT_TRUE(registry.tenant(set, std::to_string(i)));
  }
  const auto listed = [&](std::uint32_t most) {
    const RegistrySnapshot all = registry.snapshot({.list_tenants = most});
    std::size_t tenants = 0, summed = 0;
    for (const auto& entry : all.bulkheads) tenants += !entry.tenant_id.empty();
    for (const auto& set : all.tenants)
      if (set.sum) summed += set.sum->members;
    EXPECT_EQ(tenants + summed, 20u) << "each is listed or added up";
    return tenants;
  };
  EXPECT_EQ(listed(20), 20u);
  EXPECT_EQ(listed(19), 15u);
  EXPECT_EQ(listed(5), 5u);
  EXPECT_EQ(listed(4), 0u);
}

TEST_F(TenantsTest, EachGetsItsOwnAndKeepsIt) {
  define(10);
  const auto acme = tenant("acme");
  EXPECT_EQ(acme->name(), "orders/acme");
  EXPECT_EQ(acme, tenant("acme"));
  EXPECT_NE(acme, tenant("zenith"));
  EXPECT_EQ(acme, registry.find("orders/acme"));
  EXPECT_EQ(acme->options().max_concurrent, 2u);
  const RegistrySnapshot s = registry.snapshot();
  EXPECT_EQ(s.find("orders/acme")->tenants, "orders");
  EXPECT_EQ(s.find("orders/acme")->tenant_id, "acme");
  EXPECT_EQ(s.find("orders/*")->tenant_id, "");
  EXPECT_EQ(s.tenants.at(0).live, 2u);
  EXPECT_EQ(s.tenants.at(0).max, 10u);
  EXPECT_EQ(s.tenants.at(0).created, 2u);
}

TEST_F(TenantsTest, ASumOfMaximaThatIsTooLargeIsTheLargestNumber) {
  BulkheadSnapshot one, sum;
  one.gate.max_concurrent = 268'435'455;
  one.budgets = {{.name = "tokens", .in_use = 7, .max = 268'435'455}};
  for (int i = 0; i < 20; ++i) registry::fold_state(sum, one);
  EXPECT_EQ(sum.budgets.at(0).max, UINT32_MAX);
  EXPECT_EQ(sum.budgets.at(0).in_use, 140u);
  EXPECT_EQ(sum.gate.max_concurrent, UINT32_MAX);
}

TEST_F(TenantsTest, BeyondTheBoundTheyShareOne) {
  define(2);
  const auto a = tenant("a"), b = tenant("b");
  const auto overflow = tenant("c");
  EXPECT_EQ(overflow->name(), "orders/*");
  EXPECT_EQ(overflow->options().max_concurrent, 3u);
  EXPECT_EQ(overflow, tenant("d"));
  EXPECT_EQ(a, tenant("a"));
  EXPECT_EQ(told().live, 2u);
  EXPECT_EQ(told().overflowed, 2u);
  EXPECT_EQ(told().rejected, 0u);
}

TEST_F(TenantsTest, OrAreRejectedWithTheNumbers) {
  define(2, AtBound::reject);
  const auto a = tenant("a"), b = tenant("b");
  const auto c = registry.tenant("orders", "c");
  ASSERT_FALSE(c);
  EXPECT_EQ(c.error().reason, Reason::tenant_limit);
  EXPECT_EQ(c.error().message(), "tenants \"orders\" rejected (tenant_limit): 2/2 tenants");
  EXPECT_EQ(told().rejected, 1u);
  EXPECT_EQ(registry.find("orders/*"), nullptr);
}

TEST_F(TenantsTest, AnIdThatCannotBeANameNeverBecomesOne) {
  define(10);
  registry.define_tenants({.name = "orders/eu", .each = {}});
  const auto other = *registry.tenant("orders/eu", "acme");
  for (const std::string_view id :
       {std::string_view(""), std::string_view("*"), std::string_view("eu/acme"), std::string_view("a\0b", 3),
        std::string_view("a\nb"), std::string_view("\xff"), std::string_view("12345678901234567"),
        std::string_view("\xc0\xaf")})
    EXPECT_EQ(tenant(id)->name(), "orders/*") << id;
  EXPECT_EQ(tenant(std::string(100'000, 'x'))->name(), "orders/*");
  EXPECT_EQ(tenant("1234567890123456")->name(), "orders/1234567890123456");
  EXPECT_EQ(told().invalid, 9u);
  EXPECT_EQ(told().overflowed, 9u);
  EXPECT_EQ(told().live, 1u);
}

TEST_F(TenantsTest, TheIdleOnesGoAndWhatTheyCountedStays) {
  define(2);
  (void)tenant("a")->try_acquire()->finish(Outcome::success);
  (void)tenant("b")->try_acquire()->finish(Outcome::failure);
  clock.advance(59s);
  EXPECT_EQ(registry.retire_idle(), 0u);
  (void)tenant("b")->try_acquire();
  clock.advance(59s);
  EXPECT_EQ(registry.retire_idle(), 0u);  // a's calls were first seen a minute ago
  clock.advance(1s);
  EXPECT_EQ(registry.retire_idle(), 1u);
  EXPECT_EQ(registry.find("orders/a"), nullptr);
  EXPECT_NE(registry.find("orders/b"), nullptr);
  EXPECT_EQ(told().live, 1u);
  EXPECT_EQ(told().retired, 1u);
  EXPECT_EQ(told().other->gate.admitted, 1u);
  EXPECT_EQ(told().other->gate.succeeded, 1u);
  EXPECT_EQ(told().other->service.count(), 1u);
  clock.advance(60s);
  EXPECT_EQ(registry.retire_idle(), 1u);
  EXPECT_EQ(told().other->gate.admitted, 3u);
  EXPECT_EQ(told().other->gate.failed, 1u);
  EXPECT_EQ(tenant("a")->snapshot().gate.admitted, 0u);  // begins anew
}

TEST_F(TenantsTest, NobodyGoesWhoIsHeldRunsOrWaits) {
  define(4);
  const auto held = tenant("held");
  auto call = tenant("runs")->acquire();
  auto first = tenant("waits")->acquire(), second = tenant("waits")->acquire();
  bool admitted = false;
  tenant("waits")->async_acquire({}, [&](Result<Call> got) { admitted = got.has_value(); });
  tenant("idle");
  for (int i = 0; i < 5; ++i) {
    clock.advance(60s);
    registry.retire_idle();
  }
  EXPECT_EQ(told().live, 3u);
  EXPECT_EQ(registry.find("orders/idle"), nullptr);
  EXPECT_EQ(held, tenant("held"));
  first->finish(Outcome::success);
  EXPECT_TRUE(admitted);
  second->finish(Outcome::success);
  call->finish(Outcome::success);
  clock.advance(60s);
  registry.retire_idle();
  clock.advance(60s);
  EXPECT_EQ(registry.retire_idle(), 2u);
  EXPECT_EQ(told().other->gate.admitted, 4u);
}

TEST_F(TenantsTest, ASnapshotHoldsNobodyBack) {
  define(4);
  tenant("a");
  const RegistrySnapshot kept = registry.snapshot();
  clock.advance(60s);
  EXPECT_EQ(registry.retire_idle(), 1u);
  EXPECT_EQ(kept.find("orders/a")->now.name, "orders/a");
}

TEST_F(TenantsTest, ANewcomerGetsTheRoomOfOneThatWasIdle) {
  define(1);
  tenant("a");
  EXPECT_EQ(tenant("b")->name(), "orders/*");
  clock.advance(59s);
  EXPECT_EQ(tenant("b")->name(), "orders/*");
  clock.advance(15s);  // it is looked for room four times in idle_after
  EXPECT_EQ(tenant("b")->name(), "orders/b");
  EXPECT_EQ(told().retired, 1u);
}

TEST_F(TenantsTest, OneCanBeGivenItsOwnSettingsAndStaysThen) {
  define(1);
  const auto acme = tenant("acme");
  (void)acme->try_acquire();
  EXPECT_EQ(registry.add({.options = {.name = "orders/acme", .max_concurrent = 50}, .type = "vip"}), acme);
  EXPECT_EQ(acme->options().max_concurrent, 50u);
  EXPECT_EQ(acme->snapshot().gate.admitted, 1u);
  EXPECT_EQ(registry.snapshot().find("orders/acme")->tenants, "");
  registry.add({.options = {.name = "orders/zenith", .max_concurrent = 9}});
  EXPECT_EQ(tenant("zenith")->options().max_concurrent, 9u);
  EXPECT_EQ(told().live, 0u);  // neither counts
  EXPECT_EQ(tenant("b")->name(), "orders/b");
  clock.advance(1h);
  EXPECT_EQ(registry.retire_idle(), 1u);
  EXPECT_NE(registry.find("orders/zenith"), nullptr);
}

TEST_F(TenantsTest, AChangeOfTheTemplateIsForThoseThatLiveToo) {
  define(1);
  const auto a = tenant("a");
  EXPECT_EQ(tenant("b")->name(), "orders/*");
  TenantOptions o = options(2);
  o.each.max_concurrent = 7;
  o.overflow.reset();
  registry.update_tenants(o);
  EXPECT_EQ(a->options().max_concurrent, 7u);
  EXPECT_EQ(a->name(), "orders/a");
  EXPECT_EQ(registry.get("orders/*")->options().max_concurrent, 7u);
  EXPECT_EQ(tenant("b")->options().max_concurrent, 7u);

  TenantOptions wrong = o;
  wrong.each.fairness = Fairness::barging;
  EXPECT_THROW(registry.update_tenants(wrong), std::invalid_argument);
  wrong = o;
  wrong.each.max_concurrent = 0;
  EXPECT_THROW(registry.update_tenants(wrong), std::invalid_argument);
  EXPECT_EQ(a->options().max_concurrent, 7u);

  registry.update_tenants(options(1, AtBound::reject));
  EXPECT_FALSE(registry.tenant("orders", "c"));  // two live, nobody goes for that
  EXPECT_EQ(registry.find("orders/*"), nullptr);
  registry.update_tenants(options(3));
  EXPECT_EQ(tenant("c")->name(), "orders/c");
  EXPECT_EQ(tenant("d")->name(), "orders/*");
}

TEST_F(TenantsTest, RemovedTheyAreClosedAndTheNameIsFree) {
  define(2);
  const auto a = tenant("a");
  auto call = a->acquire();
  EXPECT_TRUE(registry.remove_tenants("orders"));
  EXPECT_FALSE(registry.remove_tenants("orders"));
  EXPECT_EQ(a->try_acquire().error().reason, Reason::shutdown);
  EXPECT_EQ(registry.names().size(), 0u);
  EXPECT_THROW((void)registry.tenant("orders", "a"), std::invalid_argument);
  call->finish(Outcome::success);
  define(2);
  EXPECT_NE(tenant("a"), a);
}

TEST_F(TenantsTest, SaysWhatIsWrong) {
  const auto error_of = [&](TenantOptions o) {
    try {
      registry.define_tenants(o);
    } catch (const std::invalid_argument& e) {
      return std::string(e.what());
    }
    return std::string("no error");
  };
  EXPECT_THAT(error_of({.name = "a/"}), HasSubstr("name begins or ends with '/'"));
  EXPECT_THAT(error_of({.name = "a", .each = {.name = "x"}}), HasSubstr("each.name"));
  EXPECT_THAT(error_of({.name = "a", .each = {.max_concurrent = 0}}), HasSubstr("max_concurrent"));
  EXPECT_THAT(error_of({.name = "a", .max_tenants = 0}), HasSubstr("max_tenants = 0 is out of range"));
  EXPECT_THAT(error_of({.name = "a", .idle_after = 0s}), HasSubstr("idle_after is not positive"));
  EXPECT_THAT(error_of({.name = "a", .max_id_length = 129}), HasSubstr("max_id_length = 129"));
  define(2);
  EXPECT_THAT(error_of(options(2)), HasSubstr("the name is taken"));
  EXPECT_EQ(registry.find("a/*"), nullptr);
  EXPECT_THROW(registry.remove("orders/*"), std::invalid_argument);
  tenant("x");
  EXPECT_THROW(registry.remove("orders/x"), std::invalid_argument);
}

// Bytes of the heap in use; 0 where an allocator of its own counts them (sanitizers).
std::size_t heap() { return mallinfo2().uordblks; }

// Fills the set, keeps coming with ids never seen, of all lengths and alphabets, and lets everything idle out now
// and then.
TEST_F(TenantsTest, AMillionHostileIdsLeaveBoundedTraces) {
  constexpr std::uint32_t kBound = 100;
  define(kBound);
  std::uint64_t random = 12345;
  std::string id;
  const auto next_id = [&] {
    random = random * 6364136223846793005u + 1442695040888963407u;
    id.clear();
    for (std::uint64_t n = random >> 60, bits = random; n > 0; --n, bits /= 3)
      id += static_cast<char>(n % 5 == 0 ? bits : 'a' + bits % 26);
    id += std::to_string(random >> 40);
    if (random % 97 == 0) id.append(1000, 'x');
  };
  std::size_t settled = 0;
  for (int i = 0; i < 1'000'000; ++i) {
    next_id();
    (void)tenant(id)->try_acquire();
    if (i % 50'000 == 0) clock.advance(61s);
    if (i == 200'000) settled = heap();
    if (i % 100'000 == 0) {
      const RegistrySnapshot s = registry.snapshot();
      ASSERT_LE(s.bulkheads.size(), kBound + 1);
      ASSERT_LE(s.tenants[0].live, kBound);
    }
  }
  EXPECT_LE(heap(), settled + settled / 4 + 100'000);
  const RegistrySnapshot s = registry.snapshot();
  EXPECT_GT(s.tenants[0].created, 500u);
  EXPECT_GT(s.tenants[0].invalid, 10'000u);
  // Every call is somewhere.
  std::uint64_t calls = s.tenants[0].other->gate.admitted;
  for (const auto& entry : s.bulkheads) calls += entry.now.gate.admitted;
  EXPECT_EQ(calls, 1'000'000u);
  EXPECT_EQ(s.tenants[0].created - s.tenants[0].retired, s.tenants[0].live);
}

}  // namespace
}  // namespace bulkhead
