#include "app/simulate/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstring>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>

#include "base/suggest.h"
#include "config/values.h"

namespace bulkhead::simulate {
namespace {

constexpr std::size_t kMostProblems = 20;

std::optional<double> number(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || !std::isfinite(value)) return std::nullopt;
  return value;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t' || text.back() == '\r'))
    text.remove_suffix(1);
  if (text.size() >= 2 && text.front() == '"' && text.back() == '"') text = text.substr(1, text.size() - 2);
  return text;
}

void split(std::string_view line, std::vector<std::string_view>& cells) {
  cells.clear();
  for (;;) {
    const std::size_t comma = line.find(',');
    cells.push_back(trimmed(line.substr(0, comma)));
    if (comma == line.npos) return;
    line.remove_prefix(comma + 1);
  }
}

// Seconds, or a duration with its unit.
std::optional<double> seconds(std::string_view text) {
  if (const auto n = number(text)) return *n;
  const auto span = config::read_duration(
      {.kind = config::Node::Kind::scalar, .quoted = true, .text = std::string(text)}, false);
  if (!span) return std::nullopt;
  return static_cast<double>(span->count()) / 1e9;
}

enum Column : std::uint8_t { kTime, kBulkhead, kDuration, kOutcome, kPriority, kTenant, kColumns };
const std::vector<std::string> kNames{"time", "bulkhead", "duration", "outcome", "priority", "tenant"};

class TraceReader {
 public:
  TraceReader(Trace& trace, const std::string& file, const Config& config) : trace_(trace), file_(file) {
    for (const BulkheadConfig& b : config.bulkheads) known_.push_back(b.options.name);
    for (const TenantsConfig& t : config.tenants) {
      known_.push_back(t.each.options.name);
      sets_.push_back(t.each.options.name);
    }
  }

  void read(std::string_view text) {
    std::vector<std::string_view> cells;
    for (std::uint32_t line = 1; !text.empty() && trace_.problems.size() < kMostProblems; ++line) {
      const std::size_t end = std::min(text.find('\n'), text.size());
      source_ = text.substr(0, end);
      text.remove_prefix(std::min(end + 1, text.size()));
      if (trimmed(source_).empty() || source_.front() == '#') continue;
      split(source_, cells);
      if (at_[kTime] == kNone) {
        if (!headings(line, cells)) return;
      } else {
        row(line, cells);
      }
    }
    if (trace_.problems.empty() && rows_.empty())
      complain(1, "has no calls",
               "the first line names the columns: time,bulkhead,duration,outcome,priority,tenant");
    if (trace_.ok()) finish();
  }

 private:
  static constexpr std::size_t kNone = SIZE_MAX;
  struct Row {
    double at;
    std::size_t order, bulkhead;
    sim::RecordedCall call;
  };

  void complain(std::uint32_t line, std::string message, std::string hint) {
    trace_.problems.push_back({.file = file_,
                               .at = {line, 1},
                               .path = {},
                               .message = std::move(message),
                               .hint = std::move(hint),
                               .source = config::printable(source_)});
  }

  bool headings(std::uint32_t line, const std::vector<std::string_view>& cells) {
    for (std::size_t c = 0; c < cells.size(); ++c) {
      const auto name = std::find(kNames.begin(), kNames.end(), cells[c]);
      if (name != kNames.end()) at_[static_cast<std::size_t>(name - kNames.begin())] = c;
    }
    for (const Column column : {kTime, kBulkhead, kDuration})
      if (at_[column] == kNone) {
        complain(line, fmt::format("the first line names no column \"{}\"", kNames[column]),
                 "write time,bulkhead,duration,outcome,priority,tenant; the last three may be left out");
        return false;
      }
    return true;
  }

  std::string_view cell(const std::vector<std::string_view>& cells, Column column) const {
    return at_[column] < cells.size() ? cells[at_[column]] : std::string_view();
  }

