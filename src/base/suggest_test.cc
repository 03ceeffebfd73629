#include "base/suggest.h"

#include <gtest/gtest.h>

#include <vector>

namespace bulkhead::base {
namespace {

TEST(Suggest, FindsSlipsOfTheFingersOnly) {
  const std::vector<std::string> known{"demo", "run", "check", "--seconds"};
  EXPECT_EQ(suggest("dmeo", known), "demo");
  EXPECT_EQ(suggest("chekc", known), "check");
  EXPECT_EQ(suggest("--sec", known), "--seconds");
  EXPECT_EQ(suggest("xyzzy", known), "");
  EXPECT_EQ(suggest("", known), "");
  EXPECT_EQ(suggest(std::string(100'000, 'a'), known), "");
}

}  // namespace
}  // namespace bulkhead::base
