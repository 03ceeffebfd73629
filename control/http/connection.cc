#include "connection.h"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cstdio>
#include <ctime>
#include <memory>
#include <optional>
#include <utility>

#include "adapters/beast/wire.h"

namespace bulkhead::control {
namespace asio = boost::asio;
namespace http = boost::beast::http;
using asio::awaitable;
using error_code = boost::system::error_code;

Connections::Slot::Slot(Connections& all, ByteStream& stream) : all_(all) {
  self_ = all.list_.insert(all.list_.end(), Waiter{stream});
}

void Connections::Slot::wait() {
  self_->waits = self_->idle = true;
  all_.list_.splice(all_.list_.end(), all_.list_, self_);
}

bool Connections::make_room() {
  if (list_.size() < max_) return true;
  for (Waiter& waiter : list_) {
    if (!waiter.waits) continue;
    waiter.close();
    return true;
  }
  return false;
}

void Connections::close_idle() {
  for (Waiter& waiter : list_)
    if (waiter.idle) waiter.close();
}

namespace {

// "Tue, 17 Nov 2026 09:30:00 GMT" (RFC 9110), independent of the program's locale.
std::string http_date(std::chrono::system_clock::time_point time) {
  constexpr std::string_view kDays = "SunMonTueWedThuFriSat",
                             kMonths = "JanFebMarAprMayJunJulAugSepOctNovDec";
  const std::time_t seconds = std::chrono::system_clock::to_time_t(time);
  std::tm utc{};
  ::gmtime_r(&seconds, &utc);
  const auto of = [](std::string_view names, int i) { return names.data() + 3 * i; };
  char text[64];
  std::snprintf(text, sizeof text, "%.3s, %02d %.3s %d %02d:%02d:%02d GMT", of(kDays, utc.tm_wday),
                utc.tm_mday, of(kMonths, utc.tm_mon), utc.tm_year + 1900, utc.tm_hour, utc.tm_min,
                utc.tm_sec);
  return text;
}

class Connection {
 public:
  Connection(Shared& shared, ByteStream& stream, Connections& all)
      : shared_(shared),
        options_(shared.core.options),
        stream_(stream),
        slot_(all, stream),
        reader_(static_cast<std::uint32_t>(options_.max_header), options_.max_body) {}

  // One request after the other. A connection that waits for a request may be closed to make room for another.
  awaitable<void> run(Caller caller) {
    stream_.expires_after(options_.request_timeout);
    if (co_await stream_.handshake()) co_return;
    for (;;) {
      slot_.wait();
      stream_.expires_after(options_.request_timeout);
      co_await read();
      slot_.end_wait();
      if (reader_.error()) {
        const Response problem = parse_error_response(reader_.error());
        if (problem.body) co_await write(problem, false, false);
        break;
      }
      const RawRequest raw = reader_.release();
      Request request = shared_.front.understand(raw, caller, ++shared_.requests);
      const std::string authorization = request.authorization;
      const Response response = co_await answer(std::move(request));
      if (response.stream) {
        co_await stream_frames(caller, authorization);
        break;
      }
      const bool keep = raw.keep_alive() && !shared_.core.stopping;
      if (!co_await write(response, keep, raw.method() == http::verb::head) || !keep) break;
    }
    stream_.shutdown();
  }

 private:
  // 100 Continue is sent once, when the header is complete and the body is not.
  awaitable<void> read() {
    reader_.next();
    if (reader_.begun()) slot_.begin();
    while (!reader_.done()) {
      error_code error;
      const std::size_t bytes = co_await stream_.read_some(reader_.room(), error);
      const bool had_header = reader_.has_header();
      if (error)
        reader_.fail(error);
      else
        reader_.take(bytes);
      slot_.begin();
      if (reader_.done() || had_header || !reader_.has_header() || !reader_.expects_continue()) continue;
      error = co_await stream_.write(asio::buffer(std::string_view("HTTP/1.1 100 Continue\r\n\r\n")));
      if (error) reader_.fail(error);
    }
  }

