// Whatever bytes a file has: it is answered, in bounded size, with places that exist; and what is accepted can be made,
// and written down and read again as the same.
#include <cstdio>
#include <cstdlib>
#include <string>

#include "adapters/yaml/yaml.h"

namespace {

using namespace bulkhead;

void require(bool good, const char* what) {
  if (good) return;
  std::fprintf(stderr, "not so: %s\n", what);
  std::abort();
}

void check_problems(const yaml::Loaded& file) {
  require(file.problems.size() <= 201, "the answer is bounded");
  for (const ConfigProblem& p : file.problems) {
    require(!p.message.empty(), "a problem says what it is");
    require(to_text(p).size() < 4000, "a problem is short");
    for (const char c : to_text(p))
      require(c == '\n' || c == '\t' || static_cast<unsigned char>(c) >= 0x20, "a terminal can show it");
  }
}

// Objects as large as a file may ask for would only measure how much memory there is.
bool is_small(const BulkheadOptions& o) {
  return o.max_concurrent <= 10'000 && o.max_queue <= 10'000 &&
         (!o.breaker || o.breaker->window_calls <= 10'000) && (!o.adaptive || o.adaptive->ceiling <= 10'000);
}

void make(const Config& config) {
  Registry registry;
  for (const GroupConfig& g : config.groups) registry.add_group(g.options);
  for (const BulkheadConfig& b : config.bulkheads) {
    if (!is_small(b.options)) continue;
    Registration r{.options = b.options,
                   .type = b.type,
                   .group = b.group,
                   .guaranteed = b.guaranteed,
                   .max = b.max,
                   .criticality = b.criticality};
    if (!b.group.empty()) r.options.max_concurrent = 1;
    r.options.pool.min_threads = 0;  // starts no thread
    registry.add(r);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const yaml::Loaded file = yaml::parse(std::string(reinterpret_cast<const char*>(data), size), "f");
  check_problems(file);
  if (!file.ok()) return 0;
  require(!settings(file.config).empty(), "what is in force can be listed");
  for (const ConfigProblem& w : file.warnings)
    require(static_cast<bool>(w.at) && !w.rule.empty(), "a warning has a place and a rule");
  make(file.config);  // throws: the decoder let something through
  return 0;
}
