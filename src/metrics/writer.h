// writer.h - writes families of samples in the text formats of Prometheus, one line after the other.
//
//   out.begin(family);
//   out.sample("{bulkhead=\"db\"", ",reason=\"timeout\"} ", 7);
//   out.end();
//
// Both formats agree on samples; they differ in what is said about a family, and in how a page ends.
#pragma once

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "bulkhead/metrics.h"
#include "metrics/rows.h"

namespace bulkhead::metrics {

// What stands behind the labels of a sample that has no more of them.
inline constexpr std::string_view kEnd = "} ";

class Writer {
 public:
  Writer(std::string& out, bool openmetrics, std::size_t max_series)
      : out_(out), openmetrics_(openmetrics), max_series_(max_series) {
    out_.clear();
  }

  void begin(const MetricFamily& family);
  // A family without samples is not mentioned. Returns the number of samples it had no room for.
  std::uint64_t end();
  void finish() {
    if (openmetrics_) out_ += "# EOF\n";
  }

  void sample(std::string_view labels, std::string_view more, std::uint64_t value) {
    line(name_, labels, more, [=](char* at) { return std::to_chars(at, at + kNumber, value).ptr; });
  }
  void sample(std::string_view labels, std::string_view more, double value) {
    line(name_, labels, more, [=](char* at) { return std::to_chars(at, at + kNumber, value).ptr; });
  }
  // As seconds, exactly: 1500000 is 0.0015.
  void seconds(std::string_view labels, std::string_view more, std::uint64_t ns) {
    line(name_, labels, more, [=](char* at) { return put_seconds(at, ns); });
  }
  void histogram(std::string_view labels, const Times& times);

 private:
  static constexpr std::size_t kNumber = 32;  // longer than any number

  static char* put(char* at, std::string_view text) {
    text.copy(at, text.size());
    return at + text.size();
  }
  static char* put_seconds(char* at, std::uint64_t ns);

  // The samples are most of a page, and this is most of the work: one look at the capacity per line.
  template <class Value>
  void line(std::string_view name, std::string_view labels, std::string_view more, Value put_value) {
    if (series_ == max_series_) {
      ++left_out_;
      return;
    }
    ++series_;
    const std::size_t used = out_.size();
    out_.resize(used + name.size() + labels.size() + more.size() + kNumber + 1);
    char* const text = out_.data();
    char* at = put_value(put(put(put(text + used, name), labels), more));
    *at++ = '\n';
    out_.resize(static_cast<std::size_t>(at - text));
  }

  std::string& out_;
  bool openmetrics_;
  std::size_t max_series_;
  std::string name_, bucket_, sum_, count_;
  std::size_t began_ = 0, series_ = 0;
  std::uint64_t left_out_ = 0;
};

}  // namespace bulkhead::metrics
