// judge.h - defines which results and exceptions count as failures: small predicates, joined with |.
//
//   const auto judge = bulkhead::exception_is<NotFound>(bulkhead::Outcome::ignored) |
//                      bulkhead::result_if([](const Reply& r) { return r.status >= 500; });
//   auto reply = breaker.run([&] { return fetch(); }, judge);
//
// A judge gets a result or an exception and returns an Outcome, or no opinion; in a | b the first opinion counts. Without
// an opinion, an exception or an error in a Result or a std::expected is a failure, everything else is a success; but a
// rejection is ignored, because it comes from a gate or bulkhead of this process and says nothing about the dependency. A
// rejection is a Rejection as the error or thrown, an error whose member `rejection` holds one (ResourceError), or the
// exception that value() throws for one.
// Threads: a judge is a value. It runs on the thread that made the call, so predicates that share state must synchronize.
//   A judge must not throw: its exception goes to the caller, and the call counts as Outcome::ignored.
// Cost: for a result one call of the predicate. For an exception one rethrow per type, and one more if no judge has an
//   opinion.
#pragma once

#include <concepts>
#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <string_view>
#include <type_traits>
#include <utility>

#include "bulkhead/result.h"

namespace bulkhead {

using Opinion = std::optional<Outcome>;

// F answers some of (const T& result) and (const std::exception_ptr&) with an Opinion.
template <class F>
class Judge {
 public:
  constexpr explicit Judge(F f) : f_(std::move(f)) {}
  template <class T>
  constexpr Opinion operator()(const T& what) const {
    if constexpr (std::is_invocable_r_v<Opinion, const F&, const T&>) return f_(what);
    return std::nullopt;
  }

 private:
  F f_;
};

template <class A, class B>
constexpr auto operator|(Judge<A> a, Judge<B> b) {
  return Judge([a = std::move(a), b = std::move(b)](const auto& what) -> Opinion {
    const Opinion first = a(what);
    return first ? first : b(what);
  });
}

inline constexpr auto no_opinion = Judge([](const auto&) -> Opinion { return std::nullopt; });

namespace detail {

// True if the exception is an E for which pred(e) holds.
template <class E, class P>
bool caught(const std::exception_ptr& exception, const P& pred) {
#if defined(__cpp_exceptions)
  try {
    std::rethrow_exception(exception);
  } catch (const E& e) {
    return pred(e);
  } catch (...) {
    return false;
  }
#else
  static_cast<void>(exception);
  static_cast<void>(pred);
  return false;
#endif
}

// A value or an error: a Result, a std::expected, or a type with the same interface.
template <class T>
concept ValueOrError = requires(const T& t) {
  typename T::error_type;
  { t.has_value() } -> std::convertible_to<bool>;
  t.error();
};

template <class E>
constexpr bool is_rejection(const E& error) {
  if constexpr (std::same_as<E, Rejection>)
    return true;
  else if constexpr (requires {
                       { error.rejection } -> std::same_as<const std::optional<Rejection>&>;
                     })
    return error.rejection.has_value();
  else
    return false;
}

inline bool is_rejection(const std::exception_ptr& exception) {
#if defined(__cpp_exceptions)
  try {
    std::rethrow_exception(exception);
  } catch (const Rejection&) {
    return true;
  } catch (const BadResult& thrown) {
    return thrown.rejection() != nullptr;
  } catch (...) {
    return false;
  }
#else
  static_cast<void>(exception);
  return false;
#endif
}

}  // namespace detail

// Exceptions of one of these types, or derived from them.
template <class... E>
constexpr auto exception_is(Outcome outcome) {
  return Judge([outcome](const std::exception_ptr& e) -> Opinion {
    if ((detail::caught<E>(e, [](const E&) { return true; }) || ...)) return outcome;
    return std::nullopt;
  });
}

// Exceptions of type E for which pred(const E&) holds.
template <class E, class P>
constexpr auto exception_if(P pred, Outcome outcome = Outcome::failure) {
  return Judge([pred = std::move(pred), outcome](const std::exception_ptr& e) -> Opinion {
    if (detail::caught<E>(e, pred)) return outcome;
    return std::nullopt;
  });
}

// Results for which pred(const T&) holds; no opinion on types that pred does not take.
template <class P>
constexpr auto result_if(P pred, Outcome outcome = Outcome::failure) {
  return Judge([pred = std::move(pred), outcome]<class T>(const T& result) -> Opinion
                 requires(!std::same_as<T, std::exception_ptr> && std::predicate<const P&, const T&>)
               {
                 if (pred(result)) return outcome;
                 return std::nullopt;
               });
}

template <class F>
Outcome judge_exception(const Judge<F>& judge, const std::exception_ptr& exception) {
  if (const Opinion opinion = judge(exception)) return *opinion;
  return detail::is_rejection(exception) ? Outcome::ignored : Outcome::failure;
}

template <class F, class T>
Outcome judge_result(const Judge<F>& judge, const T& result) {
  if (const Opinion opinion = judge(result)) return *opinion;
  if constexpr (detail::ValueOrError<T>) {
    if (result.has_value()) return Outcome::success;
    return detail::is_rejection(result.error()) ? Outcome::ignored : Outcome::failure;
  }
  return Outcome::success;
}

// The judge of one kind of call: any callable that returns an Opinion about a const T& (the result; std::monostate for
// void), about a const std::exception_ptr&, or about both, such as a Judge.
template <class T>
class CallJudge {
 public:
  CallJudge() noexcept = default;
  template <class J>
    requires(!std::same_as<J, CallJudge>)
  CallJudge(J judge) {  // NOLINT(google-explicit-constructor): {.judge = result_if(...)}
    constexpr bool results = std::is_invocable_r_v<Opinion, J&, const T&>;
    constexpr bool exceptions = std::is_invocable_r_v<Opinion, J&, const std::exception_ptr&>;
    static_assert(
        results || exceptions,
        "a judge is called with what the call returns (const T&; std::monostate for void) or with a const "
        "std::exception_ptr&, and returns a bulkhead::Opinion");
    if constexpr (requires { judge == nullptr; })
      if (judge == nullptr) return;
    judge_ = [judge = std::move(judge)](
                 [[maybe_unused]] const T* result,
                 [[maybe_unused]] const std::exception_ptr* thrown) mutable -> Opinion {
      if constexpr (results)
        if (result) return judge(*result);
      if constexpr (exceptions)
        if (thrown) return judge(*thrown);
      return std::nullopt;
    };
  }

  explicit operator bool() const noexcept { return static_cast<bool>(judge_); }
  Opinion of_result(const T& result) const { return judge_ ? judge_(&result, nullptr) : std::nullopt; }
  Opinion of_exception(const std::exception_ptr& thrown) const {
    return judge_ ? judge_(nullptr, &thrown) : std::nullopt;
  }

 private:
  std::function<Opinion(const T*, const std::exception_ptr*)> judge_;
};

}  // namespace bulkhead
