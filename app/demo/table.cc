#include <fmt/format.h>

#include <functional>
#include <vector>

#include "app/demo/viewer.h"

namespace bulkhead::demo {
namespace {

using cli::Paint;

struct Row {
  std::string_view name;
  std::uint32_t in_flight = 0, limit = 0, waiting = 0;
  Count recent;
  std::uint64_t calm_p99 = 0;
  bool total = false;
};

struct Column {
  std::string_view group, name;  // two lines of heading; neighbours of one group share its name
  std::size_t width;
  std::size_t gap;
  int dropped;  // when it gets narrow: 1 goes first, 0 never
  bool left;
  std::function<std::string(const Row&)> cell;
};

std::vector<Column> columns_of(const cli::Style& style, const Scene& scene, std::size_t bar_width) {
  const auto count = [&style](std::uint64_t n, Paint colour) {
    return cli::paint(style, n == 0 ? Paint::dim : colour, std::to_string(n));
  };
  const auto rejected = [=, &scene](Reason reason) {
    return
        [=, &scene](const Row& r) { return count(scene.per_second(r.recent.rejected(reason)), Paint::red); };
  };
  const auto quantile = [&style](double q) {
    return [&style, q](const Row& r) {
      if (r.recent.response.count() == 0) return cli::paint(style, Paint::dim, "-");
      const std::uint64_t ns = r.recent.response.quantile(q);
      const bool bad = r.calm_p99 > 0 && ns > 3 * r.calm_p99;
      return cli::paint(style, bad ? Paint::red : Paint::none, cli::duration(style, ns));
    };
  };
  return {
      {"", "route", 9, 1, 0, true,
       [&](const Row& r) { return cli::paint(style, r.total ? Paint::dim : Paint::bold, r.name); }},
      {"running", "", bar_width, 1, 1, true,
       [&style, bar_width](const Row& r) {
         const double share = r.limit ? static_cast<double>(r.in_flight) / r.limit : 0;
         const Paint colour = share >= 1 ? Paint::red : share >= 0.8 ? Paint::yellow : Paint::green;
         return cli::paint(style, colour, cli::bar(style, share, bar_width));
       }},
      {"running", "", 7, 1, 0, false,
       [](const Row& r) { return fmt::format("{}/{}", r.in_flight, r.limit); }},
      {"in", "line", 4, 2, 4, false, [count](const Row& r) { return count(r.waiting, Paint::yellow); }},
      {"served", "/s", 6, 1, 0, false,
       [&scene](const Row& r) { return std::to_string(scene.per_second(r.recent.served)); }},
      {"rejected /s", "full", 5, 2, 0, false, rejected(Reason::queue_limit)},
      {"rejected /s", "late", 5, 1, 0, false, rejected(Reason::timeout)},
      {"wait", "p99", 6, 2, 2, false,
       [&style](const Row& r) {
         if (r.recent.wait.count() == 0) return cli::paint(style, Paint::dim, "-");
         const std::uint64_t ns = r.recent.wait.quantile(0.99);
         return ns < 1'000'000 ? cli::paint(style, Paint::dim, "<1 ms") : cli::duration(style, ns);
       }},
      {"response", "p50", 6, 2, 3, false, quantile(0.5)},
      {"response", "p99", 6, 2, 0, false, quantile(0.99)},
  };
}

std::size_t width_of(const std::vector<Column>& columns) {
  std::size_t sum = 0;
  for (const Column& c : columns) sum += c.gap + c.width;
  return sum;
}

// What fits: the bar grows and shrinks first, then columns go in their order.
std::vector<Column> fitting(const cli::Style& style, const Scene& scene, std::size_t width) {
  constexpr std::size_t kNarrowest = 4, kWidest = 32;
  const std::size_t without_bar = width_of(columns_of(style, scene, 0));
  const std::size_t room = width > without_bar ? width - without_bar : 0;
  auto columns = columns_of(style, scene, std::clamp(room, kNarrowest, kWidest));
  for (int drop = 1; drop <= 4 && width_of(columns) > width; ++drop)
    std::erase_if(columns, [&](const Column& c) { return c.dropped == drop; });
  return columns;
}

std::string aligned(const Column& c, const std::string& text) {
  return std::string(c.gap, ' ') + (c.left ? cli::pad_right(text, c.width) : cli::pad_left(text, c.width));
}

std::string headings(const cli::Style& style, const std::vector<Column>& columns) {
  std::string groups, names;
  for (std::size_t i = 0; i < columns.size();) {
    std::size_t end = i + 1;
    std::size_t span = columns[i].width;
    while (end < columns.size() && !columns[i].group.empty() && columns[end].group == columns[i].group)
      span += columns[end].gap + columns[end].width, ++end;
    const std::string group(columns[i].group);
    const std::size_t gap = columns[i].gap;
    groups += columns[i].left ? std::string(gap, ' ') + cli::pad_right(group, span)
                              : cli::pad_left(group, gap + span);
    for (; i < end; ++i) names += aligned(columns[i], std::string(columns[i].name));
  }
  return cli::paint(style, Paint::dim, groups) + '\n' + cli::paint(style, Paint::dim, names) + '\n';
}

std::vector<Row> rows_of(const Scene& scene) {
  std::vector<Row> rows;
  Row all{.name = "database",
          .in_flight = scene.now.in_flight,
          .limit = scene.now.limit,
          .waiting = scene.now.waiting,
          .recent = {},
          .calm_p99 = 0,
          .total = true};
  for (std::size_t i = 0; i < kRoutes; ++i) {
    const auto& route = scene.now.routes[i];
    rows.push_back({.name = scene.story->routes[i].name,
                    .in_flight = route.in_flight,
                    .limit = route.limit,
                    .waiting = route.waiting,
                    .recent = scene.recent[i],
                    .calm_p99 = scene.calm_p99[i]});
    all.recent += scene.recent[i];
  }
  rows.push_back(std::move(all));
  return rows;
}

}  // namespace

std::string table_text(const cli::Style& style, const Scene& scene, std::size_t columns) {
  const auto shown = fitting(style, scene, columns);
  std::string text = headings(style, shown);
  for (const Row& row : rows_of(scene)) {
    if (row.total) {
      std::string rule;
      for (std::size_t i = 1; i < width_of(shown); ++i) rule += style.utf8 ? "─" : "-";
      text += ' ' + cli::paint(style, Paint::dim, rule) + '\n';
    }
    for (const Column& c : shown) text += aligned(c, c.cell(row));
    text += '\n';
  }
  return text;
}

}  // namespace bulkhead::demo
