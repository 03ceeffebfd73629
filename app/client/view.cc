#include "app/client/view.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <span>
#include <stdexcept>

namespace bulkhead::client {
namespace {

using boost::json::value;
using cli::Paint;

const value* member(const value& v, std::string_view name) {
  const auto* const object = v.if_object();
  return object ? object->if_contains(name) : nullptr;
}

std::string text(const value& v, std::string_view name) {
  const value* const m = member(v, name);
  return m && m->is_string() ? std::string(m->get_string()) : std::string();
}

double real(const value& v, std::string_view name) {
  const value* const m = member(v, name);
  return m && m->is_number() ? m->to_number<double>() : 0;
}

std::uint64_t whole(const value& v, std::string_view name) {
  return static_cast<std::uint64_t>(real(v, name));
}
bool flag(const value& v, std::string_view name) {
  const value* const m = member(v, name);
  return m && m->is_bool() && m->get_bool();
}

double quantile(const value& v, std::string_view name, std::size_t i) {
  const value* const m = member(v, name);
  if (!m || !m->is_array() || m->get_array().size() <= i) return -1;
  return m->get_array()[i].to_number<double>();
}

std::string state_of(const BulkheadRow& row, const value& b) {
  if (flag(b, "closed")) return "closed";
  if (flag(b, "draining")) return "draining";
  if (row.breaker == "open" || row.breaker == "forced_open") return "open";
  if (const value* const fleet = member(b, "fleet"); fleet && fleet->is_object())
    if (const std::string state = text(*fleet, "state"); state != "leased") return state;
  if (row.rejected_rate > 0) return "rejecting";
  if (row.max_concurrent > 0 && row.in_flight >= row.max_concurrent) return "full";
  if (flag(b, "shadow")) return "shadow";
  const value* const enabled = member(b, "enabled");
  if (enabled && enabled->is_bool() && !enabled->get_bool()) return "disabled";
  return row.rate == 0 && row.in_flight == 0 ? "idle" : "ok";
}

std::string shown(const value& v) {
  if (v.is_string()) return std::string(v.get_string());
  if (v.is_bool()) return v.get_bool() ? "on" : "off";
  return v.is_number() ? fmt::format("{}", v.to_number<std::int64_t>()) : "?";
}

std::string override_of(const value& b) {
  const value* const list = member(b, "overrides");
  if (!list || !list->is_array() || list->get_array().empty()) return "";
  std::string out;
  for (const value& o : list->get_array()) {
    const value *const from = member(o, "from"), *const to = member(o, "to");
    const double left =
        real(o, "expires") -
        std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
    const std::string field = text(o, "field");
    out += out.empty() ? "" : "; ";
    out += field == "drain"
               ? "drain"
               : fmt::format("{} {}->{}", field, from ? shown(*from) : "?", to ? shown(*to) : "?");
    out += fmt::format(", {}, {} left", text(o, "by"), cli::span(left));
  }
  return out;
}

// A field that is missing is 0 or empty: the server may be older than this program.
BulkheadRow read_row(const value& b) {
  BulkheadRow row;
  row.name = text(b, "name");
  row.criticality = text(b, "criticality");
  row.in_flight = whole(b, "in_flight");
  row.max_concurrent = whole(b, "max_concurrent");
  row.configured_max_concurrent = whole(b, "configured_max_concurrent");
  row.waiting = whole(b, "waiting");
  row.max_queue = whole(b, "max_queue");
  row.rate = real(b, "rate");
  row.rejected_rate = real(b, "rejected_rate");
  row.wait_p99 = quantile(b, "wait", 2);
  row.service_p50 = quantile(b, "service", 0);
  row.service_p99 = quantile(b, "service", 2);
  row.since = real(b, "since");
  row.nested = flag(b, "nested");
  if (const value* const minute = member(b, "last_minute"); minute && minute->is_object()) {
    row.minute_calls = real(*minute, "calls");
    row.minute_rejected = real(*minute, "rejected");
  }
  if (const value* const total = member(b, "total")) row.rejected = whole(*total, "rejected");
  if (const value* const breaker = member(b, "breaker"); breaker && breaker->is_object()) {
    row.has_breaker = true;
    const std::string mode = text(*breaker, "mode");
    row.breaker = mode == "automatic" ? text(*breaker, "state") : mode;
  }
  double top = 0;
  if (const value* const reasons = member(b, "rejected"); reasons && reasons->is_object())
    for (const auto& [reason, rate] : reasons->get_object())
      if (rate.to_number<double>() > top)
        top = rate.to_number<double>(), row.top_reason = std::string(reason);
  row.override = override_of(b);
  row.state = state_of(row, b);
  return row;
}

PoolRow read_pool(const value& p) {
  const auto measured = [&](std::string_view name) {
    const value* const m = member(p, name);
    return m && m->is_number() ? m->to_number<double>() : -1;
  };
  return {.name = text(p, "name"),
          .kind = text(p, "kind"),
          .failing = text(p, "failing"),
          .used = whole(p, "used"),
          .idle = whole(p, "idle"),
          .opening = whole(p, "connecting"),
          .max = whole(p, "max"),
          .waiting = whole(p, "waiting"),
          .timeouts = whole(p, "timeouts"),
          .open_failures = whole(p, "open_failures"),
          .wait_p99 = measured("wait_p99"),
          .oldest_use = measured("oldest_use"),
          .bulkhead = text(p, "bulkhead"),
          .bulkhead_waiting = whole(p, "bulkhead_waiting")};
}

std::string clock_time(double unix_time) {  // local
  const auto whole = static_cast<std::time_t>(unix_time);
  std::tm local{};
  ::localtime_r(&whole, &local);
  return fmt::format("{:02}:{:02}:{:02}", local.tm_hour, local.tm_min, local.tm_sec);
}

std::string seconds(const cli::Style& style, double s) {
  return s < 0 ? "-" : cli::duration(style, static_cast<std::uint64_t>(s * 1e9));
}

struct Column {
  std::string_view name;
  std::size_t width;
  bool left;
  int dropped;            // when it gets narrow: 1 goes first, 0 never
  std::size_t least = 0;  // not 0: it may be cut to this before a name is cut
};
constexpr Column kColumns[] = {{"BULKHEAD", 8, true, 0},    {"STATE", 9, true, 0},
                               {"", 10, true, 1},           {"IN FLIGHT", 9, false, 0},
                               {"WAITING", 8, false, 7},    {"CALLS/S", 8, false, 6},
                               {"REJ/S", 7, false, 8},      {"REJ 1MIN", 8, false, 9},
                               {"SINCE", 8, true, 10},      {"WAIT P99", 9, false, 3},
                               {"P50", 8, false, 1},        {"P99", 8, false, 5},
                               {"BREAKER", 13, true, 0, 9}, {"LAST MINUTE", 15, true, 4},
                               {"OVERRIDE", 24, true, 5}};  // the last one gets what is left
constexpr std::size_t kBreakerColumn = 12, kHistoryColumn = 13, kOverrideColumn = 14;
constexpr Column kPoolColumns[] = {
    {"POOL", 8, true, 0},      {"KIND", 9, true, 3},      {"IN USE", 9, false, 0},
    {"IDLE", 6, false, 4},     {"OPENING", 8, false, 1},  {"WAITING", 8, false, 5},
    {"FAILURES", 9, false, 6}, {"WAIT P99", 9, false, 2}, {"OLDEST USE", 11, false, 1}};

constexpr Column kBudgetColumns[] = {{"BUDGET", 8, true, 0},   {"", 10, true, 3},
                                     {"IN USE", 17, false, 0}, {"CALLS", 6, false, 2},
                                     {"WAITING", 8, false, 5}, {"REJECTED", 9, false, 4}};

// Columns side by side: the first as wide as its names, the others as far as there is room for them.
class Layout {
 public:
  Layout(std::span<const Column> columns, std::size_t room) : columns_(columns), room_(room) {
    for (const Column& c : columns) widths_.push_back(c.width);
  }

