#include "metrics/writer.h"

#include <array>

#include "base/text.h"

namespace bulkhead::metrics {
namespace {

// The words behind the labels of each bucket.
const std::array<std::string, kBounds.size() + 1>& le_texts() {
  static const auto texts = [] {
    std::array<std::string, kBounds.size() + 1> all;
    for (std::size_t i = 0; i < kBounds.size(); ++i) all[i] = base::join({",le=\"", kBounds[i].text, "\"} "});
    all.back() = ",le=\"+Inf\"} ";
    return all;
  }();
  return texts;
}

std::string_view without(std::string_view name, std::string_view suffix) {
  return name.ends_with(suffix) ? name.substr(0, name.size() - suffix.size()) : name;
}

// OpenMetrics requires a UNIT line for the unit that a name ends in.
std::string_view unit(std::string_view name) {
  for (const std::string_view unit : {"_seconds", "_bytes", "_ratio"})
    if (name.ends_with(unit)) return unit.substr(1);
  return {};
}

}  // namespace

// OpenMetrics names a counter without _total in its HELP and TYPE lines; Prometheus text has no type info.
void Writer::begin(const MetricFamily& family) {
  began_ = out_.size();
  series_ = 0;
  left_out_ = 0;
  name_ = family.name;
  if (family.type == MetricType::histogram) {
    bucket_ = name_ + "_bucket";
    sum_ = name_ + "_sum";
    count_ = name_ + "_count";
  }
  std::string_view name = family.name, type = to_string(family.type);
  if (openmetrics_)
    name = without(without(name, "_total"), "_info");
  else if (family.type == MetricType::info)
    type = "gauge";
  out_ += base::join({"# HELP ", name, " ", family.help, "\n# TYPE ", name, " ", type, "\n"});
  if (const auto u = unit(name); openmetrics_ && !u.empty())
    out_ += base::join({"# UNIT ", name, " ", u, "\n"});
}

std::uint64_t Writer::end() {
  if (series_ == 0) out_.resize(began_);
  return left_out_;
}

void Writer::histogram(std::string_view labels, const Times& times) {
  const auto& le = le_texts();
  const auto number = [](std::uint64_t value) {
    return [value](char* at) { return std::to_chars(at, at + kNumber, value).ptr; };
  };
  for (std::size_t i = 0; i < kBounds.size(); ++i) line(bucket_, labels, le[i], number(times.at_most[i]));
  line(bucket_, labels, le.back(), number(times.count));
  line(sum_, labels, kEnd, [&](char* at) { return put_seconds(at, times.sum_ns); });
  line(count_, labels, kEnd, number(times.count));
}

char* Writer::put_seconds(char* at, std::uint64_t ns) {
  constexpr std::uint64_t kSecond = 1'000'000'000;
  at = std::to_chars(at, at + kNumber, ns / kSecond).ptr;
  std::uint64_t rest = ns % kSecond;
  if (rest == 0) return at;
  *at++ = '.';
  for (std::uint64_t digit = kSecond / 10; rest > 0; digit /= 10) {
    *at++ = static_cast<char>('0' + rest / digit);
    rest %= digit;
  }
  return at;
}

}  // namespace bulkhead::metrics
