#include "bulkhead/result.h"

#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

namespace bulkhead {
namespace {

const Rejection kFull{.reason = Reason::concurrency_limit, .name = "db", .in_flight = 3, .max_concurrent = 3};

TEST(Result, HoldsAValueOrARejection) {
  Result<int> good = 7;
  EXPECT_TRUE(good.has_value());
  EXPECT_EQ(*good, 7);
  EXPECT_EQ(good.value_or(1), 7);
  const Result<int> bad(unexpect, kFull);
  EXPECT_FALSE(bad);
  EXPECT_EQ(bad.error().name, "db");
  EXPECT_EQ(bad.value_or(1), 1);
  const Result<std::string, std::string> text = Unexpected("no route");
  EXPECT_EQ(text.error(), "no route");
  EXPECT_EQ((Result<std::string>(std::in_place, 3, 'x')->size()), 3u);
}

TEST(Result, WorksAtCompileTime) {
  constexpr Result<int> seven = 7;
  static_assert(seven && *seven == 7 && seven == 7);
  static_assert(seven.transform([](int x) { return x + 1; }) == 8);
  constexpr Result<int, int> error(unexpect, 3);
  static_assert(!error && error.error() == 3 && error == Unexpected(3));
  static_assert(std::is_trivially_destructible_v<Result<int, int>>);
  constexpr auto half = [](int x) { return x % 2 ? Result<int, int>(unexpect, x) : Result<int, int>(x / 2); };
  static_assert(Result<int, int>(8).and_then(half) == 4 && Result<int, int>(7).and_then(half).error() == 7);
  static_assert(error.value_or(5) == 5 && error.error_or(1) == 3);
  static_assert(error.or_else([](int e) { return Result<int, int>(e + 1); }) == 4);
  static_assert([] {
    Result<int, int> changes(unexpect, 1);
    const Result<int, int> copy = changes;
    changes = 2;
    Result<int, int> moved = std::move(changes);
    moved = copy;
    return moved == copy && moved.error() == 1 && changes == 2;
  }());
}

TEST(Result, IsAsLargeAsTheLargerAlternativeAndAFlag) {
  static_assert(sizeof(Result<int>) == sizeof(Rejection) + alignof(Rejection));
  static_assert(sizeof(Result<void>) == sizeof(Result<int>));
  static_assert(sizeof(Result<char, char>) == 2);
}

TEST(Result, ComparesWithValuesErrorsAndResultsOfOtherTypes) {
  using Words = Result<std::string, std::string>;
  EXPECT_EQ(Words("a"), (Result<const char*, std::string>("a")));
  EXPECT_NE(Words("a"), Words("b"));
  EXPECT_NE(Words("a"), Words(unexpect, "a"));
  EXPECT_EQ(Words(unexpect, "a"), (Result<const char*, const char*>(unexpect, "a")));
  EXPECT_NE(Words(unexpect, "a"), "a");
  EXPECT_EQ(Words(unexpect, "a"), Unexpected("a"));
  EXPECT_NE(Words("a"), Unexpected("a"));
  EXPECT_EQ((Result<void, int>()), (Result<void, int>()));
  EXPECT_NE((Result<void, int>()), (Result<void, int>(unexpect, 1)));
}

TEST(Result, ValueThrowsWithTheMessageOfTheRejection) {
  const Result<int> bad(unexpect, kFull);
  try {
    static_cast<void>(bad.value());
    FAIL();
  } catch (const BadResult& thrown) {
    EXPECT_EQ(thrown.what(), kFull.message());
    ASSERT_NE(thrown.rejection(), nullptr);
    EXPECT_EQ(thrown.rejection()->reason, Reason::concurrency_limit);
  }
  const Result<void, std::string> text = Unexpected("gone");
  EXPECT_THROW(text.value(), BadResult);
  EXPECT_NO_THROW((Result<void>().value()));
}

TEST(Result, MonadsPassTheErrorOn) {
  const auto half = [](int x) { return x % 2 ? Result<int>(unexpect, kFull) : Result<int>(x / 2); };
  EXPECT_EQ(Result<int>(8).and_then(half).and_then(half), 2);
  EXPECT_FALSE(Result<int>(6).and_then(half).and_then(half).has_value());
  EXPECT_EQ(Result<int>(unexpect, kFull).or_else([](const Rejection& why) {
    return Result<int>(static_cast<int>(why.in_flight));
  }),
            3);
  EXPECT_EQ(Result<int>(4).or_else([](const Rejection&) { return Result<int>(0); }), 4);
  int called = 0;
  EXPECT_TRUE(Result<void>()
                  .and_then([&] { return ++called, Result<void>(); })
                  .transform([&] { ++called; })
                  .has_value());
  EXPECT_EQ(called, 2);
  EXPECT_EQ((Result<int, int>(unexpect, 2).transform_error([](int e) { return std::to_string(e); }).error()),
            "2");
  auto owner = Result<std::unique_ptr<int>>(std::make_unique<int>(5));
  EXPECT_EQ(std::move(owner).transform([](std::unique_ptr<int> p) { return *p; }), 5);
}

TEST(Result, AssignmentsChangeTheAlternative) {
  Result<std::string> r("one");
  r = Unexpected(kFull);
  EXPECT_FALSE(r);
  r = "two";
  EXPECT_EQ(r, "two");
  r = Result<std::string>(unexpect, kFull);
  EXPECT_EQ(r.error().reason, Reason::concurrency_limit);
  Result<std::string> copy = r;
  r = Result<std::string>("three");
  EXPECT_EQ(*r, "three");
  EXPECT_FALSE(copy);
  copy = r;
  EXPECT_EQ(copy, r);
}

struct ThrowsWhenMoved {
  ThrowsWhenMoved() = default;
  ThrowsWhenMoved(const ThrowsWhenMoved&) = default;
  ThrowsWhenMoved(ThrowsWhenMoved&&) { throw std::runtime_error("moved"); }
  ThrowsWhenMoved& operator=(const ThrowsWhenMoved&) = default;
};

TEST(Result, KeepsItsErrorWhenAnAssignmentThrows) {
  Result<ThrowsWhenMoved, std::string> r(unexpect, "still here");
  const ThrowsWhenMoved value;
  EXPECT_THROW(r = value, std::runtime_error);
  ASSERT_FALSE(r);
  EXPECT_EQ(r.error(), "still here");
}

TEST(Result, DestroysExactlyWhatItHolds) {
  auto counted = std::make_shared<int>(1);
  {
    Result<std::shared_ptr<int>> r(counted);
    Result<std::shared_ptr<int>> moved = std::move(r);
    moved = Unexpected(kFull);
    EXPECT_EQ(counted.use_count(), 1);  // the moved-from value is empty, and the other one was replaced
    static_cast<void>(r);
  }
  EXPECT_EQ(counted.use_count(), 1);
}

#if defined(__cpp_lib_expected)
TEST(Result, ConvertsToAndFromExpected) {
  const std::expected<int, Rejection> there = Result<int>(7);
  EXPECT_EQ(*there, 7);
  const Result<int> back = std::expected<int, Rejection>(std::unexpect, kFull);
  EXPECT_EQ(back.error().name, "db");
  const std::expected<void, Rejection> none = Result<void>(unexpect, kFull);
  EXPECT_FALSE(none);
}
#endif

}  // namespace
}  // namespace bulkhead
