// Who may go when: every kind of operation, in every phase of its life, ended in every way. Under ASan and TSan.
//
// A row of `operations` is a way to ask a gate for a unit; a new kind of operation is covered by adding one. The phases
// and the ends are the columns:
//   queued      it waits in line
//   granted     its unit is decided, but it has not been told: another handler of the same release runs first
//   running     it has its permit
//   finishing   its permit is being given back: it runs inside the release hook of its own permit
// The ends: it is abandoned (destroyed where that can be), its owner (gate or group) goes first, or it is cancelled in
// the instant of the grant. Afterwards the gate is idle, its numbers fit, and everybody was answered at most once.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <stop_token>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "bulkhead/async_acquire.h"
#include "bulkhead/gate.h"
#include "bulkhead/group.h"
#include "tests/support/callers.h"
#include "tests/support/until.h"

namespace bulkhead {
namespace {

using namespace std::chrono_literals;
using namespace tests;

// What became of one call. It keeps the permit until told otherwise.
struct Answers {
  std::atomic<int> admitted{0}, rejected{0};
  std::optional<Permit> permit;
  std::function<void()> when_admitted;  // inside the call itself

  void decide(Result<Permit> result) {
    if (!result) return void(++rejected);
    permit = *std::move(result);
    if (when_admitted) when_admitted();
    ++admitted;
  }
};

// An operation under way. Its destructor abandons it, if that is possible.
struct Operation {
  virtual ~Operation() = default;
};

class CustomAcquire final : public Operation, public AsyncAcquire {
 public:
  CustomAcquire(Gate& gate, AcquireOptions options, Answers& answers)
      : AsyncAcquire(gate, &watch_), answers_(answers), watch_(std::move(options)) {
    if (start(watch_.options())) on_decided();
  }

 private:
  void on_decided() noexcept override { answers_.decide(result()); }
  Answers& answers_;
  AcquireWatch watch_;
};

// The same with a watch that outlives it, as pools have it.
class OutlivedAcquire final : public Operation {
 public:
  OutlivedAcquire(Gate& gate, AcquireOptions options, Answers& answers)
      : watch_(std::move(options)), op_(std::make_unique<Op>(gate, watch_, answers)) {}

 private:
  struct Op final : AsyncAcquire {
    Op(Gate& gate, AcquireWatch& watch, Answers& to) : AsyncAcquire(gate, &watch), answers(to) {
      if (start(watch.options())) on_decided();
    }
    ~Op() override = default;
    void on_decided() noexcept override { answers.decide(result()); }
    Answers& answers;
  };
  AcquireWatch watch_;
  std::unique_ptr<Op> op_;
};

struct HandlerOperation final : Operation {
  HandlerOperation(Gate& gate, AcquireOptions options, Answers& answers) {
    gate.async_acquire(std::move(options), [&answers](Result<Permit> r) { answers.decide(std::move(r)); });
  }
};

class CoroutineOperation final : public Operation {
 public:
  CoroutineOperation(Gate& gate, AcquireOptions options, Answers& answers)
      : coroutine_(call(gate, std::move(options), answers)) {
    coroutine_.start();
  }

 private:
  static Coroutine call(Gate& gate, AcquireOptions options, Answers& answers) {
    answers.decide(co_await gate.co_acquire(std::move(options)));
  }
  Coroutine coroutine_;
};

class ThreadOperation final : public Operation {
 public:
  ThreadOperation(Gate& gate, AcquireOptions options, Answers& answers)
      : thread_([&gate, options = std::move(options), &answers] { answers.decide(gate.acquire(options)); }) {}

