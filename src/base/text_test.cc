#include "base/text.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

namespace bulkhead::base {
namespace {

TEST(Text, JoinsItsParts) {
  EXPECT_EQ(join({}), "");
  EXPECT_EQ(join({"", "", ""}), "");
  EXPECT_EQ(join({"bulkhead \"", std::string("db"), "\""}), "bulkhead \"db\"");
  const std::string long_part(1000, 'x');
  EXPECT_EQ(join({"<", long_part, ">"}), "<" + long_part + ">");
}

TEST(Text, KeepsZeroBytes) {
  const std::string part("a\0b", 3);
  EXPECT_EQ(join({part, part}).size(), 6u);
}

TEST(Text, ThrowInvalidCarriesTheText) {
  try {
    throw_invalid("max_queue is wrong");
  } catch (const std::invalid_argument& e) {
    EXPECT_STREQ(e.what(), "max_queue is wrong");
    return;
  }
}

}  // namespace
}  // namespace bulkhead::base