  awaitable<Response> answer(Request request) {
    const Answered decided = shared_.front.answer_at_once(request);
    if (!decided.route) co_return decided.response;
    // A change may wait or run handlers of calls: not on the thread of the event loop.
    auto change = [&core = shared_.core, route = decided.route, &request]() -> awaitable<Response> {
      core.expire();
      co_return handle(core, *route, request);
    };
    co_return co_await asio::co_spawn(shared_.worker, std::move(change), asio::use_awaitable);
  }

  // The security headers are on every response, also on errors. Headers of the response replace these.
  static std::string head_of(const Response& response, bool keep, std::optional<std::size_t> body_size) {
    http::response_header<> head;
    head.version(11);
    head.result(response.status);
    head.set(http::field::date, http_date(std::chrono::system_clock::now()));
    head.set(http::field::content_type, response.type);
    head.set(http::field::cache_control, "no-store");
    head.set("X-Content-Type-Options", "nosniff");
    head.set("X-Frame-Options", "DENY");
    head.set("Referrer-Policy", "no-referrer");
    for (const auto& [name, value] : response.headers) head.set(name, value);
    if (!keep) head.set(http::field::connection, "close");
    std::string out;
    beast::append_head(out, head, body_size);
    return out;
  }

  awaitable<bool> write(const Response& response, bool keep, bool head_only) {
    const std::shared_ptr<const std::string> body = response.body;
    const std::string head = head_of(response, keep, body ? body->size() : 0);
    stream_.expires_after(options_.write_timeout);
    const asio::const_buffer rest = body && !head_only ? asio::buffer(*body) : asio::const_buffer();
    co_return !co_await stream_.write(asio::buffer(head), rest);
  }

  // Ends when the caller loses its access: its token was removed or has expired.
  awaitable<void> stream_frames(const Caller& caller, const std::string& authorization) {
    Core& core = shared_.core;
    if (shared_.subscribers.size() >= options_.max_streams) {
      const Problem full{.type = kUnavailable,
                         .detail = "there are already " + std::to_string(shared_.subscribers.size()) +
                                   " streams: poll GET /v1/snapshot every 5 seconds instead",
                         .headers = {{"Retry-After", "5"}}};
      const Response response = respond(full, 0);
      co_await write(response, false, false);
      co_return;
    }
    asio::steady_timer next(shared_.io);
    const auto unsubscribe = [this](asio::steady_timer* timer) { shared_.subscribers.erase(timer); };
    const std::unique_ptr<asio::steady_timer, decltype(unsubscribe)> subscribed(&next, unsubscribe);
    shared_.subscribers.insert(&next);
    Response start;
    start.type = "text/event-stream";
    start.headers.emplace_back("X-Accel-Buffering", "no");  // proxies must not collect frames
    const std::string head = head_of(start, false, std::nullopt);
    std::uint64_t seq = core.observer.seq();
    auto frame = std::make_shared<const std::string>(
        head + "id: " + std::to_string(seq) +
        "\nevent: snapshot\ndata: " + text_of(core.observer.snapshot(50)) + "\n\n");
    for (;;) {
      stream_.expires_after(options_.write_timeout);
      const error_code error = co_await stream_.write(asio::buffer(*frame));
      if (error || core.stopping) co_return;
      // A client that reads slowly gets the newest frame, not those that it missed.
      stream_.expires_never();
      while (core.observer.seq() == seq && !core.stopping) {
        next.expires_at(asio::steady_timer::time_point::max());
        error_code woken;
        co_await next.async_wait(asio::redirect_error(asio::use_awaitable, woken));
      }
      if (core.stopping || shared_.front.identify(caller, authorization).role < Role::viewer) co_return;
      seq = core.observer.seq();
      frame = core.observer.frame();
    }
  }

  Shared& shared_;
  const ServerOptions& options_;
  ByteStream& stream_;
  Connections::Slot slot_;
  beast::RequestReader reader_;
};

}  // namespace

awaitable<void> serve(Shared& shared, std::unique_ptr<ByteStream> stream, Connections& all, Caller caller,
                      beast::OpenConnections::Token) {
  Connection connection(shared, *stream, all);
  co_await connection.run(std::move(caller));
}

}  // namespace bulkhead::control
