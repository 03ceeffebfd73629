// Every operation of this adapter, through every phase and every end: see tests/support/asio_lifetimes.h.
#include "tests/support/asio_lifetimes.h"

#include <vector>

#include "acquire_all.h"
#include "async_acquire.h"
#include "async_execute.h"
#include "async_submit.h"
#include "bulkhead/resource_pool.h"

namespace bulkhead {
namespace {

namespace asio = boost::asio;
using lifetimes::named;
using lifetimes::Operation;
using lifetimes::Scene;

class GateRow : public Operation {
 public:
  void make(const Hooks& hooks) override {
    gate_.emplace(GateOptions{.name = "g", .max_concurrent = 1, .max_queue = 4, .hooks = hooks});
  }
  void fill() override { held_ = *gate_->try_acquire(); }
  void free() override { held_.release(); }
  asio::awaitable<void> call(Scene& scene) override {
    auto permit = co_await async_acquire(*gate_, {.stop = scene.stop.get_token()}, asio::use_awaitable);
    if (permit) co_await scene.inside();
  }
  std::uint32_t waiting() override { return static_cast<std::uint32_t>(gate_->snapshot().waiting); }
  bool idle() override { return gate_->snapshot().waiting == 0 && gate_->in_flight() == 0; }
  void destroy() override { gate_.reset(); }

 protected:
  std::optional<Gate> gate_;
  Permit held_;
};

class CoAcquireRow final : public GateRow {
 public:
  asio::awaitable<void> call(Scene& scene) override {
    auto permit = co_await gate_->co_acquire({.stop = scene.stop.get_token()});
    if (permit) co_await scene.inside();
  }
};

// Waits for the gate with the higher address, and holds units of the other meanwhile.
class AcquireAllRow final : public Operation {
 public:
  void make(const Hooks& hooks) override {
    lower_.emplace(GateOptions{.name = "lower", .max_concurrent = 4, .max_queue = 4});
    higher_.emplace(GateOptions{.name = "higher", .max_concurrent = 1, .max_queue = 4, .hooks = hooks});
  }
  void fill() override { held_ = *higher_->try_acquire(); }
  void free() override { held_.release(); }
  asio::awaitable<void> call(Scene& scene) override {
    auto all = co_await async_acquire_all({{*higher_, 1}, {*lower_, 2}}, {.stop = scene.stop.get_token()},
                                          asio::use_awaitable);
    if (all) co_await scene.inside();
  }
  std::uint32_t waiting() override { return higher_->snapshot().waiting + lower_->snapshot().waiting; }
  bool idle() override { return waiting() == 0 && higher_->in_flight() == 0 && lower_->in_flight() == 0; }
  void destroy() override {
    higher_.reset();
    lower_.reset();
  }

 private:
  std::optional<Gate> lower_, higher_;
  Permit held_;
};

class BulkheadRow : public Operation {
 public:
  void make(const Hooks& hooks) override {
    bulkhead_.emplace(BulkheadOptions{.name = "b", .max_concurrent = 1, .max_queue = 4, .hooks = hooks});
  }
  void fill() override { held_ = *bulkhead_->acquire(); }
  void free() override { held_.finish(Outcome::success); }
  asio::awaitable<void> call(Scene& scene) override {
    auto call = co_await async_acquire(*bulkhead_, {.stop = scene.stop.get_token()}, asio::use_awaitable);
    if (call) co_await scene.inside();
  }
  std::uint32_t waiting() override { return static_cast<std::uint32_t>(bulkhead_->snapshot().gate.waiting); }
  bool idle() override { return waiting() == 0 && bulkhead_->gate().in_flight() == 0; }
  void destroy() override { bulkhead_.reset(); }

