// futex.h in standard C++. std::atomic::wait has no deadline and needs a living object, so threads sleep on a table of condition
// variables instead, chosen by the address of the word. Two words that share an entry wake each other: futex_wait may return early.
#include "base/futex.h"

#include <array>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>

namespace bulkhead::base {
namespace {

struct Sleepers {
  std::mutex mutex;
  std::condition_variable changed;
};

Sleepers& sleepers_on(const void* word) noexcept {
  constexpr std::size_t kEntries = 64;
  // Never destroyed: threads that outlive main() may still sleep here.
  union Table {
    std::array<Sleepers, kEntries> entries;
    Table() : entries{} {}
    ~Table() {}
  };
  static Table table;
  const std::size_t address = std::hash<const void*>{}(word);
  return table.entries[((address >> 4) ^ (address >> 10)) % kEntries];
}

}  // namespace

void futex_wait(const std::atomic<std::uint32_t>& word, std::uint32_t value, TimePoint until) noexcept {
  Sleepers& here = sleepers_on(&word);
  std::unique_lock lock(here.mutex);
  // futex_wake takes the mutex after the word has changed: either this load sees the change, or the wake-up finds us asleep.
  if (word.load(std::memory_order_acquire) != value) return;
  if (until == no_deadline)
    here.changed.wait(lock);
  else
    here.changed.wait_until(lock, until);
}

void futex_wake(const std::atomic<std::uint32_t>* word, int /*threads*/) noexcept {
  Sleepers& here = sleepers_on(word);
  {
    const std::lock_guard lock(here.mutex);
  }
  here.changed.notify_all();  // also wakes threads of other words: notify_one() might wake only one of those
}

}  // namespace bulkhead::base
