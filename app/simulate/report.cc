#include "app/simulate/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace bulkhead::simulate {
namespace {

using cli::Style;

std::string count(double n) { return fmt::format("{:.0f}", n); }
std::string per_second(double n) {
  return n >= 100 ? fmt::format("{:.0f}/s", n) : fmt::format("{:.1f}/s", n);
}

struct Column {
  std::string above, name;
  bool times = false;  // goes to the second table if one is too wide
};

// Rows of cells below two lines of headings; the first `left` columns are left-aligned.
std::string layout(const Style& style, const std::vector<Column>& columns,
                   const std::vector<std::vector<std::string>>& rows, std::size_t left) {
  std::vector<std::size_t> widths;
  for (std::size_t c = 0; c < columns.size(); ++c) {
    std::size_t width = std::max(cli::width(columns[c].above), cli::width(columns[c].name));
    for (const auto& row : rows) width = std::max(width, cli::width(row[c]));
    widths.push_back(width);
  }
  std::string text;
  const auto line = [&](const auto& cell, cli::Paint colour) {
    std::string out;
    for (std::size_t c = 0; c < columns.size(); ++c)
      out += (c == 0 ? " " : "  ") +
             (c < left ? cli::pad_right(cell(c), widths[c]) : cli::pad_left(cell(c), widths[c]));
    out.erase(out.find_last_not_of(' ') + 1);
    text += cli::paint(style, colour, out) + "\n";
  };
  const bool two =
      std::any_of(columns.begin(), columns.end(), [](const Column& c) { return !c.above.empty(); });
  if (two) line([&](std::size_t c) { return columns[c].above; }, cli::Paint::dim);
  line([&](std::size_t c) { return columns[c].name; }, cli::Paint::bold);
  for (const auto& row : rows) line([&](std::size_t c) { return row[c]; }, cli::Paint::none);
  return text;
}

std::string rejections(const sim::Tally& t) {
  std::string text;
  const auto add = [&](std::string_view what, std::uint64_t n) {
    if (n > 0) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", what, n);
  };
  for (std::size_t i = 0; i < kReasons; ++i) add(to_string(static_cast<Reason>(i)), t.rejected_by_reason[i]);
  add("failed", t.failed);
  add("timed out", t.timed_out);
  add("clients gave up", t.gave_up);
  add("not finished", t.unfinished);
  add("retries among the calls", t.retries);
  return text;
}

std::string priorities(const PredictionRow& row) {
  std::string text;
  int used = 0;
  for (std::size_t p = 0; p < kPriorities; ++p) {
    const sim::Tally& t = row.outcome.by_priority[p];
    if (t.calls == 0) continue;
    ++used;
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", to_string(static_cast<Priority>(p)),
                        cli::percent(t.served_share()));
  }
  return used > 1 ? "served by priority: " + text : "";
}

}  // namespace

double total_ms(const sim::Tally& t, double q) { return static_cast<double>(t.total.quantile(q)) / 1e6; }
double wait_ms(const sim::Tally& t, double q) { return static_cast<double>(t.wait.quantile(q)) / 1e6; }
double lost_share(const sim::Tally& t) {
  return t.calls > 0 ? static_cast<double>(t.failed + t.timed_out + t.gave_up + t.unfinished) /
                           static_cast<double>(t.calls)
                     : 0;
}

