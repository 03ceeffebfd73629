// connection.h - one connection to a PostgreSQL server, on libpq: queries with parameters, prepared
// statements, deadlines.
//
//   auto connection = bulkhead::postgres::Connection::open(                         // bulkhead::Result<Connection, Error>
//       {.conninfo = "host=db dbname=shop", .application_name = "checkout"}, deadline);
//   auto rows = connection->query("select name from items where id = $1", {42});    // bulkhead::Result<Rows, Error>
//   if (!rows) log(rows.error().message());       // ERROR 42P01: relation "items" does not exist
//   else for (auto row : *rows) print(row[0]);
//
// The deadline of a call becomes its statement timeout: when it comes, the server is asked to cancel the
// query (PQcancel, on a connection of its own) and the call returns with Error::timed_out(). That costs
// nothing before: no round trip per query, as `set statement_timeout` would. If the server does not
// answer the cancellation either, or the system has no thread to send it, the call gives up after
// Options::cancel_grace and the connection is broken.
// Threads: one at a time, like a file. cancel() may be called from any thread while a query runs.
// Cost: a query is one round trip (a statement that is prepared for the first time: two).
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bulkhead/clock.h"
#include "bulkhead/result.h"

struct pg_conn;
struct pg_result;

namespace bulkhead::postgres {

// What becomes of the session when a connection goes back to its pool.
enum class Reset : std::uint8_t {
  none,      // nothing, not even of an open transaction: for callers that leave it clean themselves
  rollback,  // an open transaction is rolled back, a running query is cancelled
  discard_all,  // the same, then DISCARD ALL: settings, prepared statements, temporary tables, locks; a round trip each time
};

struct Tls {
  std::string
      // Libpq's sslmode: disable, allow, prefer, require, verify-ca, verify-full; empty: as in conninfo.
      mode{};
  std::string root_certificate{}, certificate{}, key{};  // files
};

struct ConnectionOptions {
  std::string conninfo{};  // libpq's: "host=db dbname=shop" or postgresql://...
  std::string application_name{};
  // Of the session, set with the connection itself; 0: as the server has it.
  std::chrono::milliseconds statement_timeout{0}, lock_timeout{0}, idle_in_transaction_session_timeout{0};
  // How often the server looks whether the client is still there while it works for it; 0: never. Needs
  // PostgreSQL 14.
  std::chrono::milliseconds client_connection_check_interval{1000};
  Tls tls{};
  Reset reset = Reset::rollback;
  std::chrono::milliseconds cancel_grace{1000};  // how long a cancelled query may take to end
  std::chrono::milliseconds close_grace{1000};   // how long close() waits for the server's side to end
  // A connection that was cut, by a proxy or the network, may leave its process on the server behind: an idle one notices
  // at once, one at work after client_connection_check_interval. close() then asks the server, on a connection of its
  // own, until that process is gone, for so long at most; a server that cannot be asked is not waited for. 0: does not ask.
  std::chrono::milliseconds lost_grace{2000};
  // After so long without an answer to what was sent, or to probes of an idle connection, both ends give the other up (TCP
  // keepalive and tcp_user_timeout); 0: as the systems have it, which may be hours. In whole seconds.
  std::chrono::milliseconds dead_peer_timeout{15'000};
};

struct Error {
  enum class Kind : std::uint8_t {
    server,      // an error of the server: see sqlstate
    timed_out,   // the deadline came, and the query was cancelled
    cancelled,   // its stop_token fired, or cancel()
    connection,  // the connection is broken
    invalid,     // the call itself is wrong, and nothing was sent: a NUL byte in the statement or in a value
  };
  Kind kind{};
  std::string sqlstate{};  // five characters, such as 23505; empty unless the server spoke
  std::string severity{}, text{}, detail{}, hint{};

  bool timed_out() const noexcept { return kind == Kind::timed_out; }
  bool is(std::string_view state) const noexcept { return sqlstate == state; }
  std::string message() const;
};

// One parameter, as text, or null. PostgreSQL's text holds no NUL byte: a query with one is Error::Kind::invalid.
class Value {
 public:
  Value(std::nullptr_t) {}
  Value(std::nullopt_t) {}
  Value(const char* text) : text_(text) {}
  Value(std::string_view text) : text_(text) {}
  Value(std::string text) : text_(std::move(text)) {}
  Value(bool truth) : text_(truth ? "t" : "f") {}
  template <class N>
    requires(std::integral<N> && !std::same_as<N, bool>)
  Value(N number) : text_(std::to_string(number)) {}
  Value(double number);
  const char* c_str() const noexcept { return text_ ? text_->c_str() : nullptr; }
  std::string_view text() const noexcept { return text_ ? std::string_view(*text_) : std::string_view(); }

