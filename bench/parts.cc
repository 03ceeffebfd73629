#include "bench/parts.h"

#include <memory>

#include "bench/rival_floor.h"

namespace bench {

Part bare_pair() {
  auto pair = std::make_shared<Contending<AddSub>>(1);
  return {std::string(kFloor), [pair](std::uint64_t n) { pair->try_calls(n); }};
}

void add_parts(const Settings& settings, Results& results, Table table, const std::vector<Part>& parts) {
  if (!settings.wants(table.title)) return;
  std::vector<std::uint64_t> batches;
  for (const Part& p : parts) batches.push_back(batch_size(p.loop));
  Team team(table.threads);
  const std::int64_t window_ns = settings.quick ? 300'000 : 1'500'000;
  const auto series = take_turns(table.title, settings.apply({}), parts.size(), [&](std::size_t i) {
    return measure(team, window_ns, batches[i], parts[i].loop);
  });
  for (std::size_t i = 0; i < parts.size(); ++i) table.add(parts[i].name, series[i]);
  results.push_back(std::move(table));
}

}  // namespace bench
