#include "session.h"

#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/bind_executor.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/write.hpp>
#include <boost/beast/version.hpp>

#include "adapters/asio/async_acquire.h"
#include "adapters/asio/async_execute.h"

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

}  // namespace

std::stop_token Context::stop() { return session_ ? session_->stop() : stop_; }

std::optional<std::string> Context::timeout_to_pass_on() const {
  return http::pass_on(deadline_ == no_deadline ? wait_forever : deadline_ - now());
}

struct Session::Turn {
  Request request;
  http::Visit visit;
  Response response;
  std::optional<Call> call;  // ended when the response is out
  bool refused = false;
};

Session::Session(asio::ip::tcp::socket socket, http::Guard& guard, const AnyHandler& handler,
                 const SessionOptions& options)
    : stream_(std::move(socket)), guard_(guard), handler_(handler), options_(options) {
  error_code ignored;
  const auto remote = stream_.socket().remote_endpoint(ignored);
  if (!ignored) peer_ = remote.address().to_string();
  stream_.socket().set_option(asio::ip::tcp::no_delay(true), ignored);
}

asio::awaitable<void> Session::run() {
  for (;;) {
    Turn turn;
    if (!co_await read(turn.request)) break;
    if (refused_ && options_.refused_last) co_await asio::post(asio::use_awaitable);
    co_await respond(turn);
    unwatch();
    stop_.reset();
    if (turn.refused) co_await hold();
    refused_ = turn.refused;
    const int status = status_of(turn.response);
    const bool keep = turn.response.keep_alive();
    const bool written = co_await write(std::move(turn.response));
    if (turn.call) turn.call->finish(http::verdict(status));
    if (!written || !keep) break;
  }
  error_code ignored;
  stream_.socket().shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
}

// False: the connection is at its end; a request that cannot be read has been answered.
asio::awaitable<bool> Session::read(Request& request) {
  wire::request_parser<wire::string_body> parser;
  parser.header_limit(options_.max_header_bytes);
  parser.body_limit(options_.max_body_bytes);
  error_code error;
  stream_.expires_after(options_.read_timeout);
  co_await wire::async_read_header(stream_, buffer_, parser,
                                   asio::redirect_error(asio::use_awaitable, error));
  if (!error && !parser.is_done()) {
    stream_.expires_after(options_.body_timeout);
    if (parser.get()[wire::field::expect] == "100-continue") {
      wire::response<wire::empty_body> go_on(wire::status::continue_, parser.get().version());
      co_await wire::async_write(stream_, go_on, asio::redirect_error(asio::use_awaitable, error));
    }
    if (!error)
      co_await wire::async_read(stream_, buffer_, parser, asio::redirect_error(asio::use_awaitable, error));
  }
  stream_.expires_never();
  if (!error) {
    request = parser.release();
    co_return true;
  }
  static const auto& protocol = wire::make_error_code(wire::error::end_of_stream).category();
  if (error.category() != protocol || error == wire::error::end_of_stream ||
      error == wire::error::partial_message)
    co_return false;  // gone, or too slow: there is nobody to talk to
  auto status = wire::status::bad_request;
  if (error == wire::error::header_limit) status = wire::status::request_header_fields_too_large;
  if (error == wire::error::body_limit) status = wire::status::payload_too_large;
  Response sorry(status, 11);
  sorry.keep_alive(false);
  sorry.prepare_payload();
  co_await write(std::move(sorry));
  co_return false;
}

asio::awaitable<void> Session::respond(Turn& turn) {
  const Request& request = turn.request;
  const auto header = [&](std::string_view name) {
    return view(request[boost::beast::string_view(name.data(), name.size())]);
  };
  turn.visit = guard_.arrive({.method = view(request.method_string()),
                              .target = view(request.target()),
                              .peer = peer_,
                              .header = header,
                              .unix_now = guard_.options().absolute_deadline ? unix_ms() : 0},
                             now());
  if (turn.visit.answer) {
    turn.refused = turn.visit.refused;
    turn.response = made(*turn.visit.answer, request);
    co_return;
  }
  const bool pooled = turn.visit.bulkhead && std::holds_alternative<BlockingHandler>(handler_) &&
                      turn.visit.bulkhead->isolation() == Isolation::threads;
  if (turn.visit.bulkhead && !pooled) {
    Result<Call> entered = co_await enter(turn.visit);
    if (!entered) {
      turn.refused = true;
      turn.response = made(guard_.refuse(turn.visit, entered.error(), now()), request);
      co_return;
    }
    turn.call = *std::move(entered);
  }
  co_await call(turn);
  if (!turn.visit.cache_key.empty() && !turn.refused) {
    const Response& r = turn.response;
    guard_.answered(turn.visit, status_of(r), view(r[wire::field::content_type]), r.body(),
                    view(r[wire::field::cache_control]), r.count(wire::field::set_cookie) > 0, now());
  }
}

// Not async_acquire(), whose answer always travels through the executor: most requests need not wait.
asio::awaitable<Result<Call>> Session::enter(const http::Visit& visit) {
  using Answer = std::tuple<Result<Call>>;
  using Op = asio_detail::StoppedOperation<asio::any_io_executor, Answer>;
  const boost::intrusive_ptr<Op> op(new Op({}));
  AcquireOptions options = visit.options;
  options.stop = op->token();
  visit.bulkhead->async_acquire(std::move(options),
                                [op](Result<Call> call) { op->answer(Answer(std::move(call))); });
  if (auto early = op->take()) co_return std::get<0>(*std::move(early));

  watch([op] { op->withdraw(); });
  auto park = [op, executor = stream_.get_executor()](auto handler) {
    Op::park(op, std::move(handler), executor);
  };
  Result<Call> call = co_await asio::async_initiate<const asio::use_awaitable_t<>, void(Result<Call>)>(
      std::move(park), asio::use_awaitable);
  unwatch();
  co_return call;
}

