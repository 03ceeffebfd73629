// bulkhead_calls.h - the templates of bulkhead.h: how each form of call waits. The stages are in call_path.h.
#pragma once

#include "bulkhead/bulkhead.h"
#include "bulkhead/detail/call_path.h"
#include "bulkhead/detail/decorated.h"
#include "bulkhead/detail/kept_options.h"

namespace bulkhead {
namespace detail {

// The handle must live as long as the call: made by callers of call_with().
struct NoHandle {
  explicit NoHandle(CallBody::Attempt&) noexcept {}
};
template <class F>
using HandleFor = std::conditional_t<takes_call<F>, RunningCallOf, NoHandle>;

template <class F>
decltype(auto) call_with(F& fn, CallBody::Attempt& attempt, HandleFor<F>& handle) {
  if constexpr (takes_stop<F>)
    return fn(attempt.stop());
  else if constexpr (takes_call<F>)
    return fn(static_cast<RunningCall&>(handle));
  else
    return fn();
}

// The result, the judge and the fallback of a call that returns R. The options must outlive it.
template <class R>
class CallBodyOf : public CallBody {
 public:
  explicit CallBodyOf(const CallOptions<R>& options)
      : CallBody(options.acquire(), options.execution_timeout), options_(&options) {}
  // A call without options has neither judge nor fallback.
  explicit CallBodyOf(std::source_location where) : CallBody({.where = where}, gate_default) {}

  void run(Attempt&) noexcept override {}  // a pool or a coroutine runs the call, and keeps what it gives

  template <class... Value>
  void returned(Value&&... value) {
    result_.emplace(std::in_place, std::forward<Value>(value)...);
    needs_judge = ValueOrError<detail::Judged<R>> || (options_ && options_->judge);
  }
  // Keeps what fn() returns or throws.
  template <class F>
  void keep(F&& fn) noexcept {
#if defined(__cpp_exceptions)
    try {
#endif
      if constexpr (std::is_void_v<R>)
        fn(), returned();
      else
        returned(fn());
#if defined(__cpp_exceptions)
    } catch (...) {
      thrown = std::current_exception();
    }
#endif
  }
  // Keeps the answer of a pool: a result, or why there is none.
  const Rejection* keep(Task<R>& task) noexcept {
#if defined(__cpp_exceptions)
    try {
#endif
      result_.emplace(task.get());
      return *result_ ? nullptr : &result_->error();
#if defined(__cpp_exceptions)
    } catch (...) {
      thrown = std::current_exception();
      return nullptr;
    }
#endif
  }

  // The judge of the call, else that of the bulkhead, else the usual outcome. What a judge throws goes to the caller,
  // and says nothing about the dependency.
  Judgement judge(const ExceptionJudge& common) noexcept override {
#if defined(__cpp_exceptions)
    try {
#endif
      if (const Opinion own = opinion(common)) return {*own, true};
#if defined(__cpp_exceptions)
    } catch (...) {
      thrown = std::current_exception();
      return {Outcome::ignored, true};
    }
#endif
    if (thrown) return {judge_exception(no_opinion, thrown), false};
    if constexpr (!std::is_void_v<R>) return {judge_result(no_opinion, **result_), false};
    return {Outcome::success, false};
  }
  void reject(const Rejection& why) noexcept override {
    thrown = nullptr;
    result_.emplace(unexpect, why);
  }
  bool has_fallback() const noexcept override { return options_ && options_->fallback; }
  void fall_back(const Cause& cause) noexcept override {
    keep([&]() -> R { return options_->fallback(cause); });
  }

  Ended<R> take() { return thrown ? Ended<R>(std::move(thrown)) : Ended<R>(*std::move(result_)); }
  Result<R> get() {
    if (thrown) std::rethrow_exception(std::move(thrown));
    return *std::move(result_);
  }

 private:
  Opinion opinion(const ExceptionJudge& common) const {
    if (thrown) {
      const Opinion own = options_ ? options_->judge.of_exception(thrown) : std::nullopt;
      return own || !common ? own : common(thrown);
    }
    if (!options_) return std::nullopt;
    if constexpr (std::is_void_v<R>)
      return options_->judge.of_result({});
    else
      return options_->judge.of_result(**result_);
  }

