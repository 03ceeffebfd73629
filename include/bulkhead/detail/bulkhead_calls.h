// bulkhead_calls.h - the templates of bulkhead.h.
#pragma once

#include "bulkhead/bulkhead.h"
#include "bulkhead/detail/decorated.h"

namespace bulkhead {
namespace detail {

// Fires the stop_token that a call is given: when its time is up, and when its caller wants it to.
class CallLimit {
 public:
  CallLimit() noexcept = default;
  CallLimit(const CallLimit&) = delete;
  CallLimit& operator=(const CallLimit&) = delete;
  ~CallLimit();

  // `lender`: of the permit, which a group may want back.
  std::stop_token watch(Clock& clock, TimePoint until, const std::stop_token& caller,
                        const std::stop_token& lender);

 private:
  struct Timer;
  struct Relay {
    std::stop_source to;
    void operator()() noexcept { to.request_stop(); }
  };
  Clock* clock_ = nullptr;
  std::shared_ptr<Timer> timer_;
  std::optional<std::stop_callback<Relay>> caller_, lender_;
};

template <class F>
inline constexpr bool takes_stop = std::is_invocable_v<F&, std::stop_token>;

template <class F, class Attempt>
decltype(auto) call_with(F& fn, Attempt& attempt) {
  if constexpr (takes_stop<F>)
    return fn(attempt.stop());
  else
    return fn();
}

// What fn returned or threw.
template <class R, class F>
Ended<R> ended_of(F&& fn) {
  const auto call = [&] {
    if constexpr (std::is_void_v<R>) {
      fn();
      return Ended<R>(Result<R>());
    } else {
      return Ended<R>(Result<R>(std::in_place, fn()));
    }
  };
#if defined(__cpp_exceptions)
  try {
    return call();
  } catch (...) {
    return Ended<R>(std::current_exception());
  }
#else
  return call();
#endif
}

template <class R>
Ended<R> taken(Task<R>& task) {
#if defined(__cpp_exceptions)
  try {
    return Ended<R>(task.get());
  } catch (...) {
    return Ended<R>(std::current_exception());
  }
#else
  return Ended<R>(task.get());
#endif
}

inline TimePoint later(TimePoint now, std::chrono::nanoseconds span) noexcept {
  return span >= no_deadline - now ? no_deadline : now + span;
}

// The work of a call in a pool. What its caller must know of it outlives them both.
struct PooledTimes {
  LimiterCall sample{};
  std::atomic<std::int64_t> began{0}, ended{0};  // ns; 0: not yet. Written after `sample`.
};

}  // namespace detail

// One call and its time limit, from its place to its end.
template <class R>
class Bulkhead::Attempt {
 public:
  Attempt(Bulkhead& bulkhead, Call& call, const CallOptions<R>& options) noexcept
      : bulkhead_(bulkhead), call_(call), options_(options) {
    const auto limit = bulkhead.time_limit(options.execution_timeout);
    if (limit == wait_forever && options.deadline == no_deadline) return;
    if (call.flags_ & Call::is_bypassed) return;
    if (call.began_ == TimePoint{}) call.began_ = bulkhead.clock_.now();
    until_ = std::min(detail::later(call.began_, limit), options.deadline);
  }

  // Nothing is left to decide when it has returned.
  bool plain() const noexcept {
    return until_ == no_deadline && !options_.judge && !detail::IsExpected<detail::Judged<R>>::value;
  }
  std::stop_token stop() {
    // Who only watches stops nobody.
    const TimePoint until = call_.free() ? no_deadline : until_;
    return limit_.watch(bulkhead_.clock_, until, options_.stop, call_.permit_.stop_token());
  }

