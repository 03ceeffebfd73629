#include "async.h"

#include "state.h"

namespace bulkhead::postgres::detail {
namespace {

// libpq says what to wait for next; after the handshake the connection stays non-blocking.
void step(Connecting& c, PostgresPollingStatusType status) {
  switch (status) {
    case PGRES_POLLING_READING:
      c.want = Want::read;
      break;
    case PGRES_POLLING_WRITING:
      c.want = Want::write;
      break;
    case PGRES_POLLING_OK:
      PQsetnonblocking(c.state->connection, 1);
      c.want = Want::done;
      break;
    default:
      c.want = Want::failed;
      c.error = c.state->broke("cannot connect");
  }
}

}  // namespace

Connecting::Connecting() noexcept = default;
Connecting::Connecting(Connecting&&) noexcept = default;
// One that is not connected yet has no backend that could be waited for, and this may be an event loop.
Connecting::~Connecting() {
  if (state) state->wait_for_end = false;
}

Connecting begin(const ConnectionOptions& options) {
  Connecting c;
  auto state = begin_connect(options);
  if (state) {
    c.state = *std::move(state);
  } else {
    c.want = Want::failed;
    c.error = std::move(state).error();
  }
  return c;
}

void advance(Connecting& c) { step(c, PQconnectPoll(c.state->connection)); }
Connection finish(Connecting& c) { return Connection(std::move(c.state)); }
Result<Connection, std::string> finish_blocking(Connecting& c, TimePoint deadline,
                                                const std::stop_token& stop) {
  const auto polling = c.want == Want::read ? PGRES_POLLING_READING : PGRES_POLLING_WRITING;
  auto made = finish_connect(std::move(c.state), polling, deadline, stop);
  if (!made) return Unexpected(made.error().message());
  return *std::move(made);
}
int socket_of(const Connection::State& state) noexcept { return PQsocket(state.connection); }
std::optional<Error> send(Connection& c, const Query& query) { return c.state().send(query); }

std::string prepared_name(const Connection& c, const std::string& sql) {
  const auto& names = c.state().names;
  const auto known = names.find(sql);
  return known == names.end() ? std::string() : known->second;
}
std::string next_name(Connection& c) { return c.state().next_name(); }
std::optional<Error> send_prepare(Connection& c, const std::string& name, const std::string& sql) {
  return c.state().send_prepare(name, sql);
}
void keep_prepared(Connection& c, const std::string& sql, const std::string& name) {
  c.state().names.emplace(sql, name);
}
void look_at_prepared(Connection& c, const std::string& sql, const Connection::Result& result) {
  c.state().look_at_prepared(sql, result);
}

std::optional<Connection::Result> take(Connection& c) { return c.state().take(); }
bool wants_to_write(const Connection& c) noexcept { return PQflush(c.native()) > 0; }
TimePoint deadline_of(const Connection& c, TimePoint own) noexcept {
  return own == no_deadline ? c.state().deadline : own;
}
std::chrono::milliseconds cancel_grace(const Connection& c) noexcept {
  return c.state().options.cancel_grace;
}

std::shared_ptr<void> begin_cancel(Connection& c) { return std::make_shared<Cancelling>(c.native()); }
bool cancel_over(const std::shared_ptr<void>& cancelling) {
  return std::static_pointer_cast<Cancelling>(cancelling)->over(TimePoint());
}

Error interrupted_error() { return interrupted(Error::Kind::cancelled, std::nullopt); }

Connection::Result cut_short(Connection& c, Connection::Result result, bool answered, bool cancel_done) {
  if (!answered || !cancel_done) c.state().broken = true;
  if (answered && result) return result;  // it was quicker
  const Error said = answered ? result.error() : Error{.text = "and the server does not answer"};
  return Connection::Result(unexpect, interrupted(Error::Kind::timed_out, said));
}

}  // namespace bulkhead::postgres::detail