  const CallOptions<R>* options_ = nullptr;
  std::optional<Result<R>> result_;
};

// A call of `fn`, which must outlive it.
template <class R, class F>
class FunctionBody final : public CallBodyOf<R> {
 public:
  template <class Options>
  FunctionBody(F& fn, const Options& options) : CallBodyOf<R>(options), fn_(fn) {}
  void run(CallBody::Attempt& attempt) noexcept override {
    [[maybe_unused]] HandleFor<F> handle(attempt);
    this->keep([&]() -> R { return call_with(fn_, attempt, handle); });
  }

 private:
  F& fn_;
};

// A call that runs on a thread of the pool. The work takes fn along, because its caller may give up first.
template <class R, class F>
class PooledCall {
 public:
  PooledCall(CallPath& path, Call call) : path_(path), pin_(path), call_(std::move(call)) {}

  // The parameters of fn decide which form of work the pool gets.
  Task<R> submit(F fn, const CallBody& body) {
    const SubmitOptions options = path_.submission(call_, body);
    const bool faulty = path_.is_faulty(call_);
    const std::chrono::nanoseconds longest = path_.time_limit(body.execution_timeout);
    Work work{path_, path_.submitted(call_), times_, path_.take_hold(call_), faulty, longest, std::move(fn)};
    if constexpr (takes_call<F>)
      return path_.pool()->submit(
          [work = std::move(work)](std::stop_token stop, Permit& permit) mutable {
            return work.run(std::move(stop), permit);
          },
          options);
    else if constexpr (takes_stop<F>)
      return path_.pool()->submit(
          [work = std::move(work)](std::stop_token stop) mutable { return work.run(std::move(stop)); },
          options);
    else
      return path_.pool()->submit([work = std::move(work)]() mutable { return work.run(); }, options);
  }
  void end(Task<R>& task, CallBodyOf<R>& body) noexcept {
    const Rejection* const rejection = body.keep(task);
    path_.conclude_pooled(call_, body, *times_, rejection);
  }

 private:
  struct Work {
    CallPath& path;
    TimePoint submitted;
    std::shared_ptr<PooledTimes> times;
    BudgetHoldPtr budgets;  // back when the work has ended, also if its caller has given up
    bool faulty;
    std::chrono::nanoseconds longest;  // that it may run
    F fn;

    template <class... Args>
    R run(Args&&... args) {
      const TimePoint began = path.begin_pooled(*times, submitted);
      struct End {
        Work& work;
        TimePoint began;
        ~End() {
          work.path.end_pooled(*work.times, began);
          work.budgets.reset();
        }
      } end{*this, began};
      if (faulty) [[unlikely]]
        meet_fault(began);
      return call(std::forward<Args>(args)...);
    }
    // An error leaves by an exception, which end() replaces; without exceptions, calls of a pool are only delayed.
    void meet_fault(TimePoint began) {
      const Injected fault = path.injected(saturating_add(began, longest));
      path.sleep(fault.until);
#if defined(__cpp_exceptions)
      times->injected_error = fault.error;
      if (fault.error) throw fault;
#endif
    }
    R call() { return fn(); }
    R call(std::stop_token stop) { return fn(std::move(stop)); }
    R call(std::stop_token stop, Permit& permit) {
      RunningCallOf handle(permit, budgets.get(), std::move(stop));
      return fn(static_cast<RunningCall&>(handle));
    }
  };

