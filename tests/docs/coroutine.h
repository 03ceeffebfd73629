// coroutine.h - the smallest coroutine, for examples that co_await: no event loop, anything can be awaited.
#pragma once

#include <coroutine>
#include <exception>

struct Coroutine {
  struct promise_type {
    Coroutine get_return_object() noexcept { return {}; }
    std::suspend_never initial_suspend() noexcept { return {}; }
    std::suspend_never final_suspend() noexcept { return {}; }
    void return_void() noexcept {}
    void unhandled_exception() noexcept { std::terminate(); }
  };
};
