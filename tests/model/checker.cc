// checker.cc - runs the scenarios: many random executions of each, and all executions with
// few context switches.
//
//   model_check                                       everything; the share of time is equal for all
//   model_check --list
//   model_check --only hand_off/fifo --executions 100000
//   model_check --stop-at-first                       for mutants: silent but for "caught <scenario>
//   <executions> <what>"
//
// BULKHEAD_MODEL_ITERATIONS: random executions per scenario and mode. BULKHEAD_MODEL_SEED: others
// than last time.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "tests/model/relacy_platform.h"
#include "tests/model/scenario.h"

namespace bulkhead::model {
namespace {

const Entry* running = nullptr;
Mode running_mode{};
std::uint64_t seed = 0;

template <int threads>
struct Suite : rl::test_suite<Suite<threads>, threads> {
  alignas(64) static inline std::byte place[scenario_size];
  Scenario* scenario;

  Suite() {
    Futex::reset();
    Memory::reset();
    scenario = running->make(place, running_mode);
  }
  ~Suite() { scenario->~Scenario(); }
  void thread(unsigned index) { scenario->thread(index); }
  void after() { scenario->after(); }
};

// Relacy's own random scheduler draws from a generator whose low bits repeat after 2^18 draws, so that two
// threads have no more executions than that. This one does not, and it varies from one execution to the next
// how long a thread keeps running: some errors need many switches, others need one thread to sleep through
// all that the others do.
template <rl::thread_id_t threads>
class RandomScheduler : public rl::scheduler<RandomScheduler<threads>, rl::scheduler_thread_info, threads> {
 public:
  using base_t = rl::scheduler<RandomScheduler, rl::scheduler_thread_info, threads>;
  using typename base_t::shared_context_t;
  struct task_t {};
  using base_t::base_t;

  rl::thread_id_t iteration_begin_impl() {
    state_ = (this->iter_ + seed) * 0x9e3779b97f4a7c15u;
    stay_ = static_cast<unsigned>(draw() % 4) * 5;  // of 16
    timeout_ = draw() % 2 ? 4 : 32;
    started_ = false;
    rl::unpark_reason reason;
    return schedule_impl(reason, 0);
  }
  bool iteration_end_impl() { return this->iter_ >= this->params_.iteration_count; }

  rl::thread_id_t schedule_impl(rl::unpark_reason& reason, unsigned) {
    const auto running_count = this->running_threads_count;
    if (const auto timed = this->timed_thread_count_) {
      const unsigned i = rand_impl(running_count ? timed * timeout_ : timed, {});
      if (i < static_cast<unsigned>(timed))
        return resume(this->timed_threads_[i], reason = rl::unpark_reason_timeout);
    }
    if (const auto spurious = this->spurious_thread_count_; spurious && running_count) {
      const unsigned i = rand_impl(spurious * 8, {});
      if (i < static_cast<unsigned>(spurious))
        return resume(this->spurious_threads_[i], reason = rl::unpark_reason_spurious);
    }
    reason = rl::unpark_reason_normal;
    if (started_ && this->thread_->state_ == rl::thread_state_running && rand_impl(16, {}) < stay_)
      return this->thread_->index_;
    started_ = true;
    return this->running_threads[rand_impl(static_cast<unsigned>(running_count), {})];
  }

  unsigned rand_impl(unsigned limit, rl::sched_type) {
    return static_cast<unsigned>((draw() >> 32) * limit >> 32);
  }
  rl::iteration_t iteration_count_impl() { return this->params_.iteration_count; }
  void get_state_impl(std::ostream&) {}
  void set_state_impl(std::istream&) {}
  void on_thread_block(rl::thread_id_t, bool) {}

 private:
  std::uint64_t state_ = 0;
  unsigned stay_ = 0;
  unsigned timeout_ = 4;
  bool started_ = false;