  CallPath& path_;
  CallPath::Pin pin_;  // outlives the call
  Call call_;
  std::shared_ptr<PooledTimes> times_ = std::make_shared<PooledTimes>();
};

// On this thread, or on one of the pool while this one waits.
template <class R, class F, class Options>
Result<R> execute(CallPath& path, F&& fn, const Options& options) {
  using Fn = std::remove_reference_t<F>;
  FunctionBody<R, Fn> body(fn, options);
  if (!path.pool()) [[likely]] {
    path.execute(body);
  } else if (Call call; path.start(call, body)) {
    const CallPath::Pin pin(path);
    if (RejectionSlot why; !path.take_budgets(call, true, why)) {
      path.reject(body, *why);
    } else {
      PooledCall<R, std::decay_t<F>> pooled(path, std::move(call));
      Task<R> task = pooled.submit(std::forward<F>(fn), body);
      pooled.end(task, body);
    }
  }
  return body.get();
}

inline Lazy<bool> co_take_budgets(CallPath& path, Call& call, RejectionSlot& why) {
  while (path.waits_for_budget(call)) {
    auto acquiring =
        path.budget_gate(call).co_acquire(path.budget_options(call));  // named: see co_acquire_all
    if (!path.budget_answer(call, co_await acquiring, why)) co_return false;
  }
  co_return true;
}
inline Lazy<bool> co_take_budgets(CallPath& path, Call& call, CallBody& body) {
  RejectionSlot why;
  auto taking = co_take_budgets(path, call, why);
  const bool taken = co_await taking;
  if (!taken) path.reject(body, *why);
  co_return taken;
}

// Calls then(Call&, const Rejection*, WaitPin&), which may move the call: null: it has all units of its budgets. A rejected
// call is no longer pinned itself; `then` ends the pin before the handler of the call, which may destroy the bulkhead.
template <class Then>
void async_take_budgets(CallPath& path, Call call, Then then) {
  Gate& gate = path.budget_gate(call);
  AcquireOptions asked = path.budget_options(call);
  gate.async_acquire(std::move(asked),
                     [&path, call = std::move(call), then = std::move(then)](Result<Permit> permit) mutable {
                       CallPath::WaitPin pin;
                       if (!permit) pin.emplace(path);
                       RejectionSlot why;
                       if (!path.budget_answer(call, std::move(permit), why)) return then(call, &*why, pin);
                       if (path.waits_for_budget(call))
                         return async_take_budgets(path, std::move(call), std::move(then));
                       then(call, nullptr, pin);
                     });
}

// The place of a call that has all units of its budgets. The bulkhead may be in its destructor, which waits for the call.
template <class H>
void async_place(CallPath* path, Call begun, AcquireOptions options, H handler) {
  const TimePoint deadline = options.deadline;
  AcquireOptions asked = path->place_options(begun, std::move(options));
  path->gate().async_acquire(std::move(asked), [path, deadline, call = std::move(begun),
                                                handler = std::move(handler)](Result<Permit> permit) mutable {
    RejectionSlot why;
    const bool placed = path->placed(call, std::move(permit), why);
    if (placed && path->is_faulty(call)) [[unlikely]] {
      const Injected fault = path->injected(call, deadline);
      return run_at(path->clock(), fault.until,
                    [path, fault, call = std::move(call), handler = std::move(handler)]() mutable {
                      const CallPath::Pin pin(*path);  // an error ends the call before its handler
                      Result<Call> answer = fault.error ? Result<Call>(unexpect, path->fail(call))
                                                        : Result<Call>(std::move(call));
                      deliver(*path, handler, std::move(answer));
                    });
    }
    deliver(*path, handler, placed ? Result<Call>(std::move(call)) : Result<Call>(unexpect, *why));
  });
}

template <class R, class F>
Lazy<Result<R>> co_execute(CallPath& path, F fn, KeptOptions<CallOptions<R>> kept) {
  const CallOptions<R>& options = kept.options;
  const CallPath::Pin pin(path);
  FunctionBody<R, F> body(fn, options);
  Call call;
  if (!path.start(call, body)) co_return body.get();
  if (path.has_budgets(call)) {
    auto taking = co_take_budgets(path, call, body);
    const bool taken = co_await taking;
    if (!taken) co_return body.get();
  }
  if (path.pool()) {
    PooledCall<R, F> pooled(path, std::move(call));
    Task<R> task = pooled.submit(std::move(fn), body);
    co_await task.settled();  // co_await task would throw what the call threw before it was judged
    pooled.end(task, body);
  } else {
    // Named: GCC 11 and 12 destroy temporaries of a suspended co_await twice if the coroutine is destroyed.
    auto acquiring = path.gate().co_acquire(path.place_options(call, body.asked));
    Result<Permit> permit = co_await acquiring;
    if (!permit || !path.is_faulty(call)) [[likely]] {
      path.arrive(call, std::move(permit), body);
    } else {
      RejectionSlot why;
      path.placed(call, std::move(permit), why);
      const Injected fault = path.injected(call, body);
      Delay delay(path.clock(), fault.until);
      co_await delay;
      path.run_after(fault, call, body);
    }
  }
  co_return body.get();
}

// The call returns something to await: it ends when that does. It takes a place of a pool, but no thread.
template <class R, class F>
Lazy<Result<R>> co_execute_awaiting(CallPath& path, F fn, KeptOptions<CallOptions<R>> kept) {
  const CallOptions<R>& options = kept.options;
  const CallPath::Pin pin(path);
  CallBodyOf<R> body(options);
  Call call;
  RejectionSlot why;
  bool placed = path.admit(call, body.asked, why);
  if (placed) path.hold(call);  // the call ends with this coroutine, should that be destroyed in line
  if (placed && path.has_budgets(call) && !path.is_free(call)) {
    auto taking = co_take_budgets(path, call, why);
    placed = co_await taking;
  }
  if (placed && !path.is_free(call)) {
    auto acquiring = path.gate().co_acquire(path.place_options(call, body.asked));
    placed = path.placed(call, co_await acquiring, why);
  }
  if (!placed) {
    path.reject(body, *why);
    co_return body.get();
  }
  Injected fault{};
  const bool faulty = path.is_faulty(call);
  if (faulty) [[unlikely]] {
    fault = path.injected(call, body);
    Delay delay(path.clock(), fault.until);
    co_await delay;
  }
  CallBody::Attempt attempt(path, call, body);
  if (faulty && path.end_after(fault, attempt, body)) co_return body.get();
  [[maybe_unused]] HandleFor<F> handle(attempt);
#if defined(__cpp_exceptions)
  try {
#endif
    if constexpr (std::is_void_v<R>) {
      co_await call_with(fn, attempt, handle);
      body.returned();
    } else {
      body.returned(co_await call_with(fn, attempt, handle));
    }
#if defined(__cpp_exceptions)
  } catch (...) {
    body.thrown = std::current_exception();
  }
#endif
  path.end(attempt, body);
  co_return body.get();
}

inline Lazy<Result<Call>> co_acquire_call(CallPath& path, KeptOptions<AcquireOptions> kept) {
  AcquireOptions& options = kept.options;
  Call call;
  RejectionSlot why;
  if (!path.admit(call, options, why)) co_return Result<Call>(unexpect, *why);
  if (!path.is_free(call)) {
    path.pin(call);
    if (path.has_budgets(call)) {
      auto taking = co_take_budgets(path, call, why);
      const bool taken = co_await taking;
      if (!taken) co_return Result<Call>(unexpect, *why);
    }
    const TimePoint deadline = options.deadline;
    auto acquiring =
        path.gate().co_acquire(path.place_options(call, std::move(options)));  // as in co_execute
    if (!path.placed(call, co_await acquiring, why)) co_return Result<Call>(unexpect, *why);
    if (path.is_faulty(call)) [[unlikely]] {
      const Injected fault = path.injected(call, deadline);
      Delay delay(path.clock(), fault.until);
      co_await delay;
      if (fault.error) co_return Result<Call>(unexpect, path.fail(call));
    }
  }
  co_return Result<Call>(std::move(call));
}

// What Bulkhead::co_acquire returns: a coroutine for those that can await one, an operation for an event loop.
class [[nodiscard]] CoAcquireCall {
 public:
  CoAcquireCall(Bulkhead& bulkhead, CallPath& path, AcquireOptions options) noexcept
      : bulkhead_(bulkhead), path_(path), options_(std::move(options)) {}
  Lazy<Result<Call>> operator co_await() { return co_acquire_call(path_, std::move(options_)); }
  template <class Token>
  auto operator()(Token&& token) && -> decltype(on_event_loop(std::declval<Bulkhead&>(), AcquireOptions(),
                                                              std::forward<Token>(token))) {
    return on_event_loop(bulkhead_, std::move(options_.options), std::forward<Token>(token));
  }

