// A use keeps its bulkhead without a count of references: what it holds back, and what it does not.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <latch>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/thread_slot.h"
#include "bulkhead/manual_clock.h"
#include "bulkhead/registry.h"
#include "registry/name_table.h"
#include "tests/support/sync_points.h"

namespace bulkhead {
namespace {

using namespace std::chrono_literals;

// Tells when the bulkhead whose options have been given away is destroyed: its hooks go with it.
class Watched {
 public:
  BulkheadOptions options(std::string name) {
    return {.name = std::move(name),
            .max_concurrent = 2,
            .hooks = {.on_close = [alive = std::exchange(alive_, nullptr)](const Event&) { (void)alive; }}};
  }
  bool gone() const { return watched_.expired(); }

 private:
  std::shared_ptr<int> alive_ = std::make_shared<int>(1);
  std::weak_ptr<int> watched_ = alive_;
};

class UseTest : public testing::Test {
 protected:
  void add(std::string name) { registry.add({.options = watched.options(std::move(name))}); }
  bool remove(std::string_view name) { return registry.remove(name, TimePoint::min()); }
  void sweep() { registry.retire_idle(); }  // lets go of what has been removed meanwhile

  Watched watched;
  ManualClock clock;
  Registry registry{{.clock = &clock}};
};

TEST_F(UseTest, LeadsToTheSameBulkheadAsAHandle) {
  add("db");
  const BulkheadUse db = registry.use("db");
  ASSERT_TRUE(db);
  EXPECT_EQ(db.get(), registry.find("db").get());
  EXPECT_EQ(db->execute([] { return 7; }).value(), 7);
  EXPECT_EQ((*db).snapshot().gate.admitted, 1u);
  EXPECT_FALSE(registry.use("dc"));
  EXPECT_FALSE(registry.use(""));
  registry.define_tenants({.name = "t", .each = {}});
  EXPECT_FALSE(registry.use("t/"));  // a set is no bulkhead
}

TEST_F(UseTest, KeepsWhatWasRemovedAliveUntilItEnds) {
  add("db");
  {
    BulkheadUse db = registry.use("db");
    EXPECT_TRUE(remove("db"));
    EXPECT_FALSE(registry.use("db"));
    sweep();
    EXPECT_FALSE(watched.gone());
    EXPECT_EQ(db->execute([] { return 1; }).error().reason, Reason::shutdown);
    const BulkheadUse moved = std::move(db);
    EXPECT_FALSE(db);
    sweep();
    EXPECT_FALSE(watched.gone());
    EXPECT_EQ(moved->name(), "db");
  }
  sweep();
  EXPECT_TRUE(watched.gone());
}

TEST_F(UseTest, AnotherThreadMayEndIt) {
  add("db");
  std::thread([use = registry.use("db")] { EXPECT_EQ(use->name(), "db"); }).join();
  remove("db");
  sweep();
  EXPECT_TRUE(watched.gone());
}

TEST_F(UseTest, OneMayOutliveTheThreadThatAskedForIt) {
  add("db");
  BulkheadUse use;
  std::thread([&] { use = registry.use("db"); }).join();
  std::thread([&] { EXPECT_TRUE(registry.use("db")); }).join();  // has the number of the one before
  remove("db");
  sweep();
  EXPECT_FALSE(watched.gone());
  use = {};
  sweep();
  EXPECT_TRUE(watched.gone());
}

TEST_F(UseTest, AssigningEndsTheOneBefore) {
  add("db");
  registry.add({.options = {.name = "other"}});
  BulkheadUse use = registry.use("db");
  use = registry.use("other");
  EXPECT_EQ(use->name(), "other");
  remove("db");
  sweep();
  EXPECT_TRUE(watched.gone());
}

TEST_F(UseTest, AThreadMayHaveAnyNumberAtOnce) {
  add("db");
  std::vector<BulkheadUse> uses;
  for (int i = 0; i < 40; ++i) uses.push_back(registry.use("db"));
  remove("db");
  while (!uses.empty()) {
    sweep();
    EXPECT_FALSE(watched.gone()) << uses.size();
    EXPECT_EQ(uses.back()->name(), "db");
    uses.pop_back();
  }
  sweep();
  EXPECT_TRUE(watched.gone());
}

TEST_F(UseTest, NoTenantIsRetiredWhileItIsUsed) {
  registry.define_tenants({.name = "t", .each = {}, .max_tenants = 1, .idle_after = 60s});
  {
    const auto use = registry.use_tenant("t", "a");  // made, and so by a handle
    ASSERT_TRUE(use);
    const auto again = registry.use_tenant("t", "a");
    EXPECT_EQ(again->get(), use->get());
    EXPECT_EQ((*registry.use_tenant("t", "b"))->name(), "t/*");
  }
  {
    const BulkheadUse use = registry.use("t/a");
    clock.advance(2min);
    registry.retire_idle();
    clock.advance(2min);
    EXPECT_EQ(registry.retire_idle(), 0u);
    EXPECT_EQ(registry.find("t/a").get(), use.get());
  }
  registry.retire_idle();  // it was used until now
  clock.advance(1min);
  EXPECT_EQ(registry.retire_idle(), 1u);
}

TEST_F(UseTest, WhoComesWhileATenantIsAboutToBeRetiredKeepsIt) {
  registry.define_tenants({.name = "t", .each = {}, .idle_after = 60s});
  (void)registry.tenant("t", "a");
  registry.retire_idle();
  clock.advance(2min);
  tests::SyncPoints points;
  points.hold("sweeper", "retire.before_park");
  std::size_t retired = 99;
  std::jthread sweeper = tests::named("sweeper", [&] { retired = registry.retire_idle(); });
  points.until_held("sweeper");  // nobody had it when it looked
  const BulkheadUse use = registry.use("t/a");
  points.let_go("sweeper");
  sweeper.join();
  EXPECT_EQ(retired, 0u);
  EXPECT_EQ(registry.find("t/a").get(), use.get());
  EXPECT_EQ(use->execute([] { return 1; }).value(), 1);
}

TEST_F(UseTest, ATenantWithoutRoomIsToldWhy) {
  registry.define_tenants({.name = "t", .each = {}, .max_tenants = 1, .at_bound = AtBound::reject});
  ASSERT_TRUE(registry.use_tenant("t", "a"));
  EXPECT_EQ(registry.use_tenant("t", "b").error().reason, Reason::tenant_limit);  // with the lock
  EXPECT_EQ(registry.use_tenant("t", "c").error().reason, Reason::tenant_limit);  // and without
  EXPECT_EQ(registry.use_tenant("t", "a/b").error().reason, Reason::tenant_limit);
  EXPECT_THROW((void)registry.use_tenant("u", "a"), std::invalid_argument);
}

TEST_F(UseTest, TheRegistryWaitsForTheLastOne) {
  auto own = std::make_unique<Registry>();
  own->add({.options = watched.options("db")});
  std::atomic<bool> ended = false;
  std::thread thread([&, use = own->use("db")]() mutable {
    std::this_thread::sleep_for(5ms);
    EXPECT_EQ(use->name(), "db");
    ended = true;
    use = {};
  });
  own.reset();
  EXPECT_TRUE(ended);
  EXPECT_TRUE(watched.gone());
  thread.join();
}

// All numbers of threads are taken: those who come then share a stripe, and have no marks.
class Crowd {
 public:
  Crowd() {
    for (std::uint32_t i = 0; i < base::kThreadSlots; ++i)
      threads_.emplace_back([this] {
        (void)base::thread_slot();
        here_.count_down();
        leave_.wait();
      });
    here_.wait();
  }
  ~Crowd() { leave_.count_down(); }

