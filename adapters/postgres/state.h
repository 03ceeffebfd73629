// state.h - the inside of a Connection, for its blocking and its asynchronous form.
#pragma once

#include <libpq-fe.h>

#include <future>
#include <optional>
#include <string>
#include <unordered_map>

#include "connection.h"

namespace bulkhead::postgres {

struct Connection::State {
  State(PGconn* c, const ConnectionOptions& o) : connection(c), options(o) {}
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State();

  PGconn* connection;
  const ConnectionOptions options;
  TimePoint deadline = no_deadline;  // of calls that give none
  // Something was run since it was lent: DISCARD ALL has something to do.
  bool used = false;
  bool broken = false;
  int backend = 0;           // the server's process, known once it is connected, and even when it is lost
  bool dismissed = false;    // the server itself has ended the session, and said so
  bool wait_for_end = true;  // close() waits until the server's process has ended
  std::unordered_map<std::string, std::string> names;  // of prepared statements, by their text
  std::uint64_t names_given = 0;

  // Never the same twice: the server may have prepared a statement whose caller did not wait for the answer.
  std::string next_name() { return "bulkhead_" + std::to_string(names_given++); }
  // A statement that the server does not know any more (DISCARD, DEALLOCATE) is prepared anew by the next call.
  void look_at_prepared(const std::string& sql, const Connection::Result& result) {
    if (!result && result.error().is("26000")) names.erase(sql);
  }
  std::optional<Error> unusable() const;  // why nothing can be sent, if an earlier call broke the connection
  // Sends without waiting for the answer; an Error if not even that works.
  std::optional<Error> send(const Query& query);
  std::optional<Error> send_prepare(const std::string& name, const std::string& sql);
  std::optional<Error> send_simple(const std::string& sql);
  // Takes what has come in. Nothing: more is to come. The last result counts, or the first error.
  std::optional<Connection::Result> take();
  Error broke(std::string_view otherwise);
  void await_end() const noexcept;

  std::optional<Rows> last;
  std::optional<Error> failed;
};

// Starts to connect, without blocking. Null state: not even that was possible.
Result<std::unique_ptr<Connection::State>, Error> begin_connect(const ConnectionOptions& options);
// Blocks until it is connected, from the step that libpq is at.
Result<Connection, Error> finish_connect(std::unique_ptr<Connection::State> state,
                                         PostgresPollingStatusType next, TimePoint deadline,
                                         const std::stop_token& stop);
Error error_of(const PGresult* result);

// Asks the server to cancel what runs on a connection. Blocks for a round trip.
class Canceller {
 public:
  explicit Canceller(PGconn* connection) : cancel_(PQgetCancel(connection)) {}
  ~Canceller() { PQfreeCancel(cancel_); }
  Canceller(const Canceller&) = delete;
  Canceller& operator=(const Canceller&) = delete;
  bool operator()() const noexcept {
    char why[256];
    return cancel_ && PQcancel(cancel_, why, sizeof why) == 1;
  }

 private:
  PGcancel* cancel_;
};

// The same on a thread of its own.
class Cancelling {
 public:
  explicit Cancelling(PGconn* connection);
  bool over(TimePoint deadline) const;  // waits for it

 private:
  std::future<void> done_;
};

// A cancellation that reaches the server before the query does has no effect, so it is asked for again.
inline constexpr std::chrono::milliseconds kCancelAgain{50};

// The error of a call that was interrupted.
Error interrupted(Error::Kind why, const std::optional<Error>& said);

}  // namespace bulkhead::postgres
