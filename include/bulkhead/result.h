// result.h - a value, or the error that explains why there is none.
//
//   bulkhead::Result<int> rows = db.run([] { return query(); });
//   if (!rows) return reply(503, rows.error().message());
//   use(*rows);
//
// The interface is that of std::expected, which C++20 does not have: has_value, *, ->, value, error, value_or, and_then,
// transform, or_else, transform_error, swap, ==. Where the standard library has std::expected, a Result converts to and from it.
// One difference: a Result of another type is converted, value to value and error to error, also where T could hold it as it
// is (bool, std::any), so that a rejection never becomes a value.
// Layout and behaviour do not depend on the language version, so one built library serves C++20 and C++23.
// The error is a Rejection unless a second type is named: Result<Connection, std::string>.
//
// Promises: a Result always holds a value or an error, also when an assignment throws. value() without a value throws BadResult
//   (and aborts without exceptions); * and -> without one are undefined, as in std::expected.
// Ignoring a Result is a compiler warning: an ignored rejection is a call that runs unprotected.
#pragma once

#include <concepts>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <version>
#if defined(__cpp_lib_expected)
#include <expected>
#endif

#include "bulkhead/rejection.h"

namespace bulkhead {

// Names the second alternative in a constructor: Result<int>(unexpect, rejection).
struct unexpect_t {
  explicit unexpect_t() = default;
};
inline constexpr unexpect_t unexpect{};

// An error on its way into a Result: `return Unexpected(rejection);`.
template <class E>
class Unexpected {
 public:
  template <class G = E>
    requires(!std::same_as<std::remove_cvref_t<G>, Unexpected> && std::constructible_from<E, G>)
  constexpr explicit Unexpected(G&& error) : error_(std::forward<G>(error)) {}

  constexpr const E& error() const& noexcept { return error_; }
  constexpr E& error() & noexcept { return error_; }
  constexpr E&& error() && noexcept { return std::move(error_); }

 private:
  E error_;
};
template <class E>
Unexpected(E) -> Unexpected<E>;
Unexpected(const char*) -> Unexpected<std::string>;

// What value() throws. rejection() is what the Result held, if that was a Rejection.
class BadResult : public std::runtime_error {
 public:
  explicit BadResult(const std::string& what) : std::runtime_error(what) {}
  explicit BadResult(const Rejection& rejection)
      : std::runtime_error(rejection.message()), rejection_(rejection) {}
  const Rejection* rejection() const noexcept { return rejection_ ? &*rejection_ : nullptr; }

