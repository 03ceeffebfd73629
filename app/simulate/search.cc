#include "app/simulate/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string_view>

#include "app/config/arguments.h"
#include "base/suggest.h"
#include "base/text.h"
#include "config/values.h"

namespace bulkhead::simulate {
namespace {

constexpr std::size_t kMostPoints = 100, kUsualPoints = 24;
constexpr std::uint32_t kMostLimit = 16'384;
constexpr double kEnough = 0.99;  // of the best, for the knee

[[noreturn]] void wrong(const std::string& what) { throw std::invalid_argument(what); }

std::vector<std::string> loaded(const Load& load) {
  std::vector<std::string> names;
  for (const Load::Calls& calls : load.calls)
    if (std::find(names.begin(), names.end(), calls.bulkhead) == names.end()) names.push_back(calls.bulkhead);
  return names;
}

std::string known(const std::vector<std::string>& names) {
  std::string all;
  for (const std::string& name : names) all += (all.empty() ? "" : ", ") + name;
  return all;
}

// No call has waited for a place or was rejected because there was none.
bool nothing_in_the_way(const sim::Tally& t) {
  const auto rejected = [&](Reason reason) { return t.rejected_by_reason[static_cast<std::size_t>(reason)]; };
  return t.wait.quantile(1) <= 1 && rejected(Reason::concurrency_limit) + rejected(Reason::queue_limit) +
                                            rejected(Reason::timeout) + rejected(Reason::evicted) ==
                                        0;
}

BulkheadOptions* options_of(Config& config, const std::string& name) {
  for (BulkheadConfig& b : config.bulkheads)
    if (b.options.name == name) return &b.options;
  for (TenantsConfig& t : config.tenants)
    if (t.each.options.name == name) return &t.each.options;
  return nullptr;
}

void set_value(Config& config, Load& load, const Sweep& sweep, double value) {
  if (sweep.setting == "load") {
    for (Load::Calls& calls : load.calls) {
      sim::Arrivals& a = calls.stream.arrivals;
      if (!sweep.bulkhead.empty() && calls.bulkhead != sweep.bulkhead) continue;
      calls.stream.load.push_back({0, INT64_MAX, value});
      a.clients = static_cast<std::uint32_t>(std::lround(a.clients * value));
    }
    return;
  }
  BulkheadOptions& o = *options_of(config, sweep.bulkhead);
  const auto whole = static_cast<std::uint32_t>(std::lround(value));
  const auto span = std::chrono::nanoseconds(std::llround(value));
  if (sweep.setting == "max_concurrent")
    o.max_concurrent = whole;
  else if (sweep.setting == "max_queue")
    o.max_queue = whole;
  else if (sweep.setting == "max_wait")
    o.max_wait = span;
  else
    o.execution_timeout = span;
}

}  // namespace

std::string Sweep::show(double value) const {
  if (duration) return config::show_duration(std::chrono::nanoseconds(std::llround(value)));
  return fmt::format("{:g}", value);
}

// Every error shows the form, and the nearest name if one is misspelt.
Sweep parse_sweep(const std::string& text, const Config& config, const Load& load) {
  constexpr const char* kForm = "write it as checkout.max_concurrent=5..50, or 5..50:5 for steps of 5";
  const std::vector<std::string> settings{"max_concurrent", "max_queue", "max_wait", "execution_timeout",
                                          "load"};
  const std::size_t equals = text.find('='), dots = text.find("..");
  if (equals == text.npos || dots == text.npos || dots < equals)
    wrong(fmt::format("\"{}\" is not a sweep: {}", text, kForm));
  Sweep sweep;
  std::string path = text.substr(0, equals);
  if (const std::size_t dot = path.rfind('.'); dot != path.npos) {
    sweep.bulkhead = path.substr(0, dot);
    path = path.substr(dot + 1);
  }
  sweep.setting = path;
  if (std::find(settings.begin(), settings.end(), sweep.setting) == settings.end()) {
    const std::string near = base::suggest(sweep.setting, settings);
    wrong(fmt::format("\"{}\" cannot be swept: {}", sweep.setting,
                      near.empty() ? "give " + known(settings) : "did you mean " + near + "?"));
  }
  const std::vector<std::string> names = loaded(load);
  if (sweep.bulkhead.empty() && sweep.setting != "load") {
    if (names.size() != 1)
      wrong(fmt::format("{} of which bulkhead? Write {}.{} (bulkheads with calls: {})", sweep.setting,
                        names.front(), text, known(names)));
    sweep.bulkhead = names.front();
  }
  if (!sweep.bulkhead.empty() && std::find(names.begin(), names.end(), sweep.bulkhead) == names.end())
    wrong(fmt::format("\"{}\" is not a bulkhead with calls: give one of {}", sweep.bulkhead, known(names)));
  if (sweep.setting == "load" && load.calls.front().stream.arrivals.shape == sim::Arrivals::Shape::recorded)
    wrong("recorded calls arrive when they did: sweep load with --load, without --trace");
  const BulkheadConfig* const b = config.find(sweep.bulkhead);
  if (b && !b->group.empty() && sweep.setting == "max_concurrent")
    wrong(fmt::format("{} is a member of the group {}, which divides its total: max_concurrent has no effect",
                      sweep.bulkhead, b->group));
  if (b && b->options.adaptive && sweep.setting == "max_concurrent")
    wrong(fmt::format("{} is adaptive: it finds its limit by itself", sweep.bulkhead));

  sweep.duration = sweep.setting == "max_wait" || sweep.setting == "execution_timeout";
  const auto number = [&](const std::string& said) {
    if (sweep.duration) {
      const auto span = config::duration_of(said);
      if (span.count() <= 0) wrong(fmt::format("\"{}\" is not a duration such as 50ms: {}", said, kForm));
      return static_cast<double>(span.count());
    }
    double value = 0;
    std::string_view rest = said;
    if (!base::take_decimal(rest, value) || !rest.empty() || value < 0)
      wrong(fmt::format("\"{}\" is not a number: {}", said, kForm));
    return value;
  };
  std::string high = text.substr(dots + 2), step;
  if (const std::size_t colon = high.find(':'); colon != high.npos) {
    step = high.substr(colon + 1);
    high.resize(colon);
  }
  const double low = number(text.substr(equals + 1, dots - equals - 1)), top = number(high);
  if (!(low < top)) wrong(fmt::format("\"{}\" ends before it begins: {}", text, kForm));
  const bool whole = sweep.setting == "max_concurrent" || sweep.setting == "max_queue";
  if (sweep.setting == "max_concurrent" && low < 1) wrong("max_concurrent begins at 1");
  double by = step.empty() ? (top - low) / static_cast<double>(kUsualPoints) : number(step);
  if (whole) by = std::max(1.0, step.empty() ? std::ceil(by) : std::round(by));
  if (sweep.duration && step.empty()) {  // two digits, such as 21ms
    const double digit = std::pow(10, std::floor(std::log10(by)) - 1);
    by = std::ceil(by / digit) * digit;
  }
  if (!(by > 0) || (top - low) / by > static_cast<double>(kMostPoints))
    wrong(fmt::format("\"{}\" has more than {} steps: give a larger step", text, kMostPoints));
  for (double value = low; value < top + by * 1e-6; value += by) sweep.values.push_back(value);
  if (top - sweep.values.back() > by * 1e-3) sweep.values.push_back(top);
  return sweep;
}

SweepResult run_sweep(const Sweep& sweep, const Config& config, const Load& load, const Predict& predict) {
  SweepResult result{.sweep = sweep};
  for (const double value : sweep.values) {
    Config changed = config;
    Load under = load;
    set_value(changed, under, sweep, value);
    result.cases.push_back({sweep.show(value), predict(changed, under)});
    if (result.cases.back().prediction.interrupted) return result;
  }
  const auto goodput = [&](const Case& one) {
    double sum = 0;
    for (const PredictionRow& row : one.prediction.rows)
      if (sweep.bulkhead.empty() || row.bulkhead == sweep.bulkhead) sum += row.goodput;
    return sum;
  };
  const auto served = [&](const Case& one) {
    sim::Tally sum;
    for (const PredictionRow& row : one.prediction.rows)
      if (sweep.bulkhead.empty() || row.bulkhead == sweep.bulkhead) sum += row.all;
    return sum.served_share();
  };
  if (sweep.setting == "load") {
    // The most load that is carried.
    for (std::size_t i = 0; i < result.cases.size() && served(result.cases[i]) >= kEnough; ++i)
      result.knee = i;
    if (result.knee && *result.knee + 1 == result.cases.size()) {
      result.why = fmt::format("the knee is above {}: 99 % of the calls are served in the whole range",
                               result.cases.back().label);
      result.knee.reset();
    } else {
      result.why = result.knee
                       ? fmt::format("the knee is load {}: up to there 99 % of the calls are served",
                                     result.cases[*result.knee].label)
                       : "the whole range is beyond the knee: fewer than 99 % of the calls are served";
    }
    return result;
  }
  double best = 0;
  for (const Case& one : result.cases) best = std::max(best, goodput(one));
  const auto first = std::find_if(result.cases.begin(), result.cases.end(),
                                  [&](const Case& one) { return goodput(one) >= kEnough * best; });
  const auto at = static_cast<std::size_t>(first - result.cases.begin());
  if (best <= 0 || at + 1 == result.cases.size()) {
    result.why =
        best <= 0 ? "no call is served in the whole range"
                  : fmt::format("the knee is above {}: goodput still rises there", result.cases.back().label);
  } else {
    result.knee = at;
    result.why = fmt::format("the knee is {} = {}: {:.1f}/s are served there, and no value gives 1 % more",
                             sweep.name(), result.cases[at].label, goodput(result.cases[at]));
  }
  return result;
}

std::string sweep_text(const cli::Style& style, const Subject& subject, const SweepResult& result) {
  const Prediction& first = result.cases.front().prediction;
  std::string text = fmt::format(" {} with {}: {} per value, seed {}\n", subject.file, subject.load,
                                 cli::span(first.seconds), subject.seed);
  for (std::size_t r = 0; r < first.rows.size(); ++r) {
    const std::string& name = first.rows[r].name;
    if (!result.sweep.bulkhead.empty() && first.rows[r].bulkhead != result.sweep.bulkhead) continue;
    double best = 0;
    for (const Case& one : result.cases) best = std::max(best, one.prediction.rows[r].goodput);
    text += fmt::format("\n {}\n {:>16}  {:>8}  {:>8}  {:>9}  {:>9}  {:>10}\n", name, result.sweep.setting,
                        "served", "rejected", "wait p99", "total p99", "goodput");
    for (std::size_t i = 0; i < result.cases.size(); ++i) {
      const PredictionRow& row = result.cases[i].prediction.rows[r];
      const auto time = [&](const HistogramCounts& h) {
        return h.count() == 0 ? "-" : h.quantile(0.99) <= 1 ? "0" : cli::duration(style, h.quantile(0.99));
      };
      const bool knee = result.knee == i;
      text += fmt::format(" {}  {}  {}  {}  {}  {}  {}{}\n", cli::pad_left(result.cases[i].label, 16),
                          cli::pad_left(cli::percent(row.all.served_share()), 8),
                          cli::pad_left(cli::percent(row.all.rejected_share()), 8),
                          cli::pad_left(time(row.all.wait), 9), cli::pad_left(time(row.all.total), 9),
                          cli::pad_left(fmt::format("{:.1f}/s", row.goodput), 10),
                          cli::bar(style, best > 0 ? row.goodput / best : 0, 20),
                          knee ? cli::paint(style, cli::Paint::bold_green, "  <- knee") : "");
    }
  }
  // The other bulkheads matter if the change hurts them.
  for (std::size_t r = 0; r < first.rows.size(); ++r) {
    if (result.sweep.bulkhead.empty() || first.rows[r].bulkhead == result.sweep.bulkhead) continue;
    double least = 1, most = 0;
    for (const Case& one : result.cases) {
      least = std::min(least, one.prediction.rows[r].all.served_share());
      most = std::max(most, one.prediction.rows[r].all.served_share());
    }
    text += fmt::format("{} {}: {} to {} served\n", text.ends_with("knee\n") ? "\n" : "", first.rows[r].name,
                        cli::percent(least), cli::percent(most));
  }
  return text + "\n " + result.why + "\n";
}

std::string sweep_json(const Subject& subject, const SweepResult& result, std::string_view version) {
  cli::JsonWriter json;
  begin_json(json, subject, result.cases.front().prediction, version);
  json.open("sweep").field("bulkhead", result.sweep.bulkhead).field("setting", result.sweep.setting);
  if (result.knee)
    json.field("knee", result.cases[*result.knee].label);
  else
    json.null("knee");
  json.field("why", result.why).close().list("cases");
  for (std::size_t i = 0; i < result.cases.size(); ++i) {
    json.open().field("label", result.cases[i].label);
    write_case(json, result.cases[i]);
    json.close();
  }
  return json.close().close().text();
}

double Condition::value(const PredictionRow& row) const {
  const sim::Tally& t = row.all;
  if (metric == "p50") return total_ms(t, 0.5);
  if (metric == "p90") return total_ms(t, 0.9);
  if (metric == "p99") return total_ms(t, 0.99);
  if (metric == "wait_p50") return wait_ms(t, 0.5);
  if (metric == "wait_p99") return wait_ms(t, 0.99);
  if (metric == "rejected") return t.rejected_share();
  if (metric == "failed") return lost_share(t);
  if (metric == "served") return t.served_share();
  if (metric == "goodput") return row.goodput;
  return std::max(0.0, row.utilisation);
}

bool Condition::holds(const PredictionRow& row) const {
  if (!bulkhead.empty() && row.bulkhead != bulkhead) return true;
  // A percentile of nothing promises nothing.
  if (metric.find('p') != std::string::npos && metric != "goodput" && row.all.served == 0) return false;
  return below ? value(row) < bound : value(row) > bound;
}

// Several conditions are separated by commas; all have to hold.
std::vector<Condition> parse_conditions(const std::string& text, const Load& load) {
  const std::vector<std::string> times{"p50", "p90", "p99", "wait_p50", "wait_p99"},
      shares{"rejected", "failed", "served", "utilisation"};
  constexpr const char* kForm = "write them as p99<200ms,rejected<1%, or checkout.p99<200ms for one bulkhead";
  std::vector<Condition> conditions;
  std::string_view rest = text;
  while (!rest.empty()) {
    const std::size_t comma = std::min(rest.find(','), rest.size());
    std::string part(rest.substr(0, comma));
    rest.remove_prefix(std::min(comma + 1, rest.size()));
    std::erase(part, ' ');
    const std::size_t sign = part.find_first_of("<>");
    if (sign == part.npos || sign == 0 || sign + 1 == part.size())
      wrong(fmt::format("\"{}\" is not a condition: {}", part, kForm));
    Condition c{.text = part, .bulkhead = {}, .metric = part.substr(0, sign), .below = part[sign] == '<'};
    if (const std::size_t dot = c.metric.rfind('.'); dot != c.metric.npos) {
      c.bulkhead = c.metric.substr(0, dot);
      c.metric = c.metric.substr(dot + 1);
      const std::vector<std::string> names = loaded(load);
      if (std::find(names.begin(), names.end(), c.bulkhead) == names.end())
        wrong(fmt::format("\"{}\" is not a bulkhead with calls: give one of {}", c.bulkhead, known(names)));
    }
    std::string bound = part.substr(sign + 1);
    if (bound.starts_with("=")) bound.erase(0, 1);
    const config::Node node{.kind = config::Node::Kind::scalar, .text = bound};
    if (std::find(times.begin(), times.end(), c.metric) != times.end()) {
      const auto span = config::duration_of(bound);
      if (span.count() <= 0)
        wrong(fmt::format("\"{}\" is not a duration such as 200ms, in \"{}\"", bound, part));
      c.bound = static_cast<double>(span.count()) / 1e6;
    } else if (std::find(shares.begin(), shares.end(), c.metric) != shares.end()) {
      const auto share = config::read_share(node);
      if (!share) wrong(fmt::format("\"{}\" is not a share such as 1%, in \"{}\"", bound, part));
      c.bound = *share;
    } else if (c.metric == "goodput") {
      c.bound = config::rate_of(bound);
      if (c.bound <= 0) wrong(fmt::format("\"{}\" is not a rate such as 200/s, in \"{}\"", bound, part));
    } else {
      std::vector<std::string> all = times;
      all.insert(all.end(), shares.begin(), shares.end());
      all.emplace_back("goodput");
      wrong(fmt::format("\"{}\" is not something to ask for: give {}", c.metric, known(all)));
    }
    conditions.push_back(std::move(c));
  }
  if (conditions.empty()) wrong(fmt::format("no condition: {}", kForm));
  return conditions;
}

Found find_limits(const std::vector<Condition>& conditions, const Config& config, const Load& load,
                  const Predict& predict) {
  Found found;
  Config now = config;
  std::vector<std::string> names;
  for (const std::string& name : loaded(load)) {
    const BulkheadConfig* const b = config.find(name);
    if (b && !b->group.empty())
      found.left_alone.push_back(fmt::format("{} (the group {} divides its total)", name, b->group));
    else if (options_of(now, name)->adaptive)
      found.left_alone.push_back(name + " (adaptive)");
    else
      names.push_back(name);
  }
  bool interrupted = false;
  const auto run = [&]() {
    ++found.runs;
    Prediction p = predict(now, load);
    interrupted = interrupted || p.interrupted;
    return p;
  };
  const auto all_of = [](const Prediction& p, const std::string& name, const auto& holds) {
    return std::all_of(p.rows.begin(), p.rows.end(),
                       [&](const PredictionRow& row) { return row.bulkhead != name || holds(row); });
  };
  const auto good = [&](const Prediction& p, const std::string& name) {
    return all_of(p, name, [&](const PredictionRow& row) {
      return std::all_of(conditions.begin(), conditions.end(),
                         [&](const Condition& c) { return c.holds(row); });
    });
  };
  // What one bulkhead needs may depend on the limits of the others, when they share a dependency: a few rounds.
  for (int round = 0; round < 3 && !interrupted; ++round) {
    bool changed = false;
    for (const std::string& name : names) {
      std::uint32_t& limit = options_of(now, name)->max_concurrent;
      const std::uint32_t before = limit;
      const auto holds = [&](std::uint32_t value) {
        limit = value;
        return good(run(), name);
      };
      // A limit may be too small for one condition and too large for another: the steps become finer, as long as each
      // condition alone is kept by some limit.
      std::uint32_t low = 0, high = 0;
      for (const double step : {2.0, 1.4, 1.15}) {
        std::vector<bool> kept(conditions.size());
        low = 0;
        for (std::uint32_t value = 1; value <= kMostLimit && high == 0 && !interrupted;
             value = std::max(value + 1, static_cast<std::uint32_t>(value * step))) {
          limit = value;
          const Prediction tried = run();
          for (std::size_t c = 0; c < kept.size(); ++c)
            kept[c] = kept[c] ||
                      all_of(tried, name, [&](const PredictionRow& row) { return conditions[c].holds(row); });
          if (good(tried, name))
            high = value;
          else
            low = value;
          // A larger limit changes nothing.
          if (all_of(tried, name, [](const PredictionRow& row) { return nothing_in_the_way(row.all); }))
            break;
        }
        if (high != 0 || std::find(kept.begin(), kept.end(), false) != kept.end()) break;
      }
      if (high == 0) {
        limit = before;
        continue;
      }
      while (high - low > 1 && !interrupted) {
        const std::uint32_t middle = low + (high - low) / 2;
        (holds(middle) ? high : low) = middle;
      }
      limit = high;
      changed = changed || limit != before;
    }
    if (!changed || names.size() == 1) break;
  }
  for (const std::string& name : names)
    found.limits.emplace_back(name, options_of(now, name)->max_concurrent);
  found.found = {"found", run()};
  found.holds = true;
  for (const PredictionRow& row : found.found.prediction.rows)
    for (const Condition& c : conditions)
      if (!c.holds(row)) {
        found.holds = false;
        const double value = c.value(row);
        const bool time = c.metric.find("p5") != c.metric.npos || c.metric.find("p9") != c.metric.npos;
        found.missed.push_back(fmt::format("{}: {} is {}", row.name, c.text,
                                           time                    ? fmt::format("{:.1f} ms", value)
                                           : c.metric == "goodput" ? fmt::format("{:.1f}/s", value)
                                                                   : cli::percent(value)));
      }
  return found;
}

std::string found_text(const cli::Style& style, const Subject& subject,
                       const std::vector<Condition>& conditions, const Found& found, std::size_t columns) {
  std::string asked;
  for (const Condition& c : conditions) asked += (asked.empty() ? "" : ", ") + c.text;
  std::string text = table_text(style, subject, {found.found}, columns) + "\n";
  if (found.holds) {
    text += fmt::format(" The smallest limits that keep {} ({} runs):\n\n bulkheads:\n", asked, found.runs);
    for (const auto& [name, limit] : found.limits)
      text += fmt::format("   {}: {{max_concurrent: {}}}\n", name, limit);
  } else {
    text += fmt::format(" No limit keeps {}. With the limits of the table:\n", asked);
    for (const std::string& missed : found.missed) text += "   " + missed + "\n";
    text += " Shorten the calls, give the dependency more slots, or ask for less.\n";
  }
  for (const std::string& alone : found.left_alone) text += " As it is: " + alone + "\n";
  return text;
}

std::string found_json(const Subject& subject, const std::vector<Condition>& conditions, const Found& found,
                       std::string_view version) {
  cli::JsonWriter json;
  begin_json(json, subject, found.found.prediction, version);
  json.open("find").field("holds", found.holds).field("runs", found.runs).list("conditions");
  for (const Condition& c : conditions) json.open().field("condition", c.text).close();
  json.close().open("max_concurrent");
  for (const auto& [name, limit] : found.limits) json.field(name, limit);
  json.close().list("missed");
  for (const std::string& missed : found.missed) json.open().field("condition", missed).close();
  json.close().close().list("cases").open().field("label", found.found.label);
  write_case(json, found.found);
  return json.close().close().close().text();
}

}  // namespace bulkhead::simulate
