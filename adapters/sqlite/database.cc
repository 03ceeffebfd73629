#include "database.h"

#include <sqlite3.h>

#include <algorithm>
#include <charconv>
#include <stdexcept>
#include <unordered_map>

namespace bulkhead::sqlite {
namespace {

using std::chrono::milliseconds;
constexpr int kStepsBetweenLooks = 4000;  // some 50 microseconds of SQLite's work
constexpr std::size_t kKeptStatements = 64;

TimePoint now() { return std::chrono::steady_clock::now(); }

Error error_of(sqlite3* db) {
  const int code = sqlite3_extended_errcode(db);
  return {.kind = (code & 0xff) == SQLITE_BUSY ? Error::Kind::busy : Error::Kind::database,
          .code = code,
          .text = sqlite3_errmsg(db)};
}

// Of a call that is wrong by itself: nothing of it was run.
Error misuse(int code, std::string text) {
  return {.kind = Error::Kind::database, .code = code, .text = std::move(text)};
}

// SQLite reads a statement up to a NUL byte, and would ignore the rest.
std::optional<Error> reject_nul(const std::string& sql) {
  if (sql.find('\0') == sql.npos) return std::nullopt;
  return misuse(SQLITE_MISUSE, "the statement contains a NUL byte; give such a text as a value");
}

std::optional<Error> check_count(sqlite3_stmt* statement, std::size_t values) {
  const auto wanted = static_cast<std::size_t>(sqlite3_bind_parameter_count(statement));
  if (wanted == values) return std::nullopt;
  return misuse(SQLITE_RANGE, "the statement has " + std::to_string(wanted) +
                                  (wanted == 1 ? " parameter, but " : " parameters, but ") +
                                  std::to_string(values) + (values == 1 ? " value was" : " values were") +
                                  " given");
}

template <class N>
N parsed(std::string_view text) noexcept {
  N value{};
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

}  // namespace

struct Statement {
  sqlite3_stmt* handle = nullptr;
  Statement() = default;
  Statement(Statement&& other) noexcept : handle(std::exchange(other.handle, nullptr)) {}
  Statement& operator=(Statement&&) = delete;
  ~Statement() { sqlite3_finalize(handle); }
};

struct Connection::State {
  explicit State(const ConnectionOptions& o) : options(o) {}
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    statements.clear();
    sqlite3_close_v2(db);
  }

  const ConnectionOptions options;
  sqlite3* db = nullptr;
  std::unordered_map<std::string, Statement> statements;
  TimePoint deadline = no_deadline;  // of calls that give none
  // Of the call that runs.
  TimePoint until = no_deadline;
  const std::stop_token* stop = nullptr;