  void name(std::string_view text) {
    widths_[0] = std::max(widths_[0], std::min<std::size_t>(cli::width(text), 32));
  }
  void drop(std::size_t column) { widths_[column] = 0; }
  void fit() {
    for (int drop = 1; drop <= 10 && total() > room_; ++drop) {
      if (drop == kShorterNames) shorten(kReadableName);
      if (total() <= room_) break;
      for (std::size_t i = 0; i < widths_.size(); ++i)
        if (columns_[i].dropped == drop) widths_[i] = 0;
    }
    for (std::size_t i = 1; i < widths_.size(); ++i)
      if (columns_[i].least > 0) shorten(columns_[i].least, i);
    shorten(columns_[0].width);
  }
  void widen_last() {
    if (widths_.back() > 0 && total() < room_) widths_.back() += room_ - total();
  }

  std::string heading() const {
    std::vector<std::string> names;
    for (const Column& c : columns_) names.emplace_back(c.name);
    return line(names);
  }
  std::string line(const std::vector<std::string>& cells) const {
    std::string out = " ";
    for (std::size_t i = 0; i < cells.size(); ++i) {
      if (widths_[i] == 0) continue;
      const std::string cell = cli::clip(cells[i], widths_[i]);
      out += (columns_[i].left ? cli::pad_right(cell, widths_[i]) : cli::pad_left(cell, widths_[i])) + ' ';
    }
    out.erase(out.find_last_not_of(' ') + 1);
    return cli::clip(out, room_);
  }