 private:
  std::jthread thread_;
};

template <class Op>
std::unique_ptr<Operation> start_as(Gate& gate, AcquireOptions options, Answers& answers) {
  return std::make_unique<Op>(gate, std::move(options), answers);
}

struct OperationKind {
  const char* name;
  std::unique_ptr<Operation> (*start)(Gate&, AcquireOptions, Answers&);
  bool can_be_abandoned;  // else it is let go, and lives until it is answered
  bool on_other_thread;
};
const OperationKind operations[] = {
    {"Handler", start_as<HandlerOperation>, false, false},
    {"Coroutine", start_as<CoroutineOperation>, true, false},
    {"Custom", start_as<CustomAcquire>, true, false},
    {"CustomWithALongerWatch", start_as<OutlivedAcquire>, true, false},
    {"Thread", start_as<ThreadOperation>, false, true},
};

// A gate of its own, or a member of a group that has lent nothing.
struct OwnerKind {
  const char* name;
  bool group;
};
const OwnerKind owners[] = {{"OfAGate", false}, {"OfAMember", true}};

class Owner {
 public:
  Owner(const OwnerKind& kind, const Hooks& hooks) {
    GateOptions o{.max_queue = 8, .hooks = hooks};
    if (!kind.group) {
      gate_ = std::make_unique<Gate>(std::move(o));
    } else {
      group_ = std::make_unique<Group>(
          GroupOptions{.total = 2,
                       .lend = Lend::none(),
                       .members = {{.name = "own", .guaranteed = {.units = 1}, .gate = std::move(o)},
                                   {.name = "other", .guaranteed = {.units = 1}}}});
    }
  }
  Gate& gate() { return group_ ? group_->member("own") : *gate_; }
  void destroy() {
    gate_.reset();
    group_.reset();
  }

 private:
  std::unique_ptr<Gate> gate_;
  std::unique_ptr<Group> group_;
};

enum class End { abandoned, owner_first, cancelled };
std::string name_of(End end) {
  return end == End::abandoned ? "Abandoned" : end == End::owner_first ? "OwnerFirst" : "Cancelled";
}

using Row = std::tuple<OperationKind, OwnerKind, End>;

class Lifetime : public testing::TestWithParam<Row> {
 protected:
  Lifetime()
      : kind(std::get<0>(GetParam())),
        end(std::get<2>(GetParam())),
        owner(std::get<1>(GetParam()), Hooks{.on_release = [this](const Event&) {
                if (in_release_hook) std::exchange(in_release_hook, nullptr)();
              }}) {}

  void start(AcquireOptions options = {}) {
    options.stop = stop.get_token();
    options.timeout = 1h;
    op = kind.start(owner.gate(), std::move(options), answers);
  }
  void fill() { held = *owner.gate().try_acquire(); }
  // Ends the operation while it is in the phase that the test has brought it to.
  void end_it() {
    switch (end) {
      case End::abandoned:
        if (kind.can_be_abandoned) op.reset();
        break;
      case End::owner_first:
        break;  // see finish()
      case End::cancelled:
        stop.request_stop();
        break;
    }
  }
  bool answered() const { return answers.admitted + answers.rejected > 0; }
  // The owner goes, before or after the operation; nobody is left waiting.
  void finish() {
    if (end == End::owner_first) {
      std::jthread destroying([&] { owner.destroy(); });  // waits for the permits
      until([&] { return answered(); });
      held.reset();
      if (kind.on_other_thread) op.reset();
      answers.permit.reset();
      destroying.join();
      op.reset();
    } else {
      held.reset();
      owner.gate().close();
      if (kind.on_other_thread) op.reset();  // it has its answer, or gets one
      answers.permit.reset();
      owner.gate().drain();
      expect_idle(owner.gate());
      op.reset();
      owner.destroy();
    }
    EXPECT_LE(answers.admitted + answers.rejected, 1);
    if (!kind.can_be_abandoned || end != End::abandoned) {
      EXPECT_TRUE(answered());
    }
  }

