// async.h - PostgreSQL connections on an Asio event loop: connecting, querying and waiting without a
// thread.
//
//   boost::asio::awaitable<void> handle(postgres::Pool& checkout) {
//     auto db = co_await postgres::async_acquire(checkout, {.timeout = 50ms, .deadline = in_200_ms});
//     if (!db) co_return refuse(db.error());
//     auto rows = co_await postgres::async_query(**db, "select name from items where id = $1", 42);
//     ...                                                       // the connection goes back here, on every path
//   }
//
// The coroutine's executor does everything: it connects (PQconnectPoll), validates, sends and waits for
// the socket. The deadline of the acquire goes with the connection, as in the blocking form; when it
// comes, the query is cancelled. Only that, and cleaning a connection that comes back dirty, is done on
// a thread of the pool. Looking up a host's name blocks, as libpq has it: give hostaddr where that
// matters.
// A coroutine that is destroyed in the middle of a query gives the connection back dirty, and the pool
// cleans it.
// Threads: a connection is used by one coroutine at a time; on an executor of several threads that
//   coroutine runs on a strand. The pool outlives its callers.
#pragma once

#include <boost/asio/async_result.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

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
Connection finish(Connecting connecting);
int socket_of(const Connection::State& state) noexcept;
std::optional<Error> send(Connection& connection, const Query& query);
std::optional<Error> send_prepare(Connection& connection, const std::string& sql, std::string& name);
std::optional<Connection::Result> take(Connection& connection);
bool wants_to_write(const Connection& connection) noexcept;
TimePoint deadline_of(const Connection& connection, TimePoint own) noexcept;
std::chrono::milliseconds cancel_grace(const Connection& connection) noexcept;
// Asks for the cancellation on a thread; later: whether it is over.
std::shared_ptr<void> begin_cancel(Connection& connection);
bool cancel_over(const std::shared_ptr<void>& cancelling);
Connection::Result cut_short(Connection& connection, Connection::Result result, bool answered,
                             bool cancel_done);

// A socket of libpq's on the event loop. It stays libpq's.
class Watch {
 public:
  Watch(const boost::asio::any_io_executor& executor, int socket)
      : shared_(std::make_shared<Shared>(executor, socket)), timer_(executor) {}
  ~Watch() { shared_->descriptor.release(); }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  // False: the deadline came first.
  boost::asio::awaitable<bool> ready(bool read, bool write, TimePoint deadline) {
    using Wait = boost::asio::posix::descriptor_base;
    const std::uint64_t wait = ++shared_->waits;
    if (deadline != no_deadline) {
      timer_.expires_at(deadline);
      // It may be called, though cancelled, when this wait is over, or the Watch gone.
      timer_.async_wait([shared = shared_, wait](boost::system::error_code e) {
        boost::system::error_code ignored;
        if (!e && shared->waits == wait) shared->descriptor.cancel(ignored);
      });
    }
    boost::system::error_code error;
    const auto what = write && !read ? Wait::wait_write : Wait::wait_read;
    co_await shared_->descriptor.async_wait(what,
                                            boost::asio::redirect_error(boost::asio::use_awaitable, error));
    ++shared_->waits;
    if (deadline != no_deadline) timer_.cancel();
    co_return error != boost::asio::error::operation_aborted;
  }

 private:
  struct Shared {
    Shared(const boost::asio::any_io_executor& executor, int socket) : descriptor(executor, socket) {}
    boost::asio::posix::stream_descriptor descriptor;
    std::uint64_t waits = 0;
  };
  std::shared_ptr<Shared> shared_;
  boost::asio::steady_timer timer_;
};

inline boost::asio::awaitable<std::expected<Connection, Error>> open(const ConnectionOptions& options,
                                                                     TimePoint deadline) {
  const auto executor = co_await boost::asio::this_coro::executor;
  Connecting c = begin(options);
  while (c.want == Want::read || c.want == Want::write) {
    Watch watch(executor, socket_of(*c.state));  // libpq may take another socket at every step
    if (!co_await watch.ready(c.want == Want::read, c.want == Want::write, deadline))
      co_return std::unexpected(Error{.kind = Error::Kind::timed_out, .text = "while connecting"});
    advance(c);
  }
  if (c.want == Want::failed) co_return std::unexpected(std::move(c.error));
  co_return finish(std::move(c));
}

