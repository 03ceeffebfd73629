// Random command sequences on a real pool, with real threads and virtual time, and on a model beside it.
// After every command the pool comes to rest; then which work runs, which waits, what each caller was told
// and all counters are compared.
//
// The work of the test stays until the test lets it go. The clock moves in steps that end where the model
// says that something happens, because what is admitted then begins on another thread.
//
// A failure prints the shortest sequence found that still fails, and RC_PARAMS to run it again.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <iostream>
#include <optional>
#include <ostream>
#include <set>
#include <sstream>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bulkhead/manual_clock.h"
#include "bulkhead/pool.h"
#include "gate/model_gate.h"

namespace bulkhead {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;
constexpr std::int64_t forever = model::ModelGate::forever;

// ---- commands ----

enum class Do : std::uint8_t {
  submit,
  finish,    // the work of the n-th running task returns
  fail,      // or throws
  cancel,    // the n-th caller that still waits
  time_out,  // get_until(now)
  drop,      // the Task dies
  stop,      // the stop_token of the n-th
  advance,
  resize,
  resize_queue,
  shutdown,
};

struct Command {
  Do what{};
  std::uint32_t n = 0;  // which task, or the new size
  Priority tier = Priority::normal;
  std::uint32_t cost = 1;
  int timeout = -1, execution_timeout = -1, deadline = -1;  // ms; -1: none
  bool stopped = false, takes_stop = false, falls_back = false;
  Shutdown how = Shutdown::graceful;
};

std::ostream& operator<<(std::ostream& out, const Command& c) {
  constexpr const char* names[] = {"submit", "finish",  "fail",   "cancel",       "time_out", "drop",
                                   "stop",   "advance", "resize", "resize_queue", "shutdown"};
  out << names[static_cast<int>(c.what)] << "(" << c.n;
  if (c.what == Do::submit)
    out << ", " << to_string(c.tier) << ", cost " << c.cost << ", queue " << c.timeout << ", run "
        << c.execution_timeout << ", deadline " << c.deadline << (c.stopped ? ", stopped" : "")
        << (c.takes_stop ? ", takes stop" : "") << (c.falls_back ? ", falls back" : "");
  if (c.what == Do::shutdown) out << (c.how == Shutdown::now ? "now" : "graceful");
  return out << ")\n";
}

rc::Gen<Command> command() {
  using rc::gen::element;
  using rc::gen::inRange;
  using rc::gen::weightedElement;
  const auto what = weightedElement<Do>({{40, Do::submit},
                                         {24, Do::finish},
                                         {5, Do::fail},
                                         {5, Do::cancel},
                                         {5, Do::time_out},
                                         {3, Do::drop},
                                         {5, Do::stop},
                                         {14, Do::advance},
                                         {5, Do::resize},
                                         {3, Do::resize_queue},
                                         {1, Do::shutdown}});
  return rc::gen::build<Command>(
      rc::gen::set(&Command::what, what), rc::gen::set(&Command::n, inRange<std::uint32_t>(0, 8)),
      rc::gen::set(&Command::tier, element(Priority::normal, Priority::critical, Priority::best_effort)),
      rc::gen::set(&Command::cost, weightedElement<std::uint32_t>({{8, 1}, {2, 2}, {1, 4}})),
      rc::gen::set(&Command::timeout, weightedElement<int>({{6, -1}, {1, 0}, {2, 1}, {2, 3}, {1, 9}})),
      rc::gen::set(&Command::execution_timeout, weightedElement<int>({{6, -1}, {2, 1}, {2, 4}})),
      rc::gen::set(&Command::deadline, weightedElement<int>({{8, -1}, {1, 0}, {1, 2}, {1, 6}})),
      rc::gen::set(&Command::stopped, weightedElement<bool>({{30, false}, {1, true}})),
      rc::gen::set(&Command::takes_stop, rc::gen::arbitrary<bool>()),
      rc::gen::set(&Command::falls_back, weightedElement<bool>({{4, false}, {1, true}})),
      rc::gen::set(&Command::how, element(Shutdown::graceful, Shutdown::now)));
}

struct Shape {
  std::uint32_t threads = 1, max_queue = 0, reserve_percent = 0;
  OnReject on_reject = OnReject::abort;
  int keep_alive = 1000;  // ms
};
std::ostream& operator<<(std::ostream& out, const Shape& s) {
  return out << s.threads << " threads, queue " << s.max_queue << ", reserve " << s.reserve_percent << "%"
             << (s.on_reject == OnReject::caller_runs ? ", caller runs" : "") << ", kept " << s.keep_alive
             << " ms";
}
rc::Gen<Shape> shape() {
  return rc::gen::build<Shape>(
      rc::gen::set(&Shape::threads, rc::gen::inRange<std::uint32_t>(1, 5)),
      rc::gen::set(&Shape::max_queue, rc::gen::inRange<std::uint32_t>(0, 6)),
      rc::gen::set(&Shape::reserve_percent,
                   rc::gen::weightedElement<std::uint32_t>({{3, 0}, {1, 25}, {1, 50}})),
      rc::gen::set(&Shape::on_reject,
                   rc::gen::weightedElement<OnReject>({{4, OnReject::abort}, {1, OnReject::caller_runs}})),
      rc::gen::set(&Shape::keep_alive, rc::gen::element(0, 2, 1000)));
}

// ---- the model ----

enum class Told : std::uint8_t { nothing, value, exception, fallback, rejection };

struct ModelTask {
  bool takes_stop, falls_back;
  std::int64_t execution_timeout, deadline;
  Told told = Told::nothing;
  Reason reason{};
  bool begun = false, running = false, abandoned = false, stop_asked = false;
  std::int64_t overrun = forever, since = 0;
};

// A ModelGate whose calls run as tasks.
struct ModelPool {
  model::ModelGate gate;
  OnReject on_reject;
  bool accepting = true;
  std::deque<ModelTask> tasks{};
  std::uint64_t abandoned_total = 0, caller_runs = 0;

