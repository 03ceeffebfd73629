// Real files, in a directory of the test's own. Nobody sleeps: what shall come is waited for, and what shall not come is
// shown by what comes after it.
#include "file_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <system_error>

#include "tests/support/no_threads.h"
#include "tests/support/temp_directory.h"

namespace bulkhead::watch {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using testing::Contains;

class FileWatchTest : public testing::Test {
 protected:
  void TearDown() override { watch_.reset(); }

  static void write(const fs::path& path, std::string_view text) { std::ofstream(path) << text; }
  static std::string read(const fs::path& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void replace(const fs::path& path, std::string_view text) {  // as editors and deployments do
    write(dir_ / "new.tmp", text);
    fs::rename(dir_ / "new.tmp", path);
  }
  void start(const fs::path& path,
             FileWatchOptions o = {.path = {}, .on_change = {}, .debounce = 1ms, .poll = 1h}) {
    path_ = path;
    o.path = path.string();
    o.on_change = [this] {
      const std::lock_guard lock(mutex_);
      seen_ = read(path_);
      ++changes_;
      changed_.notify_all();
    };
    watch_ = std::make_unique<FileWatch>(o);
  }
  // Whether on_change has found the file to say this. The time only keeps a broken build from hanging.
  bool sees(std::string_view text) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, 20s, [&] { return seen_ == text; });
  }
  int changes() {
    const std::lock_guard lock(mutex_);
    return changes_;
  }

  const tests::TempDirectory temporary_;
  const fs::path& dir_ = temporary_.path();
  fs::path path_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string seen_ = "nothing";
  int changes_ = 0;
  std::unique_ptr<FileWatch> watch_;
};

TEST_F(FileWatchTest, SeesWhatIsWrittenInPlace) {
  write(dir_ / "c.yaml", "one");
  start(dir_ / "c.yaml");
  write(dir_ / "c.yaml", "two");
  EXPECT_TRUE(sees("two"));
}

TEST_F(FileWatchTest, SeesEveryReplacementByRename) {
  write(dir_ / "c.yaml", "one");
  start(dir_ / "c.yaml");
  for (const char* text : {"two", "three", "four"}) {
    replace(dir_ / "c.yaml", text);
    EXPECT_TRUE(sees(text));  // a watch of the file itself would have died with the first
  }
}

// As the kubelet does it: c.yaml -> ..data/c.yaml, ..data -> ..2026_1, and then another ..data is renamed over it.
TEST_F(FileWatchTest, SeesEverySwapOfAConfigMap) {
  const auto publish = [&](const std::string& version, std::string_view text) {
    fs::create_directory(dir_ / version);
    write(dir_ / version / "c.yaml", text);
    fs::create_directory_symlink(version, dir_ / "..data_tmp");
    fs::rename(dir_ / "..data_tmp", dir_ / "..data");
  };
  publish("..2026_1", "one");
  fs::create_symlink("..data/c.yaml", dir_ / "c.yaml");
  start(dir_ / "c.yaml");
  EXPECT_THAT(watch_->status().directories, Contains(dir_.string()));
  publish("..2026_2", "two");
  EXPECT_TRUE(sees("two"));
  fs::remove_all(dir_ / "..2026_1");
  publish("..2026_3", "three");
  EXPECT_TRUE(sees("three"));
  fs::remove_all(dir_ / "..2026_2");
  write(dir_ / "..2026_3" / "c.yaml", "four");
  EXPECT_TRUE(sees("four"));
  EXPECT_EQ(watch_->status().problem, "");
}

TEST_F(FileWatchTest, FollowsLinksToOtherPlacesAndDirectories) {
  fs::create_directories(dir_ / "a/b");
  fs::create_directories(dir_ / "other");
  write(dir_ / "a/b/real.yaml", "one");
  write(dir_ / "other/real.yaml", "two");
  fs::create_directory_symlink(dir_ / "a/b", dir_ / "current");  // absolute
  fs::create_symlink("current/real.yaml", dir_ / "c.yaml");
  start(dir_ / "c.yaml");
  replace(dir_ / "a/b/real.yaml", "three");
  EXPECT_TRUE(sees("three"));
  fs::create_directory_symlink("other", dir_ / "next");
  fs::rename(dir_ / "next", dir_ / "current");
  EXPECT_TRUE(sees("two"));
  write(dir_ / "other/real.yaml", "four");
  EXPECT_TRUE(sees("four"));
}

TEST_F(FileWatchTest, WhatIsNotThereYetIsWaitedForAndWhatGoesIsAChange) {
  start(dir_ / "sub/c.yaml");
  fs::create_directory(dir_ / "sub");
  write(dir_ / "sub/c.yaml", "one");
  EXPECT_TRUE(sees("one"));
  fs::remove_all(dir_ / "sub");
  EXPECT_TRUE(sees(""));
  fs::create_directory(dir_ / "sub");
  write(dir_ / "sub/c.yaml", "two");
  EXPECT_TRUE(sees("two"));
}

TEST_F(FileWatchTest, TheSameContentIsNoChangeNorAreOtherFiles) {
  write(dir_ / "c.yaml", "one");
  start(dir_ / "c.yaml");
  replace(dir_ / "c.yaml", "one");
  write(dir_ / "other.yaml", "two");
  replace(dir_ / "c.yaml", "three");
  EXPECT_TRUE(sees("three"));
  EXPECT_EQ(changes(), 1);
}

TEST_F(FileWatchTest, ManyWritesInARowAreOneChange) {
  write(dir_ / "c.yaml", "one");
  start(dir_ / "c.yaml", {.path = {}, .on_change = {}, .debounce = 300ms, .poll = 1h});
  for (int i = 0; i < 20; ++i) replace(dir_ / "c.yaml", "text " + std::to_string(i));
  EXPECT_TRUE(sees("text 19"));
  EXPECT_LE(changes(), 2);  // two if this test was held up for longer than that
}