  // One recorded call. A line that cannot be read is reported with its number; the others are read on.
  void row(std::uint32_t line, const std::vector<std::string_view>& cells) {
    Row row{};
    const auto at = number(cell(cells, kTime));
    if (!at)
      return complain(line, fmt::format("\"{}\" is not a time", cell(cells, kTime)),
                      "give seconds, such as 12.345");
    row.at = *at;
    const auto took = seconds(cell(cells, kDuration));
    if (!took || *took < 0 || *took > 86'400)
      return complain(line, fmt::format("\"{}\" is not a duration", cell(cells, kDuration)),
                      "give seconds, such as 0.045, or 45ms");
    row.call.work = static_cast<Nanos>(*took * 1e9);
    const std::string name(cell(cells, kBulkhead));
    const auto known = std::find(known_.begin(), known_.end(), name);
    if (known == known_.end()) {
      const std::string near = base::suggest(name, known_);
      std::string all;
      for (const std::string& k : known_) all += (all.empty() ? "" : ", ") + k;
      return complain(line, fmt::format("\"{}\" is not a bulkhead of the configuration", name),
                      near.empty() ? "known: " + all : "did you mean " + near + "?");
    }
    row.bulkhead = static_cast<std::size_t>(known - known_.begin());
    const std::string_view outcome = cell(cells, kOutcome);
    if (outcome == "failure" || outcome == "timeout" || outcome == "failed" || outcome == "error")
      row.call.fails = true;
    else if (!outcome.empty() && outcome != "ok" && outcome != "success" && outcome != "served")
      return complain(line, fmt::format("\"{}\" is not an outcome", outcome), "give ok or failure");
    if (const std::string_view priority = cell(cells, kPriority); !priority.empty()) {
      bool found = false;
      for (std::size_t p = 0; p < kPriorities; ++p)
        if (priority == to_string(static_cast<Priority>(p))) {
          row.call.priority = static_cast<Priority>(p);
          found = true;
        }
      if (!found)
        return complain(line, fmt::format("\"{}\" is not a priority", priority),
                        "give critical, normal or best_effort");
    }
    if (const std::string_view tenant = cell(cells, kTenant); !tenant.empty())
      row.call.tenant = tenants_.emplace(tenant, static_cast<std::uint32_t>(tenants_.size())).first->second;
    else if (std::find(sets_.begin(), sets_.end(), name) != sets_.end())
      return complain(line, fmt::format("{} is a set of tenants, and the call names none", name),
                      "give the column tenant");
    row.order = rows_.size();
    rows_.push_back(row);
  }

  void finish() {
    std::sort(rows_.begin(), rows_.end(),
              [](const Row& a, const Row& b) { return a.at != b.at ? a.at < b.at : a.order < b.order; });
    const double first = rows_.front().at;
    std::map<std::size_t, std::size_t> places;
    for (Row& row : rows_) {
      const auto [place, is_new] = places.emplace(row.bulkhead, trace_.bulkheads.size());
      if (is_new) trace_.bulkheads.push_back({known_[row.bulkhead], {}});
      row.call.at = static_cast<Nanos>((row.at - first) * 1e9);
      trace_.bulkheads[place->second].calls.push_back(row.call);
    }
    trace_.calls = rows_.size();
    trace_.length = static_cast<Nanos>((rows_.back().at - first) * 1e9) + 1;
  }

  Trace& trace_;
  const std::string file_;
  std::vector<std::string> known_, sets_;
  std::array<std::size_t, kColumns> at_{kNone, kNone, kNone, kNone, kNone, kNone};
  std::map<std::string, std::uint32_t, std::less<>> tenants_;
  std::string_view source_;
  std::vector<Row> rows_;
};

// ---- access logs ----

struct Piece {
  std::string variable;  // empty: the literal only
  std::string literal;   // what follows
};

std::vector<Piece> pieces_of(std::string_view format) {
  std::vector<Piece> pieces{{}};
  while (!format.empty()) {
    if (format[0] == '$') {
      format.remove_prefix(1);
      const bool braces = format.starts_with("{");
      if (braces) format.remove_prefix(1);
      std::size_t n = 0;
      while (n < format.size() && (std::isalnum(static_cast<unsigned char>(format[n])) || format[n] == '_'))
        ++n;
      pieces.push_back({std::string(format.substr(0, n)), ""});
      format.remove_prefix(n);
      if (braces && format.starts_with("}")) format.remove_prefix(1);
    } else {
      pieces.back().literal += format[0];
      format.remove_prefix(1);
    }
  }
  return pieces;
}

std::optional<std::vector<std::string_view>> match(std::string_view line, const std::vector<Piece>& pieces) {
  std::vector<std::string_view> values(pieces.size());
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const Piece& piece = pieces[i];
    if (!piece.variable.empty()) {
      const std::size_t end =
          piece.literal.empty() ? (i + 1 == pieces.size() ? line.size() : 0) : line.find(piece.literal);
      if (end == line.npos) return std::nullopt;
      values[i] = line.substr(0, end);
      line.remove_prefix(end);
    }
    if (!line.starts_with(piece.literal)) return std::nullopt;
    line.remove_prefix(piece.literal.size());
  }
  return values;
}

int two(std::string_view text, std::size_t at) {
  return at + 2 <= text.size() && std::isdigit(static_cast<unsigned char>(text[at])) &&
                 std::isdigit(static_cast<unsigned char>(text[at + 1]))
             ? (text[at] - '0') * 10 + (text[at + 1] - '0')
             : -1;
}

double epoch(int year, int month, int day, int hour, int minute, int second, int offset_minutes) {
  using namespace std::chrono;
  const sys_days date = std::chrono::year(year) / std::chrono::month(static_cast<unsigned>(month)) /
                        std::chrono::day(static_cast<unsigned>(day));
  return static_cast<double>(date.time_since_epoch().count()) * 86'400 + hour * 3600 + minute * 60 + second -
         offset_minutes * 60;
}

// 10/Oct/2025:13:55:36 +0200
std::optional<double> local_time(std::string_view t) {
  constexpr std::array<std::string_view, 12> kMonths{"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                                     "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  if (t.size() != 26) return std::nullopt;
  const auto month = std::find(kMonths.begin(), kMonths.end(), t.substr(3, 3));
  const int day = two(t, 0), year = two(t, 7) * 100 + two(t, 9);
  const int offset = (two(t, 22) * 60 + two(t, 24)) * (t[21] == '-' ? -1 : 1);
  if (month == kMonths.end() || day < 1 || two(t, 12) < 0 || two(t, 15) < 0 || two(t, 18) < 0)
    return std::nullopt;
  return epoch(year, static_cast<int>(month - kMonths.begin()) + 1, day, two(t, 12), two(t, 15), two(t, 18),
               offset);
}

// 2025-10-10T13:55:36+02:00
std::optional<double> iso_time(std::string_view t) {
  if (t.size() != 25 || t[4] != '-' || t[10] != 'T') return std::nullopt;
  const int offset = (two(t, 20) * 60 + two(t, 23)) * (t[19] == '-' ? -1 : 1);
  if (two(t, 5) < 1 || two(t, 5) > 12 || two(t, 8) < 1 || two(t, 11) < 0) return std::nullopt;
  return epoch(two(t, 0) * 100 + two(t, 2), two(t, 5), two(t, 8), two(t, 11), two(t, 14), two(t, 17), offset);
}

// "0.010, 0.020 : 0.030": the tries of one request.
std::optional<double> tries(std::string_view text) {
  double sum = 0;
  bool any = false;
  std::string word;
  std::istringstream words{std::string(text)};
  while (words >> word) {
    if (word.ends_with(",")) word.pop_back();
    if (const auto n = number(word)) {
      sum += *n;
      any = true;
    }
  }
  return any ? std::optional(sum) : std::nullopt;
}

std::string csv_name(std::string_view text) {
  std::string name;
  for (const char c : text) name += c == ',' || c == '"' || static_cast<unsigned char>(c) < 0x20 ? '_' : c;
  return name;
}

}  // namespace

Trace parse_trace(std::string_view text, const std::string& file, const Config& config) {
  Trace trace;
  TraceReader(trace, file, config).read(text);
  return trace;
}

Trace read_trace(const std::string& path, const Config& config) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (file) text << file.rdbuf();
  if (!file.is_open() || (text.str().empty() && errno != 0)) {
    Trace trace;
    trace.readable = false;
    trace.problems.push_back(
        {.file = path, .message = std::string("cannot read it: ") + std::strerror(errno)});
    return trace;
  }
  return parse_trace(text.str(), path, config);
}