  ModelTask& operator[](int id) { return tasks[static_cast<std::size_t>(id)]; }
  bool waits(int id) const { return std::ranges::find(gate.line, id, &model::Call::id) != gate.line.end(); }

  // True: the caller runs it.
  bool submit(model::Call call, ModelTask task) {
    tasks.push_back(task);
    if (!accepting) {
      ++gate.rejected[Reason::shutdown];
      reject(tasks.back(), Reason::shutdown);
      return false;
    }
    const int id = call.id;
    gate.acquire(std::move(call));
    bool here = false;
    // The newcomer's answer is last; whoever it evicted was told before.
    for (const model::Answer& a : std::exchange(gate.answers, {})) {
      const bool full = a.reason == Reason::concurrency_limit || a.reason == Reason::queue_limit;
      if (a.id == id && !a.admitted && full && on_reject == OnReject::caller_runs) {
        ++caller_runs;
        tasks.back().begun = here = true;
        tasks.back().told = Told::value;
      } else {
        heed(a);
      }
    }
    return here;
  }
  void finish(int id, bool throws) {
    ModelTask& t = (*this)[id];
    if (t.told == Told::nothing) t.told = throws ? Told::exception : Told::value;
    t.running = t.abandoned = false;
    t.overrun = forever;
    gate.release(id, throws ? Outcome::failure : Outcome::success);
    heed_all();
  }
  void give_up(int id, Reason reason) {
    ModelTask& t = (*this)[id];
    if (t.told != Told::nothing) return;
    if (t.running)
      abandon(t, reason);
    else
      gate.cancel(id, reason);
    heed_all();
  }
  std::int64_t next_event() const {
    std::int64_t next = forever;
    for (const model::Call& c : gate.line) next = std::min(next, c.until);
    for (const ModelTask& t : tasks) next = std::min(next, t.overrun);
    return next;
  }
  void advance_to(std::int64_t then) {
    gate.advance(then - gate.now);
    for (ModelTask& t : tasks)
      if (t.overrun <= then && t.told == Told::nothing) abandon(t, Reason::execution_timeout);
    heed_all();
  }
  void resize(std::uint32_t n) {
    gate.resize(n);
    heed_all();
  }
  void shutdown(Shutdown how) {
    accepting = false;
    if (how == Shutdown::graceful) return;
    gate.close();
    for (ModelTask& t : tasks) t.stop_asked |= t.running;
    heed_all();
  }
  std::uint32_t abandoned() const {
    return static_cast<std::uint32_t>(std::ranges::count(tasks, true, &ModelTask::abandoned));
  }

