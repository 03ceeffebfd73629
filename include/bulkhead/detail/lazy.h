// lazy.h - the return type of the library's coroutines: starts when it is awaited, and resumes the awaiting coroutine when
// it ends. Not for direct use.
#pragma once

#include "bulkhead/detail/language.h"

#include <coroutine>
#include <exception>
#include <optional>
#include <type_traits>
#include <utility>

namespace bulkhead::detail {

template <class T>
class [[nodiscard]] Lazy {
 public:
  struct promise_type {
    std::optional<T> value;
    std::exception_ptr thrown;
    std::coroutine_handle<> next;

    Lazy get_return_object() noexcept {
      return Lazy(std::coroutine_handle<promise_type>::from_promise(*this));
    }
    std::suspend_always initial_suspend() noexcept { return {}; }
    auto final_suspend() noexcept {
      struct GoOn {
        bool await_ready() const noexcept { return false; }
        std::coroutine_handle<> await_suspend(std::coroutine_handle<promise_type> self) noexcept {
          return self.promise().next;
        }
        void await_resume() const noexcept {}
      };
      return GoOn{};
    }
    template <class U>
    void return_value(U&& v) {
      value.emplace(std::forward<U>(v));
    }
    void unhandled_exception() noexcept { thrown = std::current_exception(); }
  };

  Lazy(Lazy&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Lazy& operator=(Lazy&&) = delete;
  ~Lazy() {
    if (handle_) handle_.destroy();
  }

  bool await_ready() const noexcept { return false; }
  std::coroutine_handle<> await_suspend(std::coroutine_handle<> awaiting) noexcept {
    handle_.promise().next = awaiting;
    return handle_;
  }
  T await_resume() {
    promise_type& p = handle_.promise();
    if (p.thrown) std::rethrow_exception(std::move(p.thrown));
    return *std::move(p.value);
  }

 private:
  explicit Lazy(std::coroutine_handle<promise_type> handle) noexcept : handle_(handle) {}
  std::coroutine_handle<promise_type> handle_;
};

// What can be awaited: an awaiter, or a type with operator co_await.
template <class T>
concept Awaiter = requires(T& t) {
  { t.await_ready() } -> std::convertible_to<bool>;
  t.await_resume();
};
template <class T>
decltype(auto) awaiter_of(T&& t) {
  if constexpr (requires { std::forward<T>(t).operator co_await(); })
    return std::forward<T>(t).operator co_await();
  else if constexpr (requires { operator co_await(std::forward<T>(t)); })
    return operator co_await(std::forward<T>(t));
  else
    return std::forward<T>(t);
}
template <class T>
concept Awaitable = !std::is_void_v<T> && requires(T&& t) {
  { detail::awaiter_of(std::forward<T>(t)) } -> Awaiter;
};

template <class T>
struct Awaited {
  using type = T;
};
template <Awaitable T>
struct Awaited<T> {
  using type = std::remove_cvref_t<decltype(detail::awaiter_of(std::declval<T>()).await_resume())>;
};

}  // namespace bulkhead::detail
