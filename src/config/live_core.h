// live_core.h - the implementation of LiveConfig, shared by its source files.
#pragma once

#include <atomic>
#include <deque>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bulkhead/detail/std_mutex.h"
#include "bulkhead/live_config.h"
#include "config/running.h"

namespace bulkhead {

struct ConfigSubscription::Listener {
  // Held during a call of fn, so that the end of a subscription waits for it; recursive, because fn may end its own
  // subscription.
  detail::RecursiveMutex mutex;
  std::function<void(const ConfigEvent&)> fn BULKHEAD_GUARDED_BY(mutex);  // empty: ended
};

namespace config {

struct Override : ActiveOverride {
  // The bulkhead, if it is not in the file; keeps a tenant from being retired. Null: a setting of the file.
  std::shared_ptr<Bulkhead> loose{};
};
using Overrides = std::map<std::string, Override, std::less<>>;

Config with(Config config, const Overrides& overrides);  // applies those of the file
// The problems of `next` that `now` does not have. The running configuration may have problems itself: it can be a mix of
// two valid files, if part of the later one needs a restart.
std::vector<ConfigProblem> new_problems(const Config& now, const Config& next);

}  // namespace config

// Invariants
//   L1 A change holds `changing` from its first read to its last write, and changes the registry inside. `changer` is its
//      thread: hooks and handlers that run inside a change cannot make another one.
//   L2 The other members are read and written under `mutex`, which is taken last and never held while foreign code runs.
//   L3 The registry matches `running`, which is `base` with `overrides`; `base` is `file` without what needs a restart.
//      Bulkheads that are not in the file are unchanged, except for the loose overrides.
//   L4 The path of every override is a setting in `base`, whose value there is `replaced`; or the override is loose.
struct LiveConfig::Core {
  using Kind = ConfigEvent::Kind;
  using Overrides = config::Overrides;
  Core(LiveConfig& live, Registry& r, LiveConfigOptions o)
      : owner(&live), registry(r), options(std::move(o)), clock(options.clock ? *options.clock : r.clock()) {}

  // Holds `changing`, unless this thread is inside a change already.
  class BULKHEAD_SCOPED_CAPABILITY Turn {
   public:
    explicit Turn(Core& core) BULKHEAD_ACQUIRE(core.changing);
    ~Turn() BULKHEAD_RELEASE();
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    explicit operator bool() const noexcept { return holds_; }
    void end() BULKHEAD_RELEASE();  // also delivers the events of the change, without a lock held

   private:
    Core& core_;
    bool holds_ = false;
  };
  static ConfigProblem inside_a_change();

  void tell(Kind kind, std::string_view path, std::string_view actor, std::string said)
      BULKHEAD_REQUIRES(changing) {
    fresh.push_back({.kind = kind,
                     .at = clock.now(),
                     .path = std::string(path),
                     .actor = std::string(actor),
                     .text = std::move(said)});
  }
  // For an override: with the values before and after.
  void tell(Kind kind, const ActiveOverride& o, std::string_view actor, std::string said, std::string before,
            std::string after) BULKHEAD_REQUIRES(changing) {
    tell(kind, o.path, actor, std::move(said));
    ConfigEvent& event = fresh.back();
    event.bulkhead = o.bulkhead;
    event.setting = o.setting;
    event.before = std::move(before);
    event.after = std::move(after);
  }
  void tell_end(Kind kind, const ActiveOverride& o, std::string said) BULKHEAD_REQUIRES(changing) {
    tell(kind, o, o.actor, std::move(said), o.value, o.replaced);
  }
  // Makes the registry match `next_base` with `next_overrides`. With problems, nothing has changed.
  std::vector<ConfigProblem> settle(Config next_base, Overrides next_overrides) BULKHEAD_REQUIRES(changing);
  // Ends overrides that do not fit the base and the other overrides, and loose ones whose bulkhead was removed.
  void drop_unfit(Overrides& next, const Config& next_base) BULKHEAD_REQUIRES(changing);
  void drop_outdated(Overrides& next, const Config& next_base, const Config& next_file)
      BULKHEAD_REQUIRES(changing);
  ReloadResult reload(ConfigText wanted, std::string_view actor) BULKHEAD_REQUIRES(changing);
  ReloadResult fail(ReloadResult result, std::string_view actor) BULKHEAD_REQUIRES(changing);

  struct Begun {
    std::string path, said, before;
  };
  // Adds an override to `next`, or returns its problems. `tried`: the configuration with the overrides added before.
  std::vector<ConfigProblem> add(Overrides& next, Config& tried, const OverrideRequest& request, Begun& begun)
      BULKHEAD_REQUIRES(changing);
  std::vector<ConfigProblem> add_loose(Overrides& next, config::Override o, const OverrideRequest& request,
                                       Begun& begun);
  // False: its bulkhead was removed.
  bool in_force(const config::Override& o) const { return !o.loose || registry.find(o.bulkhead) == o.loose; }
  // Sets the setting of a loose override to `value`; throws std::invalid_argument.
  void put(const config::Override& o, std::string_view value) const;
  // Ends `gone`, and the overrides that do not fit without them. False: they stay.
  bool end(const std::vector<std::string>& gone, Kind kind, std::string_view actor)
      BULKHEAD_REQUIRES(changing);
  void end_on_time();  // the thread
  void wake();

  LiveConfig* const owner;
  Registry& registry;
  const LiveConfigOptions options;
  Clock& clock;
  detail::StdMutex changing;
  std::atomic<std::thread::id> changer{};
  std::vector<ConfigEvent> fresh BULKHEAD_GUARDED_BY(changing);  // not yet delivered

  mutable detail::StdMutex mutex;
  // Written under both locks and so read under either of them, which Clang has no word for.
  Config file, base, running;
  std::string text;
  Overrides overrides;
  ConfigStatus status;
  std::map<std::string, std::uint64_t, std::less<>> versions BULKHEAD_GUARDED_BY(mutex);  // by bulkhead
  std::deque<ConfigEvent> events BULKHEAD_GUARDED_BY(mutex);
  std::uint64_t last_event BULKHEAD_GUARDED_BY(mutex) = 0;
  std::vector<std::shared_ptr<ConfigSubscription::Listener>> listeners BULKHEAD_GUARDED_BY(mutex);

  std::atomic<std::uint32_t> turns{0};  // increases when `ender` must check again
  std::atomic<bool> stopping{false};
  std::thread ender BULKHEAD_GUARDED_BY(changing);  // started by the first override
};

}  // namespace bulkhead
