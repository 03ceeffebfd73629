// acquire_all.h - units of several gates at once: all of them, or none.
//
//   bulkhead::Gate slots{{.name = "slots", .max_concurrent = 32, .max_queue = 64}};
//   bulkhead::Gate tokens{{.name = "tokens", .max_concurrent = 200'000, .max_queue = 64}};
//   auto all = bulkhead::acquire_all({{slots, 1}, {tokens, 16'000}}, {.timeout = 50ms});
//   if (!all) reply(503, all.error().message());        // names the gate that has rejected it
//   else all->of(tokens)->settle(used());               // each permit settles, grows and is released by itself
//
//   auto all = co_await bulkhead::co_acquire_all({{slots, 1}, {tokens, 16'000}}, {.timeout = 50ms});
//   bulkhead::async_acquire_all({{slots, 1}, {tokens, 16'000}}, {}, [](bulkhead::Result<bulkhead::AllPermits> all) { ... });
//
// Order: the gates are taken one after the other, in the order of their addresses, whatever the order in which they are
//   named. A call that waits for one gate may hold units of gates with lower addresses, and never of higher ones. So no
//   circle of calls can wait for each other: in a circle, at least one call would wait for a lower address than it holds.
//   This holds among calls that take their gates by these functions, or one gate only, and if they do not wait for
//   something else while they hold units. Not for two members of one Group: their units are the same ones. And not for
//   gates of bulkheads with Scope::host or fleet: another process has other addresses. The budgets of one bulkhead
//   (budget.h) may have a scope, because they are taken by name.
// Clock: one timeout is for all gates together, and `deadline` too, so all gates must have the same Clock.
// Promises: one timeout for all gates together. If one gate rejects the call, or it is cancelled, all that it has taken
//   goes back before the caller gets the rejection. A gate counts such a call as admitted and released.
//   If no gate is named, the result holds no permits.
// Threads: any. Cost: that of acquiring each gate. acquire_all and try_acquire_all allocate nothing. co_acquire_all
//   allocates its coroutine. async_acquire_all allocates one block for the operation, and takes a recycled one for each
//   gate that it has to wait for, as Gate::async_acquire does.
// A gate that is destroyed waits for the permits, also while the call waits for another gate.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

#include "bulkhead/async_acquire.h"
#include "bulkhead/detail/in_order.h"
#include "bulkhead/detail/lazy.h"
#include "bulkhead/gate.h"

namespace bulkhead {

inline constexpr std::size_t kMostGatesAtOnce = 8;

struct GateCost {
  GateCost() = default;
  GateCost(Gate& of, std::uint32_t units = 1) noexcept : gate(&of), cost(units) {}
  Gate* gate = nullptr;
  std::uint32_t cost = 1;  // 0 counts as 1; costs of the same gate are added up
};

// One to kMostGatesAtOnce of them. Not an array, because GCC 12 cannot keep an array in a co_await expression.
class GateCosts {
 public:
  GateCosts(GateCost a, GateCost b = {}, GateCost c = {}, GateCost d = {}, GateCost e = {}, GateCost f = {},
            GateCost g = {}, GateCost h = {}) noexcept
      : costs_{a, b, c, d, e, f, g, h} {}

 private:
  friend class detail::AcquireAll;
  std::array<GateCost, kMostGatesAtOnce> costs_;  // those without a gate are unused
};

struct AcquireAllOptions {
  Priority priority = Priority::normal;
  // For all gates together; 0 or less: do not wait. Default: the shortest max_wait of the gates.
  std::chrono::nanoseconds timeout = gate_default;
  TimePoint deadline = no_deadline;
  detail::Anchored<std::stop_token> stop{};
  std::uint64_t flow = 0;
  std::string_view label{};
  std::source_location where = std::source_location::current();
};

// One permit of each gate. They may be settled and released one by one.
class [[nodiscard]] AllPermits {
 public:
  Permit* of(const Gate& gate) noexcept {  // null: not one of the gates
    for (Permit& permit : permits_)
      if (permit.gate() == &gate) return &permit;
    return nullptr;
  }
  // Gives all units back that are still held. Handlers that they admit run at the end: one may destroy this object.
  void release(Outcome outcome = Outcome::success) noexcept;

 private:
  friend class detail::AcquireAll;
  std::array<Permit, kMostGatesAtOnce> permits_;
};

namespace detail {

// What an acquisition of several gates has, and what it needs next. Moved with the operation.
class AcquireAll {
 public:
  AcquireAll(const GateCosts& costs, const AcquireAllOptions& options) noexcept;

