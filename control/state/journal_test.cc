#include "journal.h"

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "tests/support/temp_directory.h"

namespace {
std::atomic<int> sync_error = 0;
}
extern "C" int fdatasync(int file) {
  if (sync_error == 0) return static_cast<int>(::syscall(SYS_fdatasync, file));
  errno = sync_error;
  return -1;
}

namespace bulkhead::control {
namespace {

// Whatever the time that the test takes: a denial has an entry of its own or is counted by another.
TEST(Journal, EveryDenialIsListedOrCounted) {
  constexpr std::size_t kDenials = 1000;
  std::size_t told = 0;
  Journal journal("", [&](std::string_view) { ++told; });
  for (std::size_t i = 0; i < kDenials; ++i) journal.deny({.text = "no token"});
  journal.report_suppressed();
  journal.report_suppressed();  // nothing is left to report
  std::size_t listed = 0, counted = 0;
  for (const JournalEntry& entry : journal.list({.newest = kDenials, .audit_only = true})) {
    EXPECT_EQ(entry.kind, "denied");
    EXPECT_EQ(entry.result, "denied");
    if (entry.text == "no token")
      ++listed;
    else
      counted += std::stoul(entry.text);
  }
  EXPECT_EQ(listed + counted, kDenials);
  EXPECT_GE(listed, 20u);
  EXPECT_EQ(told, listed + (counted > 0 ? 1 : 0));
  EXPECT_TRUE(journal.list({}).empty()) << "denials are no events";
}

TEST(Journal, DenialsDoNotDisplaceEventsAndChanges) {
  Journal journal("");
  journal.add({.kind = "override", .text = "by ann", .audit = true});
  for (int second = 0; second < 400; ++second) {
    for (int i = 0; i < 20; ++i) journal.deny({.text = "no token"});
    journal.report_suppressed();
  }
  EXPECT_EQ(journal.list({}).size(), 1u);
  const auto audit = journal.list({.newest = 1000, .audit_only = true});
  EXPECT_EQ(audit.front().text, "by ann");
  EXPECT_LE(audit.size(), 201u);
  for (std::size_t i = 1; i < audit.size(); ++i) EXPECT_GT(audit[i].id, audit[i - 1].id);
}

TEST(Journal, AutomaticEventsNeitherDisplaceChangesNorFillTheDisk) {
  const tests::TempDirectory directory;
  const std::string path = (directory.path() / "audit.jsonl").string();
  Journal journal(path);
  journal.report_suppressed();
  journal.add({.kind = "override", .text = "by ann", .audit = true});
  for (int i = 0; i < 5000; ++i) journal.add({.kind = "breaker", .automatic = true});
  journal.add({.kind = "override", .text = "by bob", .audit = true});
  const auto all = journal.list({.newest = 5000});
  ASSERT_EQ(all.size(), 1002u);
  EXPECT_EQ(all.front().text, "by ann");
  EXPECT_EQ(all.back().text, "by bob");
  for (std::size_t i = 1; i < all.size(); ++i) EXPECT_GT(all[i].id, all[i - 1].id);
  EXPECT_EQ(journal.list({.newest = 5000, .audit_only = true}).size(), 2u);
  EXPECT_EQ(journal.list({.after = all.back().id - 1, .newest = 5000}).size(), 1u);
  std::ifstream file(path);
  std::size_t lines = 0;
  std::string last;
  for (std::string line; std::getline(file, line); last = line) ++lines;
  EXPECT_EQ(lines, 1002u);
  EXPECT_NE(last.find("by bob"), std::string::npos);
}

TEST(Journal, ClientsWithoutAccessCannotFillTheDisk) {
  const tests::TempDirectory directory;
  const std::string path = (directory.path() / "audit.jsonl").string();
  Journal journal(path);
  journal.add({.kind = "override", .text = "by ann", .audit = true});
  journal.report_suppressed();
  // The limit per second does not apply to these summaries: each call of deny() is left out after the twentieth.
  for (int i = 0; i < 5000; ++i) {
    for (int k = 0; k < 21; ++k) journal.deny({.text = "no token"});
    journal.report_suppressed();
  }
  std::ifstream file(path);
  std::size_t lines = 0;
  for (std::string line; std::getline(file, line);) ++lines;
  EXPECT_LE(lines, 1001u);
  EXPECT_EQ(journal.lost(), 0u) << "left out, not lost";
}

// Lines go on into the file that rotation has moved, and one event says so.
TEST(Journal, ARotationWithoutAFileToFollowIsReportedOnce) {
  const tests::TempDirectory directory;
  const auto logs = directory.path() / "logs";
  std::filesystem::create_directory(logs);
  Journal journal((logs / "audit.jsonl").string());
  std::filesystem::rename(logs, directory.path() / "moved");
  for (int i = 0; i < 3; ++i) journal.add({.kind = "override", .text = "by ann", .audit = true});
  const auto errors = [&] {
    std::size_t n = 0;
    for (const JournalEntry& entry : journal.list({})) n += entry.kind == "error";
    return n;
  };
  EXPECT_EQ(errors(), 1u);
  EXPECT_EQ(journal.lost(), 0u);
  std::filesystem::create_directory(logs);
  journal.add({.kind = "override", .text = "by ann", .audit = true});
  EXPECT_EQ(errors(), 2u) << "and one that it is there again";
  std::ifstream moved(directory.path() / "moved" / "audit.jsonl"), fresh(logs / "audit.jsonl");
  EXPECT_EQ(std::count(std::istreambuf_iterator<char>(moved), {}, '\n'), 3);
  EXPECT_EQ(std::count(std::istreambuf_iterator<char>(fresh), {}, '\n'), 1);
}

TEST(Journal, AFileThatCannotReachTheDiskHasLostLines) {
  const tests::TempDirectory directory;
  Journal journal((directory.path() / "audit.jsonl").string());
  sync_error = EIO;
  journal.add({.kind = "override", .text = "by ann", .audit = true});
  EXPECT_EQ(journal.lost(), 1u);
  sync_error = EINVAL;  // a pipe or a terminal has no disk
  journal.add({.kind = "override", .text = "by ann", .audit = true});
  EXPECT_EQ(journal.lost(), 1u);
  sync_error = 0;
}

}  // namespace
}  // namespace bulkhead::control
