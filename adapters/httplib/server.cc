#include "server.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <semaphore>
#include <set>
#include <thread>
#include <vector>

#include "connection.h"
#include "connection_holder.h"
#include "task_queue.h"
#include "watcher.h"

namespace bulkhead::httplib {
namespace {

TimePoint now() noexcept { return std::chrono::steady_clock::now(); }

// A thread for every request that a bulkhead may hold or have in line, and some for everything else.
std::uint32_t threads_for(const http::Guard& guard) {
  constexpr std::uint64_t kSpare = 8, kMost = 1024;
  std::uint64_t sum = kSpare;
  std::set<std::string> counted;
  for (const http::Route& route : guard.options().routes) {
    if (route.bulkhead.empty() || !counted.insert(route.bulkhead).second) continue;
    if (const auto bulkhead = guard.registry().find(route.bulkhead)) {
      const Snapshot s = bulkhead->snapshot().gate;
      sum += s.max_concurrent + s.max_queue;
    }
  }
  return static_cast<std::uint32_t>(std::min(sum, kMost));
}

void fill(::httplib::Response& to, const http::Response& from) {
  to.status = from.status;
  to.headers.clear();
  std::string type = "text/plain";
  for (const http::Header& h : from.headers) {
    if (h.name == "Content-Type")
      type = h.value;
    else if (h.name != "Connection")
      to.set_header(h.name, h.value);
  }
  to.set_content(from.body, type);
}

// What waits in line for a thread that is parked here.
struct Place {
  std::optional<Result<Call>> call;
  std::binary_semaphore decided{0};
};

}  // namespace

struct Server::State {
  http::Guard& guard;
  ServerOptions options;
  HandlerWithResponse pre_routing{};
  Handler post_routing{};
  Watcher watcher{};
  ConnectionHolder holder{};
  std::atomic<TimePoint> draining_since{no_deadline};
  std::atomic<bool> listens_no_more{false}, stopping{false};
  std::atomic<std::uint32_t> threads{0};

  bool draining() const noexcept { return draining_since.load() != no_deadline; }
};

// One request and its response. It is the thread's own.
struct Server::Turn {
  State& state;
  Connection& connection;
  http::Visit visit{};
  std::optional<Call> call{};
  int status = 500;
  std::optional<Outcome> verdict{};  // what the handler says, instead of the status
  bool close = false, late = false;
  bool streams = false;    // a content provider writes the body
  TimePoint held_until{};  // when its rejection is sent; TimePoint(): at once
  std::optional<std::stop_source> gone{};
  std::optional<Watcher::Watch> watch{};

  // Gives the place back; without effect the second time.
  void finish() {
    if (call && late)
      call->finish(Outcome::timeout);
    else if (call)
      call->finish(verdict.value_or(http::verdict(status)));
  }

  // The connection of a server that drains ends with this response, unless its client has sent more requests ahead
  // and could still have begun one.
  bool is_last() const {
    if (!state.draining()) return false;
    return now() >= saturating_add(state.draining_since.load(), state.options.drain_idle) ||
           !connection.wait_for_request(std::chrono::nanoseconds(0));
  }