  static int look(void* self) {
    const State& s = *static_cast<State*>(self);
    return (s.stop && s.stop->stop_requested()) || (s.until != no_deadline && now() >= s.until);
  }
  void begin(TimePoint own, const std::stop_token& token) {
    until = own == no_deadline ? deadline : own;
    stop = token.stop_possible() ? &token : nullptr;
    const auto left = until == no_deadline
                          ? options.busy_timeout
                          : std::min(options.busy_timeout, std::chrono::ceil<milliseconds>(until - now()));
    sqlite3_busy_timeout(db, static_cast<int>(std::max(left, milliseconds(0)).count()));
  }
  Error failure() const {
    Error e = error_of(db);
    const bool interrupted = (e.code & 0xff) == SQLITE_INTERRUPT;
    if (interrupted && stop && stop->stop_requested())
      e.kind = Error::Kind::cancelled;
    else if (interrupted || (e.kind == Error::Kind::busy && until != no_deadline && now() >= until))
      e.kind = Error::Kind::timed_out;
    return e;
  }
};

std::string Error::message() const {
  return (timed_out() ? "timed out: SQLite " : "SQLite ") + std::to_string(code) + ": " + text;
}

std::string_view Row::operator[](std::size_t column) const noexcept {
  return cells_[column] ? std::string_view(*cells_[column]) : std::string_view();
}
bool Row::null(std::size_t column) const noexcept { return !cells_[column]; }
std::int64_t Row::integer(std::size_t column) const noexcept { return parsed<std::int64_t>((*this)[column]); }
double Row::number(std::size_t column) const noexcept { return parsed<double>((*this)[column]); }

// ---- connection ----

Result<Connection, Error> Connection::open(const ConnectionOptions& options) {
  auto state = std::make_unique<State>(options);
  const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_URI;
  if (sqlite3_open_v2(options.path.c_str(), &state->db, flags, nullptr) != SQLITE_OK) {
    if (!state->db) return Unexpected(Error{.code = SQLITE_NOMEM, .text = "out of memory"});
    return Unexpected(error_of(state->db));
  }
  sqlite3_extended_result_codes(state->db, 1);
  sqlite3_progress_handler(state->db, kStepsBetweenLooks, &State::look, state.get());
  Connection c(std::move(state));
  std::vector<std::string> pragmas{"journal_mode = wal"};
  pragmas.insert(pragmas.end(), options.pragmas.begin(), options.pragmas.end());
  // Not opened read-only: a reader of a write-ahead log takes part in its shared memory.
  if (options.read_only) pragmas.emplace_back("query_only = on");
  for (const std::string& pragma : pragmas)
    if (auto done = c.run("pragma " + pragma); !done) return Unexpected(std::move(done).error());
  return c;
}

Connection::Connection(std::unique_ptr<State> state) noexcept : state_(std::move(state)) {}
Connection::Connection(Connection&&) noexcept = default;
Connection& Connection::operator=(Connection&&) noexcept = default;
Connection::~Connection() = default;
void Connection::close() noexcept { state_.reset(); }
void Connection::set_deadline(TimePoint deadline) noexcept { state_->deadline = deadline; }
bool Connection::in_transaction() const noexcept { return sqlite3_get_autocommit(state_->db) == 0; }

bool Connection::reset() {
  state_->deadline = no_deadline;
  return !in_transaction() || run("rollback").has_value();
}

bool Connection::good() { return run("pragma schema_version").has_value(); }

Connection::Result Connection::step_all(Statement& statement, std::span<const Value> values) {
  sqlite3_stmt* s = statement.handle;
  if (auto error = check_count(s, values.size())) return Result(unexpect, *std::move(error));
  int at = 0;
  for (const Value& value : values) {
    ++at;
    if (const auto* n = std::get_if<std::int64_t>(&value.value_))
      sqlite3_bind_int64(s, at, *n);
    else if (const auto* d = std::get_if<double>(&value.value_))
      sqlite3_bind_double(s, at, *d);
    else if (const auto* t = std::get_if<std::string>(&value.value_))
      sqlite3_bind_text64(s, at, t->data(), t->size(), SQLITE_STATIC, SQLITE_UTF8);
    else
      sqlite3_bind_null(s, at);
  }
  Rows rows;
  const int columns = sqlite3_column_count(s);
  for (int c = 0; c < columns; ++c) rows.names_.emplace_back(sqlite3_column_name(s, c));
  const std::int64_t changes = sqlite3_total_changes64(state_->db);
  int status = SQLITE_ROW;
  while ((status = sqlite3_step(s)) == SQLITE_ROW)
    for (int c = 0; c < columns; ++c) {
      // The text first: it may convert, and then the length is that of the text.
      const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(s, c));
      if (text)
        rows.cells_.emplace_back(std::in_place, text, static_cast<std::size_t>(sqlite3_column_bytes(s, c)));
      else
        rows.cells_.emplace_back(std::nullopt);
    }
  std::optional<Error> error;
  if (status != SQLITE_DONE) error = state_->failure();
  rows.affected_ = static_cast<std::uint64_t>(sqlite3_total_changes64(state_->db) - changes);
  sqlite3_reset(s);
  sqlite3_clear_bindings(s);
  if (error) return Result(unexpect, *std::move(error));
  return rows;
}