 private:
  std::optional<Rejection> rejection_;
};

template <class T, class E = Rejection>
class Result;

namespace detail {

struct NoValue {};  // what a Result<void> stores
// Result(MakeError(), f) holds the error that f() returns, built in its place: the gate rejects without copying.
struct MakeError {};
struct MakeValue {};  // the same for the value

template <class T>
inline constexpr bool is_result = false;
template <class T, class E>
inline constexpr bool is_result<Result<T, E>> = true;
template <class T>
inline constexpr bool is_expected = false;
template <class T>
inline constexpr bool is_unexpected = false;
template <class E>
inline constexpr bool is_unexpected<Unexpected<E>> = true;
#if defined(__cpp_lib_expected)
template <class T, class E>
inline constexpr bool is_expected<std::expected<T, E>> = true;
template <class E>
inline constexpr bool is_unexpected<std::unexpected<E>> = true;
#endif

[[noreturn]] void throw_bad_result(const Rejection& rejection);
[[noreturn]] void throw_bad_result(std::string_view what);
template <class E>
[[noreturn]] void bad_result(const E& error) {
  if constexpr (std::same_as<E, Rejection> || std::convertible_to<const E&, std::string_view>)
    throw_bad_result(error);
  else if constexpr (requires {
                       { error.message() } -> std::convertible_to<std::string_view>;
                     })
    throw_bad_result(error.message());
  else
    throw_bad_result("a Result holds an error, not a value");
}

}  // namespace detail

template <class T, class E>
class [[nodiscard]] Result {
  static_assert(!std::is_reference_v<T>, "a Result holds no reference: use std::reference_wrapper");
  static_assert(std::is_nothrow_move_constructible_v<E>,
                "an error must move without throwing, so that a Result is never empty");
  static constexpr bool kVoid = std::is_void_v<T>;
  using Stored = std::conditional_t<kVoid, detail::NoValue, T>;
  // A U that becomes the value: not another Result, which may hold an error.
  template <class U, class Plain = std::remove_cvref_t<U>>
  static constexpr bool converts_from =
      !kVoid && !std::same_as<Plain, Result> && !std::same_as<Plain, std::in_place_t> &&
      !detail::is_unexpected<Plain> &&
      (std::same_as<Plain, Stored> || (!detail::is_result<Plain> && !detail::is_expected<Plain>)) &&
      std::is_constructible_v<Stored, U>;
  // A Result or std::expected, Other, of a U or a G.
  template <class Other, class U, class G>
  static constexpr bool converts_both =
      !std::same_as<Other, Result> && !std::same_as<Other, Stored> && std::is_constructible_v<E, G> &&
      std::is_void_v<U> == kVoid && (kVoid || std::is_constructible_v<Stored, U>);
  template <class U, class G>
  static constexpr bool converts_implicitly =
      std::is_convertible_v<G, E> && (kVoid || std::is_convertible_v<U, Stored>);
  static constexpr bool kCopies = std::is_copy_constructible_v<Stored> && std::is_copy_constructible_v<E>;
  static constexpr bool kTrivialCopy =
      std::is_trivially_copy_constructible_v<Stored> && std::is_trivially_copy_constructible_v<E>;
  static constexpr bool kTrivialMove =
      std::is_trivially_move_constructible_v<Stored> && std::is_trivially_move_constructible_v<E>;
  static constexpr bool kTrivialEnd =
      std::is_trivially_destructible_v<Stored> && std::is_trivially_destructible_v<E>;
  static constexpr bool kTrivialCopyAssign = kTrivialCopy && kTrivialEnd &&
                                             std::is_trivially_copy_assignable_v<Stored> &&
                                             std::is_trivially_copy_assignable_v<E>;
  static constexpr bool kTrivialMoveAssign = kTrivialMove && kTrivialEnd &&
                                             std::is_trivially_move_assignable_v<Stored> &&
                                             std::is_trivially_move_assignable_v<E>;

 public:
  using value_type = T;
  using error_type = E;
  using unexpected_type = Unexpected<E>;

  constexpr Result() noexcept(std::is_nothrow_default_constructible_v<Stored>)
    requires std::is_default_constructible_v<Stored>
      : value_(), has_value_(true) {}
  template <class U = Stored>
    requires converts_from<U>
  constexpr explicit(!std::is_convertible_v<U, Stored>) Result(U&& value)  // NOLINT: as std::expected
      : value_(std::forward<U>(value)), has_value_(true) {}
  template <class... Args>
    requires std::is_constructible_v<Stored, Args...>
  constexpr explicit Result(std::in_place_t, Args&&... args)
      : value_(std::forward<Args>(args)...), has_value_(true) {}
  template <class... Args>
    requires std::is_constructible_v<E, Args...>
  constexpr explicit Result(unexpect_t, Args&&... args)
      : error_(std::forward<Args>(args)...), has_value_(false) {}
  template <class F>
  constexpr Result(detail::MakeError, F&& make) : error_(make()), has_value_(false) {}
  template <class F>
  constexpr Result(detail::MakeValue, F&& make) : value_(make()), has_value_(true) {}
  template <class G>
    requires std::constructible_from<E, G>
  constexpr Result(Unexpected<G> unexpected)  // NOLINT: `return Unexpected(error);`
      : error_(std::move(unexpected).error()), has_value_(false) {}
  template <class U, class G>
    requires converts_both<Result<U, G>, U, G>
  constexpr explicit(!converts_implicitly<U, G>) Result(Result<U, G> other) {
    take(std::move(other));
  }
#if defined(__cpp_lib_expected)
  template <class... Args>
    requires std::is_constructible_v<E, Args...>
  constexpr explicit Result(std::unexpect_t, Args&&... args)
      : Result(unexpect, std::forward<Args>(args)...) {}
  template <class G>
    requires std::constructible_from<E, G>
  constexpr Result(std::unexpected<G> unexpected)  // NOLINT: implicit on purpose
      : Result(unexpect, std::move(unexpected).error()) {}
  // A template, so that no argument is converted to std::expected first. Otherwise a Result that cannot be copied would be
  // constructible from itself by way of std::expected.
  template <class U, class G>
    requires converts_both<std::expected<U, G>, U, G>
  constexpr explicit(!converts_implicitly<U, G>) Result(std::expected<U, G> other) {
    take(std::move(other));
  }
  constexpr operator std::expected<T, E>() const&  // NOLINT: implicit on purpose
    requires kCopies
  {
    return expected(*this);
  }
  constexpr operator std::expected<T, E>() &&  // NOLINT: implicit on purpose
    requires std::is_move_constructible_v<Stored>
  {
    return expected(std::move(*this));
  }
#endif

