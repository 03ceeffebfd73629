// pooled.h - the demo's pools on an adapter: adapters/sqlite and adapters/postgres have the same interface.
#pragma once

#include <array>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "app/demo/store.h"

namespace bulkhead::demo {

using Statements = std::array<std::string, kAsks>;
inline Statements statements(std::string_view schema) {
  Statements all;
  for (std::size_t i = 0; i < kAsks; ++i) all[i] = sql_of(static_cast<Ask>(i), schema);
  return all;
}

// `Pool`: the adapter's; `query`: how its connection is asked, with the statement kept prepared.
template <class Pool, class Connection, auto query>
class Pooled final : public ConnectionPool {
 public:
  template <class Options>
  Pooled(const Options& options, Statements statements) : pool_(options), statements_(std::move(statements)) {
    warm(options.max);
  }

  void acquire(bulkhead::base::UniqueFunction<void(Answer)> handler) override {
    pool_.resources().async_acquire(
        {}, [this, handler = std::move(handler)](ResourceResult<Connection> lease) mutable {
          if (lease)
            handler(std::make_unique<OnLoan>(*std::move(lease), statements_));
          else
            handler(Unexpected(std::move(lease).error()));
        });
  }
  ResourceSnapshot snapshot() const override { return pool_.snapshot(); }

 private:
  class OnLoan final : public Held {
   public:
    OnLoan(Lease<Connection> lease, const Statements& statements)
        : lease_(std::move(lease)), statements_(statements) {}
    Result<void, AskError> ask(Ask what, std::int64_t value, const std::stop_token& stop) override {
      auto rows = query(*lease_, statements_[static_cast<std::size_t>(what)], value, stop);
      if (rows) return {};
      using Kind = decltype(rows.error().kind);
      return Unexpected(
          AskError{.stopped = rows.error().kind == Kind::cancelled, .text = rows.error().message()});
    }

   private:
    Lease<Connection> lease_;
    const Statements& statements_;
  };

  // So that the first calls do not pay for opening their connections, which is not what the demo is about.
  void warm(std::uint32_t all) {
    std::vector<ResourceResult<Connection>> open;
    const TimePoint until = std::chrono::steady_clock::now() + std::chrono::seconds(5);
    while (open.size() < all) {
      open.push_back(pool_.resources().acquire({.deadline = until}));
      if (!open.back()) return;
    }
  }

  Pool pool_;
  const Statements statements_;
};

}  // namespace bulkhead::demo
