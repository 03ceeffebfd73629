// `bulkhead check nginx.conf`: the file that bulkhead_config names, and what nginx's own directives do to its bulkheads.
#include <fmt/format.h>
#include <glob.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <set>

#include "app/gateway/gateway.h"

namespace bulkhead::gateway {
namespace {

struct Directive {
  std::vector<std::string> words;
  std::vector<Directive> block;
  std::string file;
  std::uint32_t line = 0;
};

// nginx's syntax: words, quotes, comments, blocks. `include` is replaced by the files.
class Parser {
 public:
  // nginx looks for all files beside the first one, also for those that an included file names.
  Parser(std::string file, std::filesystem::path prefix, int depth)
      : file_(std::move(file)), prefix_(std::move(prefix)), depth_(depth) {
    std::ifstream in(file_);
    text_.assign(std::istreambuf_iterator<char>(in), {});
  }

  std::vector<Directive> parse() { return block(); }

 private:
  std::vector<Directive> block() {
    std::vector<Directive> all;
    while (at_ < text_.size()) {
      Directive d{.words = {}, .block = {}, .file = file_, .line = 0};
      char end = 0;
      while (end == 0 && at_ < text_.size()) end = word(d);
      if (end == '{') d.block = block();
      if (!d.words.empty()) add(all, std::move(d));
      if (end == '}') break;
    }
    return all;
  }

  // One word, or what ends the directive: ';', '{', '}'.
  char word(Directive& d) {
    const char c = text_[at_];
    if (c == '\n') ++line_;
    if (c == ' ' || c == '\t' || c == '\r' || c == '\n') return ++at_, '\0';
    if (c == '#') return at_ = std::min(text_.find('\n', at_), text_.size()), '\0';
    if (c == ';' || c == '{' || c == '}') return ++at_, c;
    if (d.words.empty()) d.line = line_;
    std::string text;
    const char quote = c == '"' || c == '\'' ? c : '\0';
    if (quote) ++at_;
    for (; at_ < text_.size(); ++at_) {
      const char next = text_[at_];
      if (next == '\n') ++line_;
      if (next == '\\' && at_ + 1 < text_.size()) {
        text += text_[++at_];
        continue;
      }
      if (quote ? next == quote : std::string_view(" \t\r\n;").find(next) != std::string_view::npos) break;
      if (!quote && next == '{' && (text.empty() || text.back() != '$')) break;
      text += next;
    }
    if (quote) ++at_;
    d.words.push_back(std::move(text));
    return '\0';
  }

  void add(std::vector<Directive>& all, Directive d) const {
    if (d.words[0] != "include" || d.words.size() != 2 || depth_ > 8) {
      all.push_back(std::move(d));
      return;
    }
    const auto pattern = prefix_ / d.words[1];
    glob_t found{};
    if (::glob(pattern.c_str(), 0, nullptr, &found) == 0)
      for (std::size_t i = 0; i < found.gl_pathc; ++i)
        std::ranges::move(Parser(found.gl_pathv[i], prefix_, depth_ + 1).parse(), std::back_inserter(all));
    ::globfree(&found);
  }

  std::string file_, text_;
  std::filesystem::path prefix_;
  std::size_t at_ = 0;
  std::uint32_t line_ = 1;
  int depth_;
};

// "500ms", "30s", "30", "1m 30s" and "1d", as nginx reads them
std::optional<std::chrono::nanoseconds> time_of(std::string_view text) {
  std::int64_t ms = 0;
  do {
    std::int64_t n = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
    if (error != std::errc{}) return std::nullopt;
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    const bool is_ms = text.starts_with("ms");
    const char unit = is_ms || text.empty() ? 's' : text[0];
    const std::int64_t seconds = unit == 'm'   ? 60
                                 : unit == 'h' ? 3600
                                 : unit == 'd' ? 86'400
                                 : unit == 'w' ? 7 * 86'400
                                               : 1;
    ms += n * (is_ms ? 1 : 1000 * seconds);
    const std::size_t next = text.find_first_of("0123456789");
    text.remove_prefix(std::min(next, text.size()));
  } while (!text.empty());
  return std::chrono::milliseconds(ms);
}

class Check {
 public:
  Check(const std::vector<Directive>& all, std::filesystem::path prefix) : prefix_(std::move(prefix)) {
    for (const Directive& d : all)
      if (d.words[0] == "worker_processes" && d.words.size() > 1) workers_ = d.words[1];
    for (const Directive& d : all)
      if (d.words[0] == "http") http(d);
    if (!seen_) complain({}, "no http {} block has a bulkhead_config");
  }
  yaml::Loaded take() { return std::move(loaded_); }

 private:
  struct Scope {  // what a level inherits
    std::string bulkhead{}, limit_conn{};
    std::chrono::nanoseconds proxy_read_timeout = std::chrono::seconds(60),
                             grpc_read_timeout = proxy_read_timeout;
  };

  void http(const Directive& block) {
    for (const Directive& d : block.block) {
      if (d.words[0] == "upstream" && d.words.size() > 1)
        for (const Directive& u : d.block)
          if (u.words[0] == "keepalive" && u.words.size() > 1)
            keep_alive_[d.words[1]] = std::atoi(u.words[1].c_str());
      if (d.words[0] == "upstream" && d.words.size() > 1) keep_alive_.try_emplace(d.words[1], 0);
      if (d.words[0] != "bulkhead_config" || d.words.size() < 2) continue;
      seen_ = true;
      loaded_ = yaml::load((prefix_ / d.words[1]).lexically_normal().string());
    }
    if (seen_ && loaded_.ok()) level(block, {});
  }

