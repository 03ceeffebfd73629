#include "connection.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cerrno>
#include <vector>

namespace bulkhead::beast {
namespace asio = boost::asio;
using asio::ip::tcp;
using boost::beast::error_code;

namespace {

TimePoint now() noexcept { return std::chrono::steady_clock::now(); }

constexpr std::size_t kLargeBody = std::size_t{16} * 1024;  // is sent from where it is

}  // namespace

// ---- patience ----

// The timer's handler may run after the connection has ended: then `socket` is null.
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
  state_->until = saturating_add(begin, time);
  if (state_->until < state_->armed) state_->arm();
}
void Patience::end() noexcept { state_->until = no_deadline; }

// ---- reading ----

Connection::Connection(tcp::socket socket, const SessionOptions& options)
    : socket_(std::move(socket)),
      options_(options),
      patience_(socket_),
      reader_(options.max_header_bytes, options.max_body_bytes) {
  error_code ignored;
  const auto remote = socket_.remote_endpoint(ignored);
  if (!ignored) peer_ = remote.address().to_string();
  socket_.set_option(tcp::no_delay(true), ignored);
  socket_.non_blocking(true, ignored);
}

void Connection::next() {
  reading_ = true;
  error_.clear();
  reader_.next();
  patience_.limit(reader_.begun() ? options_.read_timeout : idle_.value_or(options_.read_timeout));
  progress(false);
}

void Connection::hurry(std::chrono::nanoseconds idle) {
  idle_ = idle;
  if (reading_ && !reader_.done() && !reader_.begun()) patience_.limit(idle);
}

bool Connection::has_unread() const {
  char byte = 0;
  return ::recv(const_cast<tcp::socket&>(socket_).native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
}

asio::awaitable<std::size_t> Connection::more() {
  return socket_.async_read_some(reader_.room(), asio::redirect_error(asio::use_awaitable, error_));
}

void Connection::take(std::size_t bytes) {
  const bool first = !reader_.begun(), had_header = reader_.has_header();
  // A request that arrives just as the time for it to begin is over has begun.
  if (error_ == asio::error::operation_aborted && idle_ && first && has_unread()) error_.clear();
  if (error_) {
    patience_.end();
    return reader_.fail(error_);
  }
  if (idle_ && first) patience_.limit(options_.read_timeout);
  reader_.take(bytes);
  progress(had_header);
}

// The limit of time that holds now; and the word that a client may wait for before it sends the body.
void Connection::progress(bool had_header) {
  if (reader_.done()) return patience_.end();
  if (had_header || !reader_.has_header()) return;
  patience_.limit(options_.body_timeout);
  if (!reader_.expects_continue()) return;
  // If it does not fit, the client has not read earlier responses, and does without.
  error_code ignored;
  socket_.write_some(asio::buffer(std::string_view("HTTP/1.1 100 Continue\r\n\r\n")), ignored);
}

// ---- writing ----

// A large body is sent from where it is; a small one is copied behind the head, so that both take one system call.
bool Connection::send(Response& response, bool head_only) {
  out_.clear();
  body_.clear();
  sent_ = 0;
  const Head head = append_head(out_, response.base(), response.body().size());
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
  return write_now();
}

bool Connection::send_head(Response& head) {
  out_.clear();
  body_.clear();
  sent_ = 0;
  const Head written = append_head(out_, head.base(), 0);
  keeps_alive_ = written.connection ? head.keep_alive() : head.version() == 11;
  return write_now();
}

bool Connection::send_bytes(std::string bytes) {
  if (broken_) return true;
  out_ = std::move(bytes);
  body_.clear();
  sent_ = 0;
  return write_now();
}

bool Connection::write_now() {
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
  error_.clear();
  std::vector<char> waste(64 * 1024);
  for (std::size_t thrown_away = 0; !error_ && thrown_away < kMost;)
    thrown_away += co_await socket_.async_read_some(asio::buffer(waste),
                                                    asio::redirect_error(asio::use_awaitable, error_));
}

// ---- watching ----

struct Connection::Watch {
  std::function<void()> gone;
  asio::steady_timer again;
};

void Connection::watch(std::function<void()> gone) {
  watch_ = std::make_shared<Watch>(std::move(gone), asio::steady_timer(socket_.get_executor()));
  socket_.async_wait(tcp::socket::wait_read, [this, weak = std::weak_ptr(watch_)](error_code error) {
    const auto watch = weak.lock();  // then the connection is alive as well
    if (!error && watch) look(watch);
  });
}

// The socket is readable: the client has closed it, or has sent part of its next request. In the second case it stays
// readable, and Asio cannot wait for the end alone, so poll.
void Connection::look(const std::shared_ptr<Watch>& watch) {
  pollfd fd{.fd = socket_.native_handle(), .events = POLLRDHUP, .revents = 0};
  if (::poll(&fd, 1, 0) > 0) {
    watch->gone();
    return;
  }
  watch->again.expires_after(std::chrono::milliseconds(50));
  watch->again.async_wait([this, weak = std::weak_ptr(watch)](error_code error) {
    const auto alive = weak.lock();
    if (!error && alive) look(alive);
  });
}

void Connection::unwatch() {
  if (!watch_) return;
  watch_.reset();
  error_code ignored;
  socket_.cancel(ignored);
}

}  // namespace bulkhead::beast
