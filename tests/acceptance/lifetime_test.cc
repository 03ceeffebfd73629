// Who may go when: every kind of operation, in every phase of its life, ended in every way. Under ASan and TSan.
//
// A row of `operations` is a way to ask a gate for a unit, alone or with units of another gate; a row of `owners` is what the
// gate belongs to. A new kind of either is covered by adding one. The phases and the ends are the columns:
//   queued      it waits in line
//   granted     its unit is decided, but it has not been told: another handler of the same release runs first
//   running     it has its permit
//   finishing   its permit is being given back: it runs inside the release hook of its own permit
// The ends: it is abandoned (destroyed where that can be), its owner (gate or group) goes first, or it is cancelled in
// the instant of the grant. Afterwards the gate is idle, its numbers fit, and everybody was answered at most once.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <atomic>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <ostream>
#include <stop_token>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "bulkhead/acquire_all.h"
#include "bulkhead/async_acquire.h"
#include "bulkhead/bulkhead.h"
#include "bulkhead/gate.h"
#include "bulkhead/group.h"
#include "bulkhead/scope.h"
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
  void decide(Result<AllPermits> result, const Gate& gate) {
    if (!result) return void(++rejected);
    decide(Result<Permit>(std::move(*result->of(gate))));
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

// A second gate that the operations below take a unit of. It has room, and a lower address than any other gate, wherever an
// allocator or a sanitizer places those, so they hold its unit while they wait for the other gate, and give it back as soon
// as they have their answer.
Gate& lower_gate() {
  static const std::unique_ptr<Gate, void (*)(Gate*)> gate(
      [] {
        void* const low = ::mmap(reinterpret_cast<void*>(0x10000000), sizeof(Gate), PROT_READ | PROT_WRITE,
                                 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        return new (low) Gate{{.max_concurrent = 1000}};
      }(),
      [](Gate* g) { g->~Gate(); });
  return *gate;
}
AcquireAllOptions for_both(const AcquireOptions& o) {
  AcquireAllOptions all;
  all.timeout = o.timeout;
  all.stop = o.stop;
  return all;
}

struct AllHandlerOperation final : Operation {
  AllHandlerOperation(Gate& gate, const AcquireOptions& options, Answers& answers) {
    async_acquire_all({gate, lower_gate()}, for_both(options),
                      [&gate, &answers](Result<AllPermits> all) { answers.decide(std::move(all), gate); });
  }
};

class AllCoroutineOperation final : public Operation {
 public:
  AllCoroutineOperation(Gate& gate, const AcquireOptions& options, Answers& answers)
      : coroutine_(call(gate, for_both(options), answers)) {
    coroutine_.start();
  }

 private:
  static Coroutine call(Gate& gate, AcquireAllOptions options, Answers& answers) {
    auto acquiring = co_acquire_all({gate, lower_gate()}, options);
    answers.decide(co_await acquiring, gate);
  }
  Coroutine coroutine_;
};

class AllThreadOperation final : public Operation {
 public:
  AllThreadOperation(Gate& gate, const AcquireOptions& options, Answers& answers)
      : thread_([&gate, options = for_both(options), &answers] {
          answers.decide(acquire_all({gate, lower_gate()}, options), gate);
        }) {}

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
    {"HandlerOfTwoGates", start_as<AllHandlerOperation>, false, false},
    {"CoroutineOfTwoGates", start_as<AllCoroutineOperation>, true, false},
    {"ThreadOfTwoGates", start_as<AllThreadOperation>, false, true},
};

// One unit, which no other process wants.
class OneUnit final : public UnitSources {
 private:
  class Source final : public UnitSource {
   public:
    bool take(const Head& head) noexcept override {
      std::uint32_t none = 0;
      return head.cost == 1 && used_.compare_exchange_strong(none, 1);
    }
    void give_back(std::uint32_t units) noexcept override { used_ -= units; }
    std::uint32_t in_use() const noexcept override { return used_; }
    void set_head(const Head*) noexcept override {}
    std::uint32_t limit() const noexcept override { return 1; }
    bool resize(std::uint32_t limit) noexcept override { return limit == 1; }
    void mute() noexcept override {}

   private:
    std::atomic<std::uint32_t> used_{0};
  };
  std::unique_ptr<UnitSource> open(const Request&, UnitUser&) override { return std::make_unique<Source>(); }
  void check(const Request&) const override {}
};

// A gate of its own, a member of a group that has lent nothing, or the gate of a bulkhead whose unit other processes share.
enum class Owned { alone, by_group, by_scope };
struct OwnerKind {
  const char* name;
  Owned owned;
};
const OwnerKind owners[] = {
    {"OfAGate", Owned::alone}, {"OfAMember", Owned::by_group}, {"OfAScope", Owned::by_scope}};

class Owner {
 public:
  Owner(const OwnerKind& kind, const Hooks& hooks) {
    GateOptions o{.max_queue = 8, .hooks = hooks};
    if (kind.owned == Owned::alone) {
      gate_ = std::make_unique<Gate>(std::move(o));
    } else if (kind.owned == Owned::by_scope) {
      BulkheadOptions b{.name = "own", .max_concurrent = 1, .scope = Scope::host, .sources = &source_};
      b.max_queue = 8;
      b.hooks = hooks;
      scoped_ = std::make_unique<Bulkhead>(std::move(b));
    } else {
      group_ = std::make_unique<Group>(
          GroupOptions{.total = 2,
                       .lend = Lend::none(),
                       .members = {{.name = "own", .guaranteed = {.units = 1}, .gate = std::move(o)},
                                   {.name = "other", .guaranteed = {.units = 1}}}});
    }
  }
  Gate& gate() { return gate_ ? *gate_ : scoped_ ? scoped_->gate() : group_->member("own"); }
  void destroy() {
    gate_.reset();
    scoped_.reset();
    group_.reset();
  }

 private:
  OneUnit source_;
  std::unique_ptr<Gate> gate_;
  std::unique_ptr<Bulkhead> scoped_;
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
    ASSERT_LT(&lower_gate(), &owner.gate());
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
    expect_idle(lower_gate());
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
