#include "listener.h"

#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <exception>
#include <type_traits>

namespace bulkhead::beast {
namespace asio = boost::asio;
using boost::system::error_code;

namespace {

constexpr std::chrono::milliseconds kPauseForRoom(5), kPauseAfterFailure(20);

}  // namespace

OpenConnections::Token OpenConnections::begin(bool listener) {
  const detail::MutexLock lock(mutex_);
  if (listener)
    ++listeners_;
  else
    ++connections_;
  return {*this, listener};
}

void OpenConnections::end(bool listener) noexcept {
  const detail::MutexLock lock(mutex_);
  if (listener)
    --listeners_;
  else
    --connections_;
  if (none()) ended_.notify_all();
}

bool OpenConnections::wait(TimePoint until) {
  detail::UniqueLock lock(mutex_);
  while (!stopped_ && !none()) {
    if (until == no_deadline)
      ended_.wait(lock);
    else if (ended_.wait_until(lock, until) == std::cv_status::timeout)
      break;
  }
  return none();
}

void OpenConnections::stop_waiting() noexcept {
  const detail::MutexLock lock(mutex_);
  stopped_ = true;
  ended_.notify_all();
}

template <class Protocol>
Listener<Protocol>::Listener(Acceptor acceptor, OpenConnections& open, Hooks hooks)
    : acceptor_(std::move(acceptor)), open_(open), hooks_(std::move(hooks)) {
  if constexpr (std::is_same_v<Protocol, asio::ip::tcp>) port_ = acceptor_.local_endpoint().port();
}

// After draining it still accepts connections that the kernel has completed: their clients would get a reset.
template <class Protocol>
asio::awaitable<void> Listener<Protocol>::accept(OpenConnections::Token) {
  asio::steady_timer pause(acceptor_.get_executor());
  error_code error, ignored;
  bool failing = false;
  while (!draining_) {
    if (failing || !hooks_.has_room()) {
      pause.expires_after(failing ? kPauseAfterFailure : kPauseForRoom);
      co_await pause.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
      if (draining_ || !hooks_.has_room()) continue;
    }
    Socket socket =
        co_await acceptor_.async_accept(hooks_.executor(), asio::redirect_error(asio::use_awaitable, error));
    if (error == asio::error::operation_aborted) continue;
    if (!error) error = begin(std::move(socket));
    if (error) hooks_.failed(error, failing);
    failing = bool(error);
  }
  error.clear();
  acceptor_.non_blocking(true, error);
  while (!error && hooks_.has_room()) {
    Socket socket = acceptor_.accept(hooks_.executor(), error);
    if (!error) error = begin(std::move(socket));
  }
  acceptor_.close(ignored);
}

template <class Protocol>
error_code Listener<Protocol>::begin(Socket socket) noexcept try {
  hooks_.serve(std::move(socket));
  return {};
} catch (const std::exception&) {
  return asio::error::no_memory;
}

template <class Protocol>
void Listener<Protocol>::drain() {
  draining_ = true;
  error_code ignored;
  acceptor_.cancel(ignored);
}

template <class Protocol>
void Listener<Protocol>::close() {
  draining_ = true;
  error_code ignored;
  acceptor_.close(ignored);
}

template class Listener<asio::ip::tcp>;
template class Listener<asio::local::stream_protocol>;

void listen_on(asio::ip::tcp::acceptor& acceptor, const std::string& address, std::uint16_t port,
               error_code& error) {
  const auto ip = asio::ip::make_address(address, error);
  const asio::ip::tcp::endpoint endpoint(ip, port);
  if (!error) acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.set_option(asio::socket_base::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
}

}  // namespace bulkhead::beast