 private:
  void reject(ModelTask& t, Reason reason) {
    t.told = t.falls_back ? Told::fallback : Told::rejection;
    t.reason = reason;
    t.overrun = forever;
  }
  void abandon(ModelTask& t, Reason reason) {
    reject(t, reason);
    t.abandoned = t.stop_asked = true;
    t.since = gate.now;
    ++abandoned_total;
  }
  void heed_all() {
    for (const model::Answer& a : std::exchange(gate.answers, {})) heed(a);
  }
  void heed(const model::Answer& a) {
    ModelTask& t = (*this)[a.id];
    if (!a.admitted) return reject(t, a.reason);
    t.begun = t.running = true;
    const std::int64_t end = t.execution_timeout == forever ? forever : gate.now + t.execution_timeout;
    t.overrun = std::min(end, t.deadline);
  }
};

// ---- side by side ----

struct Coverage {
  std::uint64_t sequences = 0, commands = 0, abandoned = 0, queued = 0, caller_runs = 0;
  std::set<Told> told;
  std::set<Reason> reasons;
};

struct Failed : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct RealTask {
  std::atomic<int> go = 0;  // 1: return, 2: throw
  std::atomic<bool> begun = false, running = false;
  std::stop_token token;  // written before begun
  std::stop_source stop;
  Task<int> task;
  bool taken = false;

  int work(int id) {
    begun = running = true;
    go.wait(0);
    running = false;
    if (go == 2) throw Failed("as told");
    return id;
  }
};

class SideBySide {
 public:
  SideBySide(const Shape& s, Coverage& coverage)
      : coverage_(coverage),
        model_{.gate = {.fairness = Fairness::fifo,
                        .limit = s.threads,
                        .max_queue = s.max_queue,
                        .reserve_percent = s.reserve_percent,
                        .max_barge = 0,
                        .queue_reserve_percent = s.reserve_percent,
                        .now = clock_.now().time_since_epoch().count()},
               .on_reject = s.on_reject},
        pool_(PoolOptions{.name = "p",
                          .max_concurrent = s.threads,
                          .max_queue = s.max_queue,
                          .critical_reserve = s.reserve_percent / 100.0,
                          .keep_alive = milliseconds(s.keep_alive),
                          .on_reject = s.on_reject,
                          .clock = &clock_}) {
    ++coverage_.sequences;
  }
  ~SideBySide() {  // also after a failed comparison
    for (RealTask& t : tasks_) {
      t.go = 1;
      t.go.notify_all();
    }
    pool_.shutdown(Shutdown::now);
  }
  SideBySide(const SideBySide&) = delete;
  SideBySide& operator=(const SideBySide&) = delete;

  void run(const Command& c) {
    ++coverage_.commands;
    switch (c.what) {
      case Do::submit:
        submit(c);
        break;
      case Do::finish:
      case Do::fail:
        if (const int id = nth(c.n, [&](int i) { return model_[i].running; }); id >= 0) {
          model_.finish(id, c.what == Do::fail);
          let_go(id, c.what == Do::fail);
        }
        break;
      case Do::cancel:
      case Do::time_out:
      case Do::drop:
        if (const int id = nth(c.n, [&](int i) { return !real(i).taken; }); id >= 0) give_up(id, c.what);
        break;
      case Do::stop:
        if (const int id = nth(c.n, [&](int i) { return !real(i).stop.stop_requested(); }); id >= 0) {
          model_.give_up(id, Reason::cancelled);
          real(id).stop.request_stop();
        }
        break;
      case Do::advance: {
        const std::int64_t then = model_.gate.now + nanoseconds(milliseconds(c.n)).count();
        while (model_.next_event() <= then) advance_to(model_.next_event());
        advance_to(then);
        break;
      }
      case Do::resize:
        model_.resize(c.n % 5 + 1);
        pool_.resize(c.n % 5 + 1);
        break;
      case Do::resize_queue:
        model_.gate.resize_queue(c.n);
        pool_.resize_queue(c.n);
        break;
      case Do::shutdown: {
        model_.shutdown(c.how);
        const bool idle = model_.gate.idle();
        RC_ASSERT(pool_.shutdown(c.how, TimePoint::min()) == idle);
        break;
      }
    }
    compare();
  }

  // Everything ends, and every caller has one answer.
  void finish() {
    for (;;) {
      const int id = nth(0, [&](int i) { return model_[i].running; });
      if (id < 0) break;
      model_.finish(id, false);
      let_go(id, false);
      compare();
    }
    RC_ASSERT(model_.gate.idle());
    for (int id = 0; id < static_cast<int>(tasks_.size()); ++id)
      if (!real(id).taken) take(id, [&] { return real(id).task.get(); });
    RC_ASSERT(pool_.shutdown(Shutdown::now));
    coverage_.abandoned += model_.abandoned_total;
    coverage_.caller_runs += model_.caller_runs;
  }

 private:
  RealTask& real(int id) { return tasks_[static_cast<std::size_t>(id)]; }

  template <class P>
  int nth(std::uint32_t n, P&& matches) {
    std::vector<int> ids;
    for (int id = 0; id < static_cast<int>(tasks_.size()); ++id)
      if (matches(id)) ids.push_back(id);
    return ids.empty() ? -1 : ids[n % ids.size()];
  }

