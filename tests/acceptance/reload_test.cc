// A process that follows its configuration file: real files, the real parser, the real watch.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <optional>
#include <string>

#include "adapters/watch/file_watch.h"
#include "adapters/yaml/yaml.h"
#include "bulkhead/live_config.h"
#include "tests/support/temp_directory.h"

namespace bulkhead {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using testing::HasSubstr;

std::string shop(int limit) {
  return "version: 1\n"
         "bulkheads:\n"
         "  db: {max_concurrent: " +
         std::to_string(limit) + ", max_queue: 20, max_wait: 1s}\n";
}

class ReloadTest : public testing::Test {
 protected:
  void SetUp() override {
    publish("..v1", shop(10));
    fs::create_symlink("..data/shop.yaml", file());
    live_.emplace(registry_,
                  LiveConfigOptions{.file = file().string(),
                                    .read = [this] { return config_text(yaml::load(file().string())); },
                                    .on_event =
                                        [this](const ConfigEvent& event) {
                                          const std::lock_guard lock(mutex_);
                                          last_ = event;
                                          told_.notify_all();
                                        }});
    ASSERT_TRUE(live_->reload("start").ok());
    watch_.emplace(watch::FileWatchOptions{.path = file().string(),
                                           .on_change = [this] { live_->reload("watch"); },
                                           .debounce = 1ms,
                                           .poll = 1h});
  }
  void TearDown() override { watch_.reset(); }

  fs::path file() const { return dir_ / "shop.yaml"; }
  // As the kubelet swaps a ConfigMap.
  void publish(const std::string& version, const std::string& text) {
    fs::create_directory(dir_ / version);
    std::ofstream(dir_ / version / "shop.yaml") << text;
    fs::create_directory_symlink(version, dir_ / "..data_tmp");
    fs::rename(dir_ / "..data_tmp", dir_ / "..data");
  }
  bool comes(ConfigEvent::Kind kind) {
    std::unique_lock lock(mutex_);
    const bool came = told_.wait_for(lock, 20s, [&] { return last_.kind == kind && last_.id > seen_; });
    seen_ = last_.id;
    return came;
  }
  std::uint32_t limit() { return registry_.get("db")->snapshot().gate.max_concurrent; }

  Registry registry_;
  const tests::TempDirectory temporary_;
  const fs::path& dir_ = temporary_.path();
  std::mutex mutex_;
  std::condition_variable told_;
  ConfigEvent last_;
  std::uint64_t seen_ = 1;  // the start
  std::optional<LiveConfig> live_;
  std::optional<watch::FileWatch> watch_;
};

TEST_F(ReloadTest, ASwapOfTheConfigMapIsInForceAndABadOneChangesNothing) {
  const auto db = registry_.get("db");
  auto call = db->acquire();
  publish("..v2", shop(3));
  ASSERT_TRUE(comes(ConfigEvent::Kind::reload));
  EXPECT_EQ(limit(), 3u);
  EXPECT_EQ(registry_.get("db"), db);

  publish("..v3", "version: 1\nbulkheads:\n  db: {max_concurent: 5}\n");
  ASSERT_TRUE(comes(ConfigEvent::Kind::reload_failed));
  EXPECT_EQ(limit(), 3u);
  EXPECT_FALSE(live_->status().last_reload_successful);
  EXPECT_THAT(last_.text, HasSubstr("shop.yaml:3:8: bulkheads.db.max_concurent: unknown setting"));
  EXPECT_THAT(last_.text, HasSubstr("did you mean max_concurrent?"));

  publish("..v4", shop(3));  // back to what runs
  ASSERT_TRUE(comes(ConfigEvent::Kind::recovered));
  EXPECT_TRUE(live_->status().last_reload_successful);
  publish("..v5", shop(8));
  ASSERT_TRUE(comes(ConfigEvent::Kind::reload));
  EXPECT_EQ(limit(), 8u);
  EXPECT_EQ(db->snapshot().gate.in_flight, 1u);
}

TEST_F(ReloadTest, AnAtomicRenameOverTheLinkWorksToo) {
  std::ofstream(dir_ / "new") << shop(4);
  fs::rename(dir_ / "new", file());
  ASSERT_TRUE(comes(ConfigEvent::Kind::reload));
  EXPECT_EQ(limit(), 4u);
}

std::atomic<watch::FileWatch*> poked{nullptr};

TEST_F(ReloadTest, SighupReadsTheFileAndOverridesEndByThemselves) {
  poked = &*watch_;
  const auto before = std::signal(SIGHUP, [](int) { poked.load()->poke(); });
  publish("..v2", "version: 1\nbulkheads: 7\n");
  ASSERT_TRUE(comes(ConfigEvent::Kind::reload_failed));
  std::raise(SIGHUP);  // it is still wrong, and that is said again
  ASSERT_TRUE(comes(ConfigEvent::Kind::reload_failed));
  std::signal(SIGHUP, before);

  ASSERT_TRUE(live_->set({.path = "bulkheads.db.max_concurrent", .value = "40", .ttl = 1s, .reason = "test"})
                  .empty());
  ASSERT_TRUE(comes(ConfigEvent::Kind::set));
  EXPECT_EQ(limit(), 40u);
  ASSERT_TRUE(comes(ConfigEvent::Kind::expired));
  EXPECT_EQ(limit(), 10u);
}

}  // namespace
}  // namespace bulkhead
