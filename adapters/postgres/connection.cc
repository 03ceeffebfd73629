#include "connection.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <future>
#include <mutex>
#include <system_error>
#include <thread>

#include "state.h"

namespace bulkhead::postgres {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

TimePoint now() { return std::chrono::steady_clock::now(); }

// For poll(): rounded up, so that it does not spin through the last millisecond; -1: for ever.
int until(TimePoint deadline) {
  if (deadline == no_deadline) return -1;
  const auto left = std::chrono::ceil<milliseconds>(deadline - now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 1'000'000));
}

// True: something can be read or written, or the other side is gone.
bool ready(int socket, short events, TimePoint deadline) {
  pollfd p{socket, events, 0};
  return poll(&p, 1, until(deadline)) > 0;
}

std::string field(const PGresult* result, int code) {
  const char* text = PQresultErrorField(result, code);
  return text ? text : "";
}

std::string trimmed(const char* text) {
  std::string s = text ? text : "";
  while (!s.empty() && (s.back() == '\n' || s.back() == ' ')) s.pop_back();
  return s;
}

Error connection_error(std::string text) {
  return {.kind = Error::Kind::connection, .text = std::move(text)};
}

}  // namespace

// ---- errors, values, rows ----

std::string Error::message() const {
  std::string s = severity.empty() ? "" : severity + " ";
  if (!sqlstate.empty()) s += sqlstate + ": ";
  s += text;
  if (kind == Kind::timed_out) s = "timed out: " + s;
  if (!detail.empty()) s += " (" + detail + ")";
  if (!hint.empty()) s += " Hint: " + hint;
  return s;
}

Error error_of(const PGresult* result) {
  return {.kind = Error::Kind::server,
          .sqlstate = field(result, PG_DIAG_SQLSTATE),
          .severity = field(result, PG_DIAG_SEVERITY_NONLOCALIZED),
          .text = field(result, PG_DIAG_MESSAGE_PRIMARY),
          .detail = field(result, PG_DIAG_MESSAGE_DETAIL),
          .hint = field(result, PG_DIAG_MESSAGE_HINT)};
}

Value::Value(double number) {
  char buffer[32];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, number).ptr;
  text_.emplace(buffer, end);
}

std::string_view Row::operator[](std::size_t column) const noexcept {
  const int c = static_cast<int>(column);
  return {PQgetvalue(result_, row_, c), static_cast<std::size_t>(PQgetlength(result_, row_, c))};
}
std::string_view Row::operator[](std::string_view column) const noexcept {
  for (int c = 0; c < PQnfields(result_); ++c)
    if (column == PQfname(result_, c)) return (*this)[static_cast<std::size_t>(c)];
  return {};
}
bool Row::null(std::size_t column) const noexcept {
  return PQgetisnull(result_, row_, static_cast<int>(column)) == 1;
}
std::int64_t Row::integer(std::size_t column) const noexcept {
  const std::string_view text = (*this)[column];
  std::int64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}
