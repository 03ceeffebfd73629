#include "bulkhead/result.h"

#include <gtest/gtest.h>

#include <any>
#include <memory>
#include <mutex>
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

struct Seven {};  // neither trivial nor assignable from what Result<Seven> is made of

TEST(Result, CopiesMovesAndDestroysAsItsAlternativesDo) {
  using Owner = Result<std::unique_ptr<int>>;
  static_assert(!std::is_copy_constructible_v<Owner> && !std::is_copy_assignable_v<Owner>);
  static_assert(std::is_nothrow_move_constructible_v<Owner> && std::is_nothrow_move_assignable_v<Owner>);
  using Lock = Result<std::mutex, int>;
  static_assert(!std::is_move_constructible_v<Lock> && !std::is_move_assignable_v<Lock>);
  static_assert(std::is_copy_constructible_v<Result<std::string>>);
  static_assert(!std::is_trivially_copy_constructible_v<Result<std::string>>);
  static_assert(std::is_trivially_copyable_v<Result<int, int>>);
  static_assert(std::is_trivially_copyable_v<Result<void, int>>);
  static_assert(std::is_trivially_copyable_v<Result<Seven, char>>);
}

TEST(Result, ARejectionStaysARejectionWhenItsTypeChanges) {
  const Result<int, int> rejected(unexpect, 7);
  Result<bool, int> flag = true;
  EXPECT_FALSE((std::is_assignable_v<Result<bool, int>&, Result<std::string, int>>));
  flag = rejected;
  EXPECT_EQ(flag, Unexpected(7));
  EXPECT_EQ((Result<bool, int>(rejected)), Unexpected(7));
  flag = true;
  flag = Result<int, int>(unexpect, 8);
  EXPECT_EQ(flag, Unexpected(8));
  flag = Result<int, int>(0);
  EXPECT_EQ(flag, false);
  Result<std::any, int> anything = std::any(1);
  anything = rejected;
  EXPECT_FALSE(anything);
  EXPECT_FALSE((Result<std::any, int>(rejected)));
  // A Result in a Result is a value of the outer one.
  Result<Result<int, int>, int> nested = rejected;
  ASSERT_TRUE(nested);
  EXPECT_EQ(*nested, Unexpected(7));
  nested = Unexpected(1);
  nested = rejected;
  EXPECT_TRUE(nested);
}

TEST(Result, MakesAnErrorAsItsConstructorsDo) {
  EXPECT_EQ((Result<int, std::string>(unexpect, 3, 'x').error()), "xxx");
  EXPECT_FALSE((std::is_constructible_v<Result<int, std::string>, unexpect_t, std::mutex>));
}

TEST(Result, Swaps) {
  Result<std::string, int> a("left"), b(unexpect, 4);
  a.swap(b);
  EXPECT_EQ(a, Unexpected(4));
  EXPECT_EQ(b, "left");
  swap(a, b);
  EXPECT_EQ(a, "left");
  EXPECT_EQ(b, Unexpected(4));
}

struct Immovable {
  explicit Immovable(int n) : number(n) {}
  Immovable(Immovable&&) = delete;
  int number;
};

TEST(Result, TransformMakesWhatCannotMoveInItsPlace) {
  const Result<Immovable, int> made = Result<int, int>(3).transform([](int n) { return Immovable(n); });
  EXPECT_EQ(made->number, 3);
  const auto other = Result<int, int>(unexpect, 3).transform_error([](int n) { return n + 1; });
  EXPECT_EQ(other, Unexpected(4));
}

TEST(Result, FunctionsSeeTheErrorAsItIs) {
  Result<int, std::string> r(unexpect, "a");
  EXPECT_EQ(r.or_else([](std::string& e) { return e += "b", Result<int, int>(1); }), 1);
  EXPECT_EQ(r.transform_error([](std::string& e) { return e += "c", 2; }), Unexpected(2));
  EXPECT_EQ(r.error(), "abc");
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
  const Result<std::string> text(std::expected<const char*, Rejection>("a"));
  EXPECT_EQ(text, "a");
}

TEST(Result, WhatCannotBeCopiedIsMovedToAndFromExpected) {
  using Owner = Result<std::unique_ptr<int>>;
  using Theirs = std::expected<std::unique_ptr<int>, Rejection>;
  static_assert(!std::is_convertible_v<const Owner&, Theirs> && !std::is_convertible_v<Owner&, Theirs>);
  static_assert(!std::is_convertible_v<const Theirs&, Owner> && !std::is_convertible_v<Theirs&, Owner>);
  static_assert(!std::is_convertible_v<Result<std::mutex, int>, std::expected<std::mutex, int>>);
  static_assert(
      !std::is_convertible_v<Result<void, std::unique_ptr<int>>&, std::expected<void, std::unique_ptr<int>>>);
  Theirs theirs = Owner(std::make_unique<int>(5));
  const Owner back = std::move(theirs);
  EXPECT_EQ(**back, 5);
}

TEST(Result, ARejectionOfExpectedStaysARejection) {
  Result<bool, int> flag = true;
  flag = std::expected<bool, int>(std::unexpect, 3);
  EXPECT_EQ(flag, Unexpected(3));
  flag = true;
  flag = std::expected<int, int>(std::unexpect, 4);
  EXPECT_EQ(flag, Unexpected(4));
  Result<std::any, int> anything = std::any(1);
  anything = std::expected<int, int>(std::unexpect, 3);
  EXPECT_FALSE(anything);
  flag = std::unexpected(5);
  EXPECT_EQ(flag, std::unexpected(5));
}

TEST(Result, ComparesWithExpectedInBothOrders) {
  using Ours = Result<int, int>;
  using Theirs = std::expected<int, int>;
  EXPECT_TRUE(Ours(5) == Theirs(5) && Theirs(5) == Ours(5));
  EXPECT_TRUE(Ours(5) != Theirs(6) && Theirs(5) != Ours(6));
  EXPECT_TRUE(Ours(unexpect, 3) == Theirs(std::unexpect, 3) && Theirs(std::unexpect, 3) == Ours(unexpect, 3));
  EXPECT_TRUE(Ours(unexpect, 3) != Theirs(std::unexpect, 4) && Theirs(std::unexpect, 3) != Ours(3));
}
#endif

}  // namespace
}  // namespace bulkhead
