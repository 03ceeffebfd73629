#include "engine.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "adapters/yaml/yaml.h"
#include "bulkhead/config_metrics.h"
#include "loop.h"

namespace bulkhead::nginx {

Engine::Engine(EngineOptions options)
    : options_(std::move(options)),
      registry_({.clock = &clock_,
                 .sources = &host_,
                 .complete = [this](RegistrySnapshot& all) { complete(all); }}),
      live_(registry_, {.file = options_.file, .clock = &clock_, .ends_overrides = false}),
      guard_(registry_,
             {.storm = options_.storm, .metrics_extras = [this] { return config_metrics(live_); }}) {
  // Without its bulkheads this worker would reject every request.
  if (const ReloadResult result = apply(std::move(options_.text), "start"); !result.ok())
    throw std::runtime_error(to_text(result.problems));
  if (options_.board && !options_.board->join()) {
    options_.log(true,
                 "bulkhead: too many workers, or the file system of the board is full; the numbers of this "
                 "one are missing in the sum");
    options_.board.reset();
  }
  tick();
  if (!options_.watch) return;
  const auto changed = [this] {
    ConfigText text = config_text(yaml::load(options_.file));
    const detail::MutexLock lock(mutex_);
    changed_ = std::move(text);
    wake();
  };
  watch_.emplace(watch::FileWatchOptions{.path = options_.file, .on_change = changed});
  // The master has read the file; it may have changed since.
  watch_->poke();
}

ReloadResult Engine::apply(ConfigText text, std::string_view actor) {
  if (text.problems.empty() && text.config.host) host_.set_region(text.config.host->region);
  ReloadResult result = live_.reload(std::move(text), actor);
  // A bulkhead that the file has just added, or given a breaker, has not heard of the orders yet. What is in force stays in
  // orders_: an operator may take it back before the orders are read again.
  orders_seen_ = 0;
  return result;
}

void Engine::change(ConfigText text) {
  if (text.problems.empty() && options_.check)
    for (std::string& problem : options_.check(text.config))
      text.problems.push_back({.file = options_.file, .message = std::move(problem)});
  const ReloadResult result = apply(std::move(text), "watch");
  if (!result.ok())
    options_.log(true, "bulkhead: the file is not valid; the last valid file stays in force: " +
                           to_text(result.problems));
  else if (result.outcome == ReloadResult::Outcome::applied)
    options_.log(false, "bulkhead: " + options_.file + " is in force: " + to_text(result.plan));
}

Result<std::shared_ptr<Bulkhead>> Engine::find(std::string_view name, std::string_view tenant, bool tenants) {
  const auto gone = [&] {
    return Result<std::shared_ptr<Bulkhead>>(unexpect, Rejection{.reason = Reason::shutdown, .name = name});
  };
  try {
    if (tenants) return registry_.tenant(name, tenant);
  } catch (const std::exception&) {
    return gone();  // a reload has removed the set
  }
  std::shared_ptr<Bulkhead> found = registry_.find(name);
  if (!found) return gone();
  return found;
}

void Engine::decided(std::shared_ptr<Wait> wait) noexcept {
  {
    const detail::MutexLock lock(mutex_);
    decided_.push_back(std::move(wait));
  }
  if (on_loop())
    post();
  else
    wake();
}

void Engine::run() noexcept {
  std::vector<std::shared_ptr<Wait>> decided;
  std::optional<ConfigText> changed;
  {
    const detail::MutexLock lock(mutex_);
    decided.swap(decided_);
    changed.swap(changed_);
  }
  if (changed) change(*std::move(changed));
  // One that is resumed may end others, whose visits are then null; what it decides waits for the next run().
  for (const auto& wait : decided)
    if (Visit* const visit = wait->visit()) options_.resume(*visit);
  clock_.ring();  // another thread may have armed an alarm
}

void Engine::complete(RegistrySnapshot& all) {
  if (!options_.board || all.taken == TimePoint{}) return;  // not for a single entry
  std::size_t left_out = 0;
  options_.board->publish(all, &left_out);
  if (left_out > left_out_)
    options_.log(true, "bulkhead: the sum over workers misses " + std::to_string(left_out) +
                           " bulkheads, for which there is no room");
  left_out_ = left_out;
  if (!quiet_) options_.board->add_up(all);
}

// Ten times a second; seldom enough, with thousands of bulkheads, to take little of the worker's time.
void Engine::tick() noexcept {
  const TimePoint began = clock_.now();
  try {
    live_.expire();
    if (options_.board) {
      obey();
      quiet_ = true;
      registry_.snapshot({.list_tenants = 500});
    }
  } catch (const std::exception& error) {
    options_.log(true, std::string("bulkhead: ") + error.what());
  }
  quiet_ = false;
  const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(clock_.now() - began);
  tick_in(std::clamp<std::chrono::milliseconds>(took * 50, std::chrono::milliseconds(100),
                                                std::chrono::seconds(5)));
}

// The overrides, drains, faults and forced breakers of operators become those of the orders.
void Engine::obey() {
  std::optional<workers::Orders> news = options_.board->take(orders_seen_);
  if (!news) return;
  const auto key = [](const auto& o) {
    return o.path.empty() ? "bulkheads." + o.bulkhead + '.' + o.setting : o.path;
  };
  for (const ActiveOverride& now : live_.overrides())
    if (std::ranges::none_of(news->overrides, [&](const auto& o) { return key(o) == key(now); }))
      live_.revert(now.path);
  for (const workers::Orders::Override& o : news->overrides) {
    if (std::ranges::find(orders_.overrides, o) != orders_.overrides.end()) continue;
    const auto left = std::max<std::chrono::nanoseconds>(o.expires - clock_.now(), std::chrono::seconds(1));
    const auto problems = live_.set({.path = o.path,
                                     .value = o.value,
                                     .ttl = left,
                                     .reason = o.reason,
                                     .actor = o.actor,
                                     .bulkhead = o.bulkhead,
                                     .setting = o.setting});
    if (!problems.empty()) options_.log(true, "bulkhead: an override is not possible: " + to_text(problems));
  }
  const auto force = [this](const std::string& name, bool draining, BreakerMode mode, const Fault& fault) {
    const auto bulkhead = registry_.find(name);
    if (!bulkhead) return;
    const BulkheadSnapshot now = bulkhead->snapshot();
    if (now.draining != draining) bulkhead->set_draining(draining);
    if (fault.latency > std::chrono::nanoseconds(0) || fault.error > 0)
      bulkhead->inject(fault);
    else if (now.fault)
      bulkhead->end_fault();
    if (Breaker* const breaker = bulkhead->breaker(); breaker && now.breaker && now.breaker->mode != mode)
      breaker->set_mode(mode);
  };
  for (const workers::Orders::Forced& old : orders_.forced)
    if (std::ranges::find(news->forced, old.bulkhead, &workers::Orders::Forced::bulkhead) ==
        news->forced.end())
      force(old.bulkhead, false, BreakerMode::automatic, {});
  for (const workers::Orders::Forced& f : news->forced) force(f.bulkhead, f.draining, f.breaker, f.fault);
  orders_ = *std::move(news);
}

void Engine::end() noexcept { watch_.reset(); }

void Engine::leave() noexcept {
  if (!options_.board) return;
  try {
    const std::shared_ptr<workers::Board> board = std::exchange(options_.board, nullptr);
    board->leave(registry_.snapshot({.list_tenants = 500}));
  } catch (const std::exception&) {  // no memory: the last publish() counts
  }
}

std::chrono::milliseconds Engine::hold() noexcept {
  const auto paced = std::chrono::ceil<std::chrono::milliseconds>(guard_.hold(clock_.now()));
  return paced.count() == 0 ? paced : std::max(paced, std::chrono::milliseconds(50));
}

bool Engine::begin_hold() noexcept {
  if (held_ >= options_.max_held) return false;
  ++held_;
  return true;
}

}  // namespace bulkhead::nginx