  Ended<R> end(Ended<R> ended) {
    const CallVerdict verdict = bulkhead_.judge(ended, options_, call_.permit_);
    const bool watched = until_ != no_deadline;
    const bool timed = watched || call_.began_ != TimePoint{};
    const TimePoint now = watched ? bulkhead_.clock_.now() : timed ? bulkhead_.clock_.glance() : TimePoint{};
    if (watched && now >= until_) {
      const Pin pin(bulkhead_);
      if (call_.free()) {
        bulkhead_.would_reject(Reason::timeout);
        bulkhead_.leave(call_, CallVerdict::failure, true, now - call_.began_, now);
        if (verdict != CallVerdict::failure) return ended;
        return bulkhead_.conclude(options_, {.kind = Cause::Kind::failed, .exception = ended.thrown_},
                                  std::move(ended));
      }
      bulkhead_.leave(call_, CallVerdict::failure, true, now - call_.began_, now);
      const Rejection why = bulkhead_.late();
      return bulkhead_.conclude(options_, {.kind = Cause::Kind::timed_out, .rejection = why},
                                Ended<R>(Result<R>(std::unexpect, why)));
    }
    if (verdict != CallVerdict::failure) {
      bulkhead_.leave(call_, verdict, false, now - call_.began_, now);  // and no more of the bulkhead
      return ended;
    }
    const Pin pin(bulkhead_);
    bulkhead_.leave(call_, verdict, false, now - call_.began_, now);
    return bulkhead_.conclude(options_, {.kind = Cause::Kind::failed, .exception = ended.thrown_},
                              std::move(ended));
  }

 private:
  Bulkhead& bulkhead_;
  Call& call_;
  const CallOptions<R>& options_;
  TimePoint until_ = no_deadline;
  detail::CallLimit limit_;
};

// The judges' opinion, else the usual one. What a judge throws goes to the caller, and nothing is known then.
template <class R>
CallVerdict Bulkhead::judge(Ended<R>& ended, const CallOptions<R>& options, Permit& permit) const noexcept {
  const auto opinion = [&]() -> Opinion {
    if (ended.threw()) return judge(ended.thrown_);
    if constexpr (std::is_void_v<R>)
      return options.judge ? options.judge({}) : std::nullopt;
    else
      return options.judge ? options.judge(*ended.result_) : std::nullopt;
  };
#if defined(__cpp_exceptions)
  try {
#endif
    if (const Opinion own = opinion()) return *own;
#if defined(__cpp_exceptions)
  } catch (...) {
    ended.thrown_ = std::current_exception();
    return CallVerdict::ignored;
  }
#endif
  CallVerdict verdict = CallVerdict::failure;
  if (!ended.threw()) {
    verdict = CallVerdict::success;
    if constexpr (!std::is_void_v<R>) verdict = judge_result(no_opinion, *ended.result_);
  }
  // What a call makes of being cancelled, by its caller or by a lender, says nothing about the dependency.
  if (verdict == CallVerdict::failure &&
      (options.stop.stop_requested() || permit.stop_token().stop_requested()))
    return CallVerdict::ignored;
  return verdict;
}

// What a failed call comes to: the fallback's value if there is a fallback for it, else what it came to anyway.
template <class R>
Ended<R> Bulkhead::conclude(const CallOptions<R>& options, const Cause& cause, Ended<R>&& otherwise) {
  if (!options.fallback || !has_fallback(cause.kind)) return std::move(otherwise);
  Ended<R> ended = detail::ended_of<R>([&]() -> R { return options.fallback(cause); });
  count_fallback(cause.kind, ended.threw());
  return ended;
}

template <class R>
Ended<R> Bulkhead::refused(const CallOptions<R>& options, const Rejection& why) {
  Ended<R> otherwise(Result<R>(std::unexpect, why));
  if (why.reason == Reason::cancelled) return otherwise;  // its caller does not want an answer any more
  return conclude(options, {.kind = Cause::Kind::rejected, .rejection = why}, std::move(otherwise));
}

template <class R, class F>
Ended<R> Bulkhead::attempt(Call& call, F& fn, const CallOptions<R>& options) {
  Attempt<R> attempt(*this, call, options);
  return attempt.end(detail::ended_of<R>([&]() -> R { return detail::call_with(fn, attempt); }));
}

template <class R, class F>
Ended<R> Bulkhead::arrived(Call& call, Result<Permit> permit, F& fn, const CallOptions<R>& options) {
  const Pin pin(*this);  // a call that is refused has none any more, and its fallback is yet to come
  Rejection why;
  return place(call, std::move(permit), why) ? attempt<R>(call, fn, options) : refused(options, why);
}

// ---- in a pool ----

template <class R, class F>
class Bulkhead::Pooled {
 public:
  Pooled(Bulkhead& bulkhead, Call call) : bulkhead_(bulkhead), pin_(bulkhead), call_(std::move(call)) {
    call_.bulkhead_ = &bulkhead;  // so that it is ended even if nobody waits for the work any more
  }

