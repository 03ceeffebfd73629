#include "app/simulate/load.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <sstream>
#include <string_view>
#include <utility>

#include "adapters/yaml/yaml.h"
#include "app/config/arguments.h"
#include "base/suggest.h"
#include "config/decode.h"
#include "config/document.h"
#include "config/values.h"

namespace bulkhead::simulate {
namespace {

using config::Node;
using sim::Arrivals;

constexpr double kUsualSpread = 0.5;  // sigma of a service time that is given as one number
constexpr double kZ99 = 2.3263478740408408;

// Reads the tree, and keeps everything that is wrong with it.
class Reader {
 public:
  Reader(Load& load, const Config& config, std::uint32_t replicas, bool traced)
      : load_(load), config_(config), replicas_(replicas), traced_(traced) {}

  void file(const Node& root) {
    if (!root.is_map())
      return complain(root.at, "", "the file is not a map of settings", "begin with version: 1");
    const Node* events = nullptr;
    fields(root, "",
           {{"version",
             [&](const Node& n, const std::string& path) {
               if (n.text != "1")
                 complain(n.at, path, "is not a version that this program knows", "write version: 1");
             }},
            {"duration", [&](const Node& n, const std::string& path) { load_.duration = span(n, path, 1); }},
            {"measure", [&](const Node& n, const std::string& path) { measure(n, path); }},
            {"replicas", [&](const Node& n,
                             const std::string& path) { load_.replicas = count(n, path, 1, kMostReplicas); }},
            {"hosts",
             [&](const Node& n, const std::string& path) { load_.hosts = count(n, path, 1, kMostReplicas); }},
            {"network", [&](const Node& n, const std::string& path) { network(n, path); }},
            {"dependencies", [&](const Node& n, const std::string& path) { dependencies(n, path); }},
            {"bulkheads", [&](const Node& n, const std::string& path) { bulkheads(n, path); }},
            {"events", [&](const Node& n, const std::string&) { events = &n; }}},
           traced_ ? std::vector<std::string_view>{"version"}
                   : std::vector<std::string_view>{"version", "bulkheads"});
    if (replicas_ > 0) load_.replicas = replicas_;
    resolve();
    if (events) read_events(*events);  // last: they name what is above
  }

 private:
  using Handler = std::function<void(const Node&, const std::string& path)>;
  struct Field {
    std::string_view name;
    Handler read;
  };

  void complain(Position at, const std::string& path, std::string message, std::string hint) {
    load_.problems.push_back({.file = load_.file,
                              .at = at,
                              .path = path,
                              .message = std::move(message),
                              .hint = std::move(hint),
                              .source = config::printable(config::line_of(load_.text, at.line))});
  }

  static std::string nearest(const std::string& typed, const std::vector<std::string>& known) {
    const std::string near = base::suggest(typed, known);
    if (!near.empty()) return "did you mean " + near + "?";
    std::string all;
    for (const std::string& name : known) all += (all.empty() ? "" : ", ") + name;
    return all.empty() ? "there is none" : "known: " + all;
  }

  bool is_map(const Node& node, const std::string& path) {
    if (node.is_map()) return true;
    complain(node.at, path, fmt::format("is {}, not a map", config::kind_of(node)),
             "write name: value below it");
    return false;
  }

  void fields(const Node& map, const std::string& path, const std::vector<Field>& known,
              const std::vector<std::string_view>& required = {}) {
    if (!is_map(map, path)) return;
    std::vector<std::string> names, seen;
    for (const Field& field : known) names.emplace_back(field.name);
    for (std::size_t i = 0; i < map.keys.size(); ++i) {
      const Node& key = map.keys[i];
      const std::string where = path.empty() ? key.text : path + "." + key.text;
      const auto field =
          std::find_if(known.begin(), known.end(), [&](const Field& f) { return f.name == key.text; });
      if (field == known.end()) {
        complain(key.at, where, "is not a setting of a load", nearest(key.text, names));
      } else if (std::find(seen.begin(), seen.end(), key.text) != seen.end()) {
        complain(key.at, where, "is there twice", "keep one of them");
      } else {
        field->read(map.values[i], where);
      }
      seen.push_back(key.text);
    }
    for (const std::string_view name : required)
      if (std::find(seen.begin(), seen.end(), name) == seen.end())
        complain(map.at, path.empty() ? std::string(name) : path + "." + std::string(name), "is missing",
                 fmt::format("write {}: below it", name));
  }

