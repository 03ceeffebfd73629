#include "app/run/report.h"

#include <fmt/format.h>
#include <unistd.h>

#include <boost/json/array.hpp>
#include <boost/json/serialize.hpp>
#include <chrono>
#include <cstdio>

namespace bulkhead::run {
namespace {

namespace json = boost::json;

json::array list_of(const std::vector<ConfigProblem>& problems) {
  json::array list;
  for (const ConfigProblem& p : problems)
    list.push_back(json::object{{"line", p.at.line},
                                {"column", p.at.column},
                                {"path", p.path},
                                {"message", p.message},
                                {"hint", p.hint}});
  return list;
}

json::value or_null(const std::string& text) { return text.empty() ? json::value() : json::value(text); }

}  // namespace

void Report::add(std::string_view kind, json::object fields) {
  const auto now = std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::system_clock::now().time_since_epoch());
  json::object line{{"kind", kind}, {"time", static_cast<double>(now.count()) / 1000}};
  for (auto& field : fields) line.emplace(field.key(), std::move(field.value()));
  lines_.add(json::serialize(line));
  lines_.flush();
}

void Report::warn(std::string_view text) {
  if (json_) return add("warning", {{"text", text}});
  fmt::print(stderr, "bulkhead run: {}\n", text);
}

void Report::warn(const std::vector<ConfigProblem>& problems) {
  if (problems.empty()) return;
  if (json_) return add("warning", {{"text", to_text(problems)}, {"problems", list_of(problems)}});
  fmt::print(stderr, "{}", to_text(problems));
}

void Report::invalid(const std::string& file, const std::vector<ConfigProblem>& problems) {
  if (json_) add("invalid", {{"file", file}, {"problems", list_of(problems)}});
  const bool unreadable = problems.size() == 1 && problems.front().message.starts_with("cannot read it");
  fmt::print(stderr, "{}{}", to_text(problems),
             unreadable ? "" : fmt::format("bulkhead run: {} is not valid\n", file));
}

void Report::failed(std::string_view text) {
  if (json_) add("failed", {{"text", text}});
  fmt::print(stderr, "bulkhead run: {}\n", text);
}

void Report::ready(const Ready& r) {
  if (json_) {
    json::array listeners;
    for (const std::string& address : r.listeners) listeners.push_back(json::value(address));
    return add("ready", {{"pid", ::getpid()},
                         {"version", r.version},
                         {"file", r.file},
                         {"bulkheads", r.bulkheads},
                         {"url", or_null(r.url)},
                         {"unix_socket", or_null(r.unix_socket)},
                         {"gateway", std::move(listeners)}});
  }
  fmt::print("bulkhead run: {} bulkhead{} of {}, control plane at {}\n", r.bulkheads,
             r.bulkheads == 1 ? "" : "s", r.file,
             r.url + (r.url.empty() || r.unix_socket.empty() ? "" : " and ") + r.unix_socket);
  if (r.listeners.empty())
    fmt::print(
        "no traffic passes through this process: the file has no gateway. Its bulkheads can be looked at and "
        "tried out.\n");
  else
    fmt::print("requests pass through nginx: {}\n", fmt::join(r.listeners, ", "));
  std::fflush(stdout);
}

void Report::loaded(const std::string& file, std::string_view actor, const ReloadResult& result) {
  if (json_) {
    json::array changes;
    if (result.ok())
      for (const PlanLine& line : result.plan.lines) changes.push_back(json::value(to_text(line)));
    return add("loaded", {{"file", file},
                          {"actor", actor},
                          {"ok", result.ok()},
                          {"changes", std::move(changes)},
                          {"problems", list_of(result.problems)}});
  }
  if (result.ok())
    fmt::print(stderr, "bulkhead run: {} loaded ({}):\n{}\n", file, actor, to_text(result.plan));
  else
    fmt::print(stderr, "bulkhead run: {} is not valid, the previous configuration stays in force ({}):\n{}",
               file, actor, to_text(result.problems));
}

void Report::stopping(std::string_view signal, double grace) {
  if (json_) add("stopping", {{"signal", signal}, {"grace", grace}});
}

}  // namespace bulkhead::run