 private:
  std::optional<std::string> text_;
};

class Rows;

// A view of one row; its Rows must live.
class Row {
 public:
  std::string_view operator[](std::size_t column) const noexcept;       // a null is empty
  std::string_view operator[](std::string_view column) const noexcept;  // no such column: empty
  bool null(std::size_t column) const noexcept;
  std::int64_t integer(std::size_t column) const noexcept;  // 0 if it is none
  double number(std::size_t column) const noexcept;

 private:
  friend class Rows;
  Row(const pg_result* result, int row) : result_(result), row_(row) {}
  const pg_result* result_;
  int row_;
};

class Rows {
 public:
  explicit Rows(pg_result* result) noexcept;
  std::size_t size() const noexcept;
  bool empty() const noexcept { return size() == 0; }
  std::size_t columns() const noexcept;
  std::string_view column(std::size_t i) const noexcept;  // its name
  std::uint64_t affected() const noexcept;                // by insert, update, delete
  Row operator[](std::size_t row) const noexcept { return {result_.get(), static_cast<int>(row)}; }

  class Iterator {
   public:
    Iterator(const Rows& rows, std::size_t at) : rows_(&rows), at_(at) {}
    Row operator*() const { return (*rows_)[at_]; }
    Iterator& operator++() { return ++at_, *this; }
    bool operator==(const Iterator& other) const { return at_ == other.at_; }

   private:
    const Rows* rows_;
    std::size_t at_;
  };
  Iterator begin() const { return {*this, 0}; }
  Iterator end() const { return {*this, size()}; }

 private:
  struct Clear {
    void operator()(pg_result* result) const noexcept;
  };
  std::unique_ptr<pg_result, Clear> result_;
};

// One statement, ready to be sent.
struct Query {
  std::string text;  // one statement, with $1, $2 ... ; or the name of a prepared one
  std::span<const Value> values{};
  bool prepared = false;
};

class Connection {
 public:
  using Result = bulkhead::Result<Rows, Error>;

  static bulkhead::Result<Connection, Error> open(const ConnectionOptions& options,
                                                  TimePoint deadline = no_deadline,
                                                  std::stop_token stop = {});
  Connection(Connection&&) noexcept;
  Connection& operator=(Connection&&) noexcept;
  ~Connection();  // close()

  // One statement with parameters. With a deadline: see above.
  Result query(const std::string& sql, std::initializer_list<Value> values = {},
               TimePoint deadline = no_deadline, const std::stop_token& stop = {}) {
    return query(sql, std::span<const Value>(values.begin(), values.size()), deadline, stop);
  }
  Result query(const std::string& sql, std::span<const Value> values, TimePoint deadline = no_deadline,
               const std::stop_token& stop = {});
  // The same, prepared under its own text when it is first used on this connection.
  Result prepared(const std::string& sql, std::initializer_list<Value> values = {},
                  TimePoint deadline = no_deadline, const std::stop_token& stop = {});
  // Several statements without parameters, separated by semicolons; the last one's rows.
  Result run(const std::string& sql, TimePoint deadline = no_deadline, const std::stop_token& stop = {});

  // For calls that give none of their own.
  void set_deadline(TimePoint deadline) noexcept;

  bool good() const noexcept;                    // as far as is known without asking
  bool ping(std::chrono::nanoseconds timeout);   // asks: one round trip
  bool in_transaction() const noexcept;          // or a query is running
  bool clean() const noexcept;                   // nothing to do before the next caller uses it, by Reset
  bool reset(std::chrono::nanoseconds timeout);  // makes it so; false: it is broken
  bool cancel() const noexcept;                  // from any thread: asks the server to cancel what runs
  // Says good-bye and waits (close_grace, lost_grace) until the server's process for it has ended, so that it no
  // longer counts there.
  void close() noexcept;
  int backend_pid() const noexcept;

  // For event loops: see async.h.
  pg_conn* native() const noexcept;
  struct State;
  explicit Connection(std::unique_ptr<State> state) noexcept;
  State& state() const noexcept { return *state_; }

 private:
  Result wait(TimePoint deadline, const std::stop_token& stop);
  std::unique_ptr<State> state_;
};

// The parameters for libpq.
std::vector<std::pair<std::string, std::string>> connect_parameters(const ConnectionOptions& options);

}  // namespace bulkhead::postgres