 private:
  // From here on a long name gives way before a column does: the columns that are left say what is wrong.
  static constexpr int kShorterNames = 7;
  static constexpr std::size_t kReadableName = 16;

  void shorten(std::size_t least, std::size_t column = 0) {
    std::size_t& width = widths_[column];
    if (total() <= room_ || width <= least) return;
    width -= std::min(width - least, total() - room_);
  }
  std::size_t total() const {
    std::size_t sum = 0;  // each has a space before it, and the last one none behind it
    for (const std::size_t w : widths_) sum += w > 0 ? w + 1 : 0;
    return sum;
  }

  const std::span<const Column> columns_;
  const std::size_t room_;
  std::vector<std::size_t> widths_;  // 0: it is not shown
};

Paint state_paint(std::string_view state) {
  if (state == "ok") return Paint::green;
  if (state == "idle" || state == "disabled") return Paint::dim;
  if (state == "full" || state == "shadow" || state == "draining") return Paint::yellow;
  return Paint::red;
}

}  // namespace

View read_view(const value& snapshot) {
  View view;
  view.instance = text(snapshot, "instance");
  view.version = text(snapshot, "version");
  view.uptime = real(snapshot, "uptime");
  if (const value* const verdict = member(snapshot, "verdict")) {
    view.verdict = text(*verdict, "sentence");
    view.severity = text(*verdict, "severity");
  }
  if (const value* const config = member(snapshot, "config")) {
    view.config = text(*config, "state");
    view.file = text(*config, "file");
    view.error = text(*config, "error");  // perhaps with the line it is about, and a caret under it
    view.error.erase(std::min(view.error.find('\n'), view.error.size()));
  }
  const value* const bulkheads = member(snapshot, "bulkheads");
  if (!bulkheads || !bulkheads->is_array())
    throw std::runtime_error("it has no list of bulkheads; is that a control plane?");
  for (const value& b : bulkheads->get_array()) {
    view.rows.push_back(read_row(b));
    if (const value* const list = member(b, "budgets"); list && list->is_array())
      for (const value& one : list->get_array())
        view.budgets.push_back({.name = text(b, "name") + "/" + text(one, "name"),
                                .in_use = whole(one, "in_use"),
                                .max = whole(one, "max"),
                                .calls = whole(one, "calls"),
                                .waiting = whole(one, "waiting"),
                                .rejected = whole(one, "rejected")});
  }
  if (const value* const list = member(snapshot, "pools"); list && list->is_array())
    for (const value& p : list->get_array()) view.pools.push_back(read_pool(p));
  return view;
}

void add_history(View& view, const value& history) {
  const value* const list = member(history, "bulkheads");
  if (!list || !list->is_array()) return;
  for (const value& b : list->get_array()) {
    const auto row = std::ranges::find(view.rows, text(b, "name"), &BulkheadRow::name);
    const value* const used = member(b, "in_flight");
    if (row == view.rows.end() || !used || !used->is_array()) continue;
    row->history.clear();
    // max_concurrent is given where it changes: [bucket, value].
    const value* const limits = member(b, "max_concurrent");
    std::size_t next = 0;
    double limit = 0;
    for (std::size_t i = 0; i < used->get_array().size(); ++i) {
      if (limits && limits->is_array())
        for (const auto& changes = limits->get_array();
             next < changes.size() && changes[next].at(0).to_number<std::size_t>() <= i; ++next)
          limit = changes[next].at(1).to_number<double>();
      const value& v = used->get_array()[i];
      row->history.push_back(!v.is_number() || limit <= 0 ? -1 : v.to_number<double>() / limit);
    }
  }
}

std::string verdict_lines(const cli::Style& style, const View& view, std::size_t columns) {
  if (view.verdict.empty()) return "";
  const Paint paint = view.severity == "critical"  ? Paint::bold_red
                      : view.severity == "warning" ? Paint::yellow
                      : view.severity == "ok"      ? Paint::green
                                                   : Paint::none;
  std::string out;
  const std::string wrapped = cli::wrap(view.verdict, columns);
  for (std::size_t at = 0; at < wrapped.size();) {  // each line has its own colour codes
    const std::size_t end = std::min(wrapped.find('\n', at), wrapped.size());
    out += cli::paint(style, paint, wrapped.substr(at, end - at)) + '\n';
    at = end + 1;
  }
  return out;
}

std::string_view to_string(SortBy sort) noexcept {
  constexpr std::string_view kNames[] = {"name", "utilization", "rejected", "calls", "wait"};
  return kNames[static_cast<std::size_t>(sort)];
}

void sort_rows(std::vector<BulkheadRow>& rows, SortBy sort) {
  const auto key = [sort](const BulkheadRow& row) {
    switch (sort) {
      case SortBy::utilization:
        return row.utilization();
      case SortBy::rejected:
        return row.rejected_rate;
      case SortBy::rate:
        return row.rate;
      case SortBy::wait:
        return row.wait_p99;
      case SortBy::name:
        break;
    }
    return 0.0;
  };
  std::ranges::sort(rows, [&](const BulkheadRow& a, const BulkheadRow& b) {
    return key(a) != key(b) ? key(a) > key(b) : a.name < b.name;
  });
}

std::vector<std::string> table(const cli::Style& style, const std::vector<BulkheadRow>& rows,
                               std::size_t columns, std::size_t selected) {
  Layout layout(kColumns, columns);
  for (const BulkheadRow& row : rows) layout.name(row.name);
  if (std::ranges::all_of(rows, [](const BulkheadRow& row) { return row.override.empty(); }))
    layout.drop(kOverrideColumn);
  if (std::ranges::none_of(rows, &BulkheadRow::has_breaker)) layout.drop(kBreakerColumn);
  if (std::ranges::all_of(rows, [](const BulkheadRow& row) { return row.history.empty(); }))
    layout.drop(kHistoryColumn);
  layout.fit();
  layout.widen_last();
  std::vector<std::string> lines{cli::paint(style, Paint::bold, layout.heading())};
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const BulkheadRow& r = rows[i];
    const Paint load = r.utilization() >= 1     ? Paint::red
                       : r.utilization() >= 0.8 ? Paint::yellow
                                                : Paint::green;
    std::string text = layout.line(
        {cli::paint(style, r.criticality == "critical" ? Paint::bold : Paint::none, r.name),
         cli::paint(style, state_paint(r.state), r.state),
         cli::paint(style, load, cli::bar(style, std::min(1.0, r.utilization()), 10)),
         fmt::format("{}/{}", r.in_flight, r.max_concurrent), fmt::format("{}/{}", r.waiting, r.max_queue),
         fmt::format("{:.1f}", r.rate),
         cli::paint(style, r.rejected_rate > 0 ? Paint::red : Paint::dim,
                    fmt::format("{:.1f}", r.rejected_rate)),
         cli::percent(r.minute_share()), r.since > 0 ? clock_time(r.since) : "-", seconds(style, r.wait_p99),
         seconds(style, r.service_p50), seconds(style, r.service_p99), r.breaker.empty() ? "-" : r.breaker,
         cli::sparkline(style, r.history, 1), cli::paint(style, Paint::yellow, r.override)});
    if (i == selected)
      text = (style.colour ? cli::paint(style, Paint::inverse, ">") : std::string(">")) + text.substr(1);
    lines.push_back(std::move(text));
  }
  return lines;
}

