// gate_calls.h - the templates of gate.h: run, co_acquire, async_acquire.
#pragma once

#include <new>

#include "bulkhead/async_acquire.h"
#include "bulkhead/detail/block_pool.h"
#include "bulkhead/gate.h"

namespace bulkhead {
namespace detail {

// Surrounds a handler, which may even destroy the gate: other threads cannot destroy the gate meanwhile, and the frame
// notices if this thread does.
class Frame {
 public:
  explicit Frame(Gate& gate) noexcept;
  ~Frame();
  Frame(const Frame&) = delete;
  Frame& operator=(const Frame&) = delete;
  void count_hook_error() noexcept;

  // For the destructor of a gate: returns how many frames of this thread use the gate, and detaches them.
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
  // False: no memory, and `handler` is unchanged.
  static bool launch(Gate& gate, AcquireOptions& options, H& handler) {
    static_assert(alignof(HandlerAcquire) <= alignof(std::max_align_t),
                  "over-aligned handlers are not supported");
    Block block{try_take_block(sizeof(HandlerAcquire))};
    if (!block.address) return false;
    auto* op = new (block.address) HandlerAcquire(gate, std::move(options), std::move(handler));
    block.address = nullptr;
    if (op->start(op->watch_.options())) op->on_decided();
    return true;
  }

 private:
  struct Block {  // given back if the handler's move constructor throws
    void* address;
    ~Block() {
      if (address) give_block(address, sizeof(HandlerAcquire));
    }
  };

  HandlerAcquire(Gate& gate, AcquireOptions options, H handler)
      : AsyncAcquire(gate, &watch_), watch_(std::move(options)), handler_(std::move(handler)) {}
  ~HandlerAcquire() override = default;

  void on_decided() noexcept override {
    Frame frame(gate());  // before result(), which removes this operation's own pin
    Result<Permit> decided = result();
    H handler = std::move(handler_);
    this->~HandlerAcquire();
    give_block(this, sizeof(HandlerAcquire));
    call_handler(frame, handler, std::move(decided));
  }

  AcquireWatch watch_;
  H handler_;
};

// For coroutines that await only operations of their event loop: turns co_acquire() into such an operation, by
// bulkhead::async_acquire of adapters/asio/async_acquire.h. Without that header it does not compile.
template <class Owner, class Token>
auto on_event_loop(Owner& owner, AcquireOptions options, Token&& token)
    -> decltype(async_acquire(owner, std::move(options), std::forward<Token>(token))) {
  return async_acquire(owner, std::move(options), std::forward<Token>(token));
}

// The awaitable of co_acquire. It is in the coroutine's frame, and so is the waiter.
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

  template <class Token>
  auto operator()(Token&& token) && -> decltype(on_event_loop(std::declval<Gate&>(), AcquireOptions(),
                                                              std::forward<Token>(token))) {
    return on_event_loop(gate(), watch_.options(), std::forward<Token>(token));
  }

 private:
  void on_decided() noexcept override { coroutine_.resume(); }

  AcquireWatch watch_;
  std::coroutine_handle<> coroutine_;
};

// A Result cannot hold a reference, so it holds a reference_wrapper.
template <class R>
using Lifted =
    std::conditional_t<std::is_reference_v<R>, std::reference_wrapper<std::remove_reference_t<R>>, R>;

// A token that fires when either of two tokens fires; without memory for it, the token `one`.
class EitherStop {
 public:
  EitherStop(const std::stop_token& one, std::stop_token other);
  std::stop_token token() const noexcept { return token_; }

 private:
  struct Forward {
    std::stop_source to;
    void operator()() noexcept { std::stop_source(to).request_stop(); }  // a copy: this may end inside
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

// Marks the permit as failed if the call throws.
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
  } else if (!detail::HandlerAcquire<H>::launch(*this, options, handler)) {
    detail::Frame frame(*this);
    const Rejection no_place = reject(options.priority, Reason::queue_limit);
    detail::call_handler(frame, handler, Result<Permit>(unexpect, no_place));
  }
}

// The guard marks the permit as failed on every path that does not reach its end.
template <class F>
auto Gate::run(F&& fn, const AcquireOptions& options) {
  using R = decltype(detail::call_protected(std::forward<F>(fn), options.stop, std::declval<Permit&>()));
  using Lifted = detail::Lifted<R>;
  Result<Permit> permit = acquire(options);
  if (!permit) return Result<Lifted>(unexpect, permit.error());
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
