#include "app/simulate/html.h"

#include <fmt/format.h>

#include <cmath>

namespace bulkhead::simulate {
namespace {

// Inside a script element no text may end it.
std::string in_script(std::string_view text) {
  std::string out;
  for (const char c : cli::json_quoted(text)) out += c == '<' ? "\\u003c" : std::string(1, c);
  return out;
}

template <class Read>
std::string numbers(std::size_t n, const Read& read) {
  std::string out = "[";
  for (std::size_t i = 0; i < n; ++i) {
    const double value = read(i);
    out += i == 0 ? "" : ",";
    out += std::isfinite(value) ? fmt::format("{:.5g}", value) : "null";
  }
  return out + "]";
}

std::string series(const PredictionRow& row) {
  const auto& s = row.outcome.series;
  const auto of = [&](std::string_view name, double sim::Point::* member) {
    return fmt::format(",\"{}\":{}", name, numbers(s.size(), [&](std::size_t i) { return s[i].*member; }));
  };
  return fmt::format("{{\"name\":{}", in_script(row.name)) + of("arrived", &sim::Point::arrived) +
         of("served", &sim::Point::served) + of("rejected", &sim::Point::rejected) +
         of("failed", &sim::Point::failed) + of("p50", &sim::Point::p50) + of("p99", &sim::Point::p99) +
         of("in_flight", &sim::Point::in_flight) + of("waiting", &sim::Point::waiting) +
         of("limit", &sim::Point::limit) + "}";
}

std::string sweep_data(const SweepResult& result) {
  std::string out = fmt::format(
      "{{\"name\":{},\"why\":{},\"duration\":{},\"values\":{},\"rows\":[", in_script(result.sweep.name()),
      in_script(result.why), result.sweep.duration, numbers(result.sweep.values.size(), [&](std::size_t i) {
        return result.sweep.duration ? result.sweep.values[i] / 1e6 : result.sweep.values[i];
      }));
  const auto& first = result.cases.front().prediction.rows;
  for (std::size_t r = 0; r < first.size(); ++r) {
    const auto over = [&](const auto& read) {
      return numbers(result.cases.size(),
                     [&](std::size_t i) { return read(result.cases[i].prediction.rows[r]); });
    };
    out += fmt::format("{}{{\"name\":{},\"goodput\":{},\"p99\":{},\"rejected\":{}}}", r == 0 ? "" : ",",
                       in_script(first[r].name), over([](const PredictionRow& row) { return row.goodput; }),
                       over([](const PredictionRow& row) { return total_ms(row.all, 0.99); }),
                       over([](const PredictionRow& row) { return 100 * row.all.rejected_share(); }));
  }
  return out + "]}";
}

std::string replaced(std::string_view text, std::string_view place, std::string_view by) {
  const std::size_t at = text.find(place);
  return std::string(text.substr(0, at)) + std::string(by) + std::string(text.substr(at + place.size()));
}

}  // namespace

std::string html_report(const Subject& subject, const std::vector<Case>& cases, const std::string& text,
                        const SweepResult* sweep) {
  std::string data =
      fmt::format("{{\"file\":{},\"load\":{},\"seed\":{},\"text\":{},\"cases\":[", in_script(subject.file),
                  in_script(subject.load), subject.seed, in_script(text));
  for (std::size_t c = 0; c < cases.size(); ++c) {
    data += fmt::format("{}{{\"label\":{},\"interval\":{:.6g},\"rows\":[", c == 0 ? "" : ",",
                        in_script(cases[c].label), cases[c].prediction.interval);
    for (std::size_t r = 0; r < cases[c].prediction.rows.size(); ++r)
      data += (r == 0 ? "" : ",") + series(cases[c].prediction.rows[r]);
    data += "]}";
  }
  data += fmt::format("],\"sweep\":{}}}", sweep ? sweep_data(*sweep) : "null");
  return replaced(replaced(kReportPage, "/*UPLOT*/", kUplot), "/*DATA*/null", data);
}

}  // namespace bulkhead::simulate