// A recorded bulkhead replaces its described arrivals; what the load file says of its dependency stays.
void apply(const Trace& trace, Load& load) {
  std::vector<Load::Calls> calls;
  for (const Trace::OfBulkhead& recorded : trace.bulkheads) {
    const auto described = std::find_if(load.calls.begin(), load.calls.end(), [&](const Load::Calls& c) {
      return c.bulkhead == recorded.bulkhead;
    });
    Load::Calls one;
    if (described != load.calls.end()) {
      one = *described;
    } else {
      one.bulkhead = one.dependency = recorded.bulkhead;
      one.stream.dependency = static_cast<std::uint32_t>(load.dependencies.size());
      load.dependencies.push_back({.name = recorded.bulkhead});
      load.dependencies.back().plan.shape.model = sim::Model::shared;
    }
    one.stream.arrivals = {.shape = sim::Arrivals::Shape::recorded};
    one.stream.recorded = recorded.calls;
    calls.push_back(std::move(one));
  }
  load.calls = std::move(calls);
  if (load.duration == 0) load.duration = trace.length;
}

Converted convert_log(std::string_view log, const std::string& file, const std::string& format,
                      const std::vector<std::string>& routes) {
  Converted result;
  const std::vector<Piece> pieces = pieces_of(format);
  const auto find = [&](std::initializer_list<std::string_view> names) -> std::optional<std::size_t> {
    for (const std::string_view name : names)
      for (std::size_t i = 0; i < pieces.size(); ++i)
        if (pieces[i].variable == name) return i;
    return std::nullopt;
  };
  const auto containing = [&](std::string_view part) -> std::optional<std::size_t> {
    for (std::size_t i = 0; i < pieces.size(); ++i)
      if (pieces[i].variable.find(part) != std::string::npos) return i;
    return std::nullopt;
  };
  const auto time = find({"msec", "time_iso8601", "time_local"});
  const auto request = find({"request_uri", "uri", "request"});
  const auto upstream = find({"upstream_response_time"}), took = find({"request_time"});
  const auto status = find({"status"}), tenant = containing("tenant"), priority = containing("priority");
  if (!time || !request || (!took && !upstream)) {
    result.problem =
        fmt::format("the format has no {}: give --format as log_format of your nginx.conf, with {}",
                    !time      ? "time"
                    : !request ? "request"
                               : "duration",
                    !time      ? "$msec or $time_local"
                    : !request ? "$request"
                               : "$request_time");
    return result;
  }
  std::vector<std::pair<std::string, std::string>> prefixes;
  for (const std::string& route : routes) {
    const std::size_t equals = route.find('=');
    if (equals == route.npos || equals == 0 || equals + 1 == route.size()) {
      result.problem = fmt::format("\"{}\" is not a route: write --route /checkout=checkout", route);
      return result;
    }
    prefixes.emplace_back(route.substr(0, equals), route.substr(equals + 1));
  }
  std::sort(prefixes.begin(), prefixes.end(),
            [](const auto& a, const auto& b) { return a.first.size() > b.first.size(); });
  const auto bulkhead_of = [&](std::string_view path) -> std::string {
    for (const auto& [prefix, bulkhead] : prefixes)
      if (path.starts_with(prefix)) return bulkhead;
    if (!prefixes.empty()) return "";
    while (path.starts_with("/")) path.remove_prefix(1);
    path = path.substr(0, path.find_first_of("/?"));
    return path.empty() ? "root" : csv_name(path);
  };

  struct Line {
    double at;
    std::size_t order;
    std::string text;
  };
  std::vector<Line> lines;
  std::uint64_t count = 0;
  while (!log.empty()) {
    const std::size_t end = std::min(log.find('\n'), log.size());
    std::string_view line = log.substr(0, end);
    log.remove_prefix(std::min(end + 1, log.size()));
    ++count;
    if (line.ends_with("\r")) line.remove_suffix(1);
    if (line.empty()) continue;
    const auto values = match(line, pieces);
    std::optional<double> at, duration;
    if (values) {
      const std::string_view when = (*values)[*time];
      at = pieces[*time].variable == "msec"           ? number(when)
           : pieces[*time].variable == "time_iso8601" ? iso_time(when)
                                                      : local_time(when);
      if (upstream) duration = tries((*values)[*upstream]);
      if (!duration && took) duration = number((*values)[*took]);
    }
    if (!at || !duration) {
      if (++result.skipped == 1)
        result.first_skipped = fmt::format("{}:{}: {}", file, count, config::printable(line.substr(0, 120)));
      continue;
    }
    std::string_view path = (*values)[*request];
    if (pieces[*request].variable == "request") {  // GET /path HTTP/1.1
      path.remove_prefix(std::min(path.find(' ') + 1, path.size()));
      path = path.substr(0, path.find(' '));
    }
    const std::string bulkhead = bulkhead_of(path);
    if (bulkhead.empty()) continue;
    const bool failed = status && (*values)[*status].starts_with("5");
    // A line is written when the request has ended.
    const double whole = took ? number((*values)[*took]).value_or(*duration) : *duration;
    const auto word = [&](const std::optional<std::size_t>& i) {
      return i && (*values)[*i] != "-" ? csv_name((*values)[*i]) : std::string();
    };
    lines.push_back({*at - whole, lines.size(),
                     fmt::format("{},{:.6g},{},{},{}\n", bulkhead, *duration, failed ? "failure" : "ok",
                                 word(priority), word(tenant))});
  }
  std::sort(lines.begin(), lines.end(),
            [](const Line& a, const Line& b) { return a.at != b.at ? a.at < b.at : a.order < b.order; });
  result.calls = lines.size();
  if (lines.empty()) {
    result.problem = result.skipped > 0
                         ? fmt::format("no line fits the format {}; the first that does not:\n{}", format,
                                       result.first_skipped)
                         : "the log has no lines for these routes";
    return result;
  }
  result.csv = "time,bulkhead,duration,outcome,priority,tenant\n";
  for (const Line& line : lines) result.csv += fmt::format("{:.3f},", line.at - lines.front().at) + line.text;
  return result;
}

}  // namespace bulkhead::simulate
