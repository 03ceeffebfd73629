#include "bulkhead/judge.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <system_error>

namespace bulkhead {
namespace {

constexpr auto failure = CallVerdict::failure, success = CallVerdict::success, ignored = CallVerdict::ignored;

template <class E>
std::exception_ptr thrown(E e) {
  return std::make_exception_ptr(e);
}

TEST(Judge, WithoutAnOpinionAThrowIsAFailureAndAResultASuccess) {
  EXPECT_EQ(judge_exception(no_opinion, thrown(std::runtime_error("x"))), failure);
  EXPECT_EQ(judge_exception(no_opinion, thrown(42)), failure);
  EXPECT_EQ(judge_result(no_opinion, 500), success);
}

TEST(Judge, AnErrorInAnExpectedIsAFailureAndARejectionSaysNothing) {
  EXPECT_EQ(judge_result(no_opinion, std::expected<int, std::string>(1)), success);
  EXPECT_EQ(judge_result(no_opinion, std::expected<int, std::string>(std::unexpect, "broken")), failure);
  EXPECT_EQ(judge_result(no_opinion, Result<int>(std::unexpect, Rejection{})), ignored);
}

TEST(Judge, IgnoresTheExceptionsItIsToldTo) {
  const auto judge = exception_is<std::invalid_argument, std::out_of_range>(ignored);
  EXPECT_EQ(judge_exception(judge, thrown(std::invalid_argument("yours"))), ignored);
  EXPECT_EQ(judge_exception(judge, thrown(std::out_of_range("yours"))), ignored);
  EXPECT_EQ(judge_exception(judge, thrown(std::runtime_error("theirs"))), failure);
  EXPECT_EQ(judge_exception(exception_is<std::logic_error>(success), thrown(std::out_of_range("derived"))),
            success);
}

TEST(Judge, LooksIntoExceptions) {
  const auto judge = exception_if<std::system_error>(
      [](const std::system_error& e) { return e.code() == std::errc::operation_canceled; }, ignored);
  EXPECT_EQ(
      judge_exception(judge, thrown(std::system_error(std::make_error_code(std::errc::operation_canceled)))),
      ignored);
  EXPECT_EQ(judge_exception(judge, thrown(std::system_error(std::make_error_code(std::errc::timed_out)))),
            failure);
}

TEST(Judge, LooksAtResultsOfTheTypeItsPredicateTakes) {
  const auto judge = result_if([](const std::string& s) { return s.empty(); });
  EXPECT_EQ(judge_result(judge, std::string()), failure);
  EXPECT_EQ(judge_result(judge, std::string("x")), success);
  EXPECT_EQ(judge_result(judge, 0), success);
  EXPECT_EQ(judge_exception(judge, thrown(std::string())), failure);
}

TEST(Judge, TheFirstOpinionCounts) {
  const auto judge = result_if([](int status) { return status == 503; }, ignored) |
                     result_if([](int status) { return status >= 500; }) |
                     exception_is<std::invalid_argument>(ignored);
  EXPECT_EQ(judge_result(judge, 503), ignored);
  EXPECT_EQ(judge_result(judge, 500), failure);
  EXPECT_EQ(judge_result(judge, 200), success);
  EXPECT_EQ(judge_exception(judge, thrown(std::invalid_argument(""))), ignored);
  EXPECT_EQ(judge_exception(judge, thrown(std::runtime_error(""))), failure);
}

}  // namespace
}  // namespace bulkhead
