#include "app/demo/phases.h"

#include <fmt/format.h>

namespace bulkhead::demo {
namespace {

std::string share(std::uint64_t part, const Count& count) {
  if (count.decided() == 0) return "-";
  return cli::percent(static_cast<double>(part) / static_cast<double>(count.decided()));
}

std::string p99(const Count& count, const cli::Style& style) {
  return count.served == 0 ? "-" : cli::duration(style, count.response.quantile(0.99));
}

}  // namespace

Phases::Phases(const Story& story, TimePoint now, Setting setting, const Counts& counts)
    : story_(story), setting_(setting), begun_(now), at_begin_(counts) {}

std::string Phases::look(TimePoint now, Setting setting, const Counts& counts, const cli::Style& style) {
  std::string text;
  if (due_ && (setting != setting_ || now - begun_ >= kSettled)) {
    text = table(current(now, counts), style);
    due_ = false;
  }
  if (setting == setting_) return text;
  before_ = current(now, counts);
  setting_ = setting;
  begun_ = now;
  at_begin_ = counts;
  due_ = true;
  return text;
}

Phases::Phase Phases::current(TimePoint now, const Counts& counts) const {
  Phase phase{.setting = setting_, .lasted = now - begun_, .counts = counts};
  for (std::size_t i = 0; i < kRoutes; ++i) phase.counts[i] -= at_begin_[i];
  return phase;
}

std::string Phases::table(const Phase& after, const cli::Style& style) const {
  const auto about = [](const Phase& phase) {
    return fmt::format("analytics {}, bulkheads {} ({})", phase.setting.slow ? "slow" : "quick",
                       phase.setting.bulkheads ? "on" : "off",
                       cli::span(std::chrono::duration<double>(phase.lasted).count()));
  };
  constexpr std::string_view kRow = " {:11}{:>9}{:>9}{:>11}{:>9}{:>11}{:>9}\n";
  std::string text = fmt::format("\n Before: {}. After: {}.\n", about(*before_), about(after));
  text += fmt::format(kRow, "", "served", "", "rejected", "", "p99", "");
  text += fmt::format(kRow, "route", "before", "after", "before", "after", "before", "after");
  for (std::size_t i = 0; i < kRoutes; ++i) {
    const Count &was = before_->counts[i], &is = after.counts[i];
    text +=
        fmt::format(kRow, story_.routes[i].name, share(was.served, was), share(is.served, is),
                    share(was.rejected(), was), share(is.rejected(), is), p99(was, style), p99(is, style));
  }
  return text + '\n';
}

}  // namespace bulkhead::demo