  Task<R> submit(F fn, const CallOptions<R>& options) {
    const SubmitOptions submit{
        .priority = options.priority,
        .cost = options.cost,
        .queue_timeout = options.timeout == gate_default ? bulkhead_.max_wait_.load() : options.timeout,
        .execution_timeout = bulkhead_.time_limit(options.execution_timeout),
        .deadline = options.deadline,
        .stop = options.stop,
        .flow = options.flow,
        .label = options.label,
        .where = options.where};
    Work work{bulkhead_, bulkhead_.clock_.now(), times_, std::move(fn)};
    if constexpr (detail::takes_stop<F>)
      return bulkhead_.pool_->submit(
          [work = std::move(work)](std::stop_token stop) mutable { return work.run(stop); }, submit);
    else
      return bulkhead_.pool_->submit([work = std::move(work)]() mutable { return work.run({}); }, submit);
  }

  Ended<R> end(Ended<R> ended, const CallOptions<R>& options) {
    const TimePoint now = bulkhead_.clock_.now();
    const TimePoint began{std::chrono::nanoseconds(times_->began.load(std::memory_order_acquire))};
    const bool ran = began != TimePoint{};
    if (ran) {
      call_.sample_ = times_->sample;
      call_.rate_ = nullptr;
    }
    if (!ended.threw() && !ended.result_) {
      const Rejection why = ended.result_.error();
      const bool late = ran && why.reason == Reason::timeout;
      bulkhead_.leave(call_, late ? CallVerdict::failure : CallVerdict::ignored, late, now - began, now);
      if (!late) return bulkhead_.refused(options, why);
      bulkhead_.late();
      return bulkhead_.conclude(options, {.kind = Cause::Kind::timed_out, .rejection = why},
                                std::move(ended));
    }
    const TimePoint over{std::chrono::nanoseconds(times_->ended.load(std::memory_order_acquire))};
    const CallVerdict verdict = bulkhead_.judge(ended, options, call_.permit_);
    bulkhead_.leave(call_, verdict, false, over - began, now);
    if (verdict != CallVerdict::failure) return ended;
    return bulkhead_.conclude(options, {.kind = Cause::Kind::failed, .exception = ended.thrown_},
                              std::move(ended));
  }

 private:
  struct Work {
    Bulkhead& bulkhead;
    TimePoint submitted;
    std::shared_ptr<detail::PooledTimes> times;
    F fn;

    R run(const std::stop_token& stop) {
      const TimePoint began = bulkhead.begin_pooled(*times, submitted);
      struct End {
        Work& work;
        TimePoint began;
        ~End() { work.bulkhead.end_pooled(*work.times, began); }
      } end{*this, began};
      if constexpr (detail::takes_stop<F>)
        return fn(stop);
      else
        return fn();
    }
  };

