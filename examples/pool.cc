// Reports on threads of their own. A caller that gives up goes on; the thread stays busy, and the pool says so.
#include <bulkhead/pool.h>

#include <cstdio>
#include <latch>

using namespace std::chrono_literals;

int main() {
  bulkhead::Pool reports{{.name = "reports", .max_concurrent = 1, .max_queue = 1}};
  std::printf("%d rows\n", reports.submit([] { return 42; }).get().value());

  std::latch started{1}, finish{1};
  auto slow = reports.submit([&] { started.count_down(), finish.wait(); });
  started.wait();
  auto queued = reports.submit([] { return 7; });
  const auto rejected = reports.submit([] { return 8; }).get();
  std::puts(rejected.error().message().c_str());  // queue_limit

  const auto late = slow.get_for(10ms);
  std::puts(late.error().message().c_str());  // timeout: the caller goes on
  std::printf("abandoned: %u\n", reports.snapshot().abandoned);

  finish.count_down();
  std::printf("%d, as soon as the thread was free\n", queued.get().value());
}