  void submit(const Command& c) {
    const int id = static_cast<int>(tasks_.size());
    RealTask& t = tasks_.emplace_back();
    if (c.stopped) t.stop.request_stop();
    const std::int64_t now = model_.gate.now;
    // No two waiters run out of time in the same instant: their order would be anybody's guess.
    const auto unique = [&](int ms, microseconds apart) {
      if (ms < 0) return forever;
      if (ms == 0) return std::int64_t{0};
      const std::int64_t step = nanoseconds(milliseconds(1)).count();
      return (now / step + ms) * step + nanoseconds(apart + microseconds(id)).count() - now;
    };
    const std::int64_t wait = unique(c.timeout, microseconds(0));
    const std::int64_t left = unique(c.deadline, microseconds(400));
    const std::int64_t run =
        c.execution_timeout < 0 ? forever : nanoseconds(milliseconds(c.execution_timeout)).count();
    const std::int64_t deadline = left == forever ? forever : now + left;
    const bool here = model_.submit({.id = id,
                                     .tier = c.tier,
                                     .cost = c.cost,
                                     .queues = true,
                                     .stopped = c.stopped,
                                     .timeout = wait,
                                     .deadline = deadline,
                                     .mean_hold = 0},
                                    {.takes_stop = c.takes_stop,
                                     .falls_back = c.falls_back,
                                     .execution_timeout = run,
                                     .deadline = deadline});
    if (here) t.go = 1;
    const SubmitOptions options{
        .priority = c.tier,
        .cost = c.cost,
        .timeout = nanoseconds(wait),
        .execution_timeout = nanoseconds(run),
        .deadline = deadline == forever ? no_deadline : TimePoint(nanoseconds(deadline)),
        .stop = t.stop.get_token()};
    const auto plain = [&t, id] { return t.work(id); };
    const auto stoppable = [&t, id](std::stop_token token) {
      t.token = std::move(token);
      return t.work(id);
    };
    const auto fallback = [id](const Rejection& why) {
      return -1000 * (id + 1) - static_cast<int>(why.reason);
    };
    if (c.takes_stop)
      t.task =
          c.falls_back ? pool_.submit_or(stoppable, fallback, options) : pool_.submit(stoppable, options);
    else
      t.task = c.falls_back ? pool_.submit_or(plain, fallback, options) : pool_.submit(plain, options);
    coverage_.queued += model_.waits(id);
  }

  void let_go(int id, bool throws) {
    real(id).go = throws ? 2 : 1;
    real(id).go.notify_all();
  }

  void give_up(int id, Do how) {
    RealTask& t = real(id);
    model_.give_up(id, how == Do::time_out ? Reason::timeout : Reason::cancelled);
    if (how == Do::time_out) return take(id, [&] { return t.task.get_until(clock_.now()); });
    if (how == Do::cancel)
      t.task.cancel();
    else
      t.task = Task<int>();
    t.taken = true;
  }

  template <class Get>
  void take(int id, Get&& get) {
    RealTask& t = real(id);
    const ModelTask& m = model_[id];
    t.taken = true;
    coverage_.told.insert(m.told);
    try {
      const Result<int> r = get();
      RC_ASSERT(m.told != Told::exception);
      RC_ASSERT(r.has_value() == (m.told != Told::rejection));
      if (m.told == Told::value) RC_ASSERT(*r == id);
      if (m.told == Told::fallback) RC_ASSERT(*r == -1000 * (id + 1) - static_cast<int>(m.reason));
      if (m.told != Told::rejection) return;
      RC_ASSERT(to_string(r.error().reason) == to_string(m.reason));
      coverage_.reasons.insert(m.reason);
    } catch (const Failed&) {
      RC_ASSERT(m.told == Told::exception);
    }
  }

  void advance_to(std::int64_t then) {
    model_.advance_to(then);
    clock_.advance_to(TimePoint(nanoseconds(then)));
    compare();
  }

