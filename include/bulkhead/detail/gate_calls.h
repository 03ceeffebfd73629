// gate_calls.h - the templates of gate.h: run, co_acquire, async_acquire.
#pragma once

#include <new>

#include "bulkhead/async_acquire.h"
#include "bulkhead/detail/block_pool.h"
#include "bulkhead/gate.h"

namespace bulkhead {
namespace detail {

// Around a handler that may do anything, even destroy the gate: keeps other threads from destroying it
// meanwhile, and remembers if this thread did.
class Frame {
 public:
  explicit Frame(Gate& gate) noexcept;
  ~Frame();
  Frame(const Frame&) = delete;
  Frame& operator=(const Frame&) = delete;
  void count_hook_error() noexcept;

  // For the destructor of a gate: how many frames of this thread are inside it; they forget it.
  static std::uint32_t forget(const Gate& gate) noexcept;

 private:
  Gate* gate_;
  Frame* outer_;
};

template <class H>
void call_handler(Frame& frame, H& handler, Result<Permit> result) noexcept {
#if defined(__cpp_exceptions)
  try {
    handler(std::move(result));
  } catch (...) {
    frame.count_hook_error();
  }
#else
  static_cast<void>(frame);
  handler(std::move(result));
#endif
}

template <class H>
class HandlerAcquire final : public AsyncAcquire {
 public:
  static void launch(Gate& gate, AcquireOptions options, H handler) {
    static_assert(alignof(HandlerAcquire) <= alignof(std::max_align_t),
                  "over-aligned handlers are not supported");
    void* block = take_block(sizeof(HandlerAcquire));
    auto* op = new (block) HandlerAcquire(gate, std::move(options), std::move(handler));
    if (op->start(op->watch_.options())) op->on_decided();
  }

 private:
  HandlerAcquire(Gate& gate, AcquireOptions options, H handler)
      : AsyncAcquire(gate, &watch_), watch_(std::move(options)), handler_(std::move(handler)) {}
  ~HandlerAcquire() override = default;

  void on_decided() noexcept override {
    Frame frame(gate());  // before result(), which ends this operation's own claim on the gate
    Result<Permit> decided = result();
    H handler = std::move(handler_);
    this->~HandlerAcquire();
    give_block(this, sizeof(HandlerAcquire));
    call_handler(frame, handler, std::move(decided));
  }

  AcquireWatch watch_;
  H handler_;
};

// What co_acquire returns. It lives in the coroutine's frame, and so does its place in line.
class [[nodiscard]] CoAcquire final : public AsyncAcquire {
 public:
  CoAcquire(Gate& gate, AcquireOptions options) noexcept
      : AsyncAcquire(gate, &watch_), watch_(std::move(options)) {}
  ~CoAcquire() override = default;

  bool await_ready() const noexcept { return false; }
  bool await_suspend(std::coroutine_handle<> coroutine) noexcept {
    coroutine_ = coroutine;
    return !start(watch_.options());
  }
  Result<Permit> await_resume() noexcept { return result(); }

 private:
  void on_decided() noexcept override { coroutine_.resume(); }

  AcquireWatch watch_;
  std::coroutine_handle<> coroutine_;
};

// A reference cannot be put into a Result: it travels as a reference_wrapper.
template <class R>
using Lifted =
    std::conditional_t<std::is_reference_v<R>, std::reference_wrapper<std::remove_reference_t<R>>, R>;

// Fires when either of two tokens does.
class EitherStop {
 public:
  EitherStop(const std::stop_token& one, std::stop_token other) {
    if (!other.stop_possible()) {
      token_ = one;
    } else if (!one.stop_possible()) {
      token_ = std::move(other);
    } else {
      std::stop_source both;
      token_ = both.get_token();
      one_.emplace(one, Forward{both});
      other_.emplace(std::move(other), Forward{std::move(both)});
    }
  }
  std::stop_token token() const noexcept { return token_; }

 private:
  struct Forward {
    std::stop_source to;
    void operator()() noexcept { to.request_stop(); }
  };
  std::stop_token token_;
  std::optional<std::stop_callback<Forward>> one_, other_;
};

template <class F>
decltype(auto) call_protected(F&& fn, const std::stop_token& stop, Permit& permit) {
  if constexpr (std::is_invocable_v<F, Permit&>)
    return std::forward<F>(fn)(permit);
  else if constexpr (std::is_invocable_v<F, std::stop_token>)
    return std::forward<F>(fn)(EitherStop(stop, permit.stop_token()).token());
  else
    return std::forward<F>(fn)();
}

// Marks the permit as failed if the call leaves by an exception.
struct FailUnlessReturned {
  Permit& permit;
  bool returned = false;
  ~FailUnlessReturned() {
    if (!returned) permit.fail();
  }
};

}  // namespace detail

inline auto Gate::co_acquire(AcquireOptions options) { return detail::CoAcquire(*this, std::move(options)); }

template <class H>
void Gate::async_acquire(AcquireOptions options, H handler) {
  static_assert(std::is_invocable_v<H&, Result<Permit>>, "the handler is called with a Result<Permit>");
  if (auto decided = at_once(options)) {
    detail::Frame frame(*this);
    detail::call_handler(frame, handler, *std::move(decided));
  } else {
    detail::HandlerAcquire<H>::launch(*this, std::move(options), std::move(handler));
  }
}

template <class F>
auto Gate::run(F&& fn, const AcquireOptions& options) {
  using R = decltype(detail::call_protected(std::forward<F>(fn), options.stop, std::declval<Permit&>()));
  using Lifted = detail::Lifted<R>;
  Result<Permit> permit = acquire(options);
  if (!permit) return Result<Lifted>(std::unexpect, permit.error());
  detail::FailUnlessReturned guard{*permit};
  if constexpr (std::is_void_v<R>) {
    detail::call_protected(std::forward<F>(fn), options.stop, *permit);
    guard.returned = true;
    return Result<Lifted>();
  } else {
    Result<Lifted> result(std::in_place, detail::call_protected(std::forward<F>(fn), options.stop, *permit));
    guard.returned = true;
    return result;
  }
}

}  // namespace bulkhead
