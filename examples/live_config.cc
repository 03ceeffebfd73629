// A registry that follows a file, with a control plane whose overrides a reload keeps, and an override that ends by itself.
#include <bulkhead/adapters/watch/file_watch.h>
#include <bulkhead/adapters/yaml/yaml.h>
#include <bulkhead/control/server.h>
#include <bulkhead/live_config.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

using namespace std::chrono_literals;

int main() {
  const std::string path = (std::filesystem::temp_directory_path() / "bulkhead_live_config.yaml").string();
  std::ofstream(path) << "version: 1\n"
                         "bulkheads:\n"
                         "  payments: {type: external-api, max_concurrent: 20}\n";

  bulkhead::Registry registry;
  bulkhead::LiveConfig live(
      registry, {.file = path, .read = [path] { return bulkhead::config_text(bulkhead::yaml::load(path)); }});
  const bulkhead::ReloadResult loaded = live.reload("start");
  std::fputs(to_text(loaded.ok() ? std::vector<bulkhead::ConfigProblem>{} : loaded.problems).c_str(), stderr);
  if (!loaded.ok()) return 1;

  // From now on the file is followed; overrides end by themselves.
  const bulkhead::watch::FileWatch watch({.path = path, .on_change = [&] { live.reload("watch"); }});
  // What operators set is an override of `live`, too.
  const bulkhead::control::Server admin(registry, live, {.listen = "127.0.0.1:0"});

  live.set({.path = "bulkheads.payments.max_concurrent",
            .value = "40",
            .ttl = 15min,
            .reason = "sale",
            .actor = "ann"});
  const auto limit = [&] { return registry.get("payments")->snapshot().gate.max_concurrent; };
  std::printf("payments: %u at once\n", limit());
  const bool raised = limit() == 40;
  live.revert("bulkheads.payments.max_concurrent");
  for (const bulkhead::ConfigEvent& event : live.events())
    std::printf("%s: %s\n", std::string(to_string(event.kind)).c_str(), event.text.c_str());
  std::filesystem::remove(path);
  return raised && limit() == 20 ? 0 : 1;
}
