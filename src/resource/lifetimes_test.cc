// Every way to ask for a lease, in every phase of its wait, ended in every way: the operation is dropped, the pool goes first, or
// it is cancelled at the very instant of the grant. Whatever happens, the call gets one answer or (if nobody is left to
// answer) none, and every resource and permit comes back. Run it under AddressSanitizer and ThreadSanitizer.
//
// A new operation is a row of kOperations; a new phase or end is a row of its table.
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <coroutine>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bulkhead/manual_clock.h"
#include "bulkhead/resource_pool.h"
#include "tests/support/until.h"

namespace bulkhead {
namespace {

using namespace std::chrono_literals;
using tests::until;

struct Resource {
  int id = 0;
};
using Pool = ResourcePool<Resource>;

// What became of one call.
struct Answers {
  std::atomic<int> leases{0}, rejections{0}, failures{0};
  int all() const { return leases + rejections + failures; }
  template <class R>
  void note(const R& result) {
    if (result)
      ++leases;
    else if (result.error().failed())
      ++failures;
    else
      ++rejections;
  }
};

// Something slow that can be held up and made to fail: a factory, or a dispose.
class Factory {
 public:
  Result<Resource, std::string> open() {
    std::unique_lock lock(mutex_);
    ++arrived_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return !shut_; });
    if (down_) return Unexpected("connection refused");
    return Resource{++made_};
  }
  void shut(bool shut) {
    const std::lock_guard lock(mutex_);
    shut_ = shut;
    changed_.notify_all();
  }
  void fail(bool down) {
    const std::lock_guard lock(mutex_);
    down_ = down;
  }
  int arrived() {
    const std::lock_guard lock(mutex_);
    return arrived_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int arrived_ = 0, made_ = 0;
  bool shut_ = false, down_ = false;
};

// One call that was started. drop(): its owner goes, as far as that is possible for this kind of call.
class Operation {
 public:
  virtual ~Operation() = default;
  virtual void drop() = 0;
  virtual bool droppable() const { return true; }
};

struct Started {
  Pool& pool;
  Answers& answers;
  AcquireOptions options;
};

// A thread inside acquire() cannot be dropped, only cancelled.
class Blocking final : public Operation {
 public:
  explicit Blocking(Started s)
      : thread_([&pool = s.pool, &answers = s.answers, options = s.options] {
          answers.note(pool.acquire(options));
        }) {}
  void drop() override { thread_.join(); }
  bool droppable() const override { return false; }

 private:
  std::jthread thread_;
};

class Handler final : public Operation {
 public:
  explicit Handler(Started s)
      : pending_(s.pool.async_acquire(
            s.options, [&answers = s.answers](ResourceResult<Resource> lease) { answers.note(lease); })) {}
  void drop() override { pending_.abandon(); }

 private:
  PendingLease pending_;
};

class Claimed final : public Operation {
 public:
  explicit Claimed(Started s)
      : pending_(s.pool.async_claim(
            s.options,
            [&answers = s.answers](Result<Claim<Resource>, ResourceError> claim) { answers.note(claim); })) {}
  void drop() override { pending_.abandon(); }

 private:
  PendingLease pending_;
};

// The handle is gone at once; the call goes on.
class Detached final : public Operation {
 public:
  explicit Detached(Started s) {
    s.pool.async_acquire(s.options,
                         [&answers = s.answers](ResourceResult<Resource> lease) { answers.note(lease); });
  }
  void drop() override {}
  bool droppable() const override { return false; }
};

class Coroutine final : public Operation {
 public:
  explicit Coroutine(Started s) : answers_(s.answers), frame_(body(s.pool, s.answers, s.options, *done_)) {}
  ~Coroutine() override { drop(); }
  void drop() override {
    if (std::exchange(gone_, true)) return;
    // One that has its answer runs on, perhaps on another thread.
    if (answers_.all() == 1) until([&] { return done_->load(); });
    frame_.handle.destroy();
  }

 private:
  struct Frame {
    struct Last {
      std::atomic<bool>& done;
      bool await_ready() const noexcept { return false; }
      void await_suspend(std::coroutine_handle<>) const noexcept { done.store(true); }
      void await_resume() const noexcept {}
    };
    struct promise_type {
      promise_type(Pool&, Answers&, const AcquireOptions&, std::atomic<bool>& d) : done(d) {}
      Frame get_return_object() { return {std::coroutine_handle<promise_type>::from_promise(*this)}; }
      std::suspend_never initial_suspend() noexcept { return {}; }
      Last final_suspend() noexcept { return {done}; }
      void return_void() {}
      void unhandled_exception() { std::abort(); }
      std::atomic<bool>& done;
    };
    std::coroutine_handle<promise_type> handle;
  };
  static Frame body(Pool& pool, Answers& answers, AcquireOptions options, std::atomic<bool>&) {
    const ResourceResult<Resource> lease = co_await pool.co_acquire(std::move(options));
    answers.note(lease);
  }

