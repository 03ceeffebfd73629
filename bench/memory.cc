#include <cstdlib>
#include <new>
#include <thread>

#include "bench/workload.h"
#include "bench/workloads.h"
#include "bulkhead/gate.h"

namespace {

std::atomic<std::uint64_t> allocations{0};

}  // namespace

// Every allocation of this program is counted, those of the rivals too.
void* operator new(std::size_t size) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* p = std::malloc(size)) return p;
  throw std::bad_alloc();
}
void* operator new(std::size_t size, std::align_val_t align) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  const auto a = static_cast<std::size_t>(align);
  if (void* p = std::aligned_alloc(a, (size + a - 1) / a * a)) return p;
  throw std::bad_alloc();
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }
void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }

namespace bench {
namespace {

constexpr int calls = 1000;

double allocations_per(const std::function<void()>& thousand_calls) {
  thousand_calls();  // whatever is set up once per thread
  const std::uint64_t before = allocations;
  thousand_calls();
  return static_cast<double>(allocations - before) / calls;
}

// Two threads that take turns with the only permit, so that nearly every call has to wait.
double allocations_while_waiting(bulkhead::Gate& gate) {
  std::uint64_t before = 0, after = 0;
  Team team(2);
  team.run([&](unsigned thread) {
    for (int round = 0; round < 2; ++round) {
      team.meet();
      if (thread == 0) before = allocations;
      team.meet();
      for (int i = 0; i < calls; ++i) {
        const auto permit = gate.acquire();
        std::this_thread::yield();
      }
      team.meet();
      if (thread == 0) after = allocations;
    }
  });
  return static_cast<double>(after - before) / (2 * calls);
}

}  // namespace

void memory(const Settings&, Results& results) {
  bulkhead::Gate gate{{.name = "bench", .max_concurrent = 1, .max_queue = 8}};
  Table table{.workload = "memory",
              .title = "memory",
              .unit = "",
              .threads = 1,
              .permits = 1,
              .section = "",
              .rows = {}};
  const auto row = [&](std::string name, double value) {
    table.rows.push_back({.design = std::move(name), .rounds = {value}, .extra = {}});
  };
  row("bytes of a gate", sizeof(bulkhead::Gate));
  row("bytes of a permit", sizeof(bulkhead::Permit));
  row("bytes of a waiter, in the caller's frame",
      sizeof(bulkhead::detail::Waiter<bulkhead::detail::StdPlatform>));
  row("allocations per admitted call", allocations_per([&] {
        for (int i = 0; i < calls; ++i) (void)gate.try_acquire();
      }));
  row("allocations per rejected call", allocations_per([&] {
        const auto holder = gate.acquire();
        for (int i = 0; i < calls; ++i) (void)gate.try_acquire();
      }));
  row("allocations per call that waits", allocations_while_waiting(gate));
  results.push_back(std::move(table));
}

}  // namespace bench
