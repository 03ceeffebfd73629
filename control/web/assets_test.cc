#include "assets.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>

namespace bulkhead::control {
namespace {

namespace fs = std::filesystem;

const fs::path kSources = BULKHEAD_WEB_SOURCES;
const fs::path kUPlot = BULKHEAD_UPLOT;

const Asset* find(std::string_view path) {
  const auto all = assets();
  const auto it = std::ranges::find(all, path, &Asset::path);
  return it == all.end() ? nullptr : &*it;
}

std::string text_of(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST(Assets, WeighAtMostSixtyThousandBytesInAll) {
  std::size_t sum = 0;
  for (const Asset& asset : assets()) sum += asset.gzip.size();
  EXPECT_LE(sum, 60'000U);
}

// The last four bytes of a gzip file are its length uncompressed.
std::size_t length_of(const Asset& asset) {
  const auto end = asset.gzip.last(4);
  return static_cast<std::size_t>(end[0] | end[1] << 8 | end[2] << 16 | end[3] << 24);
}

TEST(Assets, AreGzipWithATypeAndATagOfTheirOwn) {
  std::set<std::string_view> tags;
  for (const Asset& asset : assets()) {
    ASSERT_GT(asset.gzip.size(), 20U) << asset.path;
    EXPECT_EQ(asset.gzip[0], 0x1f) << asset.path;
    EXPECT_EQ(asset.gzip[1], 0x8b) << asset.path;
    EXPECT_EQ(asset.plain.size(), length_of(asset)) << asset.path;
    EXPECT_FALSE(asset.content_type.empty()) << asset.path;
    EXPECT_TRUE(asset.etag.starts_with('"') && asset.etag.ends_with('"')) << asset.etag;
    EXPECT_TRUE(tags.insert(asset.etag).second) << asset.path;
  }
  ASSERT_NE(find("index.html"), nullptr);
  EXPECT_EQ(find("index.html")->content_type, "text/html; charset=utf-8");
}

TEST(Assets, AreTheFilesOfTheSourceTreeAndAllOfThem) {
  std::size_t modules = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(kSources)) {
    const std::string extension = entry.path().extension();
    if (extension == ".js") modules += entry.file_size();
    if (extension != ".css" && extension != ".html" && extension != ".svg") continue;
    const Asset* const asset = find(entry.path().filename().string());
    ASSERT_NE(asset, nullptr) << entry.path() << " is missing in control/CMakeLists.txt";
    EXPECT_EQ(length_of(*asset), entry.file_size()) << entry.path();
  }
  // main.js is all modules without the lines of their imports and the word export.
  ASSERT_NE(find("main.js"), nullptr);
  EXPECT_GT(length_of(*find("main.js")), modules * 9 / 10);
  ASSERT_NE(find("uplot.js"), nullptr);
  EXPECT_EQ(length_of(*find("uplot.js")), fs::file_size(kUPlot)) << "a vendored file is served unchanged";
}

// Names of bulkheads are user input, and the page runs under a CSP that allows no inline script or style.
TEST(Assets, NeverTurnTextIntoMarkupNorReachOutside) {
  for (const std::string_view bad : {"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write",
                                     "eval(", "new Function", "fetch(", "XMLHttp"})
    EXPECT_EQ(text_of(kUPlot).find(bad), std::string::npos) << "uPlot has " << bad;
  for (const fs::directory_entry& entry : fs::directory_iterator(kSources)) {
    const std::string extension = entry.path().extension();
    if (extension != ".js" && extension != ".html" && extension != ".css") continue;
    const std::string text = text_of(entry.path());
    for (const std::string_view bad :
         {"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "<style",
          "style=\"", "onclick=\"", "https://", "@import", " url(", ":url("})
      EXPECT_EQ(text.find(bad), std::string::npos) << entry.path() << " has " << bad;
    const std::size_t http = text.find("http://");
    EXPECT_TRUE(http == std::string::npos || text.compare(http, 18, "http://www.w3.org/") == 0)
        << entry.path();
  }
}

}  // namespace
}  // namespace bulkhead::control
