#include "session.h"

#include <atomic>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

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

// Looks headers up, but not those of which no header has the length: the guard asks for some that few requests have.
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

std::optional<std::string> Context::timeout_to_pass_on() const {
  return http::pass_on(deadline_ == no_deadline ? wait_forever : deadline_ - now());
}

struct Session::Turn {
  Request request;
  bool keep_alive;
  http::Visit visit{};
  Context context{};
  Response response{};
  std::optional<Call> call{};  // ended when the response is out
  bool answered = false;       // there is a response
  bool refused = false;        // it is a refusal
  bool failed = false;         // the handler threw
  bool late = false;           // it took too long
};

asio::awaitable<void> Session::run() {
  for (;;) {
    if (refused_ && options_.refused_per_round > 0)
      co_await LastInLine::turn(connection_.executor(), options_.refused_per_round);
    connection_.next();
    while (!connection_.complete()) connection_.take(co_await connection_.more());
    if (const int problem = connection_.problem()) {
      if (problem > 0) co_await say_no(problem);
      break;
    }
    Turn turn{.request = connection_.release(), .keep_alive = connection_.keep_alive()};
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
      try {
        if (blocking)
          turn.response = co_await call_blocking(turn);
        else if (turn.context.deadline_ == no_deadline)
          turn.response = co_await std::get<Handler>(handler_)(turn.request, turn.context);
        else
          turn.response = co_await call_in_time(turn);
      } catch (...) {
        turn.failed = true;
      }
      conclude(turn);
    }
    connection_.unwatch();
    stop_.reset();
    if (turn.refused) co_await hold();
    refused_ = turn.refused;
    const bool head_only = turn.request.method() == wire::verb::head;
    if (!connection_.send(turn.response, head_only)) co_await connection_.flush();
    if (turn.call && turn.late)
      turn.call->time_out();
    else if (turn.call)
      turn.call->finish(http::verdict(status_of(turn.response)));
    if (!connection_.reusable()) break;
    if (connection_.has_more()) co_await asio::post(asio::use_awaitable);  // others first
  }
  connection_.shutdown();
}

void Session::arrive(Turn& turn) {
  const Request& request = turn.request;
  const Headers headers(request);
  turn.visit = guard_.arrive({.method = view(request.method_string()),
                              .target = view(request.target()),
                              .peer = connection_.peer(),
                              .header = headers,
                              .unix_now = guard_.options().absolute_deadline ? unix_ms() : 0},
                             now());
  turn.context.visit_ = &turn.visit;
  turn.context.session_ = this;
  turn.context.deadline_ = turn.visit.deadline;
  if (!turn.visit.answer) return;
  turn.answered = true;
  turn.refused = turn.visit.refused;
  turn.response = made(*turn.visit.answer, turn);
}

void Session::admit(Turn& turn, Result<Call> entered) {
  if (!entered) return refuse(turn, entered.error());
  turn.call = *std::move(entered);
  const auto limit = turn.call->execution_timeout();
  if (limit == wait_forever) return;
  if (const TimePoint begin = now(); limit < turn.context.deadline_ - begin)
    turn.context.deadline_ = begin + limit;
}

// What the handler has made of it.
void Session::conclude(Turn& turn) {
  if (turn.refused) return;
  turn.late = turn.late || (turn.context.deadline_ != no_deadline && turn.context.deadline_ <= now());
  if (turn.failed || turn.late) {
    static const http::ResponseOptions defaults;
    const auto& responses = turn.visit.route ? turn.visit.route->responses : defaults;
    turn.response = made(http::failure(turn.late, responses), turn);
  }
  Response& r = turn.response;
  if (turn.request.version() == 10 || !turn.keep_alive) {
    const bool keep_alive = turn.keep_alive && r.keep_alive();
    r.version(turn.request.version());
    r.keep_alive(keep_alive);
  }
  if (!turn.visit.cache_key.empty())
    guard_.answered(turn.visit, status_of(r), view(r[wire::field::content_type]), r.body(),
                    view(r[wire::field::cache_control]), r.count(wire::field::set_cookie) > 0, now());
}

void Session::refuse(Turn& turn, const Rejection& why) {
  turn.answered = turn.refused = true;
  turn.response = made(guard_.refuse(turn.visit, why, now()), turn);
}

// In line. Not async_acquire() of the Asio adapter, whose answer always travels through the executor.
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

// The handler, cancelled when its time is up.
asio::awaitable<Response> Session::call_in_time(Turn& turn) {
  // The timer's handler may come when all is over: it looks here first.
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
  // On the bulkhead's own threads. When its time is up the work goes on without us, so it takes along what it needs.
  struct Work {
    BlockingHandler handler;
    Request request;
    http::Visit visit;
    std::atomic<bool> begun = false;
  };
  const auto work = std::make_shared<Work>(handler, std::move(turn.request), turn.visit);
  turn.request = {};
  turn.request.version(work->request.version());
  turn.request.method(work->request.method());
  std::stop_source gone;
  connection_.watch([gone]() mutable { gone.request_stop(); });
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
    work->begun = true;
    Context own;
    own.deadline_ = work->visit.deadline;
    own.visit_ = &work->visit;
    own.stop_ = std::move(stop);
    return work->handler(work->request, own);
  };
  Result<Response> response =
      co_await async_execute(*turn.visit.bulkhead, std::move(run), std::move(options), asio::use_awaitable);
  connection_.unwatch();
  if (response) co_return *std::move(response);
  if (work->begun && response.error().reason == Reason::timeout)
    turn.late = true;
  else
    refuse(turn, response.error());
  co_return std::move(turn.response);
}

asio::awaitable<void> Session::hold() {
  const auto held = guard_.hold(now());
  if (held.count() <= 0) co_return;
  asio::steady_timer timer(connection_.executor(), held);
  error_code ignored;
  co_await timer.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
}

// To what is no request.
asio::awaitable<void> Session::say_no(int status) {
  Response sorry(static_cast<wire::status>(status), 11);
  sorry.keep_alive(false);
  if (!connection_.send(sorry, false)) co_await connection_.flush();
  connection_.shutdown();
  co_await connection_.linger();
}

Response Session::made(const http::Response& from, const Turn& turn) const {
  Response r(static_cast<wire::status>(from.status), turn.request.version());
  for (const http::Header& h : from.headers) r.insert(h.name, h.value);
  r.keep_alive(turn.keep_alive && !from.close);
  r.body() = from.body;
  r.prepare_payload();
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
