// report.h - what `bulkhead run` says while it runs: sentences for people, or lines of JSON for programs.
//
// JSON: one object a line, with `kind` and `time`. Its own kinds: warning, invalid, failed, ready, loaded, stopping; all
// others are the events of the control plane, as docs/formats/rest.md has them.
#pragma once

#include <boost/json/object.hpp>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "app/cli/json_lines.h"
#include "bulkhead/live_config.h"

namespace bulkhead::run {

class Report {
 public:
  explicit Report(bool json) noexcept : json_(json) {}

  void warn(std::string_view text);
  void warn(const std::vector<ConfigProblem>& problems);
  void invalid(const std::string& file,
               const std::vector<ConfigProblem>& problems);  // at the start: it does not run
  void failed(std::string_view text);
  struct Ready {
    std::string file{}, version{}, url{}, unix_socket{};
    std::size_t bulkheads = 0;
    std::vector<std::string> listeners{};  // of the gateway; none: no traffic passes here
  };
  void ready(const Ready& ready);
  void loaded(const std::string& file, std::string_view actor, const ReloadResult& result);
  void event(std::string_view line) {
    if (json_) lines_.add(line);
  }  // from any thread
  void stopping(std::string_view signal, double grace);
  void flush() { lines_.flush(); }

 private:
  void add(std::string_view kind, boost::json::object fields);

  const bool json_;
  cli::JsonLines lines_;
};

}  // namespace bulkhead::run