inline boost::asio::awaitable<Connection::Result> answer(Connection& connection, TimePoint deadline) {
  const auto executor = co_await boost::asio::this_coro::executor;
  Watch watch(executor, socket_of(connection.state()));
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
    if (co_await watch.ready(!write, write, std::min(limit, again))) continue;
    const TimePoint now = std::chrono::steady_clock::now();
    if (cancelling && now >= limit)
      co_return cut_short(connection, Connection::Result(std::unexpect), false, false);
    if (!cancelling) limit = now + cancel_grace(connection);
    // One that reaches the server before the query does has no effect, so it is asked for again.
    if (!cancelling || cancel_over(cancelling)) cancelling = begin_cancel(connection);
    again = now + std::chrono::milliseconds(50);
  }
}

}  // namespace detail

namespace detail {

inline boost::asio::awaitable<Connection::Result> query(Connection& connection, std::string sql,
                                                        std::vector<Value> values, TimePoint deadline) {
  if (auto error = send(connection, {.text = std::move(sql), .values = values}))
    co_return Connection::Result(std::unexpect, *std::move(error));
  co_return co_await answer(connection, deadline);
}

inline boost::asio::awaitable<Connection::Result> prepared(Connection& connection, std::string sql,
                                                           std::vector<Value> values, TimePoint deadline) {
  std::string name;
  if (auto error = send_prepare(connection, sql, name))
    co_return Connection::Result(std::unexpect, *std::move(error));
  if (name.empty()) {  // it was sent: wait until it is prepared, then ask for its name again
    auto done = co_await answer(connection, deadline);
    if (!done) co_return done;
    if (auto error = send_prepare(connection, sql, name))
      co_return Connection::Result(std::unexpect, *std::move(error));
  }
  if (auto error = send(connection, {.text = name, .values = values, .prepared = true}))
    co_return Connection::Result(std::unexpect, *std::move(error));
  co_return co_await answer(connection, deadline);
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

// In line with the callers of every other form. Opens and validates on this executor.
inline boost::asio::awaitable<ResourceResult<Connection>> async_acquire(Pool& pool,
                                                                        AcquireOptions options = {}) {
  using Answer = std::expected<Claim<Connection>, ResourceError>;
  const auto executor = co_await boost::asio::this_coro::executor;
  const TimePoint deadline = options.deadline;
  for (;;) {
    std::shared_ptr<std::optional<Answer>> got =
        co_await boost::asio::async_initiate<const boost::asio::use_awaitable_t<>,
                                             void(std::shared_ptr<std::optional<Answer>>)>(
            [&pool, executor](auto handler, AcquireOptions asked) {
              pool.resources().async_claim(std::move(asked), [executor, handler = std::move(handler)](
                                                                 Answer answer) mutable {
                auto box = std::make_shared<std::optional<Answer>>(std::move(answer));
                boost::asio::post(executor, [handler = std::move(handler), box = std::move(box)]() mutable {
                  std::move(handler)(std::move(box));
                });
              });
            },
            boost::asio::use_awaitable, options);
    Answer answer = std::move(**got);
    if (!answer) co_return ResourceResult<Connection>(std::unexpect, std::move(answer).error());
    Claim<Connection> claim = *std::move(answer);
    if (claim.vacant()) {
      const Opening opening = claim.opening();
      auto opened = co_await detail::open(pool.connection_options(), std::min(opening.deadline, deadline));
      if (!opened)
        co_return ResourceResult<Connection>(std::unexpect, std::move(claim).fail(opened.error().message()));
      Lease lease = std::move(claim).fill(*std::move(opened));
      lease->set_deadline(deadline);
      co_return ResourceResult<Connection>(std::move(lease));
    }
    if (claim.unchecked()) {
      const TimePoint until = std::min(deadline, std::chrono::steady_clock::now() + pool.reset_timeout());
      (*claim).set_deadline(no_deadline);
      if (!(*claim).good() || !co_await async_query_until(*claim, until, "select 1")) {
        std::move(claim).discard();
        continue;
      }
    }
    Lease lease = std::move(claim).lease();
    lease->set_deadline(deadline);
    co_return ResourceResult<Connection>(std::move(lease));
  }
}

}  // namespace bulkhead::postgres