  // Each reads one value. An error is reported, and the result is then a valid default.
  template <class T, class R>
  T value(const Node& node, const std::string& path, const R& read, T otherwise) {
    if (read) return static_cast<T>(*read);
    complain(node.at, path, read.error().message, read.error().hint);
    return otherwise;
  }
  Nanos span(const Node& node, const std::string& path, Nanos least = 0) {
    const auto read = config::read_duration(node, false);
    if (read && (read->count() < least || read->count() > kLongestRun)) {
      complain(node.at, path, "is out of range",
               least > 0 ? "give more than 0s, at most 31d" : "give 0s to 31d");
      return least;
    }
    if (read) return read->count();
    return value<Nanos>(node, path, Read<Nanos>(unexpect, read.error()), least);
  }
  template <class T>
  using Read = Result<T, config::Complaint>;
  std::uint32_t count(const Node& node, const std::string& path, std::uint32_t low, std::uint32_t high) {
    const auto read = config::read_count(node);
    if (read && (*read < low || *read > high)) {
      complain(node.at, path, "is out of range", fmt::format("give {} to {}", low, high));
      return low;
    }
    return value<std::uint32_t>(node, path, read, low);
  }
  double share(const Node& node, const std::string& path) {
    const auto read = config::read_share(node);
    if (read && !(*read >= 0 && *read <= 1)) {
      complain(node.at, path, "is not a share", "give 0% to 100%");
      return 0;
    }
    return value<double>(node, path, read, 0.0);
  }
  double number(const Node& node, const std::string& path, double low, double high) {
    const auto read = config::read_number(node);
    if (read && !(*read >= low && *read <= high)) {
      complain(node.at, path, "is out of range", fmt::format("give {:g} to {:g}", low, high));
      return low;
    }
    return value<double>(node, path, read, low);
  }
  bool flag(const Node& node, const std::string& path) {
    return value<bool>(node, path, config::read_flag(node), false);
  }
  // As a duration, a rate has a unit: a bare number may be meant per second or per minute.
  double rate(const Node& node, const std::string& path) {
    const double rate = node.is_scalar() ? config::rate_of(node.text) : 0;
    if (rate <= 0)
      complain(node.at, path, "is not a rate", "write 200/s, 12000/m or 5000/h");
    else if (node.text.find('/') == node.text.npos)
      complain(node.at, path, fmt::format("\"{}\" has no unit", node.text),
               fmt::format("write {0}/s, {0}/m or {0}/h", node.text));
    return rate;
  }

  void measure(const Node& node, const std::string& path) {
    fields(node, path,
           {{"from", [&](const Node& n, const std::string& p) { load_.measure_from = span(n, p); }},
            {"to", [&](const Node& n, const std::string& p) { load_.measure_to = span(n, p, 1); }}});
    if (load_.measure_from >= load_.measure_to)
      complain(node.at, path, "ends before it begins", "give from less than to");
  }

  void network(const Node& node, const std::string& path) {
    fields(node, path,
           {{"delay", [&](const Node& n, const std::string& p) { load_.network.delay = span(n, p); }},
            {"loss", [&](const Node& n, const std::string& p) { load_.network.loss = share(n, p); }}});
  }

  void dependencies(const Node& node, const std::string& path) {
    if (!is_map(node, path)) return;
    for (std::size_t i = 0; i < node.keys.size(); ++i) {
      const std::string where = path + "." + node.keys[i].text;
      Load::NamedDependency d{.name = node.keys[i].text, .at = node.keys[i].at};
      if (dependency(d.name)) complain(node.keys[i].at, where, "is there twice", "keep one of them");
      sim::Scenario& shape = d.plan.shape;
      fields(node.values[i], where,
             {{"slots",
               [&](const Node& n, const std::string& p) { shape.capacity = count(n, p, 1, 10'000'000); }},
              {"cancels", [&](const Node& n, const std::string& p) { shape.cancels = flag(n, p); }},
              {"thrashes_above", [&](const Node& n, const std::string& p) {
                 shape.thrashes_above = count(n, p, 1, 10'000'000);
               }}});
      load_.dependencies.push_back(std::move(d));
    }
  }