  // What differs; empty: nothing does.
  std::string difference() {
    std::ostringstream out;
    const auto same = [&](const char* what, auto is, auto should) {
      if (static_cast<std::uint64_t>(is) != static_cast<std::uint64_t>(should))
        out << what << " is " << is << " and should be " << should << "; ";
    };
    const auto of = [](const char* what, int id) {
      return std::string(what) + " of task " + std::to_string(id);
    };
    for (int id = 0; id < static_cast<int>(tasks_.size()); ++id) {
      const ModelTask& m = model_[id];
      RealTask& t = real(id);
      same(of("begun", id).c_str(), t.begun.load(), m.begun);
      same(of("running", id).c_str(), t.running.load(), m.running);
      if (!t.taken) same(of("ready", id).c_str(), t.task.ready(), m.told != Told::nothing);
      if (m.running && m.takes_stop && t.running)
        same(of("stop", id).c_str(), t.token.stop_requested(), m.stop_asked);
    }
    const PoolSnapshot s = pool_.snapshot();
    const model::ModelGate& g = model_.gate;
    same("in_flight", s.gate.in_flight, g.in_flight());
    same("permits", s.gate.permits, g.running.size());
    same("waiting", s.gate.waiting, g.waiting());
    for (const Priority tier : {Priority::critical, Priority::normal, Priority::best_effort})
      same("waiting of a tier", s.gate.waiting_by_priority[static_cast<std::size_t>(tier)], g.waiting(tier));
    same("limit", s.gate.max_concurrent, g.limit);
    same("max_queue", s.gate.max_queue, g.max_queue);
    same("max_concurrent", s.gate.max_concurrent, g.limit);
    same("admitted", s.gate.admitted, g.released + g.running.size());
    same("released", s.gate.released, g.released);
    same("failed", s.gate.failed, g.failed);
    for (std::size_t r = 0; r < kReasons; ++r) {
      const auto found = g.rejected.find(static_cast<Reason>(r));
      same(to_string(static_cast<Reason>(r)).data(), s.gate.rejected_by_reason[r],
           found == g.rejected.end() ? 0 : found->second);
    }
    same("double releases", s.gate.double_releases, 0);
    same("underflows", s.gate.underflows, 0);
    same("abandoned", s.abandoned, model_.abandoned());
    same("abandoned in all", s.abandoned_total, model_.abandoned_total);
    same("caller_runs", s.caller_runs, model_.caller_runs);
    std::int64_t oldest = g.now;
    for (const ModelTask& t : model_.tasks)
      if (t.abandoned) oldest = std::min(oldest, t.since);
    same("oldest abandoned", s.oldest_abandoned.count(), g.now - oldest);
    same("threads", s.threads, g.running.size() + s.idle);
    if (s.threads > std::max<std::size_t>(g.limit, g.running.size())) out << "too many threads; ";
    return out.str();
  }

  // The time only keeps a difference that stays from hanging.
  void compare() {
    const auto patience = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    std::string wrong;
    while (!(wrong = difference()).empty() && std::chrono::steady_clock::now() < patience)
      std::this_thread::yield();
    RC_ASSERT(wrong == "");
  }

  Coverage& coverage_;
  ManualClock clock_;
  ModelPool model_;
  std::deque<RealTask> tasks_;
  Pool pool_;
};

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kSequences = 300;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
constexpr int kSequences = 300;
#else
constexpr int kSequences = 4000;
#endif
#else
constexpr int kSequences = 4000;
#endif

TEST(PoolProperty, ThePoolDoesWhatTheModelDoes) {
  Coverage coverage;
  rc::detail::TestParams params = rc::detail::configuration().testParams;
  params.maxSuccess = std::max(params.maxSuccess, kSequences);
  rc::detail::TestMetadata metadata;
  metadata.id = metadata.description = "the pool does what the model does";
  const auto result = rc::detail::checkTestable(
      [&] {
        const Shape how = *shape().as("pool");
        const auto commands = *rc::gen::container<std::vector<Command>>(command()).as("commands");
        SideBySide both(how, coverage);
        for (const Command& c : commands) both.run(c);
        both.finish();
      },
      metadata, params);
  if (!result.is<rc::detail::SuccessResult>()) {
    std::ostringstream text;
    rc::detail::printResultMessage(result, text);
    FAIL() << text.str() << "\nRC_PARAMS=\"seed=" << params.seed << "\"";
  }
  std::cout << coverage.sequences << " sequences, " << coverage.commands << " commands, " << coverage.queued
            << " queued, " << coverage.abandoned << " abandoned, " << coverage.caller_runs
            << " run by the caller\n";
  EXPECT_GT(coverage.queued, coverage.sequences / 2);
  EXPECT_GT(coverage.abandoned, coverage.sequences / 4);
  EXPECT_GT(coverage.caller_runs, coverage.sequences / 10);
  EXPECT_EQ(coverage.told.size(), 4u);
  for (const Reason reason :
       {Reason::concurrency_limit, Reason::queue_limit, Reason::timeout, Reason::cancelled, Reason::shutdown,
        Reason::evicted, Reason::deadline, Reason::execution_timeout})
    EXPECT_TRUE(coverage.reasons.contains(reason)) << to_string(reason) << " was never the answer";
}

}  // namespace
}  // namespace bulkhead
