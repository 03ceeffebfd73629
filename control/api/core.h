// core.h - the state that the handlers share, independent of HTTP.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "bulkhead/metrics.h"
#include "control/server.h"
#include "control/state/journal.h"
#include "control/state/observer.h"
#include "control/state/operations.h"

namespace bulkhead::control {

// Threads: any may use `journal`, `operations` and the atomics; only the event loop uses `observer`, `metrics` and `snapshot`.
struct Core {
  Core(Registry& what, LiveConfig* file, ServerOptions how);  // file null: a registry without a file
  ~Core();
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;

  std::optional<LiveConfig> own;  // holds the overrides of a registry without a file
  LiveConfig& live;
  Registry& registry;
  ServerOptions options;
  Journal journal;
  Operations operations;
  Observer observer;
  Metrics metrics;
  std::atomic<bool> stopping{false};
  std::atomic<bool> changed{false};  // since the snapshot was made last
  // The answer to GET /v1/snapshot; requests within 50 ms share it.
  std::shared_ptr<const std::string> snapshot;
  std::chrono::steady_clock::time_point snapshot_at{};

  void expire();  // ends overrides whose time is over or whose bulkhead was removed

  // During its life this thread's handler writes the journal entry of what it does to the configuration; the event of
  // LiveConfig is not written as well.
  class Reporting {
   public:
    explicit Reporting(Core& core) : core_(core) { core.reporter_ = std::this_thread::get_id(); }
    ~Reporting() { core_.reporter_ = std::thread::id(); }
    Reporting(const Reporting&) = delete;
    Reporting& operator=(const Reporting&) = delete;

   private:
    Core& core_;
  };

 private:
  void report(const ConfigEvent& event);

  std::atomic<std::thread::id> reporter_{};
  std::atomic<bool> reloaded_{false};  // since the last expire()
  ConfigSubscription subscription_;    // the last member: its callback uses the others
};

}  // namespace bulkhead::control