  // A name that the configuration does not have would be a load that nothing limits, so it is an error.
  void bulkheads(const Node& node, const std::string& path) {
    if (!is_map(node, path)) return;
    std::vector<std::string> known;
    for (const BulkheadConfig& b : config_.bulkheads) known.push_back(b.options.name);
    for (const TenantsConfig& t : config_.tenants) known.push_back(t.each.options.name);
    std::vector<std::string> seen;
    for (std::size_t i = 0; i < node.keys.size(); ++i) {
      const Node& key = node.keys[i];
      const std::string where = path + "." + key.text;
      if (std::find(known.begin(), known.end(), key.text) == known.end())
        complain(key.at, where, "is not a bulkhead of the configuration", nearest(key.text, known));
      if (std::find(seen.begin(), seen.end(), key.text) != seen.end())
        complain(key.at, where, "is there twice", "write a list of both: - rate: ...");
      seen.push_back(key.text);
      if (node.values[i].is_list())
        for (std::size_t k = 0; k < node.values[i].values.size(); ++k)
          calls(node.values[i].values[k], fmt::format("{}[{}]", where, k), key);
      else
        calls(node.values[i], where, key);
    }
    if (node.keys.empty()) complain(node.at, path, "has no calls", "name a bulkhead and give its rate");
  }

