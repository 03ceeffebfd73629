#include "connection.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cerrno>
#include <charconv>

namespace bulkhead::beast {
namespace asio = boost::asio;
namespace wire = boost::beast::http;
using asio::ip::tcp;
using boost::beast::error_code;

namespace {

TimePoint now() noexcept { return std::chrono::steady_clock::now(); }

void append(std::string& out, boost::beast::string_view text) { out.append(text.data(), text.size()); }

void append(std::string& out, std::size_t number, int base = 10) {
  char digits[20];
  out.append(digits, std::to_chars(digits, digits + sizeof digits, number, base).ptr);
}

bool has_no_body(unsigned status) noexcept { return status < 200 || status == 204 || status == 304; }

struct Head {
  bool chunked = false, connection = false;  // it has such a field
};

// The status line and the fields; what says where the body ends is added if it is missing.
Head append_head(std::string& out, const Response& r) {
  Head head;
  out.append(r.version() == 10 ? "HTTP/1.0 " : "HTTP/1.1 ");
  append(out, r.result_int());
  out += ' ';
  append(out, r.reason());
  out.append("\r\n");
  bool framed = has_no_body(r.result_int());
  for (const auto& field : r.base()) {
    framed |= field.name() == wire::field::content_length;
    head.chunked |= field.name() == wire::field::transfer_encoding;
    head.connection |= field.name() == wire::field::connection;
    append(out, field.name_string());
    out.append(": ");
    append(out, field.value());
    out.append("\r\n");
  }
  if (!framed && !head.chunked) {
    out.append("Content-Length: ");
    append(out, r.body().size());
    out.append("\r\n");
  }
  out.append("\r\n");
  return head;
}

constexpr std::size_t kLargeBody = std::size_t{16} * 1024;  // is sent from where it is

}  // namespace

// ---- patience ----

// The timer's handler may come when the connection is gone: then `socket` is null.
struct Patience::State : std::enable_shared_from_this<State> {
  explicit State(tcp::socket& s) : timer(s.get_executor()), socket(&s) {}

  void arm() {
    armed = until;
    timer.expires_at(until);
    timer.async_wait([self = shared_from_this()](error_code error) {
      if (error || !self->socket) return;
      self->armed = no_deadline;
      if (self->until == no_deadline) return;
      if (now() < self->until) return self->arm();
      self->until = no_deadline;
      error_code ignored;
      self->socket->cancel(ignored);
    });
  }

