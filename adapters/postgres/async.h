// async.h - PostgreSQL connections on an Asio event loop: connecting, querying and waiting without a
// thread.
//
//   boost::asio::awaitable<void> handle(bulkhead::postgres::Pool& checkout) {
//     auto db = co_await bulkhead::postgres::async_acquire(checkout, {.timeout = 50ms, .deadline = in_200_ms});
//     if (!db) co_return reject(db.error());
//     auto rows = co_await bulkhead::postgres::async_query(**db, "select name from items where id = $1", 42);
//     ...                                                       // the connection goes back here, on every path
//   }
//
// The coroutine's executor does everything: it connects (PQconnectPoll), validates, sends and waits for
// the socket. The deadline of the acquire goes with the connection, as in the blocking form; when it
// comes, the query is cancelled. Only that, cleaning a connection that comes back dirty, and opening one
// whose caller stopped waiting, is done on a thread of the pool. Looking up a host's name blocks, as libpq has
// it: give hostaddr where that matters.
// Cancellation: the coroutine's cancellation slot, or AcquireOptions::stop from any thread. A call in line
//   leaves it at once. A query that is cancelled by the slot returns Error::Kind::cancelled; the connection
//   goes back dirty then, as from a coroutine that is destroyed in the middle of a query, and the pool cleans it.
// Threads: a connection is used by one coroutine at a time; on an executor of several threads that
//   coroutine runs on a strand.
// The end: an io_context that is destroyed takes its coroutines out of the line and gives their connections
//   back. The pool waits for the connections that are lent: destroy the io_context first, or run it.
#pragma once

#include <algorithm>
#include <boost/asio/async_result.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bulkhead/detail/kept_options.h"
#include "detail/watch.h"
#include "pool.h"

