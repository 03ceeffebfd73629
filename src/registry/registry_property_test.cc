// Random commands on a registry and on a std::map that says what it should hold.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "bulkhead/manual_clock.h"
#include "bulkhead/registry.h"

namespace bulkhead {
namespace {

using namespace std::chrono_literals;

template <class F>
bool throws(F&& fn) {
  try {
    fn();
  } catch (const std::invalid_argument&) {
    return true;
  }
  return false;
}

struct Known {
  std::uint32_t max_concurrent = 1, max_queue = 0;
  std::uint64_t admitted = 0;
  Bulkhead* object = nullptr;
};

RC_GTEST_PROP(RegistryProperty, HoldsWhatAMapWouldHold, ()) {
  ManualClock clock;
  Registry registry({.clock = &clock, .seed = *rc::gen::arbitrary<std::uint64_t>()});
  std::map<std::string, Known> model;
  std::vector<std::shared_ptr<Bulkhead>> kept;  // so that no address is used twice
  std::uint64_t revision = 0;
  const std::size_t steps = *rc::gen::inRange<std::size_t>(1, 120);
  for (std::size_t i = 0; i < steps; ++i) {
    const std::string name = "n" + std::to_string(*rc::gen::inRange(0, 24));
    const auto known = model.find(name);
    const bool there = known != model.end();
    const auto n = *rc::gen::inRange<std::uint32_t>(0, 9);  // 0 is wrong
    switch (*rc::gen::inRange(0, 8)) {
      case 0: {
        const bool failed = throws([&] {
          kept.push_back(registry.add({.options = {.name = name, .max_concurrent = n, .max_queue = n}}));
        });
        RC_ASSERT(failed == (there || n == 0));
        if (!failed) model[name] = {n, n, 0, kept.back().get()}, ++revision;
        break;
      }
      case 1: {
        const auto got = registry.get_or_create(name, "cache");
        if (there) {
          RC_ASSERT(got.get() == known->second.object);
        } else {
          kept.push_back(got);
          model[name] = {50, 100, 0, got.get()};
          ++revision;
        }
        break;
      }
      case 2:
        RC_ASSERT(registry.remove(name, clock.now()) == there);
        if (there) model.erase(known), ++revision;
        break;
      case 3: {
        const bool failed = throws([&] { registry.update(name, {.max_concurrent = n, .max_queue = n + 1}); });
        RC_ASSERT(failed == (!there || n == 0));
        if (!failed) known->second.max_concurrent = n, known->second.max_queue = n + 1, ++revision;
        break;
      }
      case 4: {
        const bool failed = throws([&] { registry.resize(name, n); });
        RC_ASSERT(failed == (!there || n == 0));
        if (!failed) known->second.max_concurrent = n, ++revision;
        break;
      }
      case 5:
        if (there) {
          (void)registry.get(name)->try_acquire();
          ++known->second.admitted;
        }
        break;
      case 6:
        RC_ASSERT(throws([&] { registry.reset(name); }) == !there);
        if (there) known->second.admitted = 0;
        break;
      default:
        RC_ASSERT((registry.find(name) != nullptr) == there);
    }
    const RegistrySnapshot s = registry.snapshot();
    RC_ASSERT(s.revision == revision);
    RC_ASSERT(s.bulkheads.size() == model.size());
    auto entry = s.bulkheads.begin();
    for (const auto& [its_name, what] : model) {
      RC_ASSERT(entry->name == its_name);
      RC_ASSERT(entry->bulkhead.get() == what.object);
      RC_ASSERT(registry.find(its_name).get() == what.object);
      RC_ASSERT(entry->now.gate.max_concurrent == what.max_concurrent);
      RC_ASSERT(entry->now.gate.max_queue == what.max_queue);
      RC_ASSERT(entry->now.gate.admitted == what.admitted);
      ++entry;
    }
  }
}

RC_GTEST_PROP(RegistryProperty, TenantsAreBoundedAndNoCallIsForgotten, ()) {
  ManualClock clock;
  Registry registry({.clock = &clock});
  const auto bound = *rc::gen::inRange<std::uint32_t>(1, 6);
  const bool overflow = *rc::gen::arbitrary<bool>();
  registry.define_tenants({.name = "t",
                           .each = {.max_concurrent = 1},
                           .max_tenants = bound,
                           .at_bound = overflow ? AtBound::overflow : AtBound::reject,
                           .overflow = BulkheadOptions{.max_concurrent = 1000},
                           .idle_after = 10s});
  std::map<std::string, std::shared_ptr<Bulkhead>> held;
  std::map<std::string, std::vector<Call>> running;
  std::uint64_t calls = 0, rejected = 0;
  const std::size_t steps = *rc::gen::inRange<std::size_t>(1, 150);
  for (std::size_t i = 0; i < steps; ++i) {
    const std::string id = "i" + std::to_string(*rc::gen::inRange(0, 12));
    switch (*rc::gen::inRange(0, 6)) {
      case 0:
      case 1: {
        const auto own = registry.tenant("t", id);
        if (!own) {
          RC_ASSERT(!overflow);
          ++rejected;
          break;
        }
        const bool shared = (*own)->name() == "t/*";
        RC_ASSERT(shared || (*own)->name() == "t/" + id);
        if (auto call = (*own)->try_acquire()) {
          ++calls;
          if (!shared && *rc::gen::arbitrary<bool>()) running[id].push_back(*std::move(call));
        }
        if (!shared && *rc::gen::inRange(0, 4) == 0) held[id] = *own;
        break;
      }
      case 2:
        held.erase(id);
        break;
      case 3:
        running.erase(id);
        break;
      case 4:
        clock.advance(*rc::gen::element(1s, 5s, 11s));
        break;
      default:
        registry.retire_idle();
    }
    const RegistrySnapshot s = registry.snapshot();
    const auto& t = s.tenants.at(0);
    RC_ASSERT(t.live <= bound);
    RC_ASSERT(t.created - t.retired == t.live);
    RC_ASSERT(t.rejected == rejected);
    RC_ASSERT(s.bulkheads.size() == t.live + (overflow ? 1 : 0));
    std::uint64_t counted = t.other ? t.other->gate.admitted : 0;
    for (const auto& entry : s.bulkheads) counted += entry.now.gate.admitted;
    RC_ASSERT(counted == calls);
    for (const auto& [its_id, handle] : held) RC_ASSERT(registry.find("t/" + its_id) == handle);
    for (const auto& [its_id, open] : running) RC_ASSERT(open.empty() || registry.find("t/" + its_id));
  }
}

}  // namespace
}  // namespace bulkhead
