#include "journal.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "tests/support/temp_directory.h"

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

}  // namespace
}  // namespace bulkhead::control
