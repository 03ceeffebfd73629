#include <sched.h>

#include <atomic>
#include <thread>

#include "bench/harness.h"
#include "bench/timing.h"

namespace bench {

struct Team::State {
  std::atomic<std::uint32_t> generation{0};  // a job is posted by counting it up
  std::atomic<std::uint32_t> finished{0};
  std::atomic<std::uint32_t> arrived{0};
  const std::function<void(unsigned)>* job = nullptr;  // null: go home
  bool crowded = false;
  std::vector<std::jthread> threads;
};

namespace {

void pin_to(unsigned core) {
  cpu_set_t allowed, one;
  CPU_ZERO(&allowed);
  CPU_ZERO(&one);
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  for (unsigned cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed)) continue;
    if (core-- == 0) {
      CPU_SET(cpu, &one);
      sched_setaffinity(0, sizeof one, &one);
      return;
    }
  }
}

}  // namespace

Team::Team(unsigned threads) : state_(std::make_unique<State>()) {
  state_->crowded = threads > cores();
  for (unsigned i = 0; i < threads; ++i) {
    state_->threads.emplace_back([this, i] {
      if (!state_->crowded) pin_to(i);
      for (std::uint32_t seen = 0;;) {
        state_->generation.wait(seen);
        seen = state_->generation.load();
        if (!state_->job) return;
        meet();
        (*state_->job)(i);
        state_->finished.fetch_add(1);
        state_->finished.notify_one();
      }
    });
  }
}

Team::~Team() {
  state_->job = nullptr;
  state_->generation.fetch_add(1);
  state_->generation.notify_all();
}

void Team::run(const std::function<void(unsigned)>& job) {
  state_->job = &job;
  state_->finished = 0;
  state_->generation.fetch_add(1);
  state_->generation.notify_all();
  for (std::uint32_t n = 0; (n = state_->finished.load()) < size();) state_->finished.wait(n);
}

void Team::meet() noexcept {
  const std::uint32_t mine = state_->arrived.fetch_add(1);
  const std::uint32_t all = mine - mine % size() + size();
  while (static_cast<std::int32_t>(state_->arrived.load() - all) < 0)
    if (state_->crowded) std::this_thread::yield();
}

unsigned Team::size() const { return static_cast<unsigned>(state_->threads.size()); }

}  // namespace bench