Connection::Result Connection::query(const std::string& sql, std::span<const Value> values,
                                     TimePoint deadline, const std::stop_token& stop) {
  if (auto error = reject_nul(sql)) return Result(unexpect, *std::move(error));
  state_->begin(deadline, stop);
  auto known = state_->statements.find(sql);
  if (known == state_->statements.end()) {
    if (state_->statements.size() >= kKeptStatements) state_->statements.clear();
    Statement made;
    const char* rest = nullptr;
    if (sqlite3_prepare_v3(state_->db, sql.c_str(), -1, SQLITE_PREPARE_PERSISTENT, &made.handle, &rest) !=
        SQLITE_OK)
      return Result(unexpect, state_->failure());
    if (!made.handle) {  // nothing but blanks and comments
      if (!values.empty()) return Result(unexpect, *check_count(nullptr, values.size()));
      return Rows();
    }
    // Blanks and comments may follow. Anything else is a second statement, even if it is a wrong one.
    Statement second;
    if (*rest &&
        (sqlite3_prepare_v2(state_->db, rest, -1, &second.handle, nullptr) != SQLITE_OK || second.handle))
      return Result(unexpect,
                    misuse(SQLITE_MISUSE, "query() takes one statement; more follows it: \"" +
                                              std::string(rest).substr(0, 40) + "\"; use run() for several"));
    known = state_->statements.emplace(sql, std::move(made)).first;
  }
  return step_all(known->second, values);
}

Connection::Result Connection::run(const std::string& sql, TimePoint deadline, const std::stop_token& stop) {
  if (auto error = reject_nul(sql)) return Result(unexpect, *std::move(error));
  state_->begin(deadline, stop);
  Result last{Rows()};
  const char* rest = sql.c_str();
  while (last && *rest) {
    Statement made;
    if (sqlite3_prepare_v2(state_->db, rest, -1, &made.handle, &rest) != SQLITE_OK)
      return Result(unexpect, state_->failure());
    if (made.handle) last = step_all(made, {});
  }
  return last;
}

// ---- pool, database ----

namespace {

ResourceOptions<Connection> resource_options(const PoolOptions& o) {
  const bool keepalive = o.keepalive != wait_forever;
  return {.name = o.name,
          .max = o.max,
          .min_idle = o.min_idle,
          .open = [options = o.connection](const Opening&) -> Result<Connection, std::string> {
            auto made = Connection::open(options);
            if (!made) return Unexpected(made.error().message());
            return *std::move(made);
          },
          .validate = keepalive ? [](Connection& c) { return c.good(); } : std::function<bool(Connection&)>(),
          .dirty =
              [](Connection& c) {
                c.set_deadline(no_deadline);  // it was this caller's; the next may come by another way
                return c.in_transaction();
              },
          .reset = [](Connection& c) { return c.reset(); },
          .dispose = [](Connection& c) { c.close(); },
          .validate_after = wait_forever,  // only in the background: a file does not drop connections
          .keepalive = o.keepalive,
          .idle_timeout = o.idle_timeout,
          .max_lifetime = wait_forever,  // a file does not restart
          .gate = o.gate,
          .histograms = o.histograms};
}

PoolOptions part(const DatabaseOptions& o, const char* suffix, std::uint32_t max, const GateOptions& gate,
                 bool read_only) {
  return {.name = o.name + suffix,
          .max = max,
          .gate = gate,
          .connection = {.path = o.path,
                         .read_only = read_only,
                         .busy_timeout = o.busy_timeout,
                         .pragmas = o.pragmas},
          .keepalive = o.keepalive};
}

}  // namespace

Pool::Pool(const PoolOptions& options) : pool_(resource_options(options)) {}

ResourceResult<Connection> Pool::acquire(const AcquireOptions& options) {
  ResourceResult<Connection> lease = pool_.acquire(options);
  if (lease) (*lease)->set_deadline(options.deadline);
  return lease;
}

Database::Database(const DatabaseOptions& o)
    : writer_(part(o, ".writer", 1, o.writer_gate, false)),
      readers_(part(o, ".readers", o.readers, o.reader_gate, true)) {
  // Makes the file and its log, before a reader looks for them.
  if (const auto first = writer_.acquire(); !first)
    throw std::runtime_error("database \"" + o.name + "\": " + first.error().message());
}

}  // namespace bulkhead::sqlite
