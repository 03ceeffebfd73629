// database.h - an SQLite database behind two bulkheads: readers that work side by side, and one writer.
//
//   bulkhead::sqlite::Database shop{{.name = "shop", .path = "shop.db", .readers = 4,
//                                    .reader_gate = {.max_queue = 32, .max_wait = 50ms}, .writer_gate = {.max_queue = 64}}};
//   if (auto db = shop.readers().acquire({.deadline = in_200_ms})) use((*db)->query("select ... where id = ?", {42}));
//   if (auto db = shop.writer().acquire()) use((*db)->run("begin; insert ...; commit"));
//
// With a write-ahead log (which it switches on) readers and the writer do not hinder each other; two writers would, with
// SQLITE_BUSY at random. Here the second one waits in line, in order and with a timeout, like any call at a bulkhead.
// The deadline of the acquire is that of its queries: SQLite itself looks at it every few thousand steps and stops with
// Error::timed_out(). The same interface as adapters/postgres, for programs that carry their database with them.
// Threads: Database and Pool: any. A Connection: one at a time.
// Cost: statements are prepared once per connection and kept (64 of them). Rows are copied out.
#pragma once

#include <chrono>
#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "bulkhead/resource_pool.h"

struct sqlite3;

namespace bulkhead::sqlite {

struct Error {
  enum class Kind : std::uint8_t {
    database,   // an error of SQLite: see code
    timed_out,  // the deadline came
    cancelled,  // its stop_token fired
    busy,       // another process kept its lock for longer than busy_timeout
  };
  Kind kind{};
  int code = 0;  // SQLite's extended result code, such as 2067 for a unique constraint
  std::string text{};

  bool timed_out() const noexcept { return kind == Kind::timed_out; }
  std::string message() const;  // SQLite 2067: UNIQUE constraint failed: items.id
};

class Value {
 public:
  Value(std::nullptr_t) {}
  Value(const char* text) : value_(std::string(text)) {}
  Value(std::string_view text) : value_(std::string(text)) {}
  Value(std::string text) : value_(std::move(text)) {}
  template <std::integral N>
  Value(N number) : value_(static_cast<std::int64_t>(number)) {}
  Value(double number) : value_(number) {}

 private:
  friend class Connection;
  std::variant<std::monostate, std::int64_t, double, std::string> value_{};
};

class Rows;

class Row {
 public:
  std::string_view operator[](std::size_t column) const noexcept;  // as text; a null is empty
  bool null(std::size_t column) const noexcept;
  std::int64_t integer(std::size_t column) const noexcept;  // 0 if it is none
  double number(std::size_t column) const noexcept;

 private:
  friend class Rows;
  explicit Row(const std::optional<std::string>* cells) : cells_(cells) {}
  const std::optional<std::string>* cells_;
};

class Rows {
 public:
  std::size_t size() const noexcept { return names_.empty() ? 0 : cells_.size() / names_.size(); }
  bool empty() const noexcept { return size() == 0; }
  std::size_t columns() const noexcept { return names_.size(); }
  std::string_view column(std::size_t i) const noexcept { return names_[i]; }
  std::uint64_t affected() const noexcept { return affected_; }  // by insert, update, delete
  Row operator[](std::size_t row) const noexcept { return Row(cells_.data() + row * names_.size()); }

 private:
  friend class Connection;
  std::vector<std::string> names_;
  std::vector<std::optional<std::string>> cells_;
  std::uint64_t affected_ = 0;
};

struct ConnectionOptions {
  std::string path{};
  bool read_only = false;
  std::chrono::milliseconds busy_timeout{5000};  // for locks of other processes; never beyond a deadline
  std::vector<std::string> pragmas{};            // "cache_size = -8000" ...
};

class Connection {
 public:
  using Result = bulkhead::Result<Rows, Error>;

  static bulkhead::Result<Connection, Error> open(const ConnectionOptions& options);
  Connection(Connection&&) noexcept;
  Connection& operator=(Connection&&) noexcept;
  ~Connection();

  // One statement, with ?1, ?2 ... or ? for values, as many as are given: more or fewer are an error, and so is
  // a second statement; nothing is run then. Without a deadline: that of the acquire.
  Result query(const std::string& sql, std::initializer_list<Value> values = {},
               TimePoint deadline = no_deadline, const std::stop_token& stop = {}) {
    return query(sql, std::span<const Value>(values.begin(), values.size()), deadline, stop);
  }
  Result query(const std::string& sql, std::span<const Value> values, TimePoint deadline = no_deadline,
               const std::stop_token& stop = {});
  // Several statements without values; the last one's rows.
  Result run(const std::string& sql, TimePoint deadline = no_deadline, const std::stop_token& stop = {});

  void set_deadline(TimePoint deadline) noexcept;
  bool in_transaction() const noexcept;
  bool reset();  // rolls back what is open
  bool good();   // whether the database can still be read
  void close() noexcept;

 private:
  struct State;
  explicit Connection(std::unique_ptr<State> state) noexcept;
  Result step_all(struct Statement& statement, std::span<const Value> values);
  std::unique_ptr<State> state_;
};

struct PoolOptions {
  std::string name{};
  std::uint32_t max = 4;
  GateOptions gate{};
  ConnectionOptions connection{};
  std::uint32_t min_idle = 0;  // this and the next two as in ResourceOptions
  // A validation reads the version of the schema.
  std::chrono::nanoseconds keepalive = wait_forever;
  std::chrono::nanoseconds idle_timeout = std::chrono::minutes(10);
  bool histograms = true;
};

class Pool {
 public:
  static constexpr std::string_view kKind = "sqlite";  // to a registry it is attached to

  explicit Pool(const PoolOptions& options);
  ResourceResult<Connection> acquire(const AcquireOptions& options = {});
  ResourcePool<Connection>& resources() noexcept { return pool_; }
  ResourceSnapshot snapshot() const { return pool_.snapshot(); }
  std::string_view name() const noexcept { return pool_.name(); }
  void resize(std::uint32_t max) { pool_.resize(max); }
  void close() noexcept { pool_.close(); }
  bool drain(TimePoint until = no_deadline) { return pool_.drain(until); }

 private:
  ResourcePool<Connection> pool_;
};

struct DatabaseOptions {
  std::string name{};
  std::string path{};
  std::uint32_t readers = 4;
  GateOptions reader_gate{}, writer_gate{.max_queue = 64};
  std::chrono::milliseconds busy_timeout{5000};
  std::vector<std::string> pragmas{"synchronous = normal", "foreign_keys = on"};
  std::chrono::nanoseconds keepalive = wait_forever;  // of both, as in PoolOptions
};

// The bulkheads are called <name>.readers and <name>.writer.
class Database {
 public:
  explicit Database(const DatabaseOptions& options);  // std::runtime_error if the file cannot be opened
  Pool& readers() noexcept { return readers_; }
  Pool& writer() noexcept { return writer_; }

 private:
  Pool writer_, readers_;
};

}  // namespace bulkhead::sqlite
