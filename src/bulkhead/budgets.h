// budgets.h - the budgets of a bulkhead, and what one call holds of them. See include/bulkhead/budget.h.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bulkhead/budget.h"
#include "bulkhead/gate.h"
#include "shared/scoped_gate.h"

namespace bulkhead::detail {

struct Budget {
  Budget(const BudgetOptions& options, const GateOptions& line, UnitSources* sources);

  std::uint32_t most_per_call() const noexcept;
  // The rejection of a call that the gate of this budget has rejected: the gate's reasons for missing units become
  // budget_limit.
  Rejection rejection(Gate& place, Priority priority, const Rejection& of_gate,
                      std::uint32_t units) const noexcept;
  BudgetSnapshot snapshot() const;
  void reset_statistics();

  const std::string name;
  const Scope scope;
  std::atomic<std::uint32_t> per_call_max;
  std::atomic<bool> in_force{true};  // false: taken away; calls that hold or wait for units go on
  std::optional<Gate> own;
  std::optional<shared::ScopedGate> scoped;  // instead, beyond Scope::process
  Gate* gate = nullptr;
  Snapshot baseline;  // its counters at the last reset_statistics(); BulkheadCore::mutex is held
};

// Invariants
//   B1 A budget is made before a call can find it, and lives as long as the bulkhead, for the calls that use it.
//   B2 The items of a call are in the order of the names of their budgets. Every call takes its units in this order, in
//      every process: `all_` has the order in which this process got them, and another process may have another one.
//   B3 Changed by one thread at a time, which holds BulkheadCore::settings.
class Budgets {
 public:
  static constexpr std::size_t kMostEver = 16;  // names over the life of one bulkhead

  // std::invalid_argument naming the setting. `line`: the options of their queues.
  static void check(std::string_view bulkhead, const std::vector<BudgetOptions>& options,
                    const GateOptions& line, UnitSources* sources);
  void check_change(std::string_view bulkhead, const std::vector<BudgetOptions>& options) const;
  void apply(const std::vector<BudgetOptions>& options, const GateOptions& line, UnitSources* sources,
             const std::vector<BudgetOptions>& before);
  Budget* find(std::string_view name) const noexcept;  // null: none in force
  std::vector<BudgetSnapshot> snapshot() const;        // BulkheadCore::mutex is held
  void reset_statistics();                             // as well
  template <class F>
  void each(F&& fn) const {
    for (const auto& one : all_)
      if (Budget* const budget = one.load(std::memory_order_acquire)) fn(*budget);
  }
  Budgets() = default;
  Budgets(const Budgets&) = delete;
  Budgets& operator=(const Budgets&) = delete;
  ~Budgets();

 private:
  friend struct BudgetHold;
  Budget* known(std::string_view name) const noexcept;
  std::array<std::atomic<Budget*>, kMostEver> all_{};
};

// What one call asks and has of its budgets.
struct BudgetHold {
  struct Item {
    Budget* budget = nullptr;
    std::uint32_t units = 0;
    Permit permit{};
  };

  explicit BudgetHold(const AcquireOptions& options) noexcept;
  static BudgetHold* make(const AcquireOptions& options) noexcept;  // null: no memory
  static void destroy(BudgetHold* hold) noexcept;                   // gives everything back

  bool waits() const noexcept { return next < count; }
  Item& current() noexcept { return items[next]; }
  AcquireOptions options_for(std::uint32_t cost, Clock& clock) const noexcept;  // refers to this object
  Item* find(std::string_view name) noexcept;

  std::array<Item, kMostBudgets> items{};
  std::uint8_t count = 0, next = 0;
  AcquireOptions asked;
  TimePoint until = no_deadline;      // of all waits together
  char label[Holder::kMaxLabel + 1];  // a copy, because the caller's may be destroyed by then
};

}  // namespace bulkhead::detail