  constexpr Result(const Result&)
    requires kTrivialCopy
  = default;
  constexpr Result(const Result& other)
    requires(kCopies && !kTrivialCopy)
  {
    if (other.has_value_)
      fill(other.value_);
    else
      fail(other.error_);
  }
  constexpr Result(Result&&)
    requires kTrivialMove
  = default;
  constexpr Result(Result&& other) noexcept(std::is_nothrow_move_constructible_v<Stored>)
    requires(std::is_move_constructible_v<Stored> && !kTrivialMove)
  {
    if (other.has_value_)
      fill(std::move(other.value_));
    else
      fail(std::move(other.error_));
  }
  constexpr Result& operator=(const Result&)
    requires kTrivialCopyAssign
  = default;
  constexpr Result& operator=(const Result& other)
    requires(kCopies && !kTrivialCopyAssign)
  {
    return *this = Result(other);
  }
  constexpr Result& operator=(Result&&)
    requires kTrivialMoveAssign
  = default;
  constexpr Result& operator=(Result&& other) noexcept(std::is_nothrow_move_constructible_v<Stored>)
    requires(std::is_move_constructible_v<Stored> && !kTrivialMoveAssign)
  {
    if (this != &other) {
      if (other.has_value_)
        become_value(std::move(other.value_));
      else
        become_error(std::move(other.error_));
    }
    return *this;
  }
  template <class U = Stored>
    requires(converts_from<U> && std::is_assignable_v<Stored&, U>)
  constexpr Result& operator=(U&& value) {
    become_value(std::forward<U>(value));
    return *this;
  }
  template <class G>
    requires std::constructible_from<E, G>
  constexpr Result& operator=(Unexpected<G> unexpected) {
    become_error(std::move(unexpected).error());
    return *this;
  }
  constexpr ~Result() { clear(); }
  constexpr ~Result()
    requires kTrivialEnd
  = default;

  template <class... Args>
    requires std::is_nothrow_constructible_v<Stored, Args...>
  constexpr Stored& emplace(Args&&... args) noexcept {
    clear();
    fill(std::forward<Args>(args)...);
    return value_;
  }
  constexpr void swap(Result& other) noexcept(std::is_nothrow_move_constructible_v<Stored>)
    requires std::is_move_constructible_v<Stored>
  {
    Result mine = std::move(*this);
    *this = std::move(other);
    other = std::move(mine);
  }
  friend constexpr void swap(Result& a, Result& b) noexcept(noexcept(a.swap(b)))
    requires std::is_move_constructible_v<Stored>
  {
    a.swap(b);
  }

  constexpr bool has_value() const noexcept { return has_value_; }
  constexpr explicit operator bool() const noexcept { return has_value_; }

  constexpr decltype(auto) operator*() const& noexcept { return get(*this); }
  constexpr decltype(auto) operator*() & noexcept { return get(*this); }
  constexpr decltype(auto) operator*() const&& noexcept { return get(std::move(*this)); }
  constexpr decltype(auto) operator*() && noexcept { return get(std::move(*this)); }
  constexpr const Stored* operator->() const noexcept
    requires(!kVoid)
  {
    return std::addressof(value_);
  }
  constexpr Stored* operator->() noexcept
    requires(!kVoid)
  {
    return std::addressof(value_);
  }
  constexpr decltype(auto) value() const& { return checked(*this); }
  constexpr decltype(auto) value() & { return checked(*this); }
  constexpr decltype(auto) value() && { return checked(std::move(*this)); }

  constexpr const E& error() const& noexcept { return error_; }
  constexpr E& error() & noexcept { return error_; }
  constexpr E&& error() && noexcept { return std::move(error_); }
  constexpr const E&& error() const&& noexcept { return std::move(error_); }

