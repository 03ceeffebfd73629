// broken/x.yaml with broken/x.txt, exactly what is said about it; good/*.yaml, about which nothing is said.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "adapters/yaml/yaml.h"

namespace bulkhead::yaml {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> files(const std::string& kind) {
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(fs::path(BULKHEAD_FILES) / kind))
    if (entry.path().extension() == ".yaml") found.push_back(entry.path());
  std::ranges::sort(found);
  return found;
}

std::string contents(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

std::string name_of(const testing::TestParamInfo<fs::path>& file) { return file.param.stem().string(); }

class Broken : public testing::TestWithParam<fs::path> {};

TEST_P(Broken, IsExplainedInTheseVeryWords) {
  const fs::path expected = fs::path(GetParam()).replace_extension(".txt");
  const Loaded loaded = parse(contents(GetParam()), GetParam().filename().string());
  const std::string said = to_text(loaded.problems);
  EXPECT_FALSE(loaded.ok());
  if (std::getenv("BULKHEAD_UPDATE")) std::ofstream(expected, std::ios::binary) << said;
  EXPECT_EQ(said, contents(expected));
  EXPECT_TRUE(loaded.warnings.empty()) << "a broken file is not linted";
}

TEST_P(Broken, PointsAtAPlaceInTheFile) {
  const std::string text = contents(GetParam());
  const auto lines = static_cast<std::size_t>(std::ranges::count(text, '\n')) + 1;
  for (const ConfigProblem& p : parse(text).problems) {
    EXPECT_GE(p.at.line, 1U);
    EXPECT_GE(p.at.column, 1U);
    EXPECT_LE(p.at.line, lines) << p.message;
    EXPECT_FALSE(p.message.empty());
  }
}

INSTANTIATE_TEST_SUITE_P(Files, Broken, testing::ValuesIn(files("broken")), name_of);

class Good : public testing::TestWithParam<fs::path> {};

TEST_P(Good, IsReadWithoutAWord) {
  const Loaded loaded = load(GetParam());
  EXPECT_TRUE(loaded.ok()) << to_text(loaded.problems);
}

INSTANTIATE_TEST_SUITE_P(Files, Good, testing::ValuesIn(files("good")), name_of);

TEST(Files, ThereAreEnoughOfThem) {
  EXPECT_GE(files("broken").size(), 60U);
  std::size_t texts = 0;
  for (const auto& entry : fs::directory_iterator(fs::path(BULKHEAD_FILES) / "broken"))
    texts += entry.path().extension() == ".txt";
  EXPECT_EQ(texts, files("broken").size()) << "a .txt without its .yaml";
}

}  // namespace
}  // namespace bulkhead::yaml
