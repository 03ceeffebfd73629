// A member of a group, within its guarantee: it should cost what a plain gate costs.
#pragma once

#include "bench/workload.h"
#include "bulkhead/group.h"

namespace bench {

inline constexpr std::string_view kMember = "bulkhead::Group, a member";

class MemberRival {
 public:
  static constexpr std::string_view name = kMember;
  static constexpr Guarantees guarantees{.counters = true, .resize = true, .fifo = true};

  explicit MemberRival(unsigned limit)
      : group_({.name = "bench",
                .total = 2 * limit,
                .lend = bulkhead::Lend::revocable(),
                .members = {{.name = "a", .guaranteed = {.percent = 50}, .gate = {.max_queue = 1024}},
                            {.name = "b", .guaranteed = {.percent = 50}, .gate = {.max_queue = 1024}}}}),
        gate_(group_.member("a")) {}

  template <class F>
  bool try_call(F&& body) {
    const auto permit = gate_.try_acquire();
    if (!permit) return false;
    body();
    return true;
  }
  template <class F>
  void call(F&& body) {
    const auto permit = gate_.acquire();
    if (permit) body();
  }

 private:
  bulkhead::Group group_;
  bulkhead::Gate& gate_;
};

}  // namespace bench
