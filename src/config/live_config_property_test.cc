// Whatever sequence of good files, bad files, overrides and time: the registry is the last good file plus the overrides
// that live. The model keeps both as maps of numbers, and knows nothing of plans and settings.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "bulkhead/live_config.h"
#include "bulkhead/manual_clock.h"
#include "config/live_config_test.h"

namespace bulkhead {
namespace {

using namespace std::chrono_literals;

struct Model {
  struct Numbers {
    std::uint32_t limit = 1, queue = 0;
    bool threads = false;  // needs a restart
  };
  struct Over {
    std::uint32_t value = 0, replaced = 0;
    TimePoint expires{};
  };
  std::map<std::string, Numbers> file;
  std::map<std::string, bool> threads;  // as they were made
  std::map<std::string, Over> over;     // by path

  std::uint32_t* of_file(const std::string& path) {
    const std::size_t from = path.find('.') + 1, to = path.rfind('.');
    const auto found = file.find(path.substr(from, to - from));
    if (found == file.end()) return nullptr;
    return path.ends_with(".max_queue") ? &found->second.queue : &found->second.limit;
  }
  void load(const std::map<std::string, Numbers>& next) {
    for (const auto& [name, n] : file)
      if (!next.contains(name)) threads.erase(name);
    for (const auto& [name, n] : next) threads.emplace(name, n.threads);
    file = next;
    std::erase_if(over, [&](const auto& o) {
      const std::uint32_t* const says = of_file(o.first);
      return !says || *says != o.second.replaced;
    });
  }
  std::uint32_t value(const std::string& path) {
    const auto o = over.find(path);
    return o == over.end() ? *of_file(path) : o->second.value;
  }
};

Config config_of(const std::map<std::string, Model::Numbers>& file) {
  Config c;
  for (const auto& [name, n] : file)
    c.bulkheads.push_back({.options = {.name = name,
                                       .isolation = n.threads ? Isolation::threads : Isolation::semaphore,
                                       .max_concurrent = n.limit,
                                       .max_queue = n.queue}});
  return c;
}

RC_GTEST_PROP(LiveConfigProperty, TheRegistryIsTheLastGoodFilePlusTheOverridesThatLive, ()) {
  ManualClock clock;
  Registry registry({.clock = &clock});
  ConfigText disk;
  LiveConfig live(registry, {.read = [&] { return disk; }, .ends_overrides = false});
  Model model;
  bool bad = false;
  std::vector<Call> calls;  // in flight meanwhile
  const std::size_t steps = *rc::gen::inRange<std::size_t>(1, 60);
  for (std::size_t i = 0; i < steps; ++i) {
    const std::string name = *rc::gen::element<std::string>("a", "b", "c", "d");
    const std::string path =
        "bulkheads." + name + *rc::gen::element<std::string>(".max_concurrent", ".max_queue");
    const auto number = *rc::gen::inRange<std::uint32_t>(1, 6);
    switch (*rc::gen::inRange(0, 8)) {
      case 0:
      case 1: {
        std::map<std::string, Model::Numbers> next = model.file;
        if (*rc::gen::inRange(0, 4) == 0)
          next.erase(name);
        else
          next[name] = {number, *rc::gen::inRange<std::uint32_t>(0, 4), *rc::gen::inRange(0, 5) == 0};
        disk = tests::as_text(config_of(next));
        RC_ASSERT(live.reload().ok());
        model.load(next);
        bad = false;
        break;
      }
      case 2:
        disk = tests::bad_text();
        RC_ASSERT(!live.reload().ok());
        bad = true;
        break;
      case 3:  // valid as a file, rejected by the registry: the name belongs to the program
        if (!live.status().loaded) break;
        if (!registry.find("own")) registry.add({.options = {.name = "own"}});
        {
          auto next = model.file;
          next["own"] = {};
          next[name].limit = 77;
          disk = tests::as_text(config_of(next));
          RC_ASSERT(!live.reload().ok());
          bad = true;
        }
        break;
      case 4:
      case 5: {
        const auto ttl = *rc::gen::element<std::chrono::seconds>(10s, 60s);
        const bool done =
            live.set({.path = path, .value = std::to_string(number), .ttl = ttl, .reason = "r", .actor = "a"})
                .empty();
        std::uint32_t* const says = model.of_file(path);
        RC_ASSERT(done == (says != nullptr));
        if (done) model.over[path] = {number, *says, clock.now() + ttl};
        break;
      }
      case 6:
        RC_ASSERT(live.revert(path) == (model.over.erase(path) == 1));
        break;
      default:
        clock.advance(*rc::gen::element<std::chrono::seconds>(1s, 9s, 30s));
        RC_ASSERT(live.expire() ==
                  std::erase_if(model.over, [&](const auto& o) { return o.second.expires <= clock.now(); }));
    }
    if (const auto found = registry.find(name); found && *rc::gen::arbitrary<bool>())
      if (auto call = found->try_acquire()) calls.push_back(*std::move(call));
    if (calls.size() > 6) calls.erase(calls.begin());

    RC_ASSERT(live.status().last_reload_successful == !bad);
    RC_ASSERT(live.overrides().size() == model.over.size());
    const RegistrySnapshot s = registry.snapshot();
    RC_ASSERT(s.bulkheads.size() - (s.find("own") ? 1 : 0) == model.file.size());
    for (const auto& [its_name, n] : model.file) {
      const RegistrySnapshot::Entry* const entry = s.find(its_name);
      RC_ASSERT(entry != nullptr);
      RC_ASSERT(entry->now.gate.max_concurrent == model.value("bulkheads." + its_name + ".max_concurrent"));
      RC_ASSERT(entry->now.gate.max_queue == model.value("bulkheads." + its_name + ".max_queue"));
      RC_ASSERT((entry->now.isolation == Isolation::threads) == model.threads.at(its_name));
      RC_ASSERT(entry->configured.max_concurrent == entry->now.gate.max_concurrent);
    }
  }
}

}  // namespace
}  // namespace bulkhead