  template <class U>
    requires(!kVoid)
  constexpr Stored value_or(U&& otherwise) const& {
    return has_value_ ? value_ : static_cast<Stored>(std::forward<U>(otherwise));
  }
  template <class U>
    requires(!kVoid)
  constexpr Stored value_or(U&& otherwise) && {
    return has_value_ ? std::move(value_) : static_cast<Stored>(std::forward<U>(otherwise));
  }
  template <class G = E>
  constexpr E error_or(G&& otherwise) const& {
    return has_value_ ? static_cast<E>(std::forward<G>(otherwise)) : error_;
  }

  // f(value) gives another Result with the same error type.
  template <class F>
  constexpr auto and_then(F&& f) const& {
    return then(*this, std::forward<F>(f));
  }
  template <class F>
  constexpr auto and_then(F&& f) & {
    return then(*this, std::forward<F>(f));
  }
  template <class F>
  constexpr auto and_then(F&& f) && {
    return then(std::move(*this), std::forward<F>(f));
  }
  // f(value) gives a new value.
  template <class F>
  constexpr auto transform(F&& f) const& {
    return map(*this, std::forward<F>(f));
  }
  template <class F>
  constexpr auto transform(F&& f) & {
    return map(*this, std::forward<F>(f));
  }
  template <class F>
  constexpr auto transform(F&& f) && {
    return map(std::move(*this), std::forward<F>(f));
  }
  // f(error) gives another Result with the same value type.
  template <class F>
  constexpr auto or_else(F&& f) const& {
    return otherwise(*this, std::forward<F>(f));
  }
  template <class F>
  constexpr auto or_else(F&& f) & {
    return otherwise(*this, std::forward<F>(f));
  }
  template <class F>
  constexpr auto or_else(F&& f) && {
    return otherwise(std::move(*this), std::forward<F>(f));
  }
  // f(error) gives a new error.
  template <class F>
  constexpr auto transform_error(F&& f) const& {
    return map_error(*this, std::forward<F>(f));
  }
  template <class F>
  constexpr auto transform_error(F&& f) & {
    return map_error(*this, std::forward<F>(f));
  }
  template <class F>
  constexpr auto transform_error(F&& f) && {
    return map_error(std::move(*this), std::forward<F>(f));
  }

  template <class U, class G>
    requires(std::is_void_v<U> == kVoid)
  friend constexpr bool operator==(const Result& a, const Result<U, G>& b) {
    if (a.has_value() != b.has_value()) return false;
    if (!a) return a.error() == b.error();
    if constexpr (kVoid)
      return true;
    else
      return *a == *b;
  }
  template <class U>
    requires(!kVoid && !detail::is_result<U> && !detail::is_expected<U> && !detail::is_unexpected<U>)
  friend constexpr bool operator==(const Result& a, const U& b) {
    return a.has_value() && *a == b;
  }
  template <class G>
  friend constexpr bool operator==(const Result& a, const Unexpected<G>& b) {
    return !a.has_value() && a.error() == b.error();
  }
#if defined(__cpp_lib_expected)
  template <class G>
  friend constexpr bool operator==(const Result& a, const std::unexpected<G>& b) {
    return !a.has_value() && a.error() == b.error();
  }
  // Both orders: std::expected would compare its value with a Result.
  friend constexpr bool operator==(const Result& a, const std::expected<T, E>& b) {
    if (a.has_value() != b.has_value()) return false;
    if (!a) return a.error() == b.error();
    if constexpr (kVoid)
      return true;
    else
      return *a == *b;
  }
  friend constexpr bool operator==(const std::expected<T, E>& a, const Result& b) { return b == a; }
#endif