asio::awaitable<void> Session::call(Turn& turn) {
  Context context;
  context.deadline_ = turn.visit.deadline;
  context.visit_ = &turn.visit;
  context.session_ = this;
  static const http::ResponseOptions defaults;
  const http::ResponseOptions& responses = turn.visit.route ? turn.visit.route->responses : defaults;
  bool failed = false;
  try {
    if (std::holds_alternative<BlockingHandler>(handler_))
      turn.response = co_await call_blocking(turn, context);
    else if (context.deadline_ == no_deadline)
      turn.response = co_await std::get<Handler>(handler_)(turn.request, context);
    else
      turn.response = co_await call_in_time(turn.request, context);
  } catch (...) {
    failed = true;
  }
  if (turn.refused) co_return;
  const bool late = context.deadline_ <= now();
  if (failed || late) turn.response = made(http::failure(late, responses), turn.request);
  if (!turn.request.keep_alive()) turn.response.keep_alive(false);
}

// The handler, cancelled when its time is up.
asio::awaitable<Response> Session::call_in_time(const Request& request, Context& context) {
  // The timer's handler may come when all is over: it looks here first.
  struct Limit {
    asio::cancellation_signal signal;
    bool over = false;
  };
  struct Over {
    std::shared_ptr<Limit> limit;
    ~Over() { limit->over = true; }
  };
  const auto executor = co_await asio::this_coro::executor;
  const auto limit = std::make_shared<Limit>();
  const Over over{limit};
  asio::steady_timer timer(executor, context.deadline_);
  timer.async_wait([this, limit](error_code error) {
    if (error || limit->over) return;
    if (stop_) stop_->request_stop();
    limit->signal.emit(asio::cancellation_type::terminal);
  });
  co_return co_await asio::co_spawn(executor, std::get<Handler>(handler_)(request, context),
                                    asio::bind_cancellation_slot(limit->signal.slot(), asio::use_awaitable));
}

asio::awaitable<Response> Session::call_blocking(Turn& turn, Context& context) {
  const auto& handler = std::get<BlockingHandler>(handler_);
  if (turn.call || !turn.visit.bulkhead) co_return handler(turn.request, context);
  // On the bulkhead's own threads. When its time is up the work goes on without us, so it takes along what it
  // needs.
  struct Work {
    BlockingHandler handler;
    Request request;
    http::Visit visit;
  };
  const auto work = std::make_shared<Work>(Work{handler, std::move(turn.request), turn.visit});
  turn.request = {};
  turn.request.version(work->request.version());
  turn.request.keep_alive(work->request.keep_alive());
  std::stop_source gone;
  watch([gone]() mutable { gone.request_stop(); });
  const AcquireOptions& asked = turn.visit.options;
  // Named, because GCC 12 destroys braced temporaries of a co_await expression twice.
  CallOptions<Response> options{
      .priority = asked.priority,
      .cost = asked.cost,
      .deadline = asked.deadline,
      .stop = gone.get_token(),
      .label = asked.label,
      .judge = [](const Response& r) -> Opinion { return http::verdict(status_of(r)); }};
  auto run = [work](std::stop_token stop) {
    Context own;
    own.deadline_ = work->visit.deadline;
    own.visit_ = &work->visit;
    own.stop_ = std::move(stop);
    return work->handler(work->request, own);
  };
  Result<Response> response =
      co_await async_execute(*turn.visit.bulkhead, std::move(run), std::move(options), asio::use_awaitable);
  unwatch();
  if (response) co_return *std::move(response);
  turn.refused = true;
  co_return made(guard_.refuse(turn.visit, response.error(), now()), turn.request);
}

asio::awaitable<void> Session::hold() {
  const auto held = guard_.hold(now());
  if (held.count() <= 0) co_return;
  asio::steady_timer timer(stream_.get_executor(), held);
  error_code ignored;
  co_await timer.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
}

asio::awaitable<bool> Session::write(Response response) {
  error_code error;
  stream_.expires_after(options_.write_timeout);
  co_await wire::async_write(stream_, response, asio::redirect_error(asio::use_awaitable, error));
  stream_.expires_never();
  co_return !error;
}

Response Session::made(const http::Response& from, const Request& request) const {
  Response r(static_cast<wire::status>(from.status), request.version());
  for (const http::Header& h : from.headers) r.insert(h.name, h.value);
  r.keep_alive(request.keep_alive() && !from.close);
  if (request.method() != wire::verb::head) r.body() = from.body;
  r.prepare_payload();
  return r;
}

void Session::watch(std::function<void()> gone) {
  gone_ = std::make_shared<std::function<void()>>(std::move(gone));
  stream_.socket().async_wait(
      asio::ip::tcp::socket::wait_read, [this, weak = std::weak_ptr(gone_)](error_code error) {
        const auto alive = weak.lock();  // then the session is, too
        if (error || !alive) return;
        char byte = 0;
        const auto n = ::recv(stream_.socket().native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK)) (*alive)();
      });
}

void Session::unwatch() {
  if (!gone_) return;
  gone_.reset();
  error_code ignored;
  stream_.socket().cancel(ignored);
}

std::stop_token Session::stop() {
  if (!stop_) {
    stop_.emplace();
    watch([source = *stop_]() mutable { source.request_stop(); });
  }
  return stop_->get_token();
}

}  // namespace bulkhead::beast