 private:
  Bulkhead& bulkhead_;
  CallPath& path_;
  KeptOptions<AcquireOptions> options_;
};

// A handler is the caller's code: what it throws is swallowed and counted, as a gate does.
template <class H, class A>
void deliver(CallPath& path, H& handler, A&& answer) noexcept {
#if defined(__cpp_exceptions)
  try {
    handler(std::forward<A>(answer));
  } catch (...) {
    path.count_handler_error();
  }
#else
  static_cast<void>(path);
  handler(std::forward<A>(answer));
#endif
}

// The rest of async_execute, when the call has its budgets. `body` refers to fn and options, and is made of them.
template <class R, class F, class H>
void async_run(CallPath* path, Call call, F&& fn, CallOptions<R>&& options, H&& handler,
               std::optional<FunctionBody<R, F>>& body) {
  if (path->pool()) {
    auto pooled = std::make_unique<PooledCall<R, F>>(*path, std::move(call));
    Task<R> task = pooled->submit(std::forward<F>(fn), *body);
    body.reset();  // it refers to the options, which are moved
    return std::move(task).then([path, pooled = std::move(pooled), options = std::move(options),
                                 handler = std::forward<H>(handler)](Task<R> done) mutable {
      CallBodyOf<R> ended(options);
      pooled->end(done, ended);
      done = {};  // with it goes what work that never ran holds of budgets
      deliver(*path, handler, ended.take());
    });
  }
  path->pin(call);
  AcquireOptions asked = path->place_options(call, body->asked);
  body.reset();
  path->gate().async_acquire(
      std::move(asked), [path, call = std::move(call), fn = std::forward<F>(fn), options = std::move(options),
                         handler = std::forward<H>(handler)](Result<Permit> permit) mutable {
        FunctionBody<R, F> arrived(fn, options);
        if (permit && path->is_faulty(call)) [[unlikely]] {
          RejectionSlot why;
          path->placed(call, std::move(permit), why);
          const Injected fault = path->injected(call, arrived);
          return run_at(path->clock(), fault.until,
                        [path, fault, call = std::move(call), fn = std::move(fn),
                         options = std::move(options), handler = std::move(handler)]() mutable {
                          const CallPath::Pin pin(*path);
                          FunctionBody<R, F> later(fn, options);
                          path->run_after(fault, call, later);
                          deliver(*path, handler, later.take());
                        });
        }
        path->arrive(call, std::move(permit), arrived);
        deliver(*path, handler, arrived.take());
      });
}

}  // namespace detail

template <class F>
auto Bulkhead::execute(F&& fn, detail::NoOptions, std::source_location where) -> Result<detail::ReturnOf<F>> {
  using R = detail::ReturnOf<F>;
  static_assert(!std::is_reference_v<R>, "return a value or a std::reference_wrapper");
  return detail::execute<R>(*path_, std::forward<F>(fn), where);
}

template <class F>
auto Bulkhead::execute(F&& fn, const CallOptions<detail::ReturnOf<F>>& options)
    -> Result<detail::ReturnOf<F>> {
  using R = detail::ReturnOf<F>;
  static_assert(!std::is_reference_v<R>, "return a value or a std::reference_wrapper");
  return detail::execute<R>(*path_, std::forward<F>(fn), options);
}

template <class F, class Fallback>
  requires std::is_invocable_v<Fallback&, const Cause&> || std::is_invocable_v<Fallback&>
auto Bulkhead::execute(F&& fn, Fallback&& fallback, Priority priority) -> Result<detail::ReturnOf<F>> {
  using R = detail::ReturnOf<F>;
  CallOptions<R> options{.priority = priority};
  if constexpr (std::is_invocable_v<Fallback&, const Cause&>)
    options.fallback = std::ref(fallback);
  else
    options.fallback = [&](const Cause&) -> R { return fallback(); };
  return execute(std::forward<F>(fn), options);
}

// `body` refers to fn and options. So it is dropped before they are moved, and made again when the budgets are there.
template <class F, class H>
void Bulkhead::async_execute(F fn, CallOptions<detail::ReturnOf<F>> options, H handler) {
  using R = detail::ReturnOf<F>;
  static_assert(std::is_invocable_v<H&, Ended<R>>, "the handler is called with an Ended<R>");
  detail::CallPath* const path = path_.get();
  std::optional<detail::FunctionBody<R, F>> body(std::in_place, fn, options);
  Call call;
  if (!path->start(call, *body)) return detail::deliver(*path, handler, body->take());
  if (!path->has_budgets(call)) [[likely]]
    return detail::async_run<R, F, H>(path, std::move(call), std::move(fn), std::move(options),
                                      std::move(handler), body);
  body.reset();
  detail::async_take_budgets(
      *path, std::move(call),
      [path, fn = std::move(fn), kept = detail::KeptOptions(std::move(options)),
       handler = std::move(handler)](Call& taken, const Rejection* why,
                                     detail::CallPath::WaitPin& pin) mutable {
        std::optional<detail::FunctionBody<R, F>> again(std::in_place, fn, kept.options);
        if (!why)
          return detail::async_run<R, F, H>(path, std::move(taken), std::move(fn), std::move(kept.options),
                                            std::move(handler), again);
        path->reject(*again, *why);
        pin.reset();
        detail::deliver(*path, handler, again->take());
      });
}

template <class F>
auto Bulkhead::co_execute(F fn, CallOptions<detail::AwaitedOf<F>> options) {
  using R = detail::AwaitedOf<F>;
  if constexpr (detail::Awaitable<detail::ReturnOf<F>>)
    return detail::co_execute_awaiting<R, F>(*path_, std::move(fn), std::move(options));
  else
    return detail::co_execute<R, F>(*path_, std::move(fn), std::move(options));
}

template <class H>
void Bulkhead::async_acquire(AcquireOptions options, H handler) {
  static_assert(std::is_invocable_v<H&, Result<Call>>, "the handler is called with a Result<Call>");
  Call call;
  detail::RejectionSlot why;
  if (!path_->admit(call, options, why))
    return detail::deliver(*path_, handler, Result<Call>(unexpect, *why));
  if (path_->is_free(call)) return detail::deliver(*path_, handler, Result<Call>(std::move(call)));
  path_->pin(call);
  async_acquire(std::move(call), std::move(options), std::move(handler));
}

template <class H>
void Bulkhead::async_acquire(Call begun, AcquireOptions options, H handler) {
  detail::CallPath* const path = path_.get();
  if (path->has_budgets(begun)) [[unlikely]]
    path->set_stop(begun, options.stop);
  if (path->waits_for_budget(begun)) [[unlikely]]
    return detail::async_take_budgets(
        *path, std::move(begun),
        [path, options = std::move(options), handler = std::move(handler)](
            Call& taken, const Rejection* why, detail::CallPath::WaitPin& pin) mutable {
          pin.reset();
          if (why) return detail::deliver(*path, handler, Result<Call>(unexpect, *why));
          detail::async_place(path, std::move(taken), std::move(options), std::move(handler));
        });
  detail::async_place(path, std::move(begun), std::move(options), std::move(handler));
}

inline auto Bulkhead::co_acquire(AcquireOptions options) {
  return detail::CoAcquireCall(*this, *path_, std::move(options));
}

template <class F>
auto protect(Bulkhead& bulkhead, F fn) {
  return detail::Decorated(std::move(fn), [&bulkhead]<class Fn, class... Args>(Fn& f, Args&&... args) {
    using R = std::invoke_result_t<Fn&, Args...>;
    // In a pool the call may outlive its caller, so it takes its arguments along.
    if (bulkhead.isolation() == Isolation::threads)
      return bulkhead.execute(
          [f = F(f), args = std::tuple<std::decay_t<Args>...>(std::forward<Args>(args)...)]() mutable -> R {
            return std::apply(f, std::move(args));
          });
    return bulkhead.execute([&]() -> R { return std::invoke(f, std::forward<Args>(args)...); });
  });
}

}  // namespace bulkhead