 private:
  template <class Self>
  static constexpr decltype(auto) get(Self&& self) noexcept {
    if constexpr (kVoid)
      return;
    else
      return (std::forward<Self>(self).value_);
  }
  template <class Self>
  static constexpr decltype(auto) checked(Self&& self) {
    if (!self.has_value_) [[unlikely]]
      detail::bad_result(self.error_);
    return get(std::forward<Self>(self));
  }
  template <class F, class Self>
  static constexpr decltype(auto) call(F&& f, Self&& self) {
    if constexpr (kVoid)
      return std::invoke(std::forward<F>(f));
    else
      return std::invoke(std::forward<F>(f), std::forward<Self>(self).value_);
  }
  template <class Self, class F>
  static constexpr auto then(Self&& self, F&& f) {
    using Next = std::remove_cvref_t<decltype(call(std::forward<F>(f), std::forward<Self>(self)))>;
    static_assert(detail::is_result<Next>, "and_then takes a function that returns a Result");
    if (!self.has_value_) return Next(unexpect, std::forward<Self>(self).error_);
    return Next(call(std::forward<F>(f), std::forward<Self>(self)));
  }
  template <class Self, class F>
  static constexpr auto map(Self&& self, F&& f) {
    using Next = std::remove_cv_t<decltype(call(std::forward<F>(f), std::forward<Self>(self)))>;
    if (!self.has_value_) return Result<Next, E>(unexpect, std::forward<Self>(self).error_);
    if constexpr (std::is_void_v<Next>) {
      call(std::forward<F>(f), std::forward<Self>(self));
      return Result<Next, E>();
    } else {
      return Result<Next, E>(detail::MakeValue(),
                             [&]() -> Next { return call(std::forward<F>(f), std::forward<Self>(self)); });
    }
  }
  template <class Self, class F>
  static constexpr auto otherwise(Self&& self, F&& f) {
    using Next = std::remove_cvref_t<std::invoke_result_t<F, decltype(std::forward<Self>(self).error())>>;
    static_assert(detail::is_result<Next>, "or_else takes a function that returns a Result");
    if (!self.has_value_) return Next(std::invoke(std::forward<F>(f), std::forward<Self>(self).error()));
    if constexpr (kVoid)
      return Next();
    else
      return Next(std::in_place, std::forward<Self>(self).value_);
  }
  template <class Self, class F>
  static constexpr auto map_error(Self&& self, F&& f) {
    using G = std::remove_cvref_t<std::invoke_result_t<F, decltype(std::forward<Self>(self).error())>>;
    if (!self.has_value_)
      return Result<T, G>(unexpect, std::invoke(std::forward<F>(f), std::forward<Self>(self).error()));
    if constexpr (kVoid)
      return Result<T, G>();
    else
      return Result<T, G>(std::in_place, std::forward<Self>(self).value_);
  }
#if defined(__cpp_lib_expected)
  template <class Self>
  static constexpr std::expected<T, E> expected(Self&& self) {
    if (!self.has_value_) return std::expected<T, E>(std::unexpect, std::forward<Self>(self).error_);
    if constexpr (kVoid)
      return {};
    else
      return std::expected<T, E>(std::in_place, std::forward<Self>(self).value_);
  }
#endif

  // Of storage that holds neither alternative.
  template <class... Args>
  constexpr void fill(Args&&... args) {
    std::construct_at(std::addressof(value_), std::forward<Args>(args)...);
    has_value_ = true;
  }
  template <class G>
  constexpr void fail(G&& error) {
    std::construct_at(std::addressof(error_), std::forward<G>(error));
    has_value_ = false;
  }
  template <class Other>
  constexpr void take(Other&& other) {
    if (!other)
      fail(std::forward<Other>(other).error());
    else if constexpr (kVoid)
      fill();
    else
      fill(*std::forward<Other>(other));
  }
  constexpr void clear() noexcept {
    if (has_value_)
      std::destroy_at(std::addressof(value_));
    else
      std::destroy_at(std::addressof(error_));
  }
  // The new value is made before the old alternative goes: what throws here leaves the Result as it was.
  template <class U>
  constexpr void become_value(U&& value) {
    Stored made(std::forward<U>(value));
    if (has_value_) {
      if constexpr (std::is_nothrow_move_constructible_v<Stored>) {
        std::destroy_at(std::addressof(value_));
        std::construct_at(std::addressof(value_), std::move(made));
      } else {
        value_ = std::move(made);
      }
      return;
    }
    if constexpr (std::is_nothrow_move_constructible_v<Stored>) {
      std::destroy_at(std::addressof(error_));
      fill(std::move(made));
    } else {
      Restore restore(*this);
      fill(std::move(made));
      restore.done = true;
    }
  }
  template <class G>
  constexpr void become_error(G&& error) {
    E made(std::forward<G>(error));
    clear();
    fail(std::move(made));
  }
  // Puts the error back if the value that is to replace it throws while it is moved in.
  struct Restore {
    Result& self;
    E error;
    bool done = false;
    constexpr explicit Restore(Result& result) : self(result), error(std::move(result.error_)) {
      std::destroy_at(std::addressof(self.error_));
    }
    Restore(const Restore&) = delete;
    Restore& operator=(const Restore&) = delete;
    constexpr ~Restore() {
      if (!done) self.fail(std::move(error));
    }
  };

  union {
    Stored value_;
    E error_;
  };
  bool has_value_;
};

}  // namespace bulkhead