  void calls(const Node& node, const std::string& path, const Node& name) {
    Load::Calls calls{.bulkhead = name.text, .at = name.at};
    sim::Stream& s = calls.stream;
    s.service = {.mean = 0};
    std::vector<std::string> forms;
    bool has_shape = false;
    fields(node, path,
           {{"name",
             [&](const Node& n, const std::string& p) {
               calls.name = value<std::string>(n, p, config::read_name(n), std::string());
             }},
            {"rate",
             [&](const Node& n, const std::string& p) {
               s.arrivals.rate = rate(n, p);
               forms.emplace_back("rate");
             }},
            {"shape",
             [&](const Node& n, const std::string& p) {
               has_shape = true;
               if (n.text == "constant")
                 s.arrivals.shape = Arrivals::Shape::constant;
               else if (n.text != "poisson")
                 complain(n.at, p, "is not a shape",
                          "give poisson or constant; bursts and day are settings of their own");
             }},
            {"bursts",
             [&](const Node& n, const std::string& p) {
               s.arrivals.shape = Arrivals::Shape::bursts;
               forms.emplace_back("bursts");
               fields(n, p,
                      {{"calls", [&](const Node& m,
                                     const std::string& q) { s.arrivals.burst = count(m, q, 1, 1'000'000); }},
                       {"every",
                        [&](const Node& m, const std::string& q) { s.arrivals.every = span(m, q, 1'000); }}},
                      {"calls", "every"});
             }},
            {"clients",
             [&](const Node& n, const std::string& p) {
               s.arrivals.shape = Arrivals::Shape::closed;
               forms.emplace_back("clients");
               s.arrivals.clients = count(n, p, 1, 1'000'000);
             }},
            {"think", [&](const Node& n, const std::string& p) { s.arrivals.think = span(n, p); }},
            {"day", [&](const Node& n, const std::string& p) { curve(n, p, s.arrivals); }},
            {"period",
             [&](const Node& n, const std::string& p) { s.arrivals.period = span(n, p, 1'000'000'000); }},
            {"service", [&](const Node& n, const std::string& p) { service(n, p, s.service); }},
            {"dependency",
             [&](const Node& n, const std::string&) {
               calls.dependency = n.text;
               calls.dependency_at = n.at;
             }},
            {"slots",
             [&](const Node& n, const std::string& p) {
               // A dependency of its own, with the name of the bulkhead.
               load_.dependencies.push_back({.name = name.text, .at = n.at});
               load_.dependencies.back().plan.shape.capacity = count(n, p, 1, 10'000'000);
               calls.dependency = name.text;
               calls.dependency_at = n.at;
             }},
            {"failures", [&](const Node& n, const std::string& p) { s.failures = share(n, p); }},
            {"priority", [&](const Node& n, const std::string& p) { priority(n, p, s); }},
            {"cost", [&](const Node& n, const std::string& p) { s.cost = count(n, p, 1, 1'000'000); }},
            {"tenants", [&](const Node& n, const std::string& p) { tenants(n, p, s); }},
            {"client", [&](const Node& n, const std::string& p) { client(n, p, s); }},
            {"runs_on", [&](const Node& n, const std::string& p) { s.runs_on = flag(n, p); }}},
           traced_ ? std::vector<std::string_view>() : std::vector<std::string_view>{"service"});
    if (!node.is_map()) return;
    if (forms.size() != 1 && !(traced_ && forms.empty()))
      complain(node.at, path,
               forms.empty() ? "says not how calls arrive" : "says in two ways how calls arrive",
               "give one of rate, bursts, clients");
    if (has_shape && (forms.size() != 1 || forms[0] != "rate"))
      complain(node.at, path + ".shape", "needs a rate", "give rate, or remove shape");
    if (!s.arrivals.curve.empty() && s.arrivals.shape != Arrivals::Shape::poisson &&
        s.arrivals.shape != Arrivals::Shape::constant)
      complain(node.at, path + ".day", "needs a rate", "give rate, the one of 100%");
    check_curve(node, path, s.arrivals);
    const bool has_tenants = config_.find_tenants(name.text) != nullptr;
    if (has_tenants && s.tenants == 0 && !traced_)
      complain(node.at, path + ".tenants",
               "is missing, and the configuration has one bulkhead for each tenant",
               "give the number of tenants, such as tenants: 200");
    load_.calls.push_back(std::move(calls));
  }

  void curve(const Node& node, const std::string& path, Arrivals& arrivals) {
    if (!is_map(node, path)) return;
    for (std::size_t i = 0; i < node.keys.size(); ++i) {
      const std::string where = path + "." + node.keys[i].text;
      Node key = node.keys[i];
      const Nanos at = key.text == "0" ? 0 : span(key, where);
      const auto read = config::read_share(node.values[i]);
      arrivals.curve.emplace_back(at, value<double>(node.values[i], where, read, 0.0));
    }
    std::sort(arrivals.curve.begin(), arrivals.curve.end());
    if (arrivals.curve.empty()) complain(node.at, path, "has no points", "write {0h: 20%, 12h: 100%}");
  }
  void check_curve(const Node& node, const std::string& path, Arrivals& arrivals) {
    if (arrivals.curve.empty()) {
      if (arrivals.period > 0) complain(node.at, path + ".period", "is of no use without day", "remove it");
      return;
    }
    if (arrivals.period == 0) arrivals.period = 86'400LL * 1'000'000'000;
    if (arrivals.curve.back().first >= arrivals.period)
      complain(node.at, path + ".day", "has a point at or after the end of its period",
               "give points below period, which is 24h unless set");
  }

  void service(const Node& node, const std::string& path, sim::ServiceTime& service) {
    service = {};
    if (node.is_scalar()) {
      service.mean = static_cast<double>(span(node, path, 1));
      service.sigma = kUsualSpread;
      return;
    }
    Nanos mean = 0, median = 0, p99 = 0;
    std::optional<double> spread;
    std::string kind = "lognormal";
    fields(node, path,
           {{"mean", [&](const Node& n, const std::string& p) { mean = span(n, p, 1); }},
            {"median", [&](const Node& n, const std::string& p) { median = span(n, p, 1); }},
            {"p99", [&](const Node& n, const std::string& p) { p99 = span(n, p, 1); }},
            {"spread", [&](const Node& n, const std::string& p) { spread = number(n, p, 0, 3); }},
            {"kind", [&](const Node& n, const std::string& p) {
               kind = n.text;
               if (kind != "lognormal" && kind != "exponential" && kind != "constant")
                 complain(n.at, p, "is not a distribution", "give lognormal, exponential or constant");
             }}});
    if (!node.is_map()) return;
    if ((mean > 0) == (median > 0)) {
      complain(node.at, path, "needs a mean or a median, and not both", "write {median: 45ms, p99: 200ms}");
      return;
    }
    if (p99 > 0 && spread) return complain(node.at, path, "has a p99 and a spread", "give one of them");
    service.exponential = kind == "exponential";
    if (kind == "constant") {
      service.mean = static_cast<double>(mean + median);
      return;
    }
    if (service.exponential) {
      service.mean = mean > 0 ? static_cast<double>(mean) : static_cast<double>(median) / std::log(2.0);
      return;
    }
    double sigma = spread.value_or(kUsualSpread);
    if (p99 > 0) {
      if (p99 <= mean + median)
        return complain(node.at, path + ".p99", "is not above the middle", "give more");
      const double ratio = std::log(static_cast<double>(p99) / static_cast<double>(mean + median));
      // median: p99 = median * exp(z sigma). mean: p99 = mean * exp(z sigma - sigma^2 / 2), its smaller root.
      const double root = kZ99 * kZ99 - 2 * ratio;
      if (median == 0 && root < 0)
        return complain(node.at, path + ".p99", "is too far above the mean for a lognormal time",
                        "give the median instead");
      sigma = median > 0 ? ratio / kZ99 : kZ99 - std::sqrt(root);
    }
    service.sigma = sigma;
    service.mean =
        mean > 0 ? static_cast<double>(mean) : static_cast<double>(median) * std::exp(sigma * sigma / 2);
  }

  static std::optional<Priority> priority_of(std::string_view word) {
    for (std::size_t i = 0; i < kPriorities; ++i)
      if (word == to_string(static_cast<Priority>(i))) return static_cast<Priority>(i);
    return std::nullopt;
  }
  void priority(const Node& node, const std::string& path, sim::Stream& stream) {
    const auto one = [&](const Node& n, const std::string& p) {
      const auto read = priority_of(n.text);
      if (!read) complain(n.at, p, "is not a priority", "give critical, normal or best_effort");
      return read.value_or(Priority::normal);
    };
    stream.mix = {};
    if (node.is_scalar()) {
      stream.mix[static_cast<std::size_t>(one(node, path))] = 1;
      return;
    }
    if (!is_map(node, path)) return;
    double sum = 0;
    for (std::size_t i = 0; i < node.keys.size(); ++i) {
      const std::string where = path + "." + node.keys[i].text;
      sum += stream.mix[static_cast<std::size_t>(one(node.keys[i], where))] = share(node.values[i], where);
    }
    if (std::abs(sum - 1) > 1e-6)
      complain(node.at, path, fmt::format("adds up to {:g}%", sum * 100), "give shares of 100%");
  }

  void tenants(const Node& node, const std::string& path, sim::Stream& stream) {
    if (node.is_scalar()) {
      stream.tenants = count(node, path, 1, 1'000'000);
      return;
    }
    fields(
        node, path,
        {{"count", [&](const Node& n, const std::string& p) { stream.tenants = count(n, p, 1, 1'000'000); }},
         {"zipf", [&](const Node& n, const std::string& p) { stream.zipf = number(n, p, 0, 5); }}},
        {"count"});
  }

  void client(const Node& node, const std::string& path, sim::Stream& stream) {
    fields(
        node, path,
        {{"timeout", [&](const Node& n, const std::string& p) { stream.client_timeout = span(n, p, 1); }},
         {"cancels", [&](const Node& n, const std::string& p) { stream.client_cancels = flag(n, p); }},
         {"sends_deadline", [&](const Node& n, const std::string& p) { stream.sends_deadline = flag(n, p); }},
         {"retries", [&](const Node& n, const std::string& p) { stream.retries = count(n, p, 0, 20); }},
         {"backoff", [&](const Node& n, const std::string& p) { stream.backoff = span(n, p); }}});
    if (!node.is_map()) return;
    if ((stream.client_cancels || stream.sends_deadline) && stream.client_timeout == 0)
      complain(node.at, path, "cancels and sends_deadline need a timeout",
               "give timeout: 2s, or remove them");
  }

  Load::NamedDependency* dependency(std::string_view name) {
    const auto d = std::find_if(load_.dependencies.begin(), load_.dependencies.end(),
                                [&](const auto& known) { return known.name == name; });
    return d == load_.dependencies.end() ? nullptr : &*d;
  }

  // Each stream gets the number of its dependency and of its bulkhead's; without one, a dependency of its own without a limit.
  void resolve() {
    for (Load::Calls& calls : load_.calls) {
      if (calls.dependency.empty()) {
        calls.dependency = calls.bulkhead;
        if (!dependency(calls.dependency))
          load_.dependencies.push_back({.name = calls.dependency, .at = calls.at});
      }
      Load::NamedDependency* const d = dependency(calls.dependency);
      if (!d) {
        std::vector<std::string> known;
        for (const auto& dep : load_.dependencies) known.push_back(dep.name);
        complain(calls.dependency_at, "bulkheads." + calls.bulkhead + ".dependency",
                 fmt::format("\"{}\" is not one of the dependencies", calls.dependency),
                 nearest(calls.dependency, known));
        continue;
      }
      calls.stream.dependency = static_cast<std::uint32_t>(d - load_.dependencies.data());
    }
    for (Load::NamedDependency& d : load_.dependencies)
      if (d.plan.shape.capacity == UINT32_MAX) d.plan.shape.model = sim::Model::shared;  // everything at once
  }

  // ---- events: sentences ----
  static constexpr const char* kSentences =
      "write: NAME 60x slower from 2m to 5m; NAME 3x load from ...; NAME fails from ...; NAME hangs from "
      "...; "
      "DEPENDENCY has 20 slots from ...; replica 3 stops at 2m (or starts, restarts); replicas restart from "
      "2m to 5m; "
      "replica 3 cut off from ...; store down from ...; store forgets at 2m";

  void read_events(const Node& node) {
    if (node.kind == Node::Kind::null) return;
    if (!node.is_list()) return complain(node.at, "events", "is not a list", "write each event after a dash");
    for (std::size_t i = 0; i < node.values.size(); ++i) {
      const std::string path = fmt::format("events[{}]", i);
      if (!node.values[i].is_scalar()) {
        complain(node.values[i].at, path, "is not a sentence", kSentences);
      } else {
        event(node.values[i], path);
      }
    }
  }

  void deploy(const sim::Deployment& d) {  // in the order of time, and of the file
    load_.deployments.insert(
        std::upper_bound(load_.deployments.begin(), load_.deployments.end(), d,
                         [](const sim::Deployment& a, const sim::Deployment& b) { return a.at < b.at; }),
        d);
  }

  void event(const Node& node, const std::string& path) {
    std::istringstream stream(node.text);
    std::vector<std::string> words;
    for (std::string word; stream >> word;) words.push_back(std::move(word));
    const auto wrong = [&](const std::string& why) { complain(node.at, path, why, kSentences); };

    // The end of the sentence: at T, or from T, or from T to T.
    Nanos from = 0, to = INT64_MAX;
    const auto time = [&](const std::string& text) -> std::optional<Nanos> {
      if (text == "0") return 0;
      const auto read =
          config::read_duration({.kind = Node::Kind::scalar, .quoted = true, .text = text}, false);
      if (!read) return std::nullopt;
      return read->count();
    };
    bool at = false;
    const auto when = std::find_if(words.begin(), words.end(),
                                   [](const std::string& w) { return w == "from" || w == "at"; });
    if (when == words.end()) return wrong("does not say when");
    const std::vector<std::string> end(when, words.end());
    words.erase(when, words.end());
    at = end[0] == "at";
    if (end.size() != 2 && !(end.size() == 4 && end[2] == "to" && !at))
      return wrong("does not say clearly when");
    const auto first = time(end[1]);
    const auto last = end.size() == 4 ? time(end[3]) : std::optional<Nanos>(INT64_MAX);
    if (!first || !last) return wrong("has a time that is not one, such as 2m or 90s");
    from = *first;
    to = *last;
    if (to <= from) return wrong("ends before it begins");

    if (words.empty()) return wrong("does not say who");
    const std::string who = words[0];
    const std::vector<std::string> what(words.begin() + 1, words.end());
    const auto is = [&](std::initializer_list<std::string_view> said) {
      return std::equal(what.begin(), what.end(), said.begin(), said.end());
    };
    if (who == "store") {
      if (is({"down"}) && !at)
        load_.faults.push_back({.kind = StoreFault::Kind::down, .from = from, .to = to});
      else if (is({"forgets"}) && at)
        load_.faults.push_back({.kind = StoreFault::Kind::forgets, .from = from, .to = from});
      else
        wrong("is not something a store does");
      return;
    }
    if (who == "replicas" && is({"restart"}) && !at) {
      if (to == INT64_MAX) return wrong("a rolling restart needs an end");
      for (std::uint32_t r = 0; r < load_.replicas; ++r)
        deploy({.at = static_cast<double>(from + (to - from) / load_.replicas * r) / 1e9,
                .instance = r,
                .stops = true,
                .starts = true});
      return;
    }
    if (who == "replica" && what.size() >= 2) {
      const auto number = config::read_count({.kind = Node::Kind::scalar, .text = what[0]});
      if (!number || *number < 1 || *number > load_.replicas)
        return wrong(
            fmt::format("\"{}\" is not a replica: there are {}, counted from 1", what[0], load_.replicas));
      const auto r = static_cast<std::uint32_t>(*number - 1);
      const std::string& verb = what[1];
      if (verb == "cut" && what.size() == 3 && what[2] == "off" && !at)
        load_.faults.push_back({.kind = StoreFault::Kind::cut_off, .replica = r, .from = from, .to = to});
      else if ((verb == "stops" || verb == "starts" || verb == "restarts") && at && what.size() == 2)
        deploy({.at = static_cast<double>(from) / 1e9,
                .instance = r,
                .stops = verb != "starts",
                .starts = verb != "stops"});
      else
        wrong("is not something a replica does");
      return;
    }
    if (at) return wrong("needs from, and perhaps to");
    std::vector<sim::Stream*> streams;
    Load::NamedDependency* const d = dependency(who);
    for (Load::Calls& calls : load_.calls)
      if (calls.bulkhead == who || calls.name == who || (d && calls.dependency == who))
        streams.push_back(&calls.stream);
    if (streams.empty() && !d) {
      std::vector<std::string> known;
      for (const Load::Calls& calls : load_.calls) known.push_back(calls.bulkhead);
      for (const auto& dep : load_.dependencies) known.push_back(dep.name);
      std::sort(known.begin(), known.end());
      known.erase(std::unique(known.begin(), known.end()), known.end());
      return complain(node.at, path,
                      fmt::format("\"{}\" is neither a bulkhead with a load nor a dependency", who),
                      nearest(who, known));
    }
    const sim::Period period{.from = from, .to = to};
    if (is({"fails"})) {
      for (sim::Stream* s : streams) s->fails.push_back(period);
    } else if (is({"hangs"})) {
      for (sim::Stream* s : streams) s->hangs.push_back(period);
    } else if (what.size() == 3 && what[0] == "has" && what[2] == "slots" && d) {
      const auto slots = config::read_count({.kind = Node::Kind::scalar, .text = what[1]});
      if (!slots || d->plan.shape.capacity == UINT32_MAX)
        return wrong("needs a number, and slots of the dependency that change");
      d->plan.slots.push_back({from, to, static_cast<double>(*slots)});
    } else if (what.size() == 2 && what[0].ends_with("x") && (what[1] == "slower" || what[1] == "load")) {
      const auto factor =
          config::read_number({.kind = Node::Kind::scalar, .text = what[0].substr(0, what[0].size() - 1)});
      if (!factor || !(*factor >= 0 && *factor <= 1e6) || (what[1] == "slower" && *factor <= 0))
        return wrong(fmt::format("\"{}\" is not a factor such as 60x", what[0]));
      if (what[1] == "load" && traced_)
        return complain(node.at, path, "changes the load, but the calls of a trace are as recorded",
                        "remove it, or describe the load without --trace");
      for (sim::Stream* s : streams)
        (what[1] == "slower" ? s->slower : s->load).push_back({from, to, *factor});
    } else {
      wrong("is not something that can happen");
    }
  }

  Load& load_;
  const Config& config_;
  const std::uint32_t replicas_;
  const bool traced_;
};

}  // namespace

Load parse_load(std::string text, const std::string& file, const Config& config, std::uint32_t replicas,
                bool traced) {
  Node root;
  yaml::Loaded tree = yaml::parse_tree(std::move(text), file, root);
  Load load;
  load.file = file;
  load.text = std::move(tree.text);
  load.problems = std::move(tree.problems);
  load.readable = tree.readable;
  if (!load.ok()) return load;
  Reader(load, config, replicas, traced).file(root);
  config::sort_by_position(load.problems);
  return load;
}

Load read_load(const std::string& path, const Config& config, std::uint32_t replicas, bool traced) {
  Node root;
  yaml::Loaded tree = yaml::load_tree(path, root);
  if (tree.readable) return parse_load(std::move(tree.text), path, config, replicas, traced);
  Load load;
  load.file = path;
  load.problems = std::move(tree.problems);
  load.readable = false;
  return load;
}

}  // namespace bulkhead::simulate
