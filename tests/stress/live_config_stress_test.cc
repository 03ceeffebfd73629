// One configuration from many sides: reloads, overrides and their end, look-ups, calls, snapshots, all at once. In
// the end the registry is what the last file says, and no call was lost.
#include "bulkhead/live_config.h"

#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "tests/stress/stress.h"

namespace bulkhead::stress {
namespace {

using namespace std::chrono_literals;

constexpr std::uint32_t kNames = 6;
std::string name_of(std::uint32_t i) { return "b" + std::to_string(i); }

// Some of the names, each with some size; "stays" is always there, and so are tenants.
ConfigText some_file(Dice& dice) {
  ConfigText file;
  file.config.bulkheads.push_back({.options = {.name = "stays", .max_concurrent = 4 + dice.below(4)}});
  for (std::uint32_t i = 0; i < kNames; ++i)
    if (!dice.one_in(3))
      file.config.bulkheads.push_back({.options = {.name = name_of(i),
                                                   .max_concurrent = 1 + dice.below(8),
                                                   .max_queue = dice.below(4),
                                                   .max_wait = 1ms}});
  TenantsConfig tenants;
  tenants.each.options.name = "t";
  tenants.each.options.max_concurrent = 1 + dice.below(4);
  tenants.max_tenants = 1 + dice.below(4);
  tenants.idle_after = 1ms;
  file.config.tenants.push_back(tenants);
  for (const BulkheadConfig& b : file.config.bulkheads)
    file.text += b.options.name + std::to_string(b.options.max_concurrent) + "," +
                 std::to_string(b.options.max_queue) + ";";
  file.text += std::to_string(tenants.max_tenants) + std::to_string(tenants.each.options.max_concurrent);
  if (dice.one_in(6)) file.problems.push_back({.message = "broken on purpose"});
  return file;
}

TEST(LiveConfigStress, TheLastFileIsInForceWhateverElseGoesOn) {
  std::atomic<std::uint64_t> events = 0, ran = 0, rejected = 0, overrides = 0, expired = 0;
  Registry registry;
  LiveConfig live(registry, {.read = {}, .on_event = [&](const ConfigEvent& e) {
                               EXPECT_FALSE(e.text.empty());
                               ++events;
                             }});
  Dice first(1);
  ConfigText start = some_file(first);
  start.problems.clear();
  ASSERT_TRUE(live.reload(start, "start").ok());
  std::atomic<std::uint64_t> good = 1, bad = 0;  // reloads that were applied, and that failed
  const auto end = end_of_test(2);
  {
    Threads threads;
    for (std::uint32_t i = 0; i < 2; ++i)
      threads.add([&, i] {
        Dice dice(i + 10);
        while (steady_clock::now() < end) {
          const ConfigText file = some_file(dice);
          const bool broken = !file.problems.empty();
          const ReloadResult result = live.reload(file, "stress");
          ASSERT_EQ(result.ok(), !broken);
          bad += broken;
          good += result.outcome == ReloadResult::Outcome::applied;
          std::this_thread::yield();
        }
      });
    threads.add([&] {
      Dice dice(20);
      while (steady_clock::now() < end) {
        const std::string path =
            "bulkheads." + (dice.one_in(2) ? "stays" : name_of(dice.below(kNames))) + ".max_concurrent";
        overrides += live.set({.path = path,
                               .value = std::to_string(1 + dice.below(9)),
                               .ttl = 1s,
                               .reason = "stress",
                               .actor = "s"})
                         .empty();
        if (dice.one_in(3)) (void)live.revert(path);
        std::this_thread::yield();
      }
    });
    threads.add([&] {
      while (steady_clock::now() < end) {
        expired += live.expire();
        (void)live.next_expiry();
        (void)registry.retire_idle();
        std::this_thread::yield();
      }
    });
    for (std::uint32_t i = 0; i < 2; ++i)
      threads.add([&, i] {
        Dice dice(i + 30);
        while (steady_clock::now() < end) {
          const auto call = [&](Bulkhead& bulkhead) {
            const auto done = bulkhead.execute([&] {
              linger(dice);
              return 1;
            });
            ++(done ? ran : rejected);
          };
          ASSERT_TRUE(registry.use("stays"));
          if (const auto used = registry.use(name_of(dice.below(kNames)))) call(*used);
          if (const auto handle = registry.find("stays")) call(*handle);
          if (const auto own = registry.use_tenant("t", std::to_string(dice.below(9)))) call(**own);
        }
      });
    while (steady_clock::now() < end) {  // and somebody who looks
      const RegistrySnapshot all = registry.snapshot();
      ASSERT_NE(all.find("stays"), nullptr);
      for (const auto& entry : all.bulkheads) ASSERT_EQ(entry.now.gate.underflows, 0u);
      (void)live.status();
      (void)live.overrides();
      (void)live.events(events);
      (void)live.preview(live.file());
    }
  }
  EXPECT_GT(ran, 0u);
  EXPECT_GT(overrides, 0u);
  EXPECT_GT(bad, 0u);
  const ConfigStatus status = live.status();
  EXPECT_EQ(status.failures, bad);
  EXPECT_GE(events, good + bad);
  EXPECT_GT(good, 1u);

  // Without the overrides it is the last file, bulkhead for bulkhead.
  for (const ActiveOverride& o : live.overrides()) EXPECT_TRUE(live.revert(o.path));
  const Config file = live.file();
  EXPECT_TRUE(plan(live.running(), file).empty()) << to_text(plan(live.running(), file));
  const RegistrySnapshot all = registry.snapshot();
  for (const BulkheadConfig& b : file.bulkheads) {
    const auto* entry = all.find(b.options.name);
    ASSERT_NE(entry, nullptr) << b.options.name;
    EXPECT_EQ(entry->now.gate.max_concurrent, b.options.max_concurrent);
    EXPECT_EQ(entry->now.gate.max_queue, b.options.max_queue);
    EXPECT_EQ(entry->now.gate.in_flight, 0u);
    EXPECT_EQ(entry->now.gate.admitted, entry->now.gate.released);
  }
  for (const auto& entry : all.bulkheads)
    EXPECT_TRUE(file.find(entry.name) || entry.name.starts_with("t/")) << entry.name;
}

}  // namespace
}  // namespace bulkhead::stress
