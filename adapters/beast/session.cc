#include "session.h"

#include <atomic>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <charconv>
#include <stdexcept>

#include "adapters/asio/async_acquire.h"
#include "adapters/asio/async_execute.h"
#include "last_in_line.h"

namespace bulkhead::beast {
namespace asio = boost::asio;
namespace wire = boost::beast::http;
using boost::beast::error_code;

namespace {

TimePoint now() noexcept { return std::chrono::steady_clock::now(); }

std::int64_t unix_ms() noexcept {
  const auto since = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::milliseconds>(since).count();
}

std::string_view view(boost::beast::string_view text) noexcept { return {text.data(), text.size()}; }

int status_of(const Response& response) noexcept { return static_cast<int>(response.result_int()); }

// Looks up headers. Skips names of a length that no header has, because the guard asks for headers that few requests have.
class Headers {
 public:
  explicit Headers(const Request& request) noexcept : request_(request) {
    for (const auto& field : request) lengths_ |= bit(field.name_string().size());
  }
  std::string_view operator()(std::string_view name) const {
    if (!(lengths_ & bit(name.size()))) return {};
    return view(request_[boost::beast::string_view(name.data(), name.size())]);
  }

 private:
  static std::uint64_t bit(std::size_t length) noexcept { return std::uint64_t{1} << (length % 64); }
  const Request& request_;
  std::uint64_t lengths_ = 0;
};

}  // namespace

std::stop_token Context::stop() { return session_ ? session_->stop() : stop_; }

std::optional<std::string> Context::timeout_to_pass_on() const { return http::pass_on(deadline_, now()); }

Response to_response(const http::Response& from) {
  Response r(static_cast<wire::status>(from.status), 11);
  for (const http::Header& h : from.headers) r.insert(h.name, h.value);
  if (from.close) r.keep_alive(false);
  r.body() = from.body;
  r.prepare_payload();
  return r;
}

Response Context::reject(const Rejection& why) {
  verdict_ = Outcome::ignored;
  return to_response(guard_->reject(*visit_, why, now()));
}

struct Session::Turn {
  Request request;
  bool keep_alive;
  http::Visit visit{};
  Context context{};
  Response response{};
  std::optional<Call> call{};  // ends when the response is sent
  bool answered = false;       // the response is complete
  bool rejected = false;       // the response is a rejection
  bool failed = false;         // the handler threw
  bool late = false;           // it took too long
  // A response in pieces: sent as they come, or collected in `response` for a client of HTTP/1.0.
  enum class Stream : std::uint8_t { none, sent, collected } stream = Stream::none;
  Response head{};
};

asio::awaitable<void> Session::run() {
  // The callback runs on the thread that drains, possibly after the session has ended.
  const auto alive = std::make_shared<bool>();
  const std::stop_callback drained(options_.drain,
                                   [this, weak = std::weak_ptr(alive), executor = connection_.executor()] {
                                     asio::post(executor, [this, weak] {
                                       if (weak.expired()) return;
                                       left_at_ = now();
                                       connection_.hurry(options_.drain_idle);
                                     });
                                   });
  for (;;) {
    if (rejected_ && options_.rejected_per_round > 0)
      co_await LastInLine::turn(connection_.executor(), options_.rejected_per_round);
    connection_.next();
    while (!connection_.complete()) connection_.take(co_await connection_.more());
    if (const int problem = connection_.problem()) {
      if (problem > 0) co_await say_no(problem);
      connection_.shutdown();
      break;
    }
    Turn turn{.request = connection_.release(), .keep_alive = connection_.keep_alive()};
    turn_ = &turn;
    try {
      arrive(turn);
      const bool blocking = std::holds_alternative<BlockingHandler>(handler_);
      Bulkhead* const bulkhead = turn.answered ? nullptr : turn.visit.bulkhead.get();
      if (bulkhead && !(blocking && bulkhead->isolation() == Isolation::threads)) {
        Call begun;
        std::optional<Result<Call>> entered = bulkhead->begin_acquire(turn.visit.options, begun);
        if (!entered) entered = co_await enter(turn.visit, std::move(begun));
        admit(turn, *std::move(entered));
      }
      if (!turn.answered) {
        if (blocking)
          turn.response = co_await call_blocking(turn);
        else if (turn.context.deadline_ == no_deadline)
          turn.response = co_await std::get<Handler>(handler_)(turn.request, turn.context);
        else
          turn.response = co_await call_in_time(turn);
      }
    } catch (...) {
      turn.failed = true;
      turn.answered = turn.rejected = false;
    }
    if (turn.stream == Turn::Stream::collected && !turn.failed) turn.response = std::move(turn.head);
    if (!turn.answered) conclude(turn);
    connection_.unwatch();
    stop_.reset();
    if (turn.stream == Turn::Stream::sent) {
      co_await end_stream(turn);
      if (!connection_.reusable()) {
        connection_.shutdown();
        break;
      }
      continue;
    }
    if (turn.rejected && !leaving()) co_await hold();
    rejected_ = turn.rejected;
    const bool keep_place = turn.call && turn.visit.route->hold_place == http::HoldPlace::until_written;
    if (!keep_place) finish(turn);
    if (leaving() && is_last()) turn.response.keep_alive(false);
    const bool head_only = turn.request.method() == wire::verb::head;
    if (!connection_.send(turn.response, head_only)) co_await connection_.flush();
    finish(turn);
    if (!connection_.reusable()) {
      connection_.shutdown();
      // Closing with unread bytes resets the connection, and the client may lose the response.
      if (connection_.has_unread()) co_await connection_.linger();
      break;
    }
    if (connection_.has_more()) co_await asio::post(asio::use_awaitable);  // let others run first
  }
}

// Returns the place; the second call has no effect.
void Session::finish(Turn& turn) {
  if (turn.call && turn.late)
    turn.call->finish(Outcome::timeout);
  else if (turn.call)
    turn.call->finish(turn.context.verdict_.value_or(http::verdict(status_of(turn.response))));
}

// Whether a draining connection ends with this response. Requests that the client has pipelined are still answered, for as
// long as it could have begun one.
bool Session::is_last() const {
  if (left_at_ != no_deadline && now() >= saturating_add(left_at_, options_.drain_idle)) return true;
  return !connection_.has_more() && !connection_.has_unread();
}

// The guard chooses the bulkhead. It may answer itself: a page of metrics, or a rejection.
void Session::arrive(Turn& turn) {
  const Request& request = turn.request;
  const Headers headers(request);
  turn.visit = guard_.arrive({.method = view(request.method_string()),
                              .target = view(request.target()),
                              .peer = connection_.peer(),
                              .header = headers,
                              .unix_now = guard_.options().absolute_deadline ? unix_ms() : 0,
                              .body_bytes = request.body().size()},
                             now());
  turn.context.visit_ = &turn.visit;
  turn.context.guard_ = &guard_;
  turn.context.session_ = this;
  turn.context.deadline_ = turn.visit.deadline;
  if (!turn.visit.answer) return;
  turn.answered = true;
  turn.rejected = turn.visit.rejected;
  turn.response = made(*turn.visit.answer, turn);
}

void Session::admit(Turn& turn, Result<Call> entered) {
  if (!entered) return reject(turn, entered.error());
  turn.call = *std::move(entered);
  turn.context.call_ = &*turn.call;
  const auto limit = turn.call->execution_timeout();
  if (limit == wait_forever) return;
  turn.context.deadline_ = std::min(turn.context.deadline_, saturating_add(now(), limit));
}

// Completes the response of the handler.
void Session::conclude(Turn& turn) {
  turn.late = turn.late || (turn.context.deadline_ != no_deadline && turn.context.deadline_ <= now());
  if (turn.failed || turn.late) {
    static const http::ResponseOptions defaults;
    const auto& responses = turn.visit.route ? turn.visit.route->responses : defaults;
    turn.response = made(http::failure(turn.late, responses), turn);
  }
  if (turn.stream == Turn::Stream::sent) return;
  Response& r = turn.response;
  if (turn.request.version() == 10 || !turn.keep_alive) {
    const bool keep_alive = turn.keep_alive && r.keep_alive();
    r.version(turn.request.version());
    r.keep_alive(keep_alive);
  }
  if (turn.visit.cache_key.empty()) return;
  std::vector<http::HeaderView> headers;
  for (const auto& field : r.base()) headers.push_back({view(field.name_string()), view(field.value())});
  guard_.answered(turn.visit, {.status = status_of(r), .headers = headers, .body = r.body()}, now());
}

void Session::reject(Turn& turn, const Rejection& why) {
  turn.answered = turn.rejected = true;
  turn.response = made(guard_.reject(turn.visit, why, now()), turn);
}

// Waits in the queue. Not with async_acquire() of the Asio adapter, which always posts its result to the executor.
asio::awaitable<Result<Call>> Session::enter(const http::Visit& visit, Call begun) {
  using Answer = std::tuple<Result<Call>>;
  using Op = asio_detail::StoppedOperation<asio::any_io_executor, Answer>;
  const boost::intrusive_ptr<Op> op(new Op({}));
  AcquireOptions options = visit.options;
  options.stop = op->token();
  visit.bulkhead->async_acquire(std::move(begun), std::move(options),
                                [op](Result<Call> call) { op->answer(Answer(std::move(call))); });
  if (auto early = op->take()) co_return std::get<0>(*std::move(early));

  connection_.watch([op] { op->withdraw(); });
  auto park = [op, executor = connection_.executor()](auto handler) {
    Op::park(op, std::move(handler), executor);
  };
  Result<Call> call = co_await asio::async_initiate<const asio::use_awaitable_t<>, void(Result<Call>)>(
      std::move(park), asio::use_awaitable);
  connection_.unwatch();
  co_return call;
}

// Runs the handler and cancels it at the deadline.
asio::awaitable<Response> Session::call_in_time(Turn& turn) {
  // The timer's handler may run after the end; it checks `over`.
  struct Limit {
    asio::cancellation_signal signal;
    bool over = false;
  };
  struct Over {
    std::shared_ptr<Limit> limit;
    ~Over() { limit->over = true; }
  };
  const auto executor = connection_.executor();
  const auto limit = std::make_shared<Limit>();
  const Over over{limit};
  asio::steady_timer timer(executor, turn.context.deadline_);
  timer.async_wait([this, limit](error_code error) {
    if (error || limit->over) return;
    if (stop_) stop_->request_stop();
    limit->signal.emit(asio::cancellation_type::terminal);
  });
  co_return co_await asio::co_spawn(executor, std::get<Handler>(handler_)(turn.request, turn.context),
                                    asio::bind_cancellation_slot(limit->signal.slot(), asio::use_awaitable));
}

asio::awaitable<Response> Session::call_blocking(Turn& turn) {
  const auto& handler = std::get<BlockingHandler>(handler_);
  if (turn.call || !turn.visit.bulkhead) co_return handler(turn.request, turn.context);
  // On the bulkhead's threads. After the timeout the work continues alone, so it owns what it needs.
  struct Work {
    BlockingHandler handler;
    Request request;
    http::Visit visit;
    http::Guard& guard;
    std::optional<Outcome> verdict{};
    bool failed = false;  // it threw after set_verdict()
  };
  const auto work = std::make_shared<Work>(handler, std::move(turn.request), turn.visit, guard_);
  turn.request = {};
  turn.request.version(work->request.version());
  turn.request.method(work->request.method());
  std::stop_source gone;
  connection_.watch([gone]() mutable { gone.request_stop(); });
  const AcquireOptions& asked = turn.visit.options;
  // Named, because GCC 12 destroys braced temporaries of a co_await expression twice.
  CallOptions<Response> options{.priority = asked.priority,
                                .cost = asked.cost,
                                .deadline = asked.deadline,
                                .stop = gone.get_token(),
                                .flow = asked.flow,
                                .label = asked.label,
                                .judge = [work](const Response& r) -> Opinion {
                                  return work->verdict.value_or(http::verdict(status_of(r)));
                                }};
  options.costs = asked.costs;
  auto run = [work](RunningCall& call) {
    Context own;
    own.running_ = &call;
    own.deadline_ = work->visit.deadline;
    own.visit_ = &work->visit;
    own.guard_ = &work->guard;
    own.stop_ = call.stop_token();
    Response response;
    try {
      response = work->handler(work->request, own);
    } catch (...) {
      if (!own.verdict_) throw;
      work->failed = true;
    }
    work->verdict = own.verdict_;
    return response;
  };
  Result<Response> response =
      co_await async_execute(*turn.visit.bulkhead, std::move(run), std::move(options), asio::use_awaitable);
  connection_.unwatch();
  if (response) {
    turn.failed = work->failed;
    co_return *std::move(response);
  }
  if (response.error().reason == Reason::execution_timeout)
    turn.late = true;
  else
    reject(turn, response.error());
  co_return std::move(turn.response);
}

asio::awaitable<bool> Context::stream(Response head) {
  if (!session_) throw std::logic_error("Context::stream() is for coroutine handlers");
  return session_->stream(std::move(head));
}
asio::awaitable<bool> Context::write(std::string piece) {
  if (!session_) throw std::logic_error("Context::write() is for coroutine handlers");
  return session_->write(std::move(piece));
}

bool Context::settle(std::uint32_t units) noexcept {
  return call_ ? call_->settle(units) : !running_ || running_->settle(units);
}
bool Context::settle(std::string_view budget, std::uint32_t units) noexcept {
  return call_ ? call_->settle(budget, units) : !running_ || running_->settle(budget, units);
}
bool Context::try_grow(std::uint32_t units) noexcept {
  return call_ ? call_->try_grow(units) : !running_ || running_->try_grow(units);
}
bool Context::try_grow(std::string_view budget, std::uint32_t units) noexcept {
  return call_ ? call_->try_grow(budget, units) : !running_ || running_->try_grow(budget, units);
}

// HTTP/1.0 has no chunks: such a response is collected, and sent as a whole.
asio::awaitable<bool> Session::stream(Response head) {
  Turn& turn = *turn_;
  if (turn.stream != Turn::Stream::none) throw std::logic_error("Context::stream() is called twice");
  head.body().clear();
  if (turn.request.version() == 10) {
    turn.stream = Turn::Stream::collected;
    head.content_length(boost::none);
    turn.head = std::move(head);
    co_return true;
  }
  turn.stream = Turn::Stream::sent;
  turn.head = std::move(head);
  turn.head.chunked(true);
  if (!turn.keep_alive || (leaving() && is_last())) turn.head.keep_alive(false);
  if (!connection_.send_head(turn.head)) co_return co_await connection_.flush();
  co_return !connection_.broken();
}

asio::awaitable<bool> Session::write(std::string piece) {
  Turn& turn = *turn_;
  if (turn.stream == Turn::Stream::none)
    throw std::logic_error("Context::write() needs Context::stream() first");
  if (turn.stream == Turn::Stream::collected) {
    turn.head.body() += piece;
    co_return true;
  }
  // An empty chunk would end the body, and a response to HEAD has none.
  if (piece.empty() || turn.request.method() == wire::verb::head) co_return !connection_.broken();
  char size[20];
  const auto end = std::to_chars(size, size + sizeof size, piece.size(), 16).ptr;
  co_return co_await send_piece(std::string(size, end).append("\r\n").append(piece).append("\r\n"));
}

asio::awaitable<bool> Session::send_piece(std::string bytes) {
  if (!connection_.send_bytes(std::move(bytes))) co_return co_await connection_.flush();
  co_return !connection_.broken();
}

// The last piece, then the place is returned. A stream that is not whole ends with its connection.
asio::awaitable<void> Session::end_stream(Turn& turn) {
  if (turn.failed || turn.late)
    connection_.cut();
  else if (turn.request.method() != wire::verb::head)
    co_await send_piece("0\r\n\r\n");
  if (!turn.failed && !turn.late) {
    turn.response.result(turn.head.result());
    if (connection_.broken() && !turn.context.verdict_) turn.context.verdict_ = Outcome::ignored;
  }
  finish(turn);
}

asio::awaitable<void> Session::hold() {
  const auto held = guard_.hold(now());
  if (held.count() <= 0) co_return;
  asio::steady_timer timer(connection_.executor(), held);
  error_code ignored;
  co_await timer.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
}

// To bytes that are not a request.
asio::awaitable<void> Session::say_no(int status) {
  Response sorry(static_cast<wire::status>(status), 11);
  sorry.keep_alive(false);
  if (!connection_.send(sorry, false)) co_await connection_.flush();
  connection_.shutdown();
  co_await connection_.linger();
}

Response Session::made(const http::Response& from, const Turn& turn) const {
  Response r = to_response(from);
  r.version(turn.request.version());
  r.keep_alive(turn.keep_alive && !from.close);
  return r;
}

std::stop_token Session::stop() {
  if (!stop_) {
    stop_.emplace();
    connection_.watch([source = *stop_]() mutable { source.request_stop(); });
  }
  return stop_->get_token();
}

}  // namespace bulkhead::beast
