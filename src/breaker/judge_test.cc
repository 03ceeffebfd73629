#include "bulkhead/judge.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <system_error>

namespace bulkhead {
namespace {

constexpr auto failure = Outcome::failure, success = Outcome::success, ignored = Outcome::ignored;

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
  EXPECT_EQ(judge_result(no_opinion, Result<int, std::string>(1)), success);
  EXPECT_EQ(judge_result(no_opinion, Result<int, std::string>(unexpect, "broken")), failure);
  EXPECT_EQ(judge_result(no_opinion, Result<int>(unexpect, Rejection{})), ignored);
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

TEST(Judge, ARejectionIsIgnoredHoweverItComes) {
  EXPECT_EQ(judge_exception(no_opinion, thrown(Rejection{})), ignored);
  const auto value = [] {
    try {
      static_cast<void>(Result<int>(unexpect, Rejection{}).value());
    } catch (...) {
      return std::current_exception();
    }
    return std::exception_ptr();
  };
  EXPECT_EQ(judge_exception(no_opinion, value()), ignored);
  EXPECT_EQ(judge_exception(exception_is<Rejection>(failure), thrown(Rejection{})), failure)
      << "unless a judge says";
  struct Error {
    std::optional<Rejection> rejection;
  };
  EXPECT_EQ(judge_result(no_opinion, Result<int, Error>(unexpect, Rejection{})), ignored);
  EXPECT_EQ(judge_result(no_opinion, Result<int, Error>(unexpect)), failure);
}

TEST(Judge, ThatOfACallAsksForWhatTheCallableTakes) {
  const CallJudge<int> results = [](int n) { return n > 1 ? Opinion(failure) : std::nullopt; };
  EXPECT_EQ(results.of_result(2), failure);
  EXPECT_EQ(results.of_result(1), std::nullopt);
  EXPECT_EQ(results.of_exception(thrown(1)), std::nullopt);
  const CallJudge<int> exceptions = [](const std::exception_ptr&) { return Opinion(ignored); };
  EXPECT_EQ(exceptions.of_result(2), std::nullopt);
  EXPECT_EQ(exceptions.of_exception(thrown(1)), ignored);
  const CallJudge<int> both = result_if([](int n) { return n > 1; }) | exception_is<int>(ignored);
  EXPECT_EQ(both.of_result(2), failure);
  EXPECT_EQ(both.of_exception(thrown(1)), ignored);
  const CallJudge<std::exception_ptr> one_type = [](const std::exception_ptr&) { return Opinion(failure); };
  EXPECT_EQ(one_type.of_result({}), failure) << "a call that returns an exception_ptr";
  EXPECT_FALSE(CallJudge<int>());
  EXPECT_FALSE(CallJudge<int>(std::function<Opinion(const int&)>()));
  EXPECT_EQ(CallJudge<int>().of_result(1), std::nullopt);
}

}  // namespace
}  // namespace bulkhead
