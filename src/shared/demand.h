// demand.h - the units that a process needs, by Little's law: arrivals per second, including rejected calls, times the mean
// unit-seconds of a call. The latter is the mean number of units in use divided by the admissions per second, so no call is
// timed. Pure; not synchronized.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace bulkhead::shared {

class Demand {
 public:
  // Calls that arrived and that were admitted within the last `seconds`, and units in use now.
  void sample(double seconds, std::uint64_t arrived, std::uint64_t admitted, std::uint32_t in_use) noexcept {
    if (!(seconds > 0)) return;
    // The first samples weigh more, so that a new process does not start from zero.
    age_ = std::min(age_ + seconds, kWindow);
    const double by = 1 - std::exp(-seconds / age_);
    arrivals_ += by * (static_cast<double>(arrived) / seconds - arrivals_);
    admissions_ += by * (static_cast<double>(admitted) / seconds - admissions_);
    in_use_ += by * (in_use - in_use_);
  }

  double load() const noexcept {
    if (arrivals_ <= admissions_) return in_use_;
    // Without admissions the time of a call is unknown; the rejected ones show that one unit more is needed.
    return std::max(in_use_ + std::min(1.0, arrivals_),
                    admissions_ > 0 ? arrivals_ * in_use_ / admissions_ : 0);
  }
  // Of a call that holds one unit; a call that holds n units counts as n times longer.
  double seconds_per_call() const noexcept { return admissions_ > 1e-6 ? in_use_ / admissions_ : 0; }

  // Square-root staffing: `slack` covers two standard deviations of a Poisson load.
  struct Units {
    std::uint32_t need = 0, slack = 1;
  };
  Units units(std::uint32_t most) const noexcept {
    const double load = this->load();
    const auto whole = [&](double x) {
      return static_cast<std::uint32_t>(std::min(std::ceil(x - 1e-3), static_cast<double>(most)));
    };
    if (!(load > 1e-3)) return {};
    return {.need = whole(load), .slack = std::max(1u, whole(2 * std::sqrt(load)))};
  }

 private:
  static constexpr double kWindow = 0.5;
  double age_ = 0, arrivals_ = 0, admissions_ = 0, in_use_ = 0;
};

// The share of calls that find no unit if `units` serve `load` alone and no call waits: Erlang's formula B.
inline double erlang_b(std::uint32_t units, double load) noexcept {
  if (!(load > 0)) return 0;
  double blocked = 1;
  for (std::uint32_t n = 1; n <= units && blocked > 1e-12; ++n)
    blocked = load * blocked / (n + load * blocked);
  return blocked;
}

}  // namespace bulkhead::shared
