// judge.h - what counts as a failure: small predicates over results and exceptions, joined with |.
//
//   const auto judge = bulkhead::exception_is<NotFound>(bulkhead::CallVerdict::ignored) |
//                      bulkhead::result_if([](const Reply& r) { return r.status >= 500; });
//   breaker.run([&] { return fetch(); }, judge);
//
// A judge looks at a result or at an exception and has a verdict, or no opinion; in a | b the first
// opinion counts. Where nobody has one, an exception is a failure, an error in a std::expected is a
// failure, a Rejection in one is ignored (it was refused here, and says nothing about the remote), all
// else is success.
// Threads: a judge is a value; it is called by whichever thread made the call, so its predicates must not
//   share state carelessly. A judge must not throw: what it throws leaves the call without a verdict.
// Cost: a result is one call of the predicate. An exception is thrown again once for each type asked for.
#pragma once

#include <concepts>
#include <cstdint>
#include <exception>
#include <expected>
#include <optional>
#include <string_view>
#include <type_traits>
#include <utility>

#include "bulkhead/rejection.h"

namespace bulkhead {

enum class CallVerdict : std::uint8_t {
  success,
  failure,
  ignored,  // decides nothing: cancelled, refused by us, the caller's own mistake
};

constexpr std::string_view to_string(CallVerdict verdict) noexcept {
  return verdict == CallVerdict::success   ? "success"
         : verdict == CallVerdict::failure ? "failure"
                                           : "ignored";
}

using Opinion = std::optional<CallVerdict>;

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

template <class T>
struct IsExpected : std::false_type {};
template <class T, class E>
struct IsExpected<std::expected<T, E>> : std::true_type {};

}  // namespace detail

// Exceptions of one of these types, or derived from them.
template <class... E>
constexpr auto exception_is(CallVerdict verdict) {
  return Judge([verdict](const std::exception_ptr& e) -> Opinion {
    if ((detail::caught<E>(e, [](const E&) { return true; }) || ...)) return verdict;
    return std::nullopt;
  });
}

// Exceptions of type E for which pred(const E&) holds.
template <class E, class P>
constexpr auto exception_if(P pred, CallVerdict verdict = CallVerdict::failure) {
  return Judge([pred = std::move(pred), verdict](const std::exception_ptr& e) -> Opinion {
    if (detail::caught<E>(e, pred)) return verdict;
    return std::nullopt;
  });
}

// Results for which pred(const T&) holds; no opinion on types that pred does not take.
template <class P>
constexpr auto result_if(P pred, CallVerdict verdict = CallVerdict::failure) {
  return Judge([pred = std::move(pred), verdict]<class T>(const T& result) -> Opinion
                 requires(!std::same_as<T, std::exception_ptr> && std::predicate<const P&, const T&>)
               {
                 if (pred(result)) return verdict;
                 return std::nullopt;
               });
}

template <class F>
CallVerdict judge_exception(const Judge<F>& judge, const std::exception_ptr& exception) {
  return judge(exception).value_or(CallVerdict::failure);
}

template <class F, class T>
CallVerdict judge_result(const Judge<F>& judge, const T& result) {
  if (const Opinion opinion = judge(result)) return *opinion;
  if constexpr (detail::IsExpected<T>::value) {
    if (result.has_value()) return CallVerdict::success;
    if constexpr (std::same_as<typename T::error_type, Rejection>) return CallVerdict::ignored;
    return CallVerdict::failure;
  }
  return CallVerdict::success;
}

}  // namespace bulkhead