  asio::steady_timer timer;
  tcp::socket* socket;
  TimePoint until = no_deadline;
  TimePoint armed = no_deadline;  // when the timer fires
};

Patience::Patience(tcp::socket& socket) : state_(std::make_shared<State>(socket)) {}
Patience::~Patience() {
  state_->socket = nullptr;
  error_code ignored;
  state_->timer.cancel(ignored);
}

void Patience::limit(std::chrono::nanoseconds time) {
  const TimePoint begin = now();
  state_->until = time < no_deadline - begin ? begin + time : no_deadline;
  if (state_->until < state_->armed) state_->arm();
}
void Patience::end() noexcept { state_->until = no_deadline; }

// ---- reading ----

Connection::Connection(tcp::socket socket, const SessionOptions& options)
    : socket_(std::move(socket)), options_(options), patience_(socket_) {
  error_code ignored;
  const auto remote = socket_.remote_endpoint(ignored);
  if (!ignored) peer_ = remote.address().to_string();
  socket_.set_option(tcp::no_delay(true), ignored);
  socket_.non_blocking(true, ignored);
}

void Connection::next() {
  parser_.emplace();
  parser_->header_limit(options_.max_header_bytes);
  parser_->body_limit(options_.max_body_bytes);
  done_ = false;
  problem_ = 0;
  error_.clear();
  patience_.limit(options_.read_timeout);
  if (buffer_.size() > 0) parse();
}

asio::awaitable<std::size_t> Connection::more() {
  const std::size_t room = parser_->is_header_done() ? 64 * 1024 : 2 * 1024;
  return socket_.async_read_some(buffer_.prepare(room), asio::redirect_error(asio::use_awaitable, error_));
}

void Connection::take(std::size_t bytes) {
  if (error_) return fail(error_);
  buffer_.commit(bytes);
  parse();
}

void Connection::parse() {
  Parser& parser = *parser_;
  const bool had_header = parser.is_header_done();
  error_code error;
  do {  // the header, and then as much of the body as is there
    buffer_.consume(parser.put(buffer_.data(), error));
    if (!error && parser.is_header_done()) parser.eager(true);
  } while (!error && !parser.is_done() && buffer_.size() > 0);
  if (error == wire::error::need_more) error.clear();
  if (error) return fail(error);
  if (parser.is_done()) {
    done_ = true;
    patience_.end();
  } else if (!had_header && parser.is_header_done()) {
    patience_.limit(options_.body_timeout);
    if (parser.get()[wire::field::expect] == "100-continue") {
      // If it does not fit, the client has not read what was sent before, and does without.
      socket_.write_some(asio::buffer(std::string_view("HTTP/1.1 100 Continue\r\n\r\n")), error);
    }
  }
}

void Connection::fail(error_code error) {
  static const auto& protocol = wire::make_error_code(wire::error::end_of_stream).category();
  done_ = true;
  problem_ = -1;
  patience_.end();
  if (error.category() != protocol) return;  // gone, or too slow
  problem_ = 400;
  if (error == wire::error::header_limit) problem_ = 431;
  if (error == wire::error::body_limit) problem_ = 413;
}

// ---- writing ----

bool Connection::send(Response& response, bool head_only) {
  out_.clear();
  body_.clear();
  sent_ = 0;
  const Head head = append_head(out_, response);
  keeps_alive_ = head.connection ? response.keep_alive() : response.version() == 11;
  std::string& body = response.body();
  if (!head_only && !has_no_body(response.result_int())) {
    if (head.chunked && response.chunked()) {
      if (!body.empty()) {
        append(out_, body.size(), 16);
        out_.append("\r\n").append(body).append("\r\n");
      }
      out_.append("0\r\n\r\n");
    } else if (body.size() < kLargeBody) {
      out_.append(body);
    } else {
      body_ = std::move(body);
    }
  }
  error_code error;
  if (body_.empty())
    sent_ = socket_.write_some(asio::buffer(out_), error);
  else
    sent_ = socket_.write_some(std::array{asio::buffer(out_), asio::buffer(body_)}, error);
  broken_ = error && error != asio::error::would_block && error != asio::error::try_again;
  return broken_ || sent_ == out_.size() + body_.size();
}

asio::awaitable<bool> Connection::flush() {
  patience_.limit(options_.write_timeout);
  while (!broken_ && sent_ < out_.size() + body_.size()) {
    const asio::const_buffer rest =
        sent_ < out_.size() ? asio::buffer(out_) + sent_ : asio::buffer(body_) + (sent_ - out_.size());
    sent_ += co_await socket_.async_write_some(rest, asio::redirect_error(asio::use_awaitable, error_));
    broken_ = bool(error_);
  }
  patience_.end();
  co_return !broken_;
}

void Connection::shutdown() noexcept {
  error_code ignored;
  socket_.shutdown(tcp::socket::shutdown_send, ignored);
}

asio::awaitable<void> Connection::linger() {
  constexpr std::size_t kMost = std::size_t{4} * 1024 * 1024;
  patience_.limit(std::min<std::chrono::nanoseconds>(options_.read_timeout, std::chrono::seconds(2)));
  buffer_.clear();
  error_.clear();
  for (std::size_t thrown_away = 0; !error_ && thrown_away < kMost;)
    thrown_away += co_await socket_.async_read_some(buffer_.prepare(64 * 1024),
                                                    asio::redirect_error(asio::use_awaitable, error_));
}

// ---- watching ----

void Connection::watch(std::function<void()> gone) {
  gone_ = std::make_shared<std::function<void()>>(std::move(gone));
  socket_.async_wait(tcp::socket::wait_read, [this, weak = std::weak_ptr(gone_)](error_code error) {
    const auto alive = weak.lock();  // then the connection is, too
    if (error || !alive) return;
    char byte = 0;
    const auto n = ::recv(socket_.native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK)) (*alive)();
  });
}

void Connection::unwatch() {
  if (!gone_) return;
  gone_.reset();
  error_code ignored;
  socket_.cancel(ignored);
}

}  // namespace bulkhead::beast
