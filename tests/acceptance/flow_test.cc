// A flow that is given with a call reaches the line, whichever way the call takes.
#include <gtest/gtest.h>

#include <algorithm>
#include <future>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "bulkhead/bulkhead.h"
#include "bulkhead/group.h"
#include "bulkhead/pool.h"

namespace bulkhead {
namespace {

// Where the quiet one came among those who ran; the noisy ones were there before it.
std::size_t place_of_quiet(const std::vector<std::string>& order) {
  return static_cast<std::size_t>(std::ranges::find(order, "quiet") - order.begin());
}

TEST(Flows, OfAPoolsQueue) {
  Pool pool{{.name = "reports", .max_concurrent = 1, .max_queue = 100, .flow_queues = 64}};
  std::promise<void> go;
  auto busy = pool.submit([wait = go.get_future().share()] { wait.wait(); });
  std::vector<std::string> order;  // written by the one worker
  std::vector<Task<void>> tasks;
  const auto submit = [&](const char* who, std::chrono::nanoseconds limit = gate_default) {
    tasks.push_back(pool.submit([&order, who] { order.emplace_back(who); },
                                {.execution_timeout = limit, .flow = flow_of(who)}));
  };
  for (int i = 0; i < 40; ++i) submit("noisy", i % 2 == 0 ? gate_default : std::chrono::hours(1));
  submit("quiet");
  go.set_value();
  for (auto& task : tasks) EXPECT_TRUE(task.get());
  EXPECT_EQ(order.size(), 41u);
  EXPECT_LE(place_of_quiet(order), 5u);
}

class FlowsOfABulkhead : public testing::TestWithParam<Isolation> {};

TEST_P(FlowsOfABulkhead, AreThoseOfItsCalls) {
  Bulkhead db{{.name = "db",
               .isolation = GetParam(),
               .max_concurrent = 1,
               .max_queue = 100,
               .flow_queues = 64,
               .flow_hand = 2}};
  std::vector<std::string> order;
  std::mutex mutex;
  {
    auto held = db.acquire();
    ASSERT_TRUE(held);
    const auto ask = [&](const char* who) {
      db.async_execute([who] { return std::string(who); }, {.flow = flow_of(who)},
                       [&](Ended<std::string> ended) {
                         const std::lock_guard lock(mutex);
                         order.push_back(std::move(ended).get().value());
                       });
    };
    for (int i = 0; i < 40; ++i) ask("noisy");
    ask("quiet");
    EXPECT_EQ(db.snapshot().gate.waiting, 41u);
  }
  EXPECT_TRUE(db.drain());
  const auto all_told = [&] {
    const std::lock_guard lock(mutex);
    return order.size() == 41;
  };
  while (!all_told()) std::this_thread::yield();
  EXPECT_LE(place_of_quiet(order), 3u);
}
INSTANTIATE_TEST_SUITE_P(Both, FlowsOfABulkhead, testing::Values(Isolation::semaphore, Isolation::threads));

TEST(Flows, OfAMemberOfAGroup) {
  Group group{
      {.name = "g",
       .total = 1,
       .members = {
           {.name = "a", .guaranteed = {.units = 1}, .gate = {.max_queue = 100, .flow_queues = 64}}}}};
  Gate& gate = group.member("a");
  std::vector<std::string> order;
  {
    auto held = gate.acquire();
    const auto ask = [&](const char* who) {
      gate.async_acquire({.flow = flow_of(who)}, [&order, who](Result<Permit> r) {
        if (r) order.emplace_back(who);
      });
    };
    for (int i = 0; i < 40; ++i) ask("noisy");
    ask("quiet");
  }
  EXPECT_EQ(order.size(), 41u);
  EXPECT_LE(place_of_quiet(order), 5u);
}

TEST(Flows, CannotBeChangedOnALivingBulkhead) {
  const BulkheadOptions o{.name = "db", .flow_queues = 8, .flow_hand = 2};
  Bulkhead db{o};
  for (const auto& change :
       {+[](BulkheadOptions& n) { n.flow_queues = 16; }, +[](BulkheadOptions& n) { n.flow_hand = 1; },
        +[](BulkheadOptions& n) { n.flow_seed = 1; }}) {
    BulkheadOptions n = o;
    change(n);
    EXPECT_THROW(db.update(n), std::invalid_argument);
  }
  EXPECT_NO_THROW(db.update(o));
}

}  // namespace
}  // namespace bulkhead