std::string table_text(const Style& style, const Subject& subject, const std::vector<Case>& cases,
                       std::size_t screen) {
  const Prediction& first = cases.front().prediction;
  std::string text = fmt::format(
      " {} with {}: {}{}, {} calls, seed {}\n\n", subject.file, subject.load, cli::span(first.seconds),
      first.replicas > 1 ? fmt::format(", {} replicas", first.replicas) : "", first.calls, subject.seed);
  const bool several = cases.size() > 1;
  std::vector<Column> columns{{"", "bulkhead"}};
  if (several) columns.push_back({"", "with"});
  const std::size_t left = columns.size();
  for (const char* name : {"calls", "served", "rejected", "failed"}) columns.push_back({"", name});
  columns.push_back({"wait", "p50", true});
  columns.push_back({"", "p99", true});
  columns.push_back({"total", "p50", true});
  columns.push_back({"", "p99", true});
  columns.push_back({"", "utilisation"});
  columns.push_back({"", "goodput"});
  std::vector<std::vector<std::string>> rows;
  for (std::size_t r = 0; r < first.rows.size(); ++r)
    for (std::size_t c = 0; c < cases.size(); ++c) {
      const PredictionRow& row = cases[c].prediction.rows[r];
      const sim::Tally& t = row.all;
      std::vector<std::string> cells{c == 0 ? cli::printable(row.name) : ""};
      if (several) cells.push_back(cases[c].label);
      cells.insert(cells.end(), {count(static_cast<double>(t.calls)), cli::percent(t.served_share()),
                                 cli::percent(t.rejected_share()), cli::percent(lost_share(t))});
      const auto time = [&](const HistogramCounts& h, double q) {
        return h.count() == 0 ? "-" : h.quantile(q) <= 1 ? "0" : cli::duration(style, h.quantile(q));
      };
      cells.insert(cells.end(),
                   {time(t.wait, 0.5), time(t.wait, 0.99), time(t.total, 0.5), time(t.total, 0.99)});
      cells.push_back(row.utilisation < 0 ? "-" : cli::percent(row.utilisation));
      cells.push_back(per_second(row.goodput));
      rows.push_back(std::move(cells));
    }
  std::string whole = layout(style, columns, rows, left);
  std::size_t widest = 0;
  for (std::size_t at = 0; at < whole.size();) {
    const std::size_t end = whole.find('\n', at);
    widest = std::max(widest, cli::width(whole.substr(at, end - at)));
    at = end + 1;
  }
  if (screen == 0 || widest <= screen) {
    text += whole;
  } else {
    for (const bool times : {false, true}) {
      std::vector<Column> some;
      std::vector<std::vector<std::string>> parts(rows.size());
      for (std::size_t c = 0; c < columns.size(); ++c) {
        if (c >= left && columns[c].times != times) continue;
        some.push_back(columns[c]);
        for (std::size_t r = 0; r < rows.size(); ++r) parts[r].push_back(rows[r][c]);
      }
      text += (times ? "\n" : "") + layout(style, some, parts, left);
    }
  }

  std::string details;
  for (std::size_t r = 0; r < first.rows.size(); ++r)
    for (const Case& one : cases) {
      const PredictionRow& row = one.prediction.rows[r];
      std::string said = rejections(row.all);
      if (const std::string by = priorities(row); !by.empty()) said += (said.empty() ? "" : "; ") + by;
      if (!said.empty())
        details += cli::wrap(fmt::format("{}{}: {}", row.name, several ? " (" + one.label + ")" : "", said),
                             screen == 0 ? 200 : screen - 2, "   ") +
                   "\n";
    }
  if (!details.empty()) text += "\n Not served, by reason:\n" + details;
  if (!first.dependencies.empty()) {
    text += "\n Dependencies:\n";
    for (std::size_t d = 0; d < first.dependencies.size(); ++d)
      for (const Case& one : cases) {
        const DependencyRow& row = one.prediction.dependencies[d];
        text += fmt::format("   {}{}: {} of {} slots busy\n", row.name, several ? " (" + one.label + ")" : "",
                            cli::percent(row.use), row.slots);
      }
  }
  if (first.store_requests > 0) {
    text += "\n Store of the fleet:\n";
    for (const Case& one : cases)
      text += fmt::format("   {}{:.1f} requests/s\n", several ? one.label + ": " : "",
                          static_cast<double>(one.prediction.store_requests) / one.prediction.seconds);
  }
  return text;
}

void write_case(cli::JsonWriter& json, const Case& one) {
  const auto times = [&](std::string_view name, const HistogramCounts& h) {
    json.open(name);
    for (const auto& [field, q] : {std::pair{"p50", 0.5}, {"p90", 0.9}, {"p99", 0.99}})
      if (h.count() == 0)
        json.null(field);
      else
        json.field(field, h.quantile(q) <= 1 ? 0.0 : static_cast<double>(h.quantile(q)) / 1e6);
    json.close();
  };
  const auto tally = [&](const sim::Tally& t) {
    json.field("calls", t.calls).field("served", t.served).field("served_share", t.served_share());
    json.field("rejected", t.rejected()).field("rejected_share", t.rejected_share());
    json.open("rejected_by_reason");
    for (std::size_t i = 0; i < kReasons; ++i)
      if (t.rejected_by_reason[i] > 0) json.field(to_string(static_cast<Reason>(i)), t.rejected_by_reason[i]);
    json.close();
    json.field("failed", t.failed).field("timed_out", t.timed_out).field("gave_up", t.gave_up);
    json.field("unfinished", t.unfinished).field("retries", t.retries);
    times("wait_ms", t.wait);
    times("total_ms", t.total);
  };
  json.list("bulkheads");
  for (const PredictionRow& row : one.prediction.rows) {
    json.open().field("name", row.name);
    tally(row.all);
    json.field("goodput_per_second", row.goodput).field("in_flight", row.outcome.in_flight);
    if (row.utilisation >= 0)
      json.field("max_concurrent", row.outcome.limit).field("utilisation", row.utilisation);
    else
      json.null("max_concurrent").null("utilisation");
    json.open("by_priority");
    for (std::size_t p = 0; p < kPriorities; ++p)
      if (row.outcome.by_priority[p].calls > 0) {
        json.open(to_string(static_cast<Priority>(p)));
        tally(row.outcome.by_priority[p]);
        json.close();
      }
    json.close().close();
  }
  json.close().list("dependencies");
  for (const DependencyRow& d : one.prediction.dependencies)
    json.open().field("name", d.name).field("slots", d.slots).field("utilisation", d.use).close();
  json.close().field("store_requests", one.prediction.store_requests);
}

void begin_json(cli::JsonWriter& json, const Subject& subject, const Prediction& of,
                std::string_view version) {
  json.open().field("schema", "bulkhead.simulate/1").field("version", version);
  json.field("file", subject.file).field("load", subject.load).field("seed", subject.seed);
  json.field("seconds", of.seconds).field("replicas", of.replicas).field("calls", of.calls);
}

std::string json_text(const Subject& subject, const std::vector<Case>& cases, std::string_view version) {
  cli::JsonWriter json;
  begin_json(json, subject, cases.front().prediction, version);
  json.list("cases");
  for (const Case& one : cases) {
    json.open().field("label", one.label);
    write_case(json, one);
    json.close();
  }
  return json.close().close().text();
}

}  // namespace bulkhead::simulate
