// budget.h - limits of a bulkhead beside its calls: tokens, bytes, or other units that calls hold while they run.
//
//   bulkhead::Bulkhead model{{.name = "model", .max_concurrent = 16, .max_queue = 64, .max_wait = 2s,
//                             .budgets = {{.name = "tokens", .max = 200'000, .per_call_max = 32'000}}}};
//   auto tokens = model.execute([&](bulkhead::RunningCall& call) {
//     const std::uint32_t needed = used();                          // known when the answer is complete
//     call.settle("tokens", needed);                                // the rest of the estimate goes back now
//     return needed;
//   }, {.costs = {{"tokens", 16'000}}});
//   // bulkhead "model" rejected (budget_limit): budget "tokens": 187000/200000 in use, 16000 asked, 0/64 waiting
//
//   auto call = model.acquire({.costs = {{"tokens", 16'000}}});     // or in parts: Call::settle("tokens", used)
//
// A call takes the units of its budgets after rate limit and breaker and before its place, one budget after the other
// in the order of their names (compared byte by byte). A call that waits for one may hold units of earlier budgets, never
// of later ones and never a place; a call that has its place waits for nothing. So no calls of one bulkhead can wait for
// each other in a circle, also not those of several processes that share its budgets and list them in different orders.
// All units go back when the call ends, or when settle() lowers them.
//
// A call that names no cost for a budget takes nothing of it, and is not delayed by it: requests that use none of the
// units (a health check, a list) share the bulkhead with those that do, and cost what they cost without budgets.
//
// Each budget has a queue of its own with the settings of the bulkhead: max_queue, critical_reserve (a share of max),
// fairness and flow_queues, so that flows share the budget by cost. max_wait, timeout, deadline and stop of a call are
// for all its waits together, in every form of call. A call that gets no units because the budget is in use, or waits
// for them for too long, is rejected with Reason::budget_limit; also one that names a budget that does not exist, or
// more than per_call_max. Shadow mode counts such calls, and rejects none.
//
// Threads: as bulkhead.h. Cost: a call with costs takes a recycled block of memory and acquires one gate for each of
// them; without memory it is rejected with queue_limit.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "bulkhead/scope.h"
#include "bulkhead/snapshot.h"

namespace bulkhead {

namespace detail {
struct CostTexts;
}

inline constexpr std::size_t kMostBudgets = 4;     // of one bulkhead, and costs of one call
inline constexpr std::size_t kMaxBudgetName = 23;  // bytes

struct BudgetOptions {
  std::string name{};              // 1 to kMaxBudgetName letters, digits, '_' and '-'
  std::uint32_t max = 1;           // units in use at once: 1 to 268'435'455
  std::uint32_t per_call_max = 0;  // the most that one call may hold; 0 or more than max: max
  Scope scope =
      Scope::process;  // how far max reaches, as BulkheadOptions::scope; needs BulkheadOptions::sources

  friend bool operator==(const BudgetOptions&, const BudgetOptions&) = default;
};

// What a call asks of one budget. 0 units: as if it were not named.
struct Cost {
  constexpr Cost() noexcept = default;
  constexpr Cost(std::string_view of, std::uint32_t units_asked) noexcept : budget(of), units(units_asked) {}
  std::string_view budget{};  // must live until the function that takes the options returns, also a co_ form
  std::uint32_t units = 0;
};

// Up to kMostBudgets of them. Not an array or an initializer_list: GCC 12 cannot keep one in a co_await expression.
class Costs {
 public:
  Costs() noexcept {}  // NOLINT(*-member-init,modernize-use-equals-default): what is not used is not written
  Costs(Cost a, Cost b = {}, Cost c = {}, Cost d = {}) noexcept {  // NOLINT(*-member-init)
    for (const Cost& cost : {a, b, c, d})
      if (!cost.budget.empty() || cost.units > 0) costs_[size_++] = cost;  // units of no name: rejected
  }
  Costs(const Costs& other) noexcept : size_(other.size_) {  // NOLINT(*-member-init)
    for (std::size_t i = 0; i < size_; ++i) costs_[i] = other.costs_[i];
  }
  Costs& operator=(const Costs& other) noexcept {
    size_ = other.size_;
    if (this != &other) std::copy_n(other.costs_, size_, costs_);
    return *this;
  }

  bool empty() const noexcept { return size_ == 0; }
  const Cost* begin() const noexcept { return costs_; }
  const Cost* end() const noexcept { return costs_ + size_; }

 private:
  friend struct detail::CostTexts;
  std::uint32_t size_ = 0;
  union {  // not constructed until used
    Cost costs_[kMostBudgets];
  };
};

struct BudgetSnapshot {
  std::string name;
  std::uint32_t in_use = 0, max = 0, per_call_max = 0;  // units
  std::uint32_t calls = 0;                              // that hold some, or have settled at 0
  std::uint32_t waiting = 0, max_queue = 0;             // calls in line for it
  std::uint64_t admitted = 0, rejected = 0;             // calls
  std::chrono::nanoseconds occupancy{}, saturated{};    // of units, see Snapshot
  Scope scope = Scope::process;
};

}  // namespace bulkhead
