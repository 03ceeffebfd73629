// Handlers and hooks run inside a release, and may do anything to the permit that is being released.
#include "bulkhead/permit.h"

#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "bulkhead/gate.h"

namespace bulkhead {
namespace {

TEST(Permit, ReleasedAgainInItsOwnHookIsADoubleRelease) {
  Permit permit;
  bool again = true;
  Gate gate{{.max_concurrent = 2, .hooks = {.on_release = [&](const Event&) { again = permit.release(); }}}};
  permit = *gate.acquire();
  EXPECT_TRUE(permit.release());
  EXPECT_FALSE(again);
  EXPECT_EQ(gate.snapshot().released, 1u);
  EXPECT_EQ(gate.snapshot().double_releases, 1u);
  EXPECT_EQ(gate.snapshot().underflows, 0u);
}

TEST(Permit, ReleasedAgainByTheNextInLineIsADoubleRelease) {
  Gate gate{{.max_concurrent = 1, .max_queue = 1}};
  Permit permit = *gate.acquire();
  bool again = true;
  gate.async_acquire({}, [&](const Result<Permit>&) { again = permit.release(); });
  EXPECT_TRUE(permit.release());
  EXPECT_FALSE(again);
  EXPECT_EQ(gate.snapshot().released, 2u);
  EXPECT_EQ(gate.snapshot().underflows, 0u);
}

TEST(Permit, TheNextInLineMayTakeThePlaceOfTheOneReleased) {
  Gate gate{{.max_concurrent = 1, .max_queue = 1}};
  Permit permit = *gate.acquire();
  gate.async_acquire({}, [&](Result<Permit> next) { permit = *std::move(next); });
  EXPECT_TRUE(permit.release());
  EXPECT_TRUE(permit) << "the new permit was lost";
  EXPECT_EQ(gate.snapshot().in_flight, 1u);
  EXPECT_TRUE(permit.release());
  EXPECT_EQ(gate.snapshot().in_flight, 0u);
  EXPECT_EQ(gate.snapshot().released, 2u);
}

TEST(Permit, TheNextInLineMayTakeThePlaceOfTheOneAssigned) {
  Gate gate{{.max_concurrent = 1, .max_queue = 1}};
  Permit permit = *gate.acquire();
  gate.async_acquire({}, [&](Result<Permit> next) { permit = *std::move(next); });
  permit = Permit();
  EXPECT_TRUE(permit) << "the new permit was lost";
  EXPECT_EQ(gate.snapshot().in_flight, 1u);
}

TEST(Permit, TheNextInLineMayDestroyTheOneReleased) {
  Gate gate{{.max_concurrent = 1, .max_queue = 1}};
  auto permit = std::make_unique<Permit>(*gate.acquire());
  gate.async_acquire({}, [&](const Result<Permit>&) { permit.reset(); });
  permit->release();
  EXPECT_EQ(gate.snapshot().released, 2u);
  EXPECT_EQ(gate.snapshot().underflows, 0u);
}

}  // namespace
}  // namespace bulkhead