 private:
  std::latch here_{base::kThreadSlots}, leave_{1};
  std::vector<std::jthread> threads_;
};

TEST_F(UseTest, AThreadWithoutANumberIsServedAllTheSame) {
  add("db");
  const Crowd crowd;
  std::thread([&] {
    ASSERT_EQ(base::thread_slot(), base::kThreadSlots);
    BulkheadUse use = registry.use("db");
    remove("db");
    sweep();
    EXPECT_FALSE(watched.gone());
    use = {};
    sweep();
    EXPECT_TRUE(watched.gone());
  }).join();
}

TEST(ReadersTest, TheWriterWaitsForAThreadWithoutANumberToo) {
  const Crowd crowd;
  registry::Readers readers;
  std::atomic<bool> inside = false, leave = false, waited = false;
  std::jthread reader([&] {
    const registry::Readers::Stay stay(readers);
    EXPECT_EQ(stay.mark(&readers), nullptr);
    inside = true;
    while (!leave) std::this_thread::yield();
  });
  while (!inside) std::this_thread::yield();
  std::jthread writer([&] {
    readers.wait();
    waited = true;
  });
  for (int i = 0; i < 20; ++i) {
    EXPECT_FALSE(waited);
    std::this_thread::yield();
  }
  leave = true;
}

// Hashes are not to repeat: names that differ in one byte, in length or in the order of their words.
TEST(NameTableTest, NamesThatAreAlikeHaveDifferentHashes) {
  registry::NameTable table(42);
  std::vector<std::string> names{std::string(16, 'a') + std::string(16, 'b'),
                                 std::string(16, 'b') + std::string(16, 'a')};
  for (std::size_t length = 1; length <= 70; ++length) {
    names.emplace_back(length, 'x');
    for (std::size_t i = 0; i < length; ++i) {
      names.emplace_back(length, 'x');
      names.back()[i] = 'y';
    }
  }
  std::vector<std::uint64_t> hashes;
  for (const std::string& name : names)
    if (!table.find(name).node) hashes.push_back(table.insert(std::make_unique<registry::Node>(name)).hash);
  std::sort(hashes.begin(), hashes.end());
  EXPECT_EQ(std::unique(hashes.begin(), hashes.end()), hashes.end());
  EXPECT_EQ(hashes.size(), names.size());
}

}  // namespace
}  // namespace bulkhead