  std::uint64_t draw() {  // splitmix64
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  rl::thread_id_t resume(rl::scheduler_thread_info* thread, rl::unpark_reason) {
    this->unpark_thread(thread->index_);
    return thread->index_;
  }
};

struct Outcome {
  std::uint64_t executions = 0;
  rl::test_result_e result = rl::test_result_success;
};

struct Null : std::ostream {
  Null() : std::ostream(nullptr) {}
};

template <int threads, class Scheduler>
Outcome run(rl::test_params params, bool trace) {
  rl::ostringstream rl_state;
  rl::run_test<Suite<threads>, Scheduler>(params, rl_state, false);
  const Outcome outcome{params.stop_iteration, params.test_result};
  if (outcome.result == rl::test_result_success || !trace) return outcome;
  params.initial_state = rl_state.str();
  params.collect_history = true;
  params.output_stream = &std::cout;
  rl::run_test<Suite<threads>, Scheduler>(params, rl_state, true);
  return outcome;
}

template <int threads>
Outcome run(std::uint64_t executions, unsigned bound, bool trace) {
  static Null null;
  rl::test_params params;
  params.output_stream = &null;
  params.progress_stream = &null;
  params.execution_depth_limit = 20000;
  if (bound == 0) {
    params.iteration_count = executions;
    return run<threads, RandomScheduler<threads>>(params, trace);
  }
  params.search_type = rl::sched_bound;
  params.context_bound = bound;
  return run<threads, rl::context_bound_scheduler<threads>>(params, trace);
}

Outcome run(const Entry& entry, Mode mode, std::uint64_t executions, unsigned bound, bool trace) {
  running = &entry;
  running_mode = mode;
  switch (entry.threads) {
    case 2:
      return run<2>(executions, bound, trace);
    case 3:
      return run<3>(executions, bound, trace);
    default:
      return run<4>(executions, bound, trace);
  }
}

std::uint64_t number(const char* text, std::uint64_t otherwise) {
  return text && *text ? std::strtoull(text, nullptr, 10) : otherwise;
}

int main(int argc, char** argv) {
  std::uint64_t executions = number(std::getenv("BULKHEAD_MODEL_ITERATIONS"), 150'000);
  seed = number(std::getenv("BULKHEAD_MODEL_SEED"), 0) << 40;
  std::string only = "/";
  bool stop_at_first = false;
  unsigned bound = 0;
  bool no_bound = false;
  for (int i = 1; i < argc; ++i) {
    const bool more = i + 1 < argc;
    if (!std::strcmp(argv[i], "--only") && more)
      only = argv[++i];
    else if (!std::strcmp(argv[i], "--executions") && more)
      executions = number(argv[++i], executions);
    else if (!std::strcmp(argv[i], "--bound") && more)
      bound = static_cast<unsigned>(number(argv[++i], 0));
    else if (!std::strcmp(argv[i], "--random-only"))
      no_bound = true;
    else if (!std::strcmp(argv[i], "--stop-at-first"))
      stop_at_first = true;
    else if (!std::strcmp(argv[i], "--list"))
      executions = 0;
    else
      return std::fprintf(stderr, "model_check: what is \"%s\"? See the head of checker.cc\n", argv[i]), 2;
  }

  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  const auto seconds = [](Clock::time_point since) {
    return std::chrono::duration<double>(Clock::now() - since).count();
  };
  std::uint64_t total = 0, exhaustive = 0, failed = 0, matched = 0;
  for (const Entry& entry : scenarios()) {
    for (int m = 0; m < 3; ++m) {
      const std::string name = std::string(entry.name) + "/" + mode_names[m];
      if (!entry.modes[m] || name.find(only) == std::string::npos) continue;
      ++matched;
      if (executions == 0) {
        std::printf("%s\n", name.c_str());
        continue;
      }
      const unsigned bounds[] = {0u, no_bound ? 0u : bound ? bound : entry.bound[m]};
      for (int pass = 0; pass < 2; ++pass) {
        if (pass == 1 && bounds[1] == 0) continue;
        const auto begun = Clock::now();
        const Outcome outcome = run(entry, static_cast<Mode>(m), executions, bounds[pass], !stop_at_first);
        total += outcome.executions;
        if (pass) exhaustive += outcome.executions;
        const bool ok = outcome.result == rl::test_result_success;
        if (!ok) ++failed;
        if (stop_at_first) {
          if (ok) continue;
          std::printf("caught %s %llu %s\n", name.c_str(),
                      static_cast<unsigned long long>(outcome.executions),
                      rl::test_result_str(outcome.result));
          return 1;
        }
        std::string how = "random";
        if (pass) how = "all with " + std::to_string(bounds[1]) + " switches";
        std::printf("%-28s %-20s %10llu executions %7.1f s  %s\n", name.c_str(), how.c_str(),
                    static_cast<unsigned long long>(outcome.executions), seconds(begun),
                    ok ? "ok" : rl::test_result_str(outcome.result));
        std::fflush(stdout);
      }
    }
  }
  if (matched == 0) return std::fprintf(stderr, "model_check: no scenario matches \"%s\"\n", only.c_str()), 2;
  if (executions == 0) return 0;
  std::printf("%llu executions, %llu of them in exhaustive searches, %.1f s, %llu failed\n",
              static_cast<unsigned long long>(total), static_cast<unsigned long long>(exhaustive),
              seconds(start), static_cast<unsigned long long>(failed));
  return failed ? 1 : 0;
}

}  // namespace
}  // namespace bulkhead::model

int main(int argc, char** argv) { return bulkhead::model::main(argc, argv); }