std::vector<std::string> budget_table(const cli::Style& style, const std::vector<BudgetRow>& budgets,
                                      std::size_t columns) {
  if (budgets.empty()) return {};
  Layout layout(kBudgetColumns, columns);
  for (const BudgetRow& b : budgets) layout.name(b.name);
  layout.fit();
  std::vector<std::string> lines{"", cli::paint(style, Paint::bold, layout.heading())};
  for (const BudgetRow& b : budgets) {
    const double used = b.max > 0 ? static_cast<double>(b.in_use) / static_cast<double>(b.max) : 0;
    const Paint load = used >= 1 ? Paint::red : used >= 0.8 ? Paint::yellow : Paint::green;
    lines.push_back(layout.line({b.name, cli::paint(style, load, cli::bar(style, std::min(1.0, used), 10)),
                                 fmt::format("{}/{}", b.in_use, b.max), std::to_string(b.calls),
                                 std::to_string(b.waiting), std::to_string(b.rejected)}));
  }
  return lines;
}

std::vector<std::string> pool_table(const cli::Style& style, const std::vector<PoolRow>& pools,
                                    std::size_t columns) {
  if (pools.empty()) return {};
  Layout layout(kPoolColumns, columns);
  for (const PoolRow& p : pools) layout.name(p.name);
  layout.fit();
  std::vector<std::string> lines{"", cli::paint(style, Paint::bold, layout.heading())};
  for (const PoolRow& p : pools) {
    std::string row = layout.line({p.name, p.kind.empty() ? "-" : p.kind, fmt::format("{}/{}", p.used, p.max),
                                   std::to_string(p.idle), std::to_string(p.opening),
                                   std::to_string(p.waiting), std::to_string(p.timeouts + p.open_failures),
                                   seconds(style, p.wait_p99), seconds(style, p.oldest_use)});
    if (p.bulkhead_waiting > 0) row += fmt::format("  and {} waiting at {}", p.bulkhead_waiting, p.bulkhead);
    if (!p.failing.empty()) row += "  " + cli::paint(style, Paint::red, "failing: " + p.failing);
    lines.push_back(std::move(row));
  }
  return lines;
}

}  // namespace bulkhead::client
