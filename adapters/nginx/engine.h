// engine.h - the bulkheads of one nginx worker: the registry of its file, and the requests whose turn has come.
//
// Threads: decided() and the file watch may be called from any thread; everything else belongs to the loop. With
//   scope: host a thread of the region may admit a waiting request; it only posts that to the loop.
// Promises: no request is resumed from inside another one's decision, so the stack stays flat. A changed file is read and
//   checked on the thread of the watch, and put into force on the loop; a bad one changes nothing.
// The engine is never destroyed: requests may hold places until the process ends, and a bulkhead's destructor waits for
// them. end() stops its threads.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "adapters/shm/host.h"
#include "adapters/watch/file_watch.h"
#include "adapters/workers/board.h"
#include "bulkhead/detail/std_mutex.h"
#include "bulkhead/http_guard.h"
#include "bulkhead/live_config.h"
#include "loop_clock.h"
#include "wait.h"

namespace bulkhead::nginx {

struct EngineOptions {
  std::string file{};
  ConfigText text{};  // of the file, checked
  bool watch = true;  // the file, for changes
  http::StormOptions storm{};
  std::uint32_t max_held = 1024;            // rejections that are held at once
  std::shared_ptr<workers::Board> board{};  // numbers of all workers, and orders of operators
  void (*resume)(Visit& visit) = nullptr;
  // Why a changed file cannot be applied, besides its own problems; empty: it can.
  std::function<std::vector<std::string>(const Config& config)> check{};
  std::function<void(bool problem, std::string_view text)> log{};
};

class Engine {
 public:
  explicit Engine(EngineOptions options);  // std::runtime_error: the file cannot be applied

  // The bulkhead of this name, or of the tenant in the set of this name. A name that a reload has removed is rejected
  // with the reason of a bulkhead that is gone.
  Result<std::shared_ptr<Bulkhead>> find(std::string_view name, std::string_view tenant, bool tenants);

  void decided(std::shared_ptr<Wait> wait) noexcept;
  void run() noexcept;                     // resumes the visits that are decided, applies a changed file
  void ring() noexcept { clock_.ring(); }  // see loop.h
  void tick() noexcept;                    // publishes the numbers, applies the orders of operators; periodic
  void end() noexcept;                     // stops the threads
  void leave() noexcept;                   // the process ends: its counters stay in the sum

  // How long to hold the next rejection, 0 while there are few.
  std::chrono::milliseconds hold() noexcept;
  // Counts the rejections that are held; false: there are too many, answer at once.
  bool begin_hold() noexcept;
  void end_hold() noexcept { --held_; }

  LoopClock& clock() noexcept { return clock_; }
  http::Guard& guard() noexcept { return guard_; }

 private:
  ReloadResult apply(ConfigText text, std::string_view actor);
  void change(ConfigText text);
  void complete(RegistrySnapshot& all);
  void obey();

  EngineOptions options_;
  LoopClock clock_;
  shm::Host host_{{}};  // what workers share: bulkheads with scope: host
  Registry registry_;
  LiveConfig live_;
  http::Guard guard_;
  std::uint32_t held_ = 0;
  bool quiet_ = false;             // a snapshot is taken for the board only
  std::size_t left_out_ = 0;       // bulkheads for which the board had no room
  std::uint64_t orders_seen_ = 0;  // see Board::take()
  workers::Orders orders_;         // in force

  detail::StdMutex mutex_;
  std::vector<std::shared_ptr<Wait>> decided_ BULKHEAD_GUARDED_BY(mutex_);
  std::optional<ConfigText> changed_ BULKHEAD_GUARDED_BY(mutex_);
  std::optional<watch::FileWatch> watch_;  // last: its thread uses the rest
};

}  // namespace bulkhead::nginx
