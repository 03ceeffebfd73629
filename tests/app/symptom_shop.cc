// symptom_shop.cc - a service whose bulkheads each have one trouble, for tests that read it back from the interface and the
// command line. The bulkheads, the group, the fleet and the control plane of its file are the real ones; what is behind
// the bulkheads is time.
//
//   bulkhead_symptom_shop FILE    # until SIGTERM; operate_test.py has the file
#include <signal.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <functional>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "adapters/redis/fleet.h"
#include "adapters/yaml/yaml.h"
#include "bulkhead/live_config.h"
#include "control/server.h"

namespace {

using namespace std::chrono_literals;
using bulkhead::Call;
using bulkhead::Result;

// False: it is over.
bool pause(const std::stop_token& stop, std::chrono::milliseconds time) {
  std::mutex mutex;
  std::condition_variable_any over;
  std::unique_lock lock(mutex);
  return !over.wait_for(lock, stop, time, [&] { return stop.stop_requested(); });
}

class Callers {
 public:
  explicit Callers(bulkhead::Registry& registry) : registry_(registry) {}

  // Each waits for a place, holds it for this time, and rests.
  void call(int callers, std::string_view name, std::chrono::milliseconds holds,
            std::chrono::milliseconds rests, std::chrono::milliseconds begins = 0ms) {
    for (int i = 0; i < callers; ++i)
      add([this, name, holds, rests, begins](const std::stop_token& stop) {
        if (!pause(stop, begins)) return;
        do {
          const Result<Call> call = registry_.get(name)->acquire();
          if (call && !pause(stop, holds)) return;
        } while (pause(stop, rests));
      });
  }
  // Twenty calls a second; in one second of four some more than there is room for.
  void bursts(std::string_view name) {
    add([this, name](const std::stop_token& stop) {
      for (int i = 1; pause(stop, 50ms); ++i) {
        const Result<Call> call = registry_.get(name)->try_acquire();
        if (i % 80 != 0) continue;
        const Result<Call> other = registry_.get(name)->try_acquire();
        for (int k = 0; k < 5; ++k) static_cast<void>(registry_.get(name)->try_acquire());
      }
    });
  }

 private:
  void add(std::function<void(const std::stop_token&)> work) { threads_.emplace_back(std::move(work)); }

  bulkhead::Registry& registry_;
  std::vector<std::jthread> threads_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);

  const std::string path = argv[1];
  const auto file = bulkhead::yaml::load(path);
  bulkhead::redis::Fleet fleet(file.config.fleet.value_or(bulkhead::FleetSettings{}));
  bulkhead::SourcesByScope sources(nullptr, &fleet);
  bulkhead::Registry registry({.sources = &sources});
  bulkhead::LiveConfig live(
      registry, {.file = path, .read = [path] { return bulkhead::config_text(bulkhead::yaml::load(path)); }});
  const bulkhead::ReloadResult loaded = live.reload("start");
  std::fputs(to_text(loaded.problems).c_str(), stderr);
  if (!loaded.ok() || !live.running().control) return 1;
  const bulkhead::control::Server server(registry, live,
                                         bulkhead::control::options_of(*live.running().control, {}));
  {
    Callers callers(registry);
    callers.call(1, "limited", 0ms, 10ms);
    callers.call(10, "kept", 1s, 1ms);
    callers.call(1, "hung", 24h, 0ms);
    callers.call(10, "borrower", 25s, 1ms);
    callers.call(3, "lender", 10ms, 1ms, 2s);  // once the borrower has its units
    callers.call(4, "observed", 100ms, 1ms);
    callers.call(1, "far", 5ms, 50ms);
    callers.bursts("bursts");
    registry.get("closing")->close();
    std::puts("ready");
    std::fflush(stdout);
    int signal = 0;
    sigwait(&signals, &signal);
    for (const std::string& name : registry.names()) registry.find(name)->close();  // ends the waits
  }
}
