#include "app/demo/report.h"

#include <fmt/format.h>

namespace bulkhead::demo {
namespace {

using cli::Paint;
using Seconds = std::chrono::duration<double>;

constexpr double kServedEnough = 0.99;
constexpr std::uint64_t kSameLatency = 3;
constexpr std::uint64_t kJitter = 50'000'000;  // ns; what a busy machine may add to a p99

std::uint64_t p99(const Count& count) { return count.response.quantile(0.99); }

std::string bystanders(const Story& story) {
  std::string names;
  for (std::size_t i = 0, left = kRoutes - 1; i < kRoutes; ++i) {
    if (i == story.slow_route) continue;
    names += fmt::format("{}{}", names.empty() ? "" : left == 1 ? " and " : ", ", story.routes[i].name);
    --left;
  }
  return names;
}

// The calls of every route but the slow one, while it was slow.
Count of_bystanders(const Story& story, const ActResult& act) {
  Count sum;
  for (std::size_t i = 0; i < kRoutes; ++i)
    if (i != story.slow_route) sum += act.of(i, Phase::slow);
  return sum;
}

// The columns after the names; `narrow` leaves some out.
std::string cells(bool narrow, std::string_view calls, std::string_view served, std::string_view full,
                  std::string_view late, std::string_view p50, std::string_view p99) {
  if (narrow) return cli::pad_left(served, 9) + cli::pad_left(p99, 9);
  return cli::pad_left(calls, 7) + cli::pad_left(served, 10) + cli::pad_left(full, 11) +
         cli::pad_left(late, 11) + cli::pad_left(p50, 10) + cli::pad_left(p99, 9);
}

std::string row(const cli::Style& style, bool narrow, std::string_view route, std::string_view act,
                const Count& c) {
  const auto time = [&](double q) {
    return c.response.count() == 0 ? "-" : cli::duration(style, c.response.quantile(q));
  };
  const auto rejected = [&](std::uint64_t n) {
    return cli::paint(style, n == 0 ? Paint::dim : Paint::none, std::to_string(n));
  };
  const Paint colour = c.served_share() >= kServedEnough ? Paint::bold_green : Paint::bold_red;
  const std::uint64_t full = c.rejected(Reason::queue_limit);
  return fmt::format(
      " {}{:9}{}\n", cli::paint(style, Paint::bold, cli::pad_right(route, 11)), act,
      cells(narrow, std::to_string(c.calls), cli::paint(style, colour, cli::percent(c.served_share())),
            rejected(full), rejected(c.rejected() - full), time(0.5), time(0.99)));
}

}  // namespace

ActResult result_of(const Shop& shop) {
  ActResult act;
  for (std::size_t i = 0; i < kRoutes; ++i) {
    for (std::size_t p = 0; p < kPhases; ++p) act.counts[i][p] = shop.result(i, static_cast<Phase>(p));
    act.peak_in_flight[i] = shop.peak_in_flight(i);
  }
  act.peak_connections = shop.peak_connections();
  act.reports_took = shop.reports_took();
  act.first_failure = shop.first_failure();
  return act;
}

bool isolated(const Results& results) {
  for (std::size_t i = 0; i < kRoutes; ++i) {
    if (i == results.story.slow_route) continue;
    const Count& slow = results.with.of(i, Phase::slow);
    if (slow.served_share() < kServedEnough) return false;
    if (p99(slow) > kSameLatency * p99(results.with.of(i, Phase::calm)) + kJitter) return false;
  }
  return true;
}

std::string conclusion(const cli::Style& style, const Results& results) {
  const Story& story = results.story;
  const Count before = of_bystanders(story, results.without);
  const Count after = of_bystanders(story, results.with);
  const RouteSpec& first = story.routes[0];
  const auto first_p99 = [&](const ActResult& act, Phase phase) {
    return cli::duration(style, p99(act.of(0, phase)));
  };
  if (!isolated(results))
    return fmt::format(
        "This run does not show isolation: with bulkheads {} had {} of their calls served, {}'s p99 was {} "
        "(calm: "
        "{}). Was the machine busy? Try again, or longer with --seconds.",
        bystanders(story), cli::percent(after.served_share()), first.name,
        first_p99(results.with, Phase::slow), first_p99(results.with, Phase::calm));
  return fmt::format(
      "With bulkheads slow {} hurts only itself: {} had {} of their calls served instead of {}, and {}'s p99 "
      "was {} "
      "instead of {} (calm: {}).",
      story.slow_spec().name, bystanders(story), cli::percent(after.served_share()),
      cli::percent(before.served_share()), first.name, first_p99(results.with, Phase::slow),
      first_p99(results.without, Phase::slow), first_p99(results.with, Phase::calm));
}

std::string report_table(const cli::Style& style, const Results& results, std::size_t columns) {
  const Story& story = results.story;
  const bool narrow = columns < 79;
  std::string text = cli::wrap(
      fmt::format("While {} was slow ({} instead of {} a call, for {:.1f} s):", story.slow_spec().name,
                  cli::duration(style, results.with.reports_took.quantile(0.5)),
                  cli::duration(style, static_cast<std::uint64_t>(story.slow_spec().service.count())),
                  Seconds(story.slow).count()),
      columns - 1, " ");
  text += "\n\n";
  const auto heading = [&](std::string_view route, std::string_view act, const std::string& others) {
    text += cli::paint(style, Paint::dim, fmt::format(" {:11}{:9}{}", route, act, others)) + '\n';
  };
  if (!narrow) heading("", "", cells(narrow, "", "", "rejected,", "rejected,", "response", "response"));
  heading("route", "bulkheads", cells(narrow, "calls", "served", "line full", "timed out", "p50", "p99"));
  for (std::size_t i = 0; i < kRoutes; ++i) {
    text += row(style, narrow, story.routes[i].name, "without", results.without.of(i, Phase::slow));
    text += row(style, narrow, "", "with", results.with.of(i, Phase::slow));
  }
  for (const ActResult* act : {&results.without, &results.with})
    if (!act->first_failure.empty())
      text += '\n' +
              cli::wrap(fmt::format("Queries failed {} bulkheads, the first with: {}",
                                    act == &results.with ? "with" : "without", act->first_failure),
                        columns - 1, " ") +
              '\n';
  return text;
}

}  // namespace bulkhead::demo
