#include "async.h"

#include "state.h"

namespace bulkhead::postgres::detail {
namespace {

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
Connecting::~Connecting() = default;

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
Connection finish(Connecting c) { return Connection(std::move(c.state)); }
int socket_of(const Connection::State& state) noexcept { return PQsocket(state.connection); }
std::optional<Error> send(Connection& c, const Query& query) { return c.state().send(query); }

std::optional<Error> send_prepare(Connection& c, const std::string& sql, std::string& name) {
  auto& names = c.state().names;
  auto& pending = c.state().preparing;
  if (pending == sql && !pending.empty()) {
    names.emplace(sql, "bulkhead_" + std::to_string(names.size()));
    pending.clear();
  }
  if (const auto known = names.find(sql); known != names.end()) {
    name = known->second;
    return std::nullopt;
  }
  pending = sql;
  return c.state().send_prepare("bulkhead_" + std::to_string(names.size()), sql);
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

Connection::Result cut_short(Connection& c, Connection::Result result, bool answered, bool cancel_done) {
  if (!answered || !cancel_done) c.state().broken = true;
  if (answered && result) return result;  // it was quicker
  const Error said = answered ? result.error() : Error{.text = "and the server does not answer"};
  return Connection::Result(std::unexpect, interrupted(Error::Kind::timed_out, said));
}

}  // namespace bulkhead::postgres::detail
