#include "base/text.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

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

TEST(Text, MeasuresCharactersOfUtf8AndRejectsTheRest) {
  EXPECT_EQ(utf8_length("a\xC3"), 1u);
  EXPECT_EQ(utf8_length("\u00e9"), 2u);
  EXPECT_EQ(utf8_length("\u20ac!"), 3u);
  EXPECT_EQ(utf8_length("\U0001f600"), 4u);
  for (const char* const wrong : {"\x80", "\xC3", "\xC3(", "\xC0\xAF", "\xE0\x80\xAF", "\xED\xA0\x80",
                                  "\xF0\x80\x80\xAF", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xE2\x82"})
    EXPECT_EQ(utf8_length(wrong), 0u) << wrong;
}

TEST(Text, LowersOnlyLettersOfAscii) { EXPECT_EQ(lower("Host-1 \u00c9Z"), "host-1 \u00c9z"); }

TEST(Text, HashesInPartsAsInOne) {
  EXPECT_EQ(hash_of("a"), 0xaf63dc4c8601ec8cU);  // a test vector of FNV-1a
  EXPECT_EQ(hash_of("bar", hash_of("foo")), hash_of("foobar"));
}

TEST(Text, ThrowInvalidCarriesTheText) {
  try {
    throw_invalid("max_queue is wrong");
  } catch (const std::invalid_argument& e) {
    EXPECT_STREQ(e.what(), "max_queue is wrong");
    return;
  }
}

TEST(Text, TakesADecimalNumberFromTheFront) {
  const auto take = [](std::string_view text) -> std::pair<double, std::string_view> {
    double value = -1;
    const bool taken = take_decimal(text, value);
    EXPECT_EQ(taken, value >= 0);
    return {value, text};
  };
  EXPECT_EQ(take("12"), std::pair(12.0, std::string_view("")));
  EXPECT_EQ(take("0.1%"), std::pair(0.1, std::string_view("%")));
  EXPECT_EQ(take("1.5.2"), std::pair(1.5, std::string_view(".2")));
  EXPECT_EQ(take("1e3"), std::pair(1.0, std::string_view("e3")));
  EXPECT_EQ(take("1.s"), std::pair(1.0, std::string_view("s")));
  EXPECT_EQ(take("0.30000000000000004"), std::pair(0.1 + 0.2, std::string_view("")));
  for (const char* none : {"", "-1", "+1", ".5", "inf", "nan", " 1", "ms"})
    EXPECT_EQ(take(none), std::pair(-1.0, std::string_view(none)));
  const std::string too_large(400, '9');
  EXPECT_EQ(take(too_large), std::pair(-1.0, std::string_view(too_large)));
}

}  // namespace
}  // namespace bulkhead::base
