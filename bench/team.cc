#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "bench/harness.h"
#include "bench/timing.h"

namespace bench {

struct Team::State {
  std::atomic<std::uint32_t> generation{0};  // a job is posted by counting it up
  std::mutex mutex;
  std::condition_variable one_finished;
  std::uint32_t finished = 0;
  unsigned rescued = 0;
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
  signal(SIGUSR1, [](int) {});  // ends a system call
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
        std::lock_guard lock(state_->mutex);
        ++state_->finished;
        state_->one_finished.notify_one();
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
  std::unique_lock lock(state_->mutex);
  const auto all_finished = [&] { return state_->finished == size(); };
  while (!state_->one_finished.wait_for(lock, std::chrono::seconds(3), all_finished)) {
    ++state_->rescued;
    for (std::jthread& t : state_->threads) pthread_kill(t.native_handle(), SIGUSR1);
  }
}

unsigned Team::rescued() const { return state_->rescued; }

void Team::meet() noexcept {
  const std::uint32_t mine = state_->arrived.fetch_add(1);
  const std::uint32_t all = mine - mine % size() + size();
  while (static_cast<std::int32_t>(state_->arrived.load() - all) < 0)
    if (state_->crowded) std::this_thread::yield();
}

unsigned Team::size() const { return static_cast<unsigned>(state_->threads.size()); }

}  // namespace bench