  void level(const Directive& block, Scope scope) {
    std::string upstream;
    const Directive* passes = nullptr;
    for (const Directive& d : block.block) {
      if (d.words.size() < 2) continue;
      if (d.words[0] == "bulkhead") {
        scope.bulkhead = d.words[1] == "off" ? "" : d.words[1];
        if (!scope.bulkhead.empty()) name(d);
      }
      if (d.words[0] == "limit_conn") scope.limit_conn = fmt::format("{}:{}", d.file, d.line);
      if (const auto time = time_of(d.words[1])) {
        if (d.words[0] == "proxy_read_timeout") scope.proxy_read_timeout = *time;
        if (d.words[0] == "grpc_read_timeout") scope.grpc_read_timeout = *time;
      }
      if (d.words[0] == "proxy_pass" || d.words[0] == "grpc_pass") {
        passes = &d;
        const std::size_t name = d.words[1].find("://");
        upstream = d.words[1].substr(name == std::string::npos ? 0 : name + 3);
        upstream.erase(std::min(upstream.find('/'), upstream.size()));
      }
    }
    if (passes && !scope.bulkhead.empty()) location(*passes, scope, upstream);
    for (const Directive& d : block.block)
      if (d.words[0] == "server" || d.words[0] == "location" || d.words[0] == "if") level(d, scope);
  }

  // A bulkhead directive.
  void name(const Directive& d) {
    const BulkheadOptions* const o = options_of(d.words[1]);
    if (!o) return complain(d, "there is no bulkhead \"" + d.words[1] + "\" in the file of bulkhead_config");
    if (workers_ != "1" && o->scope == bulkhead::Scope::process && each_.insert(d.words[1]).second)
      warn(d,
           "worker_processes is " + workers_ + ", and each worker has a limit of its own for \"" +
               d.words[1] + '"',
           "add scope: host to the bulkhead and host: {region: /run/bulkhead/region} to the file, or write "
           "worker_processes 1");
  }

  void location(const Directive& passes, const Scope& scope, const std::string& upstream) {
    const BulkheadOptions* const found = options_of(scope.bulkhead);
    if (!found) return;
    const BulkheadOptions& o = *found;
    if (!scope.limit_conn.empty())
      warn(passes,
           "limit_conn at " + scope.limit_conn + " rejects requests before \"" + scope.bulkhead +
               "\" can queue them, without its reason and its counters",
           "remove limit_conn from this location");
    const bool grpc = passes.words[0] == "grpc_pass";
    const std::string timeout = grpc ? "grpc_read_timeout" : "proxy_read_timeout";
    if (o.execution_timeout != wait_forever &&
        (grpc ? scope.grpc_read_timeout : scope.proxy_read_timeout) < o.execution_timeout)
      warn(passes,
           timeout + " is shorter than execution_timeout of \"" + scope.bulkhead + "\", which never applies",
           "make " + timeout + " longer than execution_timeout");
    if (const auto kept = keep_alive_.find(upstream);
        kept != keep_alive_.end() && kept->second < static_cast<std::int64_t>(o.max_concurrent))
      warn(passes,
           fmt::format("upstream {} keeps {} connections, and \"{}\" admits {}: the others are opened and "
                       "closed for each request",
                       upstream, kept->second, scope.bulkhead, o.max_concurrent),
           "write keepalive of at least max_concurrent into the upstream");
  }

  const BulkheadOptions* options_of(const std::string& name) const {
    if (const BulkheadConfig* const one = loaded_.config.find(name)) return &one->options;
    const TenantsConfig* const tenants = loaded_.config.find_tenants(name);
    return tenants ? &tenants->each.options : nullptr;
  }

  void complain(const Directive& at, std::string message) {
    loaded_.problems.push_back(
        {.file = at.file, .at = {at.line, 1}, .path = word(at), .message = std::move(message)});
  }
  void warn(const Directive& at, std::string message, std::string hint) {
    loaded_.warnings.push_back({.severity = ConfigProblem::Severity::warning,
                                .file = at.file,
                                .at = {at.line, 1},
                                .path = word(at),
                                .message = std::move(message),
                                .hint = std::move(hint)});
  }
  static std::string word(const Directive& d) { return d.words.empty() ? "bulkhead_config" : d.words[0]; }

  std::filesystem::path prefix_;
  yaml::Loaded loaded_{};
  bool seen_ = false;
  std::string workers_ = "1";
  std::set<std::string> each_;  // bulkheads that the workers do not share, once each
  std::map<std::string, std::int64_t> keep_alive_;
};

}  // namespace

bool is_nginx_conf(std::string_view text) {
  if (text.find("bulkhead_config ") != text.npos) return true;
  constexpr std::string_view kHttp = "http";
  for (std::size_t at = text.find(kHttp); at != text.npos; at = text.find(kHttp, at + 1)) {
    const std::size_t next = text.find_first_not_of(" \t\r\n", at + kHttp.size());
    if (next != text.npos && text[next] == '{') return true;
  }
  return false;
}

yaml::Loaded check_nginx_conf(const std::string& path) {
  const std::filesystem::path file = std::filesystem::absolute(path);
  yaml::Loaded loaded =
      Check(Parser(file.string(), file.parent_path(), 0).parse(), file.parent_path()).take();
  loaded.readable = true;
  return loaded;
}

}  // namespace bulkhead::gateway