 protected:
  std::optional<Bulkhead> bulkhead_;
  Call held_;
};

class BulkheadCoAcquireRow final : public BulkheadRow {
 public:
  asio::awaitable<void> call(Scene& scene) override {
    auto call = co_await bulkhead_->co_acquire({.stop = scene.stop.get_token()});
    if (call) co_await scene.inside();
  }
};

// The call itself waits inside; when it is cancelled it ends early.
class ExecuteCoroutineRow final : public BulkheadRow {
 public:
  asio::awaitable<void> call(Scene& scene) override {
    auto fn = [&scene, keep = scene.alive]() -> asio::awaitable<int> {
      co_await scene.inside();
      co_return 1;
    };
    auto instead = [keep = scene.alive](const Cause&) { return 2; };
    static_cast<void>(co_await async_execute(
        *bulkhead_, fn, {.fallback = instead, .stop = scene.stop.get_token()}, asio::use_awaitable));
  }
};

// On the executor, so it cannot wait: whoever waits does so behind it.
class ExecuteRow final : public BulkheadRow {
 public:
  asio::awaitable<void> call(Scene& scene) override {
    auto fn = [&scene, keep = scene.alive] { ++scene.entered; };
    static_cast<void>(
        co_await async_execute(*bulkhead_, fn, {.stop = scene.stop.get_token()}, asio::use_awaitable));
  }
};

class ExecuteOnThreadsRow final : public BulkheadRow {
 public:
  void make(const Hooks& hooks) override {
    bulkhead_.emplace(BulkheadOptions{
        .name = "b", .isolation = Isolation::threads, .max_concurrent = 1, .max_queue = 4, .hooks = hooks});
    full_ = false;
  }
  void fill() override {
    full_ = true;
    std::atomic<bool> begun = false;
    bulkhead_->async_execute(
        [this, &begun] {
          begun = true;
          while (full_) std::this_thread::yield();
        },
        {}, [](Ended<void>) {});
    while (!begun) std::this_thread::yield();
  }
  void free() override { full_ = false; }
  asio::awaitable<void> call(Scene& scene) override {
    auto fn = [&scene, keep = scene.alive] { scene.inside_blocking(); };
    static_cast<void>(
        co_await async_execute(*bulkhead_, fn, {.stop = scene.stop.get_token()}, asio::use_awaitable));
  }
  bool on_threads() const override { return true; }

 private:
  std::atomic<bool> full_ = false;
};

class SubmitRow final : public Operation {
 public:
  void make(const Hooks& hooks) override {
    pool_.emplace(PoolOptions{.name = "p", .max_concurrent = 1, .max_queue = 4, .hooks = hooks});
    full_ = false;
  }
  void fill() override {
    full_ = true;
    std::atomic<bool> begun = false;
    pool_
        ->submit([this, &begun] {
          begun = true;
          while (full_) std::this_thread::yield();
        })
        .detach();
    while (!begun) std::this_thread::yield();
  }
  void free() override { full_ = false; }
  asio::awaitable<void> call(Scene& scene) override {
    auto fn = [&scene, keep = scene.alive](std::stop_token) { scene.inside_blocking(); };
    static_cast<void>(
        co_await async_submit(*pool_, fn, {.stop = scene.stop.get_token()}, asio::use_awaitable));
  }
  std::uint32_t waiting() override { return pool_->snapshot().gate.waiting; }
  bool idle() override {
    const Snapshot s = pool_->snapshot().gate;
    return s.waiting == 0 && s.in_flight == 0;
  }
  void destroy() override { pool_.reset(); }
  bool on_threads() const override { return true; }

 private:
  std::atomic<bool> full_ = false;
  std::optional<Pool> pool_;
};

class ResourceRow final : public Operation {
 public:
  void make(const Hooks& hooks) override {
    pool_.emplace(ResourceOptions<int>{.name = "r",
                                       .max = 1,
                                       .open = [](const Opening&) { return 1; },
                                       .gate = {.max_queue = 4, .hooks = hooks}});
  }
  void fill() override { held_ = *pool_->acquire(); }
  void free() override { held_.release(); }
  asio::awaitable<void> call(Scene& scene) override {
    auto lease = co_await async_acquire(*pool_, {.stop = scene.stop.get_token()}, asio::use_awaitable);
    if (lease) co_await scene.inside();
  }
  std::uint32_t waiting() override { return static_cast<std::uint32_t>(pool_->snapshot().gate.waiting); }
  bool idle() override { return waiting() == 0 && pool_->gate().in_flight() == 0; }
  void destroy() override { pool_.reset(); }

 private:
  std::optional<ResourcePool<int>> pool_;
  Lease<int> held_;
};

const lifetimes::NamedOperation kOperations[] = {named<GateRow>("AcquireOfAGate"),
                                                 named<CoAcquireRow>("CoAcquireOfAGate"),
                                                 named<AcquireAllRow>("AcquireOfTwoGates"),
                                                 named<BulkheadRow>("AcquireOfABulkhead"),
                                                 named<BulkheadCoAcquireRow>("CoAcquireOfABulkhead"),
                                                 named<ResourceRow>("AcquireOfAResourcePool"),
                                                 named<SubmitRow>("Submit"),
                                                 named<ExecuteRow>("Execute"),
                                                 named<ExecuteCoroutineRow>("ExecuteOfACoroutine"),
                                                 named<ExecuteOnThreadsRow>("ExecuteOnThreads")};

class AsioLifetimes : public testing::TestWithParam<lifetimes::Case> {};

TEST_P(AsioLifetimes, AreKept) { lifetimes::play(GetParam(), 20); }

INSTANTIATE_TEST_SUITE_P(Of, AsioLifetimes, lifetimes::all_cases(kOperations), lifetimes::case_name);

}  // namespace
}  // namespace bulkhead