  // The socket is watched only while the request waits: a client that disconnects leaves the line.
  Result<Call> enter() {
    Call begun;
    if (auto answer = visit.bulkhead->begin_acquire(visit.options, begun)) return *std::move(answer);
    const auto place = std::make_shared<Place>();
    const std::stop_source source;
    AcquireOptions options = visit.options;
    options.stop = source.get_token();
    visit.bulkhead->async_acquire(std::move(begun), std::move(options), [place](Result<Call> decided) {
      place->call.emplace(std::move(decided));
      place->decided.release();
    });
    if (!place->decided.try_acquire()) {
      const Watcher::Watch watching(state.watcher, connection.socket(), source);
      place->decided.acquire();
    }
    return *std::move(place->call);
  }
};

Server::Turn*& Server::current() noexcept {
  static thread_local Turn* turn = nullptr;
  return turn;
}

Server::Server(http::Guard& guard, ServerOptions options) : state_(new State{guard, options}) {
  const std::uint32_t threads = options.threads ? options.threads : threads_for(guard);
  new_task_queue = [this, threads] {
    // cpp-httplib listens with a backlog of 5, and a storm would have others' connections dropped, to be tried again a
    // second later. It asks for its threads on the thread that accepts, before it accepts the first connection.
    ::listen(svr_sock_, SOMAXCONN);
    auto* const queue = new TaskQueue(threads);
    state_->threads = queue->threads();
    // No request would be served. After an exception cpp-httplib would say for ever that it runs.
    if (queue->threads() == 0) ::shutdown(svr_sock_, SHUT_RDWR);
    return queue;
  };
  set_payload_max_length(options.max_body_bytes);
  set_tcp_nodelay(
      true);  // head and body are two writes, and the second would wait for the client's delayed ACK
  ::httplib::Server::set_pre_routing_handler(
      [this](const auto& request, auto& response) { return before(request, response); });
  ::httplib::Server::set_post_routing_handler(
      [this](const auto& request, auto& response) { after(request, response); });
}
Server::~Server() = default;

const http::Visit& Server::visit() { return current()->visit; }

std::stop_token Server::stop_token() {
  Turn& turn = *current();
  if (!turn.gone) {
    turn.gone.emplace();
    turn.watch.emplace(turn.state.watcher, turn.connection.socket(), *turn.gone, turn.visit.deadline);
  }
  return turn.gone->get_token();
}

std::optional<std::string> Server::timeout_to_pass_on() { return http::pass_on(visit().deadline, now()); }

Call* Server::current_call() noexcept {
  Turn* const turn = current();
  return turn && turn->call ? &*turn->call : nullptr;
}
bool Server::settle(std::uint32_t units) noexcept {
  Call* const call = current_call();
  return !call || call->settle(units);
}
bool Server::settle(std::string_view budget, std::uint32_t units) noexcept {
  Call* const call = current_call();
  return !call || call->settle(budget, units);
}
bool Server::try_grow(std::uint32_t units) noexcept {
  Call* const call = current_call();
  return !call || call->try_grow(units);
}
bool Server::try_grow(std::string_view budget, std::uint32_t units) noexcept {
  Call* const call = current_call();
  return !call || call->try_grow(budget, units);
}

void Server::set_verdict(Outcome verdict) { current()->verdict = verdict; }

void Server::reject(const Rejection& why, ::httplib::Response& response) {
  Turn& turn = *current();
  turn.verdict = Outcome::ignored;
  const http::Response sorry = turn.state.guard.reject(turn.visit, why, now());
  turn.close |= sorry.close;
  fill(response, sorry);
}

bool Server::drain(TimePoint until) {
  State& s = *state_;
  constexpr std::chrono::milliseconds step(1);
  TimePoint not_yet = no_deadline;
  s.draining_since.compare_exchange_strong(not_yet, now());
  s.holder.release();
  // Connections that the system has accepted would be reset with the listening socket: cpp-httplib's thread takes them.
  pollfd backlog{.fd = svr_sock_, .events = POLLIN, .revents = 0};
  while (is_running() && backlog.fd >= 0 && now() < until && ::poll(&backlog, 1, 0) > 0) {
    std::this_thread::sleep_for(step);
    backlog.fd = svr_sock_;
  }
  // Not its stop(): while svr_sock_ is invalid, cpp-httplib cuts the responses of content providers.
  if (is_running() && !s.listens_no_more.exchange(true)) ::shutdown(svr_sock_, SHUT_RDWR);
  while (is_running() && now() < until) std::this_thread::sleep_for(step);
  if (is_running()) return false;
  s.holder.release();
  return true;
}

std::uint32_t Server::threads() const noexcept { return state_->threads; }

void Server::stop() {
  state_->stopping = true;
  if (state_->listens_no_more)
    svr_sock_ = INVALID_SOCKET;  // closed already; its number may be another's by now
  else if (svr_sock_ != INVALID_SOCKET)
    ::httplib::Server::stop();
}

Server& Server::set_pre_routing_handler(HandlerWithResponse handler) {
  state_->pre_routing = std::move(handler);
  return *this;
}
Server& Server::set_post_routing_handler(Handler handler) {
  state_->post_routing = std::move(handler);
  return *this;
}

// In short steps, because a server that ends waits for its connections.
bool Server::wait_for_request(const Connection& connection) const {
  const State& s = *state_;
  const TimePoint begin = now();
  for (;;) {
    TimePoint until = saturating_add(begin, s.options.keep_alive);
    if (s.draining())
      until = std::min(until, saturating_add(std::max(begin, s.draining_since.load()), s.options.drain_idle));
    else if (svr_sock_ == INVALID_SOCKET)
      return false;
    if (s.stopping || now() >= until) return false;
    if (connection.wait_for_request(std::chrono::milliseconds(20))) return true;
  }
}

bool Server::process_and_close_socket(socket_t socket) {
  State& s = *state_;
  Connection connection(socket, s.options.write_timeout);
  TimePoint held_until{};
  for (bool alive = true; alive;) {
    if (!wait_for_request(connection)) break;
    connection.allow(saturating_add(now(), s.options.read_timeout),
                     s.options.max_header_bytes + s.options.max_body_bytes);
    Turn turn{.state = s, .connection = connection};
    current() = &turn;
    bool closed = false;
    const bool ok = process_request(connection, false, closed, nullptr);
    current() = nullptr;
    // A stream that is not whole: because of its client, or because its provider has given up.
    if (turn.streams && !ok && !turn.verdict)
      turn.verdict = connection.broken() ? Outcome::ignored : Outcome::failure;
    turn.finish();
    alive = ok && !closed && !turn.close;
    held_until = turn.held_until;
  }
  if (held_until != TimePoint()) {
    s.holder.hold(socket, std::move(connection).kept(), held_until);
    return true;
  }
  ::shutdown(socket, SHUT_RDWR);
  ::close(socket);
  return true;
}

// Runs before the handler of the route. Handled: the response is complete, and the handler is not called.
Server::HandlerResponse Server::before(const ::httplib::Request& request, ::httplib::Response& response) {
  Turn& turn = *current();
  http::Guard& guard = state_->guard;
  const auto header = [&](std::string_view name) -> std::string_view {
    const auto found = request.headers.find(std::string(name));
    return found == request.headers.end() ? std::string_view() : std::string_view(found->second);
  };
  const auto since_1970 = std::chrono::system_clock::now().time_since_epoch();
  turn.visit =
      guard.arrive({.method = request.method,
                    .target = request.target,
                    .peer = request.remote_addr,
                    .header = header,
                    .unix_now = std::chrono::duration_cast<std::chrono::milliseconds>(since_1970).count()},
                   now());
  const auto reject = [&](const http::Response& sorry) {
    turn.close = true;
    const TimePoint begin = now();
    if (const auto held = guard.hold(begin); held.count() > 0 && !state_->draining()) {
      turn.held_until = begin + held;
      turn.connection.keep();
    }
    fill(response, sorry);
    return HandlerResponse::Handled;
  };
  if (turn.visit.answer) {
    if (turn.visit.rejected) return reject(*turn.visit.answer);
    fill(response, *turn.visit.answer);
    return HandlerResponse::Handled;
  }
  if (turn.visit.bulkhead) {
    Result<Call> call = turn.enter();
    if (!call) return reject(guard.reject(turn.visit, call.error(), now()));
    turn.call = *std::move(call);
    turn.visit.deadline =
        std::min(turn.visit.deadline, saturating_add(now(), turn.call->execution_timeout()));
  }
  return state_->pre_routing ? state_->pre_routing(request, response) : HandlerResponse::Unhandled;
}

// Runs after the handler. A response that is late is replaced, because its client no longer waits for it.
void Server::after(const ::httplib::Request& request, ::httplib::Response& response) {
  Turn* const turn = current();
  if (!turn) return;
  turn->watch.reset();
  if (state_->post_routing) state_->post_routing(request, response);
  const http::Visit& visit = turn->visit;
  turn->late = turn->call && visit.deadline <= now();
  if (turn->late) fill(response, http::failure(true, visit.route->responses));
  turn->status = response.status;
  turn->streams = static_cast<bool>(response.content_provider_);
  turn->close |= turn->is_last();
  if (turn->close) {
    response.headers.erase("Connection");
    response.headers.erase("Keep-Alive");
    response.set_header("Connection", "close");
  }
  if (turn->call && !turn->streams && visit.route->hold_place == http::HoldPlace::until_handled)
    turn->finish();
  if (!turn->call || visit.cache_key.empty() || turn->streams) return;
  std::vector<http::HeaderView> headers;
  for (const auto& [name, value] : response.headers) headers.push_back({name, value});
  state_->guard.answered(visit, {.status = response.status, .headers = headers, .body = response.body},
                         now());
}

}  // namespace bulkhead::httplib