namespace bulkhead::postgres {

namespace detail {

// libpq's steps, so that its header need not be known here.
enum class Want : std::uint8_t { done, read, write, failed };
struct Connecting {
  Connecting() noexcept;
  Connecting(Connecting&&) noexcept;
  ~Connecting();
  std::unique_ptr<Connection::State> state;
  Want want = Want::write;
  Error error{};
};
Connecting begin(const ConnectionOptions& options);
void advance(Connecting& connecting);
Connection finish(Connecting& connecting);
// The rest of it, on a thread that may block.
Result<Connection, std::string> finish_blocking(Connecting& connecting, TimePoint deadline,
                                                const std::stop_token& stop);
int socket_of(const Connection::State& state) noexcept;
std::optional<Error> send(Connection& connection, const Query& query);
// The name of a statement that is prepared on this connection; empty: it is not.
std::string prepared_name(const Connection& connection, const std::string& sql);
std::string next_name(Connection& connection);
std::optional<Error> send_prepare(Connection& connection, const std::string& name, const std::string& sql);
void keep_prepared(Connection& connection, const std::string& sql, const std::string& name);
// Of a call of a prepared statement: the server may have lost it, by DISCARD or DEALLOCATE.
void look_at_prepared(Connection& connection, const std::string& sql, const Connection::Result& result);
std::optional<Connection::Result> take(Connection& connection);
bool wants_to_write(const Connection& connection) noexcept;
TimePoint deadline_of(const Connection& connection, TimePoint own) noexcept;
std::chrono::milliseconds cancel_grace(const Connection& connection) noexcept;
// Asks for the cancellation on a thread; later: whether it is over.
std::shared_ptr<void> begin_cancel(Connection& connection);
bool cancel_over(const std::shared_ptr<void>& cancelling);
Error interrupted_error();
Connection::Result cut_short(Connection& connection, Connection::Result result, bool answered,
                             bool cancel_done);

// Waits until it is connected or has failed (see Connecting::want); else returns why it stopped waiting.
inline boost::asio::awaitable<Waited> connect(Connecting& c, TimePoint until, std::stop_token stop) {
  const auto executor = co_await boost::asio::this_coro::executor;
  while (c.want == Want::read || c.want == Want::write) {
    // Libpq may take another socket at every step.
    Watch watch(executor, socket_of(*c.state), stop);
    const Waited waited = co_await watch.ready(c.want == Want::read, c.want == Want::write, until);
    if (waited != Waited::ready) co_return waited;
    advance(c);
  }
  co_return Waited::ready;
}

// At `give_up` it returns as if it was cancelled: it does not wait until the server has ended the query.
inline boost::asio::awaitable<Connection::Result> answer(Connection& connection, TimePoint deadline,
                                                         std::stop_token stop = {},
                                                         TimePoint give_up = no_deadline) {
  const auto executor = co_await boost::asio::this_coro::executor;
  Watch watch(executor, socket_of(connection.state()), stop);
  boost::asio::steady_timer pause(executor);
  deadline = deadline_of(connection, deadline);
  TimePoint limit = deadline, again = no_deadline;
  std::shared_ptr<void> cancelling;
  for (;;) {
    if (auto result = take(connection)) {
      if (!cancelling) co_return *std::move(result);
      // A cancellation that is still on its way must not hit the next query.
      while (!cancel_over(cancelling) && std::chrono::steady_clock::now() < limit) {
        pause.expires_after(std::chrono::milliseconds(1));
        co_await pause.async_wait(boost::asio::use_awaitable);
      }
      co_return cut_short(connection, *std::move(result), true, cancel_over(cancelling));
    }
    const bool write = wants_to_write(connection);
    const TimePoint until = std::min({limit, again, give_up});
    const Waited waited = co_await watch.ready(!write, write, until);
    if (waited == Waited::ready) continue;
    // The query continues at the server; the pool cancels it there when the connection comes back.
    const TimePoint now = std::chrono::steady_clock::now();
    if (waited == Waited::cancelled || now >= give_up)
      co_return Connection::Result(unexpect, interrupted_error());
    if (cancelling && now >= limit)
      co_return cut_short(connection, Connection::Result(unexpect), false, false);
    if (!cancelling) limit = saturating_add(now, cancel_grace(connection));
    // One that reaches the server before the query does has no effect, so it is asked for again.
    if (!cancelling || cancel_over(cancelling)) cancelling = begin_cancel(connection);
    again = now + std::chrono::milliseconds(50);
  }
}

inline boost::asio::awaitable<Connection::Result> query(Connection& connection, std::string sql,
                                                        std::vector<Value> values, TimePoint deadline,
                                                        std::stop_token stop = {},
                                                        TimePoint give_up = no_deadline) {
  if (auto error = send(connection, {.text = std::move(sql), .values = values}))
    co_return Connection::Result(unexpect, *std::move(error));
  co_return co_await answer(connection, deadline, std::move(stop), give_up);
}

inline boost::asio::awaitable<Connection::Result> prepared(Connection& connection, std::string sql,
                                                           std::vector<Value> values, TimePoint deadline) {
  std::string name = prepared_name(connection, sql);
  if (name.empty()) {
    name = next_name(connection);
    if (auto error = send_prepare(connection, name, sql))
      co_return Connection::Result(unexpect, *std::move(error));
    auto done = co_await answer(connection, deadline);
    if (!done) co_return done;
    keep_prepared(connection, sql, name);
  }
  if (auto error = send(connection, {.text = name, .values = values, .prepared = true}))
    co_return Connection::Result(unexpect, *std::move(error));
  auto result = co_await answer(connection, deadline);
  look_at_prepared(connection, sql, result);
  co_return result;
}

using ClaimResult = Result<Claim<Connection>, ResourceError>;

// No function object with members: GCC 11 and 12 would destroy it twice, see
// docs/how-to/coroutines-on-gcc-11-and-12.md.
struct ClaimInitiation {
  template <class Handler>
  void operator()(Handler handler, Pool* pool, AcquireOptions options,
                  const boost::asio::any_io_executor& executor) const {
    using Op = asio_detail::StoppedOperation<boost::asio::any_io_executor, std::tuple<ClaimResult>>;
    boost::intrusive_ptr<Op> op(new Op(options.stop));
    options.stop = op->token();
    pool->resources().async_claim(std::move(options), [op](ClaimResult claim) {
      op->answer(std::tuple<ClaimResult>(std::move(claim)));
    });
    Op::park(std::move(op), std::move(handler), executor);
  }
};

// In line, as an Asio operation: it leaves the line when it is cancelled or its io_context goes.
inline boost::asio::awaitable<ClaimResult> claim(Pool& pool, AcquireOptions options,
                                                 boost::asio::any_io_executor executor) {
  return boost::asio::async_initiate<const boost::asio::use_awaitable_t<>, void(ClaimResult)>(
      ClaimInitiation(), boost::asio::use_awaitable, &pool, std::move(options), std::move(executor));
}

// The limits of a caller: its own times, and its stop_token. Reaching one of them is no failure of the server.
struct Limits {
  TimePoint until = no_deadline, deadline = no_deadline;
  std::stop_token stop{};
  Reason reason(Waited waited) const noexcept {
    if (waited != Waited::timed_out) return Reason::cancelled;
    return until < deadline ? Reason::timeout : Reason::deadline;
  }
};

inline boost::asio::awaitable<ResourceResult<Connection>> open(Pool& pool, Claim<Connection> claim,
                                                               const Limits& limits) {
  const Opening opening = claim.opening();
  const bulkhead::detail::EitherStop either(limits.stop, opening.stop);
  Connecting c = begin(pool.connection_options());
  const Waited waited = co_await connect(c, std::min(limits.until, opening.deadline), either.token());
  if (waited == Waited::ready && c.want == Want::done) {
    Lease lease = std::move(claim).fill(finish(c));
    lease->set_deadline(limits.deadline);
    co_return ResourceResult<Connection>(std::move(lease));
  }
  if (waited == Waited::ready)
    co_return ResourceResult<Connection>(unexpect, std::move(claim).fail(c.error.message()));
  if (waited == Waited::timed_out && opening.deadline <= limits.until) {
    const Error late{.kind = Error::Kind::timed_out, .text = "while connecting"};
    co_return ResourceResult<Connection>(unexpect, std::move(claim).fail(late.message()));
  }
  const bool closed = opening.stop.stop_requested() && !limits.stop.stop_requested();
  const auto rest = std::make_shared<Connecting>(std::move(c));
  auto finish_it = [rest, deadline = opening.deadline](const Opening& o) {
    return finish_blocking(*rest, deadline, o.stop);
  };
  co_return ResourceResult<Connection>(
      unexpect, std::move(claim).open_elsewhere(std::move(finish_it),
                                                closed ? Reason::shutdown : limits.reason(waited)));
}

inline boost::asio::awaitable<ResourceResult<Connection>> acquire(
    Pool& pool, bulkhead::detail::KeptOptions<AcquireOptions> kept) {
  AcquireOptions& options = kept.options;
  const auto executor = co_await boost::asio::this_coro::executor;
  Limits limits{.deadline = options.deadline, .stop = options.stop};
  limits.until = std::min(options.deadline, pool.waits_until(options.timeout));
  for (;;) {
    ClaimResult claimed = co_await claim(pool, options, executor);
    if (!claimed) co_return ResourceResult<Connection>(unexpect, std::move(claimed).error());
    Claim<Connection> claim = *std::move(claimed);
    if (claim.vacant()) co_return co_await open(pool, std::move(claim), limits);
    if (claim.unchecked()) {
      const TimePoint patience = saturating_add(std::chrono::steady_clock::now(), pool.reset_timeout());
      (*claim).set_deadline(no_deadline);
      bool good = (*claim).good();
      if (good) {
        const Connection::Result answered =
            co_await query(*claim, "select 1", {}, patience, limits.stop, limits.until);
        good = answered.has_value();
        // The connection may be as good as ever. The claim gives it back, to be validated by the next.
        if (!good && answered.error().kind == Error::Kind::cancelled) {
          const bool late = std::chrono::steady_clock::now() >= limits.until;
          const Reason why = limits.reason(late ? Waited::timed_out : Waited::cancelled);
          co_return ResourceResult<Connection>(unexpect, pool.rejection(options.priority, why));
        }
      }
      if (!good) {
        std::move(claim).discard();
        if (limits.until != no_deadline)  // back in line, for the rest of its time
          options.timeout =
              std::max(limits.until - std::chrono::steady_clock::now(), std::chrono::nanoseconds(0));
        continue;
      }
    }
    Lease lease = std::move(claim).lease();
    lease->set_deadline(limits.deadline);
    co_return ResourceResult<Connection>(std::move(lease));
  }
}

}  // namespace detail

// A statement with parameters, which are copied; until the deadline that came with the connection.
template <class... Values>
boost::asio::awaitable<Connection::Result> async_query(Connection& connection, std::string sql,
                                                       const Values&... values) {
  return detail::query(connection, std::move(sql), std::vector<Value>{Value(values)...}, no_deadline);
}
template <class... Values>
boost::asio::awaitable<Connection::Result> async_query_until(Connection& connection, TimePoint deadline,
                                                             std::string sql, const Values&... values) {
  return detail::query(connection, std::move(sql), std::vector<Value>{Value(values)...}, deadline);
}
// The same, prepared when it is first used on this connection.
template <class... Values>
boost::asio::awaitable<Connection::Result> async_prepared(Connection& connection, std::string sql,
                                                          const Values&... values) {
  return detail::prepared(connection, std::move(sql), std::vector<Value>{Value(values)...}, no_deadline);
}

// In line with the callers of every other form. Opens and validates on this executor. options.timeout bounds the
// wait in line, for a validation and for the connection to be opened together; when it or the deadline comes, or the
// call is cancelled, while a connection is being opened, a thread of the pool opens it to the end and keeps it for the
// next caller. Only what the server does, or does not do within connect_timeout, counts as a failure.
inline boost::asio::awaitable<ResourceResult<Connection>> async_acquire(Pool& pool,
                                                                        AcquireOptions options = {}) {
  return detail::acquire(pool, bulkhead::detail::KeptOptions(std::move(options)));
}

}  // namespace bulkhead::postgres