  Bulkhead& bulkhead_;
  Pin pin_;  // outlives the call
  Call call_;
  std::shared_ptr<detail::PooledTimes> times_ = std::make_shared<detail::PooledTimes>();
};

// ---- the members ----

// Most calls ask for nothing: they pay neither for options nor for a judge of what they return.
template <class F>
auto Bulkhead::execute(F&& fn, detail::NoOptions, std::source_location where) -> Result<detail::ReturnOf<F>> {
  using R = detail::ReturnOf<F>;
  if constexpr (!detail::takes_stop<F> && !detail::IsExpected<detail::Judged<R>>::value) {
    SimpleCall call;
    const Entry entry = enter_simply(call);
    if (entry != Entry::yes) [[unlikely]]
      return execute_on<R>(std::forward<F>(fn), call, entry, where);
    [[maybe_unused]] bool left = false;
#if defined(__cpp_exceptions)
    try {
#endif
      if constexpr (std::is_void_v<R>) {
        fn();
        leave_simply(call);
        return {};
      } else {
        Result<R> result(std::in_place, fn());
        leave_simply(call);
        left = true;
        return result;
      }
#if defined(__cpp_exceptions)
    } catch (...) {
      if (left) throw;  // by moving the result
      Call failed = resume(call);
      const CallOptions<R> options;
      return Attempt<R>(*this, failed, options).end(Ended<R>(std::current_exception())).get();
    }
#endif
  } else {
    return execute(std::forward<F>(fn), CallOptions<R>{.where = where});
  }
}

// What enter_simply() was not enough for.
template <class R, class F>
[[gnu::noinline]] Result<R> Bulkhead::execute_on(F&& fn, const SimpleCall& begun, Entry entry,
                                                 std::source_location where) {
  const CallOptions<R> options{.where = where};
  if (entry == Entry::no && (mode_.load(std::memory_order_relaxed) & elsewhere))
    return execute(std::forward<F>(fn), options);
  Call call;
  Rejection why;
  Waiting waiting;
  if (!enter_on(call, begun, entry, where, why, waiting)) return Result<R>(std::unexpect, why);
#if defined(__cpp_exceptions)
  try {
#endif
    if constexpr (std::is_void_v<R>) {
      fn();
      call.finish(CallVerdict::success);
      return {};
    } else {
      Result<R> result(std::in_place, fn());
      call.finish(CallVerdict::success);
      return result;
    }
#if defined(__cpp_exceptions)
  } catch (...) {
    if (!call) throw;  // by moving the result
    return Attempt<R>(*this, call, options).end(Ended<R>(std::current_exception())).get();
  }
#endif
}

template <class F>
auto Bulkhead::execute(F&& fn, const CallOptions<detail::ReturnOf<F>>& options)
    -> Result<detail::ReturnOf<F>> {
  using R = detail::ReturnOf<F>;
  static_assert(!std::is_reference_v<R>, "return a value or a std::reference_wrapper");
  if (pool_) return execute_pooled<R>(std::forward<F>(fn), options).get();
  Call call;
  Rejection why;
  Waiting waiting;
  if (!enter(call, options, why, waiting)) return refused<R>(options, why).get();
  Attempt<R> attempt(*this, call, options);
#if defined(__cpp_exceptions)
  try {
#endif
    if constexpr (std::is_void_v<R>) {
      detail::call_with(fn, attempt);
      if (attempt.plain()) {
        call.finish(CallVerdict::success);
        return {};
      }
      return attempt.end(Ended<R>(Result<R>())).get();
    } else {
      Result<R> result(std::in_place, detail::call_with(fn, attempt));
      if (attempt.plain()) {
        call.finish(CallVerdict::success);
        return result;
      }
      return attempt.end(Ended<R>(std::move(result))).get();
    }
#if defined(__cpp_exceptions)
  } catch (...) {
    if (!call) throw;  // by a fallback
    return attempt.end(Ended<R>(std::current_exception())).get();
  }
#endif
}

template <class R, class F>
Ended<R> Bulkhead::execute_pooled(F&& fn, const CallOptions<R>& options) {
  Call call;
  Rejection why;
  if (!prepare(call, options.priority, options.cost, why)) return refused<R>(options, why);
  if (call.free()) return attempt<R>(call, fn, options);
  Pooled<R, std::decay_t<F>> pooled(*this, std::move(call));
  Task<R> task = pooled.submit(std::forward<F>(fn), options);
  return pooled.end(detail::taken(task), options);
}

// A plain call in the usual case needs no more than this: no options are copied, nobody waits.
template <class R>
bool Bulkhead::enter(Call& call, const CallOptions<R>& options, Rejection& why, Waiting& waiting) noexcept {
  const bool plain = options.cost == 1 && options.deadline == no_deadline && !options.stop.stop_possible();
  if (plain && !shared_) [[likely]] {
    if (!prepare(call, options.priority, 1, why)) return false;
    if (call.free()) return true;
    const auto passed = pass(call, options.priority);
    if (passed == Gate::Turnstile::Pass::yes) [[likely]]
      return true;
    return enter_otherwise(call, passed, options.acquire(), why, waiting);
  }
  return enter(call, options.acquire(), true, why, waiting);
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

template <class F, class H>
void Bulkhead::async_execute(F fn, CallOptions<detail::ReturnOf<F>> options, H handler) {
  using R = detail::ReturnOf<F>;
  static_assert(std::is_invocable_v<H&, Ended<R>>, "the handler is called with an Ended<R>");
  Call call;
  Rejection why;
  if (!prepare(call, options.priority, options.cost, why)) return deliver(handler, refused(options, why));
  if (call.free()) return deliver(handler, attempt<R>(call, fn, options));
  if (pool_) {
    auto pooled = std::make_unique<Pooled<R, F>>(*this, std::move(call));
    Task<R> task = pooled->submit(std::move(fn), options);
    return std::move(task).then([this, pooled = std::move(pooled), options = std::move(options),
                                 handler = std::move(handler)](Task<R> done) mutable {
      deliver(handler, pooled->end(detail::taken(done), options));
    });
  }
  pin(call);
  AcquireOptions asked = with_defaults(options.acquire());
  gate_->async_acquire(std::move(asked),
                       [this, call = std::move(call), fn = std::move(fn), options = std::move(options),
                        handler = std::move(handler)](Result<Permit> permit) mutable {
                         deliver(handler, arrived<R>(call, std::move(permit), fn, options));
                       });
}

template <class F>
auto Bulkhead::co_execute(F fn, CallOptions<detail::AwaitedOf<F>> options) {
  using R = detail::AwaitedOf<F>;
  return co_execute_lazily<R, F>(std::move(fn), std::move(options));
}

template <class R, class F>
detail::Lazy<Result<R>> Bulkhead::co_execute_lazily(F fn, CallOptions<R> options) {
  using Returned = detail::ReturnOf<F>;
  constexpr bool awaits = detail::Awaitable<Returned>;
  const Pin pin(*this);
  Call call;
  Rejection why;
  if (!prepare(call, options.priority, options.cost, why)) co_return refused(options, why).get();
  if constexpr (!awaits) {
    if (pool_ && !call.free()) {
      Pooled<R, F> pooled(*this, std::move(call));
      Task<R> task = pooled.submit(std::move(fn), options);
      // Not co_await itself, which would throw what the call threw before it was judged.
      co_await task.settled();
      co_return pooled.end(detail::taken(task), options).get();
    }
  }
  call.bulkhead_ = this;  // so that it is ended if this coroutine is destroyed in line
  if (!call.free() && !place(call, co_await gate_->co_acquire(with_defaults(options.acquire())), why))
    co_return refused(options, why).get();
  if constexpr (awaits) {
    Attempt<R> attempt(*this, call, options);
    std::optional<Ended<R>> ended;
#if defined(__cpp_exceptions)
    try {
#endif
      if constexpr (std::is_void_v<R>) {
        co_await detail::call_with(fn, attempt);
        ended.emplace(Result<R>());
      } else {
        ended.emplace(Result<R>(std::in_place, co_await detail::call_with(fn, attempt)));
      }
#if defined(__cpp_exceptions)
    } catch (...) {
      ended.emplace(std::current_exception());
    }
#endif
    co_return attempt.end(*std::move(ended)).get();
  } else {
    co_return this->attempt<R>(call, fn, options).get();
  }
}

template <class H>
void Bulkhead::async_acquire(AcquireOptions options, H handler) {
  static_assert(std::is_invocable_v<H&, Result<Call>>, "the handler is called with a Result<Call>");
  Call call;
  Rejection why;
  if (!prepare(call, options.priority, options.cost, why))
    return deliver(handler, Result<Call>(std::unexpect, why));
  if (call.free()) return deliver(handler, Result<Call>(std::move(call)));
  pin(call);
  async_acquire(std::move(call), std::move(options), std::move(handler));
}

template <class H>
void Bulkhead::async_acquire(Call begun, AcquireOptions options, H handler) {
  gate_->async_acquire(
      with_defaults(std::move(options)),
      [this, call = std::move(begun), handler = std::move(handler)](Result<Permit> permit) mutable {
        Rejection refusal;
        const bool placed = place(call, std::move(permit), refusal);
        deliver(handler, placed ? Result<Call>(std::move(call)) : Result<Call>(std::unexpect, refusal));
      });
}

inline auto Bulkhead::co_acquire(AcquireOptions options) {
  return [](Bulkhead& self, AcquireOptions asked) -> detail::Lazy<Result<Call>> {
    Call call;
    Rejection why;
    if (!self.prepare(call, asked.priority, asked.cost, why)) co_return Result<Call>(std::unexpect, why);
    if (!call.free()) self.pin(call);
    if (!call.free() &&
        !self.place(call, co_await self.gate_->co_acquire(self.with_defaults(std::move(asked))), why))
      co_return Result<Call>(std::unexpect, why);
    co_return Result<Call>(std::move(call));
  }(*this, std::move(options));
}

// A handler is the caller's code: what it throws is swallowed and counted, as a gate does.
template <class H, class A>
void Bulkhead::deliver(H& handler, A&& what) noexcept {
#if defined(__cpp_exceptions)
  try {
    handler(std::forward<A>(what));
  } catch (...) {
    count_handler_error();
  }
#else
  handler(std::forward<A>(what));
#endif
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
