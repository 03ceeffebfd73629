#include "app/sim/plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

namespace bulkhead::sim {
namespace {

constexpr double kLeft = 56, kRight = 110, kTop = 44, kBottom = 40, kWidth = 860, kHeight = 380;

struct Axes {
  double seconds, least, most;
  double x(double t) const { return kLeft + t / seconds * (kWidth - kLeft - kRight); }
  double y(double limit) const {
    const double share = std::log(std::clamp(limit, least, most) / least) / std::log(most / least);
    return kHeight - kBottom - share * (kHeight - kTop - kBottom);
  }
};

// Steps, drawn where the value changes.
template <class Value>
std::string steps(const Axes& axes, const Run& run, const Value& value) {
  std::string path;
  double last = -1;
  const std::size_t end = run.index(axes.seconds);
  for (std::size_t i = 0; i <= end; ++i) {
    const double v = value(run.ticks[i]);
    const double x = axes.x(static_cast<double>(i) * Run::kTick);
    if (last < 0)
      fmt::format_to(std::back_inserter(path), "M{:.1f} {:.1f}", x, axes.y(v));
    else if (v != last || i == end)
      fmt::format_to(std::back_inserter(path), "H{:.1f}V{:.1f}", x, axes.y(v));
    last = v;
  }
  return path;
}

}  // namespace

std::string plot(std::string_view title, const std::vector<Line>& lines, double seconds) {
  Axes axes{seconds, 1e9, 1};
  for (const Line& line : lines)
    for (std::size_t i = 0; i <= line.run->index(seconds); ++i) {
      const Tick& t = line.run->ticks[i];
      axes.least = std::min<double>(axes.least, std::min(t.limit, t.capacity));
      axes.most = std::max<double>(axes.most, std::max(t.limit, t.capacity) * 1.6);
    }
  axes.least = std::max(1.0, axes.least * 0.7);

  std::string svg;
  const auto out = std::back_inserter(svg);
  fmt::format_to(
      out,
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" "
      "font-family=\"DejaVu Sans, Helvetica, Arial, sans-serif\" font-size=\"12\">\n"
      "<rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"#ffffff\"/>\n"
      "<text x=\"{2}\" y=\"26\" font-size=\"15\" font-weight=\"bold\" fill=\"#1f2328\">{3}</text>\n",
      kWidth, kHeight, kLeft, title);
  for (const double v : {1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000}) {
    if (v < axes.least || v > axes.most) continue;
    fmt::format_to(
        out,
        "<path d=\"M{0} {1:.1f}H{2}\" stroke=\"#e6e8eb\"/><text x=\"{3}\" y=\"{4:.1f}\" fill=\"#59636e\" "
        "text-anchor=\"end\">{5}</text>\n",
        kLeft, axes.y(v), kWidth - kRight, kLeft - 6, axes.y(v) + 4, v);
  }
  const double minutes = seconds / 60;
  for (int i = 0; i <= 6; ++i)
    fmt::format_to(out,
                   "<text x=\"{:.1f}\" y=\"{}\" fill=\"#59636e\" text-anchor=\"middle\">{:.3g} min</text>\n",
                   axes.x(seconds * i / 6), kHeight - kBottom + 18, minutes * i / 6);

  const Run& any = *lines.front().run;
  // The band, one rectangle for each stretch of constant capacity.
  for (std::size_t i = 0, end = any.index(seconds); i < end;) {
    std::size_t j = i;
    while (j < end && any.ticks[j].capacity == any.ticks[i].capacity) ++j;
    const double c = any.ticks[i].capacity;
    const double x0 = axes.x(static_cast<double>(i) * Run::kTick),
                 x1 = axes.x(static_cast<double>(j) * Run::kTick);
    fmt::format_to(out,
                   "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"#dafbe1\"/>\n",
                   x0, axes.y(1.5 * c), x1 - x0, axes.y(0.8 * c) - axes.y(1.5 * c));
    i = j;
  }
  fmt::format_to(out, "<path d=\"{}\" fill=\"none\" stroke=\"#1f2328\" stroke-dasharray=\"4 3\"/>\n",
                 steps(axes, any, [](const Tick& t) { return t.capacity; }));
  double legend = kTop + 10;
  const auto entry = [&](std::string_view name, std::string_view colour, std::string_view dashes) {
    fmt::format_to(out,
                   "<path d=\"M{0} {1}h18\" stroke=\"{2}\" stroke-width=\"2\" {3}/><text x=\"{4}\" y=\"{5}\" "
                   "fill=\"#1f2328\">{6}</text>\n",
                   kWidth - kRight + 12, legend, colour, dashes, kWidth - kRight + 36, legend + 4, name);
    legend += 20;
  };
  entry("capacity", "#1f2328", "stroke-dasharray=\"4 3\"");
  for (const Line& line : lines) {
    fmt::format_to(
        out, "<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.5\" stroke-linejoin=\"round\"/>\n",
        steps(axes, *line.run, [](const Tick& t) { return t.limit; }), line.colour);
    entry(line.name, line.colour, "");
  }
  svg += "</svg>\n";
  return svg;
}

}  // namespace bulkhead::sim
