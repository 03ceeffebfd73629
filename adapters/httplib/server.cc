#include "server.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <semaphore>
#include <set>

#include "connection.h"
#include "holder.h"
#include "watcher.h"

namespace bulkhead::httplib {
namespace {

TimePoint now() noexcept { return std::chrono::steady_clock::now(); }

// A thread for every request that a bulkhead may hold or have in line, and some for everything else.
std::uint32_t threads_for(const http::Guard& guard) {
  constexpr std::uint64_t spare = 8, most = 1024;
  std::uint64_t sum = spare;
  std::set<std::string> counted;
  for (const http::Route& route : guard.options().routes) {
    if (route.bulkhead.empty() || !counted.insert(route.bulkhead).second) continue;
    if (const auto bulkhead = guard.registry().find(route.bulkhead)) {
      const Snapshot s = bulkhead->snapshot().gate;
      sum += s.max_concurrent + s.max_queue;
    }
  }
  return static_cast<std::uint32_t>(std::min(sum, most));
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
  Holder holder{};
  std::atomic<bool> wide{false};  // the backlog is
};

// One request and its response. It is the thread's own.
struct Server::Turn {
  State& state;
  Connection& connection;
  http::Visit visit{};
  std::optional<Call> call{};
  int status = 500;
  bool close = false, late = false;
  TimePoint held_until{};  // when its refusal is sent; TimePoint(): at once
  std::optional<std::stop_source> gone{};
  std::optional<Watcher::Watch> watch{};

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
  new_task_queue = [threads] { return new ::httplib::ThreadPool(threads); };
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

std::optional<std::string> Server::timeout_to_pass_on() {
  const TimePoint deadline = visit().deadline;
  return http::pass_on(deadline == no_deadline ? wait_forever : deadline - now());
}

Server& Server::set_pre_routing_handler(HandlerWithResponse handler) {
  state_->pre_routing = std::move(handler);
  return *this;
}
Server& Server::set_post_routing_handler(Handler handler) {
  state_->post_routing = std::move(handler);
  return *this;
}

bool Server::process_and_close_socket(socket_t socket) {
  State& s = *state_;
  // cpp-httplib listens with a backlog of 5, and a storm would have others' connections dropped, to be tried again a
  // second later. It can be changed from the first connection on.
  if (!s.wide.exchange(true)) ::listen(svr_sock_, SOMAXCONN);
  Connection connection(socket, s.options.write_timeout);
  TimePoint held_until{};
  for (bool alive = true; alive;) {
    // In short steps, because a server that ends waits for its connections.
    TimePoint idle_since = now();
    bool begun = false;
    while (svr_sock_ != INVALID_SOCKET && !begun && now() - idle_since < s.options.keep_alive)
      begun = connection.wait_for_request(std::chrono::milliseconds(20));
    if (!begun) break;
    connection.allow(now() + s.options.read_timeout, s.options.max_header_bytes + s.options.max_body_bytes);
    Turn turn{.state = s, .connection = connection};
    current() = &turn;
    bool closed = false;
    const bool ok = process_request(connection, false, closed, nullptr);
    current() = nullptr;
    if (turn.call && turn.late)
      turn.call->time_out();
    else if (turn.call)
      turn.call->finish(http::verdict(turn.status));
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
  const auto refuse = [&](const http::Response& sorry) {
    turn.close = true;
    const TimePoint begin = now();
    if (const auto held = guard.hold(begin); held.count() > 0) {
      turn.held_until = begin + held;
      turn.connection.keep();
    }
    fill(response, sorry);
    response.set_header("Connection", "close");
    return HandlerResponse::Handled;
  };
  if (turn.visit.answer) {
    if (turn.visit.refused) return refuse(*turn.visit.answer);
    fill(response, *turn.visit.answer);
    return HandlerResponse::Handled;
  }
  if (turn.visit.bulkhead) {
    Result<Call> call = turn.enter();
    if (!call) return refuse(guard.refuse(turn.visit, call.error(), now()));
    turn.call = *std::move(call);
    const auto limit = turn.call->execution_timeout();
    if (const TimePoint begin = now(); limit < turn.visit.deadline - begin)
      turn.visit.deadline = begin + limit;
  }
  return state_->pre_routing ? state_->pre_routing(request, response) : HandlerResponse::Unhandled;
}

void Server::after(const ::httplib::Request& request, ::httplib::Response& response) {
  Turn* const turn = current();
  if (!turn) return;
  turn->watch.reset();
  if (state_->post_routing) state_->post_routing(request, response);
  const http::Visit& visit = turn->visit;
  turn->late = turn->call && visit.deadline <= now();
  if (turn->late) fill(response, http::failure(true, visit.route->responses));
  turn->status = response.status;
  if (turn->call && !visit.cache_key.empty())
    state_->guard.answered(visit, response.status, response.get_header_value("Content-Type"), response.body,
                           response.get_header_value("Cache-Control"), response.has_header("Set-Cookie"),
                           now());
}

}  // namespace bulkhead::httplib