  bool over() const noexcept { return next_ == count_; }
  Gate& gate() const noexcept { return *gates_[next_].gate; }
  AcquireOptions options() const noexcept;  // for the next gate; refers to this object
  void take(Permit permit) noexcept { permits_.permits_[next_++] = std::move(permit); }
  // The answer of the next gate. False: it was a rejection, and what was taken before is given back.
  bool accept(Result<Permit> answer, Rejection& why) noexcept {
    if (answer) return take(*std::move(answer)), true;
    permits_.release();
    why = answer.error();
    return false;
  }
  AllPermits permits() noexcept { return std::move(permits_); }

 private:
  AcquireAllOptions options_;
  TimePoint until_ = no_deadline;
  std::array<GateCost, kMostGatesAtOnce> gates_;
  std::size_t count_ = 0, next_ = 0;
  std::uint8_t label_length_ = 0;
  char label_[Holder::kMaxLabel + 1];  // a copy, because the caller's may be destroyed by then
  AllPermits permits_;
};

template <class H>
class HandlerAcquireAll {
 public:
  HandlerAcquireAll(AcquireAll request, H handler)
      : request_(std::move(request)), handler_(std::move(handler)) {}

  static void go_on(std::unique_ptr<HandlerAcquireAll> self) {
    Gate& gate = self->request_.gate();
    AcquireOptions options = self->request_.options();
    gate.async_acquire(std::move(options), [self = std::move(self)](Result<Permit> permit) mutable {
      if (!permit) return end(std::move(self), Result<AllPermits>(unexpect, permit.error()));
      self->request_.take(*std::move(permit));
      if (!self->request_.over()) return go_on(std::move(self));
      AllPermits all = self->request_.permits();
      end(std::move(self), Result<AllPermits>(std::move(all)));
    });
  }

 private:
  // What it has taken and its memory are back before the handler runs.
  static void end(std::unique_ptr<HandlerAcquireAll> self, Result<AllPermits> result) {
    H handler = std::move(self->handler_);
    self.reset();
    handler(std::move(result));
  }

  AcquireAll request_;
  H handler_;
};

Result<AllPermits> acquire_all(AcquireAll request, bool may_wait) noexcept;

// A handler that runs where the units come from. One with an executor of its own is for adapters/asio/acquire_all.h.
template <class H>
concept PlainHandler =
    std::is_invocable_v<H&, Result<AllPermits>> && !requires { typename H::executor_type; };

inline Lazy<Result<AllPermits>> co_acquire_all(AcquireAll request) {
  while (!request.over()) {
    // Named: GCC 11 and 12 destroy temporaries of a suspended co_await twice if the coroutine is destroyed.
    auto acquiring = request.gate().co_acquire(request.options());
    Rejection why;
    const bool taken =
        request.accept(co_await acquiring, why);  // GCC 11 cannot make a Result<Permit> of it here
    if (!taken) co_return Result<AllPermits>(unexpect, why);
  }
  co_return Result<AllPermits>(request.permits());
}

}  // namespace detail

inline Result<AllPermits> acquire_all(GateCosts costs, const AcquireAllOptions& options = {}) noexcept {
  return detail::acquire_all(detail::AcquireAll(costs, options), true);
}

// Never waits, never queues.
inline Result<AllPermits> try_acquire_all(GateCosts costs, const AcquireAllOptions& options = {}) noexcept {
  return detail::acquire_all(detail::AcquireAll(costs, options), false);
}

// Calls handler(Result<AllPermits>) exactly once, as Gate::async_acquire of the gate that decides it. Without memory the
// answer is queue_limit.
template <detail::PlainHandler H>
void async_acquire_all(GateCosts costs, const AcquireAllOptions& options, H handler) {
  using Operation = detail::HandlerAcquireAll<H>;
  detail::AcquireAll request(costs, options);
  if (request.over()) return static_cast<void>(handler(Result<AllPermits>(request.permits())));
  Gate& first = request.gate();
  std::unique_ptr<Operation> operation(new (std::nothrow) Operation(std::move(request), std::move(handler)));
  if (operation) return Operation::go_on(std::move(operation));
  handler(Result<AllPermits>(unexpect, first.reject(options.priority, Reason::queue_limit)));
}

// co_await -> Result<AllPermits>. Resumes as Gate::co_acquire. In an asio::awaitable use async_acquire_all of
// adapters/asio/acquire_all.h.
inline auto co_acquire_all(GateCosts costs, const AcquireAllOptions& options = {}) {
  return detail::co_acquire_all(detail::AcquireAll(costs, options));
}

}  // namespace bulkhead
