// kept_options.h - options of an operation that begins after the function that took them has returned, such as a coroutine
// that starts when it is awaited: with copies of the texts they refer to. Not for direct use.
#pragma once

#include "bulkhead/detail/language.h"

#include <cstddef>
#include <string_view>
#include <utility>

#include "bulkhead/budget.h"
#include "bulkhead/snapshot.h"

namespace bulkhead::detail {

// Lets `keep` copy the text of each cost.
struct CostTexts {
  template <class Keep>
  static void each(Costs& costs, const Keep& keep) noexcept {
    for (std::size_t i = 0; i < costs.size_; ++i) keep(costs.costs_[i].budget, kMaxBudgetName);
  }
};

template <class Options>
struct KeptOptions {
  KeptOptions(Options given) : options(std::move(given)) { keep(); }
  KeptOptions(const KeptOptions& other) : options(other.options) { keep(); }
  KeptOptions(KeptOptions&& other) noexcept : options(std::move(other.options)) { keep(); }
  KeptOptions& operator=(const KeptOptions&) = delete;

  Options options;  // its texts live as long as this object

 private:
  static constexpr bool kHasCosts = requires(Options& o) { o.costs; };

  // One byte more than is shown or compared, so that a text that is too long is still seen to be.
  void keep() noexcept {
    char* to = text_;
    const auto copy = [&](std::string_view& text, std::size_t most) {
      const std::size_t length = text.copy(to, most + 1);
      text = {to, length};
      to += length;
    };
    copy(options.label, Holder::kMaxLabel);
    if constexpr (kHasCosts) CostTexts::each(options.costs, copy);
  }

  char text_[Holder::kMaxLabel + 1 + (kHasCosts ? kMostBudgets * (kMaxBudgetName + 1) : 0)];
};

}  // namespace bulkhead::detail