double Row::number(std::size_t column) const noexcept {
  const std::string_view text = (*this)[column];
  double value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

Rows::Rows(pg_result* result) noexcept : result_(result) {}
void Rows::Clear::operator()(pg_result* result) const noexcept { PQclear(result); }
std::size_t Rows::size() const noexcept { return static_cast<std::size_t>(PQntuples(result_.get())); }
std::size_t Rows::columns() const noexcept { return static_cast<std::size_t>(PQnfields(result_.get())); }
std::string_view Rows::column(std::size_t i) const noexcept {
  return PQfname(result_.get(), static_cast<int>(i));
}
std::uint64_t Rows::affected() const noexcept {
  return std::strtoull(PQcmdTuples(result_.get()), nullptr, 10);
}

// ---- connecting ----

std::vector<std::pair<std::string, std::string>> connect_parameters(const ConnectionOptions& o) {
  std::vector<std::pair<std::string, std::string>> p;
  if (!o.conninfo.empty())
    p.emplace_back("dbname", o.conninfo);  // libpq expands it, and what follows overrides it
  std::string options;
  if (PQconninfoOption* parsed = PQconninfoParse(o.conninfo.c_str(), nullptr)) {
    for (const PQconninfoOption* each = parsed; each->keyword; ++each)
      if (each->val && std::string_view(each->keyword) == "options") options = each->val;
    PQconninfoFree(parsed);
  }
  const auto set = [&](std::string_view name, milliseconds value) {
    if (value > milliseconds(0))
      options += (options.empty() ? "-c " : " -c ") + std::string(name) + "=" + std::to_string(value.count());
  };
  set("statement_timeout", o.statement_timeout);
  set("lock_timeout", o.lock_timeout);
  set("idle_in_transaction_session_timeout", o.idle_in_transaction_session_timeout);
  set("client_connection_check_interval", o.client_connection_check_interval);
  const auto add = [&](const char* key, const std::string& value) {
    if (!value.empty()) p.emplace_back(key, value);
  };
  if (const auto limit = std::chrono::ceil<std::chrono::seconds>(o.dead_peer_timeout).count(); limit > 0) {
    // Silent for half of the time, then probed three times in the rest of it.
    const std::string idle = std::to_string(std::max<std::int64_t>(limit / 2, 1));
    const std::string interval = std::to_string(std::max<std::int64_t>(limit / 6, 1));
    const std::string all = std::to_string(limit * 1000);
    options += (options.empty() ? "-c" : " -c") + (" tcp_keepalives_idle=" + idle) +
               " -c tcp_keepalives_interval=" + interval +
               " -c tcp_keepalives_count=3 -c tcp_user_timeout=" + all;
    add("keepalives_idle", idle);
    add("keepalives_interval", interval);
    add("keepalives_count", "3");
    add("tcp_user_timeout", all);
  }
  add("options", options);
  add("application_name", o.application_name);
  add("sslmode", o.tls.mode);
  add("sslrootcert", o.tls.root_certificate);
  add("sslcert", o.tls.certificate);
  add("sslkey", o.tls.key);
  return p;
}

Result<std::unique_ptr<Connection::State>, Error> begin_connect(const ConnectionOptions& options) {
  const auto parameters = connect_parameters(options);
  std::vector<const char*> keys, values;
  for (const auto& [key, value] : parameters) {
    keys.push_back(key.c_str());
    values.push_back(value.c_str());
  }
  keys.push_back(nullptr);
  values.push_back(nullptr);
  auto state =
      std::make_unique<Connection::State>(PQconnectStartParams(keys.data(), values.data(), 1), options);
  if (!state->connection) return Unexpected(connection_error("out of memory"));
  // Notices are for people at a terminal; libpq would print them.
  PQsetNoticeReceiver(state->connection, [](void*, const PGresult*) {}, nullptr);
  if (PQstatus(state->connection) == CONNECTION_BAD)
    return Unexpected(connection_error(trimmed(PQerrorMessage(state->connection))));
  return state;
}

Result<Connection, Error> Connection::open(const ConnectionOptions& options, TimePoint deadline,
                                           std::stop_token stop) {
  auto state = begin_connect(options);
  if (!state) return Unexpected(std::move(state).error());
  return finish_connect(*std::move(state), PGRES_POLLING_WRITING, deadline, stop);
}

Result<Connection, Error> finish_connect(std::unique_ptr<Connection::State> state,
                                         PostgresPollingStatusType next, TimePoint deadline,
                                         const std::stop_token& stop) {
  PGconn* c = state->connection;
  for (;;) {
    if (next == PGRES_POLLING_FAILED) return Unexpected(connection_error(trimmed(PQerrorMessage(c))));
    if (next == PGRES_POLLING_OK) break;
    // In slices, to notice a stop.
    const TimePoint slice = stop.stop_possible() ? std::min(deadline, now() + milliseconds(50)) : deadline;
    const bool come = ready(PQsocket(c), next == PGRES_POLLING_READING ? POLLIN : POLLOUT, slice);
    if (stop.stop_requested())
      return Unexpected(Error{.kind = Error::Kind::cancelled, .text = "while connecting"});
    if (come)
      next = PQconnectPoll(c);
    else if (now() >= deadline)
      return Unexpected(Error{.kind = Error::Kind::timed_out, .text = "while connecting"});
  }
  PQsetnonblocking(c, 1);
  return Connection(std::move(state));
}

Connection::Connection(std::unique_ptr<State> state) noexcept : state_(std::move(state)) {
  state_->backend = PQbackendPID(state_->connection);
}
Connection::Connection(Connection&&) noexcept = default;
Connection& Connection::operator=(Connection&&) noexcept = default;
Connection::~Connection() = default;

void Connection::close() noexcept { state_.reset(); }

// A backend closes its socket only by ending, so reading to the end of a copy of it tells when that has
// happened.
Connection::State::~State() {
  if (!connection) return;
  const bool lost = PQstatus(connection) == CONNECTION_BAD && !dismissed && backend != 0;
  const int socket = PQsocket(connection);
  const int copy = wait_for_end && socket >= 0 && options.close_grace > milliseconds(0)
                       ? fcntl(socket, F_DUPFD_CLOEXEC, 0)
                       : -1;
  last.reset();
  PQfinish(connection);
  if (lost && options.lost_grace > milliseconds(0)) await_end();
  if (copy < 0) return;
  shutdown(copy, SHUT_WR);
  const TimePoint until_then = saturating_add(now(), options.close_grace);
  char rest[4096];
  while (ready(copy, POLLIN, until_then) && recv(copy, rest, sizeof rest, MSG_DONTWAIT) > 0) {
  }
  ::close(copy);
}

// One at a time in the whole program, so that a cut which hits many connections does not make as many more.
void Connection::State::await_end() const noexcept {
  static std::timed_mutex asking;  // protects no member, so Clang has nothing to check
  const TimePoint limit = saturating_add(now(), options.lost_grace);
  const std::unique_lock turn(asking, limit);
  if (!turn) return;
  ConnectionOptions own = options;
  own.application_name = "bulkhead: what is left of " + options.application_name;
  own.lost_grace = milliseconds(0);
  for (int rejections = 0; rejections < 2 && now() < limit;
       ++rejections) {  // whatever cut this one may cut the next
    auto onlooker = Connection::open(own, limit);
    while (onlooker && now() < limit) {
      const auto rows = onlooker->query("select 1 from pg_stat_activity where pid = $1", {backend}, limit);
      if (rows && rows->empty()) return;
      rejections = -1;
      if (!rows) break;
      std::this_thread::sleep_for(milliseconds(5));
    }
  }  // twice in a row: no client can connect now
}

// ---- sending and receiving ----

Error Connection::State::broke(std::string_view otherwise) {
  broken = true;
  std::string text = trimmed(PQerrorMessage(connection));
  return connection_error(text.empty() ? std::string(otherwise) : std::move(text));
}

namespace {

// Libpq takes texts that end with a NUL byte, so it would cut these, and run something else.
std::optional<Error> reject_nul(std::string_view text, const std::string& what) {
  if (text.find('\0') == text.npos) return std::nullopt;
  return Error{.kind = Error::Kind::invalid,
               .text = what +
                       " contains a NUL byte, which PostgreSQL's text cannot hold; give bytes as bytea "
                       "in hexadecimal, such as '\\x00ff'"};
}

}  // namespace

// Libpq would say that another command is in progress, which tells the caller of this one nothing.
std::optional<Error> Connection::State::unusable() const {
  if (!broken || PQstatus(connection) == CONNECTION_BAD) return std::nullopt;
  return connection_error(
      "an earlier query on this connection ended before the server had answered it; release the connection "
      "and acquire another");
}

// Everything that can be wrong is checked before the first byte is sent, so that the connection stays usable.
std::optional<Error> Connection::State::send(const Query& query) {
  if (auto error = unusable()) return error;
  if (auto error = reject_nul(query.text, "the statement")) return error;
  for (std::size_t i = 0; i < query.values.size(); ++i)
    if (auto error = reject_nul(query.values[i].text(), "value $" + std::to_string(i + 1))) return error;
  used = true;
  std::vector<const char*> texts;
  texts.reserve(query.values.size());
  for (const Value& value : query.values) texts.push_back(value.c_str());
  const int n = static_cast<int>(texts.size());
  const int sent =
      query.prepared
          ? PQsendQueryPrepared(connection, query.text.c_str(), n, texts.data(), nullptr, nullptr, 0)
          : PQsendQueryParams(connection, query.text.c_str(), n, nullptr, texts.data(), nullptr, nullptr, 0);
  if (sent != 1 || PQflush(connection) < 0) return broke("cannot send");
  return std::nullopt;
}

std::optional<Error> Connection::State::send_prepare(const std::string& name, const std::string& sql) {
  if (auto error = unusable()) return error;
  if (auto error = reject_nul(sql, "the statement")) return error;
  used = true;
  if (PQsendPrepare(connection, name.c_str(), sql.c_str(), 0, nullptr) != 1 || PQflush(connection) < 0)
    return broke("cannot send");
  return std::nullopt;
}

std::optional<Error> Connection::State::send_simple(const std::string& sql) {
  if (auto error = unusable()) return error;
  if (auto error = reject_nul(sql, "the statement")) return error;
  used = true;
  if (PQsendQuery(connection, sql.c_str()) != 1 || PQflush(connection) < 0) return broke("cannot send");
  return std::nullopt;
}

std::optional<Connection::Result> Connection::State::take() {
  if (PQflush(connection) < 0 || PQconsumeInput(connection) != 1)
    return Connection::Result(unexpect, broke("the connection is gone"));
  while (PQisBusy(connection) == 0) {
    PGresult* result = PQgetResult(connection);
    if (!result) {
      std::optional<Rows> rows = std::exchange(last, std::nullopt);
      std::optional<Error> error = std::exchange(failed, std::nullopt);
      if (error && PQstatus(connection) == CONNECTION_BAD) {
        broken = true;
        dismissed = !error->sqlstate.empty();
        if (error->kind == Error::Kind::server && error->sqlstate.empty())
          error->kind = Error::Kind::connection;
      }
      if (error) return Connection::Result(unexpect, *std::move(error));
      if (rows) return Connection::Result(*std::move(rows));
      return Connection::Result(unexpect, broke("no answer"));
    }
    Rows rows(result);
    switch (PQresultStatus(result)) {
      case PGRES_COMMAND_OK:
      case PGRES_TUPLES_OK:
      case PGRES_EMPTY_QUERY:
        last.emplace(std::move(rows));
        break;
      case PGRES_COPY_IN:
      case PGRES_COPY_OUT:
      case PGRES_COPY_BOTH:
        broken = true;  // in the middle of a copy there is no way back but to close
        return Connection::Result(unexpect,
                                  Error{.kind = Error::Kind::connection, .text = "COPY is not supported"});
      default:
        if (!failed) failed = error_of(result);
        if (failed->text.empty()) failed->text = trimmed(PQresultErrorMessage(result));
    }
  }
  return std::nullopt;
}

Cancelling::Cancelling(PGconn* connection) {
  std::promise<void> promise;
  done_ = promise.get_future();
  // On a thread of its own, because PQcancel connects and waits without any time limit. The connection
  // may be gone by the time it ends.
  try {
    std::thread([cancel = std::make_shared<Canceller>(connection), promise = std::move(promise)]() mutable {
      (*cancel)();
      promise.set_value();
    }).detach();
  } catch (const std::system_error&) {
    // Without a thread it is over, and has reached no server: the caller tries again until cancel_grace has passed.
  }
}
bool Cancelling::over(TimePoint deadline) const {
  return done_.wait_until(deadline) == std::future_status::ready;
}

bool Connection::cancel() const noexcept { return Canceller(state_->connection)(); }

Error interrupted(Error::Kind why, const std::optional<Error>& said) {
  Error e = said.value_or(Error{});
  e.kind = why;
  if (e.text.empty()) e.text = why == Error::Kind::timed_out ? "the deadline came" : "stopped";
  return e;
}

Connection::Result Connection::wait(TimePoint deadline, const std::stop_token& stop) {
  State& s = *state_;
  if (deadline == no_deadline) deadline = s.deadline;
  std::optional<Cancelling> cancelling;
  auto why = Error::Kind::timed_out;
  TimePoint limit = deadline, again = no_deadline;
  for (;;) {
    if (auto result = s.take()) {
      // A cancellation that is still on its way must not hit the next query.
      if (cancelling && !s.broken && !cancelling->over(limit)) s.broken = true;
      if (!*result && cancelling) return Result(unexpect, interrupted(why, result->error()));
      if (!*result && result->error().is("57014") && s.options.statement_timeout > milliseconds(0))
        result->error().kind = Error::Kind::timed_out;
      return *std::move(result);
    }
    const bool stopped = !cancelling && stop.stop_requested();
    if (stopped || (!cancelling && now() >= deadline)) {
      why = stopped ? Error::Kind::cancelled : Error::Kind::timed_out;
      cancelling.emplace(s.connection);
      limit = saturating_add(now(), s.options.cancel_grace);
      again = now() + kCancelAgain;
    } else if (cancelling && now() >= limit) {
      s.broken = true;
      return Result(unexpect, interrupted(why, Error{.text = "and the server does not answer"}));
    } else if (now() >= again && cancelling->over(now())) {
      cancelling.emplace(s.connection);
      again = now() + kCancelAgain;
    }
    const bool may_stop = stop.stop_possible() && !cancelling;
    // POLLOUT while something is still to be sent; in slices while a stop may come.
    const short events = static_cast<short>(POLLIN | (PQflush(s.connection) > 0 ? POLLOUT : 0));
    ready(PQsocket(s.connection), events,
          std::min(may_stop ? now() + milliseconds(20) : limit, std::min(limit, again)));
  }
}

// ---- queries ----

Connection::Result Connection::query(const std::string& sql, std::span<const Value> values,
                                     TimePoint deadline, const std::stop_token& stop) {
  if (auto error = state_->send({.text = sql, .values = values})) return Result(unexpect, *std::move(error));
  return wait(deadline, stop);
}

Connection::Result Connection::prepared(const std::string& sql, std::initializer_list<Value> values,
                                        TimePoint deadline, const std::stop_token& stop) {
  auto known = state_->names.find(sql);
  if (known == state_->names.end()) {
    const std::string name = state_->next_name();
    if (auto error = state_->send_prepare(name, sql)) return Result(unexpect, *std::move(error));
    if (auto done = wait(deadline, stop); !done) return done;
    known = state_->names.emplace(sql, name).first;
  }
  const std::span<const Value> span(values.begin(), values.size());
  if (auto error = state_->send({.text = known->second, .values = span, .prepared = true}))
    return Result(unexpect, *std::move(error));
  Result result = wait(deadline, stop);
  state_->look_at_prepared(sql, result);
  return result;
}

Connection::Result Connection::run(const std::string& sql, TimePoint deadline, const std::stop_token& stop) {
  if (auto error = state_->send_simple(sql)) return Result(unexpect, *std::move(error));
  return wait(deadline, stop);
}

void Connection::set_deadline(TimePoint deadline) noexcept { state_->deadline = deadline; }

bool Connection::good() const noexcept {
  return state_ && !state_->broken && PQstatus(state_->connection) == CONNECTION_OK;
}

bool Connection::ping(nanoseconds timeout) {
  if (!good()) return false;
  const bool used = state_->used;
  const bool answered = run("", saturating_add(now(), timeout)).has_value();
  state_->used = used;
  return answered;
}

bool Connection::in_transaction() const noexcept {
  return PQtransactionStatus(state_->connection) != PQTRANS_IDLE;
}

bool Connection::clean() const noexcept {
  const PGTransactionStatusType status = PQtransactionStatus(state_->connection);
  if (status == PQTRANS_ACTIVE) return false;
  switch (state_->options.reset) {
    case Reset::none:
      return true;
    case Reset::rollback:
      return status == PQTRANS_IDLE;
    case Reset::discard_all:
      return status == PQTRANS_IDLE && !state_->used;
  }
  return false;
}

bool Connection::reset(nanoseconds timeout) {
  if (!good()) return false;
  const TimePoint deadline = saturating_add(now(), timeout);
  state_->deadline = no_deadline;
  if (PQtransactionStatus(state_->connection) == PQTRANS_ACTIVE) {
    std::stop_source stop;
    stop.request_stop();
    static_cast<void>(wait(deadline, stop.get_token()));  // cancels, and reads what is left
    if (!good()) return false;
  }
  if (state_->options.reset == Reset::none) return good();
  if (in_transaction() && !run("rollback", deadline)) return false;
  if (state_->options.reset == Reset::discard_all) {
    if (!run("discard all", deadline)) return false;
    state_->names.clear();
    state_->used = false;
  }
  return good();
}

int Connection::backend_pid() const noexcept { return PQbackendPID(state_->connection); }
pg_conn* Connection::native() const noexcept { return state_->connection; }

}  // namespace bulkhead::postgres