  Answers& answers_;
  const std::unique_ptr<std::atomic<bool>> done_ = std::make_unique<std::atomic<bool>>(false);
  Frame frame_;
  bool gone_ = false;
};

using Make = std::unique_ptr<Operation> (*)(Started);
template <class Kind>
std::unique_ptr<Operation> make(Started s) {
  return std::make_unique<Kind>(std::move(s));
}
struct OperationRow {
  const char* name;
  Make start;
};
const OperationRow kOperations[] = {
    {"Blocking", make<Blocking>}, {"Handler", make<Handler>},     {"Claim", make<Claimed>},
    {"Detached", make<Detached>}, {"Coroutine", make<Coroutine>},
};

// Where the call is when its end comes. `reach` starts it and returns when it is there; `release` lets go what held it.
struct Scene {
  ManualClock clock;
  Factory factory, closing;
  Answers answers;
  std::stop_source stop;
  std::optional<Pool> pool;
  std::optional<Lease<Resource>> held;
  std::unique_ptr<Operation> operation;

  Scene() {
    pool.emplace(ResourceOptions<Resource>{.name = "lifetimes",
                                           .max = 1,
                                           .open = [this](const Opening&) { return factory.open(); },
                                           .dispose = [this](Resource&) { (void)closing.open(); },
                                           .gate = {.max_queue = 4},
                                           .clock = &clock});
  }
  void start(Make make) { operation = make({*pool, answers, {.timeout = 1h, .stop = stop.get_token()}}); }
};

struct Phase {
  const char* name;
  void (*reach)(Scene&, Make);
  void (*grant)(Scene&);  // what would give it its resource
  bool claims = true;     // whether there is this phase for a claim, which opens by itself
};
const Phase kPhases[] = {
    {"InLine",
     [](Scene& s, Make make) {
       s.held.emplace(*s.pool->acquire());
       s.start(make);
       until([&] { return s.pool->snapshot().gate.waiting == 1; });
     },
     [](Scene& s) { s.held.reset(); }},
    {"AdmittedBesideOneThatIsBeingClosed",
     [](Scene& s, Make make) {
       auto broken = s.pool->acquire();
       broken->mark_broken();
       s.closing.shut(true);
       broken->release();
       until([&] { return s.closing.arrived() == 1; });
       s.start(make);
       until([&] { return s.pool->snapshot().gate.in_flight == 1; });
     },
     [](Scene& s) { s.closing.shut(false); }},
    {"BeingOpened",
     [](Scene& s, Make make) {
       s.factory.shut(true);
       s.start(make);
       until([&] { return s.factory.arrived() == 1; });
     },
     [](Scene& s) { s.factory.shut(false); }, false},
    {"OpeningFails",
     [](Scene& s, Make make) {
       s.factory.fail(true);
       s.factory.shut(true);
       s.start(make);
       until([&] { return s.factory.arrived() == 1; });
     },
     [](Scene& s) { s.factory.shut(false); }, false},
    {"Answered",
     [](Scene& s, Make make) {
       s.start(make);
       until([&] { return s.answers.all() == 1; });
     },
     [](Scene&) {}},
};

// How it ends.
enum class End : std::uint8_t {
  dropped,              // and then granted
  pool_first,           // the pool goes while the call waits
  granted_and_dropped,  // at the same time
  cancelled_at_grant,   // at the same time
  timed_out_at_grant,   // at the same time
  cancelled_and_dropped,
};
constexpr const char* kEnds[] = {"Dropped",          "PoolFirst",       "GrantedAndDropped",
                                 "CancelledAtGrant", "TimedOutAtGrant", "CancelledAndDropped"};

template <class A, class B>
void together(A&& a, B&& b) {
  std::atomic<int> ready{0};
  const auto sync = [&] {
    ++ready;
    while (ready < 2) std::this_thread::yield();
  };
  std::jthread other([&] {
    sync();
    b();
  });
  sync();
  a();
}

struct Row {
  const OperationRow* operation;
  const Phase* phase;
  End end;
};
std::vector<Row> rows() {
  std::vector<Row> all;
  for (const OperationRow& operation : kOperations)
    for (const Phase& phase : kPhases)
      for (std::size_t end = 0; end < std::size(kEnds); ++end)
        if (operation.start != make<Claimed> || phase.claims)
          all.push_back({&operation, &phase, static_cast<End>(end)});
  return all;
}
std::string name_of(const testing::TestParamInfo<Row>& row) {
  return std::string(row.param.operation->name) + "_" + row.param.phase->name + "_" +
         kEnds[static_cast<std::size_t>(row.param.end)];
}
class Lifetimes : public testing::TestWithParam<Row> {};

TEST_P(Lifetimes, EveryCallHasOneAnswerOrNoneAndEverythingComesBack) {
  const OperationRow& row = *GetParam().operation;
  const Phase& phase = *GetParam().phase;
  const End end = GetParam().end;
  const bool coroutine = row.start == make<Coroutine>;
  for (int round = 0; round < 10; ++round) {
    Scene s;
    phase.reach(s, row.start);
    const bool droppable = s.operation->droppable();
    const bool answered = s.answers.all() == 1;
    bool dropped = false;
    switch (end) {
      case End::dropped:
        if (droppable) s.operation->drop();
        dropped = droppable;
        phase.grant(s);
        break;
      case End::pool_first: {
        std::jthread ending([&] { s.pool.reset(); });
        phase.grant(s);
        break;
      }
      case End::granted_and_dropped:
        // Nobody may destroy a coroutine while another thread resumes it: for it, one after the other.
        if (coroutine && !answered) {
          if (round % 2 == 0) {
            phase.grant(s);
            until([&] { return s.answers.all() == 1; });
          }
          s.operation->drop();
          phase.grant(s);
        } else if (droppable) {
          together([&] { phase.grant(s); }, [&] { s.operation->drop(); });
        } else {
          phase.grant(s);
        }
        dropped = droppable;
        break;
      case End::cancelled_at_grant:
        together([&] { phase.grant(s); }, [&] { s.stop.request_stop(); });
        break;
      case End::timed_out_at_grant:
        together([&] { phase.grant(s); }, [&] { s.clock.advance(2h); });
        break;
      case End::cancelled_and_dropped:
        if (droppable && !coroutine) {
          together([&] { s.stop.request_stop(); }, [&] { s.operation->drop(); });
          dropped = true;
        } else {
          s.stop.request_stop();
        }
        phase.grant(s);
        break;
    }
    if (!dropped) until([&] { return s.answers.all() == 1; });
    ASSERT_LE(s.answers.all(), 1);
    if (s.pool) {
      until([&] { return s.pool->snapshot().gate.in_flight == 0 && s.pool->snapshot().gate.waiting == 0; });
      until([&] { return s.pool->snapshot().opening == 0; });
      const auto now = s.pool->snapshot();
      EXPECT_EQ(now.used, 0u);
      EXPECT_EQ(now.idle + now.closing, now.alive);
      s.factory.fail(false);
      s.clock.advance(24h);
      EXPECT_TRUE(s.pool->acquire()) << "the pool works on";
    }
    if (!coroutine && droppable && !dropped)
      s.operation->drop();  // an operation outlives its pool harmlessly
    s.pool.reset();
    s.operation.reset();
    ASSERT_LE(s.answers.all(), 1);
  }
}

INSTANTIATE_TEST_SUITE_P(All, Lifetimes, testing::ValuesIn(rows()), name_of);

// A coroutine that waits is destroyed by the handler that gets the resource before it, on the same thread.
TEST(LifetimesOfCoroutines, OneThatWasGrantedButNotResumedCanBeDestroyed) {
  Scene s;
  s.held.emplace(*s.pool->acquire());
  std::unique_ptr<Operation> waiting;
  Answers first;
  s.pool->async_acquire({}, [&](ResourceResult<Resource> lease) {
    first.note(lease);
    lease->release();  // it is the coroutine's now
    waiting.reset();
  });
  waiting = make<Coroutine>({*s.pool, s.answers, {}});
  until([&] { return s.pool->snapshot().gate.waiting == 2; });
  s.held.reset();
  EXPECT_EQ(first.leases, 1);
  EXPECT_EQ(s.answers.all(), 0);
  EXPECT_EQ(s.pool->snapshot().gate.in_flight, 0u);
  EXPECT_TRUE(s.pool->try_acquire());
}

TEST(LifetimesOfHandlers, AnAbandonedHandlerIsDestroyedInsideAbandon) {
  Scene s;
  s.held.emplace(*s.pool->acquire());
  auto token = std::make_shared<int>(1);
  PendingLease pending = s.pool->async_acquire({}, [token](const ResourceResult<Resource>&) { FAIL(); });
  EXPECT_EQ(token.use_count(), 2);
  EXPECT_TRUE(pending.abandon());
  EXPECT_EQ(token.use_count(), 1);
  EXPECT_FALSE(pending.abandon());
  EXPECT_EQ(s.pool->snapshot().gate.waiting, 0u) << "it left the line";
  s.held.reset();
}

// Handlers that return their lease at once serve the next one: that must not nest. The budget allows one resource.
TEST(LifetimesOfHandlers, ALongLineOfHandlersDoesNotNest) {
  constexpr std::uint32_t kCalls = 10'000;
  Factory factory;
  factory.shut(true);
  ResourceBudget budget(1);
  Pool pool({.name = "long",
             .max = kCalls,
             .open = [&](const Opening&) { return factory.open(); },
             .budget = &budget});
  std::atomic<std::uint32_t> answered{0};
  for (std::uint32_t i = 0; i < kCalls; ++i)
    pool.async_acquire({}, [&](const ResourceResult<Resource>& lease) { answered += lease.has_value(); });
  EXPECT_EQ(answered, 0u);
  factory.shut(false);
  until([&] { return answered == kCalls; });
  EXPECT_EQ(budget.most_alive(), 1u);
}

}  // namespace
}  // namespace bulkhead
