// rival.h - what a pool of threads is to this benchmark, and the loops that every rival runs.
//
// A rival has post(f), which runs f later, and submit(f), which returns an object whose get() gives what f returned;
// has_workers says whether its threads outlive a task. One thread submits. It never has more than `window` tasks
// outstanding: at that number it sleeps until half of them are done, for every rival, so that unbounded queues are not
// measured by their memory.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/futex.h"
#include "bench/timing.h"

namespace bench {

inline constexpr std::string_view kPool = "bulkhead::Pool";
inline constexpr std::string_view kAsioPool = "boost::asio::thread_pool";

// Counts what is done, for all rivals alike: one addition per task, and a wake-up per half window.
class Outstanding {
 public:
  static constexpr std::uint64_t window = 1024;

  void before_post() {
    if (posted_ - seen_ == window) wait_for(posted_ - window / 2);
    ++posted_;
  }
  void wait_for_all() { wait_for(posted_); }
  void done() noexcept {
    const std::uint64_t count = done_.fetch_add(1) + 1;
    if (count != wanted_.load()) return;
    wakes_.fetch_add(1);
    bulkhead::base::futex_wake(&wakes_);
  }

 private:
  void wait_for(std::uint64_t count) {
    wanted_.store(count);
    // Sequentially consistent on both sides: either this sees the count, or who reaches it sees `wanted_`.
    for (;;) {
      const std::uint32_t wakes = wakes_.load();
      seen_ = done_.load();
      if (seen_ >= count) return;
      bulkhead::base::futex_wait(wakes_, wakes, bulkhead::no_deadline);
    }
  }

  std::uint64_t posted_ = 0, seen_ = 0;  // the submitting thread's
  alignas(64) std::atomic<std::uint64_t> done_{0};
  alignas(64) std::atomic<std::uint64_t> wanted_{0};
  std::atomic<std::uint32_t> wakes_{0};
};

class PoolContender {
 public:
  virtual ~PoolContender() = default;
  // Posts tasks of that length until the time has come, and waits for them. Returns how many.
  virtual std::uint64_t throughput(std::int64_t task_ns, std::int64_t until) = 0;
  // The same with empty tasks that each return a number, which is taken half a window later.
  virtual std::uint64_t results(std::int64_t until) = 0;
  // Asks again and again until the time has come, sleeping `pause_ns` in between. What each took.
  virtual void round_trips(std::int64_t pause_ns, std::int64_t until, std::vector<double>& took_ns) = 0;
};

template <class R>
class PoolContending final : public PoolContender {
 public:
  explicit PoolContending(unsigned workers) : rival_(workers) {}

  std::uint64_t throughput(std::int64_t task_ns, std::int64_t until) override {
    return task_ns > 0 ? run(until,
                             [this, task_ns] {
                               burn(task_ns);
                               outstanding_.done();
                             })
                       : run(until, [this] { outstanding_.done(); });
  }

  std::uint64_t results(std::int64_t until) override {
    const auto task = [] { return 42; };
    std::vector<decltype(rival_.submit(task))> tasks(Outstanding::window / 2);
    std::uint64_t count = 0;
    do {
      for (unsigned i = 0; i < R::batch; ++i) {
        auto& slot = tasks[count++ % tasks.size()];
        if (slot.valid()) answer(std::move(slot));
        slot = rival_.submit(task);
      }
    } while (now_ns() < until);
    for (auto& slot : tasks)
      if (slot.valid()) answer(std::move(slot));
    return count;
  }

  void round_trips(std::int64_t pause_ns, std::int64_t until, std::vector<double>& took_ns) override {
    for (std::int64_t start = now_ns(); start < until; start = now_ns()) {
      if (pause_ns > 0) {
        nap(pause_ns);
        start = now_ns();
      }
      answer(rival_.submit([] { return 42; }));
      took_ns.push_back(static_cast<double>(now_ns() - start));
    }
  }

 private:
  template <class Answer>
  static void answer(Answer task) {
    [[maybe_unused]] const auto number = task.get();
  }
  template <class F>
  std::uint64_t run(std::int64_t until, F task) {
    std::uint64_t count = 0;
    do {
      for (unsigned i = 0; i < R::batch; ++i) {
        outstanding_.before_post();
        rival_.post(task);
      }
      count += R::batch;
    } while (now_ns() < until);
    outstanding_.wait_for_all();
    return count;
  }

  Outstanding outstanding_;  // dies after the rival, whose last task may still be in it
  R rival_;
};

struct PoolEntry {
  std::string_view name;
  bool has_workers;
  std::unique_ptr<PoolContender> (*make)(unsigned workers);
};

template <class R>
PoolEntry pool_entry() {
  return {R::name, R::has_workers, [](unsigned workers) -> std::unique_ptr<PoolContender> {
            return std::make_unique<PoolContending<R>>(workers);
          }};
}

std::span<const PoolEntry> all_pools();  // rivals.cc

}  // namespace bench