  OperationKind kind;
  End end;
  std::function<void()> in_release_hook;
  Owner owner;
  std::optional<Permit> held;
  std::stop_source stop;
  Answers answers;
  std::unique_ptr<Operation> op;
};
const auto name_of_row = [](const auto& row) {
  return std::string(std::get<0>(row.param).name) + std::get<1>(row.param).name +
         name_of(std::get<2>(row.param));
};
INSTANTIATE_TEST_SUITE_P(All, Lifetime,
                         testing::Combine(testing::ValuesIn(operations), testing::ValuesIn(owners),
                                          testing::Values(End::abandoned, End::owner_first, End::cancelled)),
                         name_of_row);

class LifetimeRace : public Lifetime {};
INSTANTIATE_TEST_SUITE_P(All, LifetimeRace,
                         testing::Combine(testing::ValuesIn(operations), testing::ValuesIn(owners),
                                          testing::Values(End::cancelled)),
                         name_of_row);

TEST_P(Lifetime, EndsWhileQueued) {
  fill();
  start();
  until_waiting(owner.gate(), 1);
  end_it();
  if (end == End::cancelled) until([&] { return answers.rejected == 1; });
  if (end == End::abandoned && kind.can_be_abandoned) {
    EXPECT_EQ(owner.gate().snapshot().waiting, 0u);
  }
  finish();
  EXPECT_EQ(answers.admitted, end == End::abandoned && !kind.can_be_abandoned ? answers.admitted.load() : 0);
}

// One release admits two: the first, a handler, runs while the second is granted and has not been told. A thread hears
// of it at once, on its own.
TEST_P(Lifetime, EndsWhenGrantedAndNotTold) {
  held = *owner.gate().try_acquire();
  std::optional<Permit> first;
  owner.gate().async_acquire({}, [&](Result<Permit> r) {
    if (!r) return;
    first = *std::move(r);
    first->release();  // admits the next in line, who is told after this handler has returned
    end_it();
  });
  start();
  until_waiting(owner.gate(), 2);
  held->release();
  held.reset();
  if (kind.on_other_thread) until([&] { return answered(); });
  if (end == End::abandoned && kind.can_be_abandoned) {
    EXPECT_FALSE(answered());
    EXPECT_EQ(owner.gate().in_flight(), 0u);  // what it was given went back
  } else {
    EXPECT_EQ(answers.admitted, 1) << "it was admitted before it was cancelled: it keeps the permit";
  }
  finish();
}

TEST_P(Lifetime, EndsWhileRunning) {
  start();
  if (kind.on_other_thread) until([&] { return answered(); });
  ASSERT_EQ(answers.admitted, 1);
  end_it();
  EXPECT_TRUE(*answers.permit);
  finish();
}

// Inside the release of its own permit, when the hook runs.
TEST_P(Lifetime, EndsWhileFinishing) {
  start();
  if (kind.on_other_thread) until([&] { return answered(); });
  bool hooked = false;
  in_release_hook = [&] {
    hooked = true;
    end_it();
  };
  answers.permit->release();
  EXPECT_TRUE(hooked);
  finish();
}

// The grant and the cancellation meet on two threads, many times over: one of them wins, and nothing is lost.
TEST_P(LifetimeRace, IsCancelledInTheInstantOfTheGrant) {
  for (int round = 0; round < 100; ++round) {
    std::stop_source now;
    Answers result;
    std::optional<Permit> holder = *owner.gate().try_acquire();
    auto racing = kind.start(owner.gate(), {.timeout = 1h, .stop = now.get_token()}, result);
    until_waiting(owner.gate(), 1);
    std::atomic<int> ready{0};
    const auto meet = [&] {
      ++ready;
      while (ready != 2) {
      }
    };
    {
      std::jthread cancels([&] { meet(), now.request_stop(); });
      meet();
      holder->release();
    }
    until([&] { return result.admitted + result.rejected == 1; });
    if (kind.on_other_thread) racing.reset();
    result.permit.reset();
    racing.reset();
    owner.gate().drain();
    expect_idle(owner.gate());
  }
  start();
  if (kind.on_other_thread) until([&] { return answered(); });
  finish();
}

}  // namespace
}  // namespace bulkhead