TEST_F(FileWatchTest, LooksNowAndThenWhereNothingIsTold) {
  write(dir_ / "c.yaml", "one");
  start(dir_ / "c.yaml", {.path = {}, .on_change = {}, .poll = 2ms, .notify = false});
  EXPECT_TRUE(watch_->status().directories.empty());
  replace(dir_ / "c.yaml", "two");
  EXPECT_TRUE(sees("two"));
}

TEST_F(FileWatchTest, APokeIsAChangeWhateverTheFileSaysAndTicksCome) {
  write(dir_ / "c.yaml", "one");
  std::atomic<int> ticks = 0;
  FileWatchOptions o{.path = {}, .on_change = {}, .poll = 1h};
  o.on_tick = [&] {
    ++ticks;
    ticks.notify_all();
  };
  o.tick = 1ms;
  start(dir_ / "c.yaml", o);
  watch_->poke();
  EXPECT_TRUE(sees("one"));
  for (int n = 0; n < 3; ++n) ticks.wait(n);
  EXPECT_GE(ticks, 3);
}

// As in a pod: the directory of a ConfigMap is a mount, and so is a single file of it that is mounted by subPath.
TEST_F(FileWatchTest, AFileThatIsAMountOfItsOwnIsTold) {
  write(dir_ / "whole.yaml", "one");
  write(dir_ / "sub path.yaml", "one");
  std::string escaped = (dir_ / "sub path.yaml").string();
  escaped.replace(escaped.find(' '), 1, "\\040");
  const std::string mounts =
      "22 1 0:20 / /proc rw,nosuid shared:12 - proc proc rw\n"
      "36 22 8:1 /volumes/config " +
      dir_.string() +
      " ro,relatime - ext4 /dev/sda1 rw\n"
      "37 22 8:1 /volume-subpaths/config/0 " +
      escaped + " ro,relatime - ext4 /dev/sda1 rw\n";
  EXPECT_TRUE(is_own_mount(dir_ / "sub path.yaml", mounts));
  EXPECT_FALSE(is_own_mount(dir_ / "whole.yaml", mounts));
  EXPECT_FALSE(is_own_mount(dir_, mounts));
  EXPECT_FALSE(is_own_mount(dir_ / "none.yaml", mounts));
  EXPECT_FALSE(is_own_mount(dir_ / "sub path.yaml", ""));
  EXPECT_FALSE(is_own_mount(dir_ / "sub path.yaml", "nonsense\n36 22\n"));
  fs::create_symlink("sub path.yaml", dir_ / "link.yaml");
  EXPECT_TRUE(is_own_mount(dir_ / "link.yaml", mounts));
  start(dir_ / "whole.yaml", {.path = {}, .on_change = {}});
  EXPECT_EQ(watch_->status().warning, "");
}

TEST_F(FileWatchTest, SaysWhatIsWrong) {
  EXPECT_THROW(FileWatch({.path = "", .on_change = [] {}}), std::invalid_argument);
  EXPECT_THROW(FileWatch({.path = "x"}), std::invalid_argument);
  EXPECT_THROW(FileWatch({.path = "x", .on_change = [] {}, .poll = 0ms}), std::invalid_argument);
}

// Opening a FIFO for reading waits for somebody who writes: it used to, for ever.
TEST_F(FileWatchTest, AFifoIsRejectedAndOneThatTakesThePlaceOfTheFileIsToldOf) {
  ASSERT_EQ(mkfifo((dir_ / "fifo").c_str(), 0600), 0);
  try {
    start(dir_ / "fifo");
    FAIL() << "it was accepted";
  } catch (const std::invalid_argument& wrong) {
    EXPECT_THAT(wrong.what(), testing::HasSubstr("is a FIFO"));
  }
  EXPECT_THROW(start(dir_), std::invalid_argument);
  EXPECT_THROW(start("/dev/zero"), std::invalid_argument);

  write(dir_ / "c.yaml", "one");
  std::atomic<int> changes{0};
  FileWatch watch({.path = (dir_ / "c.yaml").string(),
                   .on_change =
                       [&] {
                         ++changes;
                         changes.notify_all();
                       },
                   .debounce = 1ms,
                   .poll = 1h});
  fs::rename(dir_ / "fifo", dir_ / "c.yaml");
  changes.wait(0);
  EXPECT_THAT(watch.status().problem, testing::HasSubstr("is a FIFO"));
  replace(dir_ / "c.yaml", "two");
  changes.wait(1);
  EXPECT_EQ(watch.status().problem, "");
}

// A deaf watch would look late, and end late.
TEST_F(FileWatchTest, WithoutAThreadOrDescriptorsItCannotBeMade) {
  const auto descriptors = [] {
    return std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator());
  };
  const auto before = descriptors();
  {
    const tests::NoThreads none;
    EXPECT_THROW(start(dir_ / "file"), std::system_error);
  }
  EXPECT_EQ(descriptors(), before);
  // UBSan needs a descriptor to look at a class for the first time: let it see that of the error.
  EXPECT_FALSE(std::system_error(EMFILE, std::generic_category()).code().message().empty());
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlimit none{0, limit.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  EXPECT_THROW(start(dir_ / "file"), std::system_error);
  ::setrlimit(RLIMIT_NOFILE, &limit);
  start(dir_ / "file");
  write(dir_ / "file", "new");
  EXPECT_TRUE(sees("new"));
}

}  // namespace
}  // namespace bulkhead::watch
