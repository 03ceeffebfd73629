#include "control/server.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/ip/host_name.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <memory>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>

#include "base/signals.h"
#include "connection.h"
#include "sockets.h"

namespace bulkhead::control {
namespace asio = boost::asio;
using asio::awaitable;
using asio::ip::tcp;
using Local = asio::local::stream_protocol;
using error_code = boost::system::error_code;

namespace {

constexpr std::chrono::milliseconds kGlance{100};
constexpr int kGlancesPerSecond = 10;
constexpr std::chrono::milliseconds kDrainIdle{250};

// The threads of the control plane must not compete with those that serve calls.
void lower_priority() noexcept { ::setpriority(PRIO_PROCESS, static_cast<id_t>(::syscall(SYS_gettid)), 10); }

std::unique_ptr<asio::thread_pool> make_worker() {
  const base::SignalsBlocked blocked;
  return std::make_unique<asio::thread_pool>(1);
}

}  // namespace

// Invariants: only the thread of io_ uses the members, except core_ and open_, the constructor before that thread runs and
// the destructor after it.
class Server::Impl {
 public:
  Impl(Registry& registry, LiveConfig* live, ServerOptions options)
      : core_(registry, live, std::move(options)) {
    ServerOptions& o = core_.options;
    if (o.instance.empty()) o.instance = asio::ip::host_name();
    if (o.listen.empty() && o.unix_socket.empty())
      throw std::invalid_argument("control: neither listen nor unix_socket is given: give at least one");
    if (!o.tokens_file.empty()) front_.tokens = TokensFile(o.tokens_file);
    if (!o.listen.empty()) {
      address_ = parse_listen(o.listen);
      check_listen(address_, o, front_.tokens.now(core_.journal));
      front_.anonymous = o.anonymous.value_or(address_.loopback ? Role::viewer : Role::none);
      if (!o.certificate.empty()) tls_ = load_tls(o.certificate, o.private_key, o.client_authorities);
      tcp_.emplace(open_tcp(io_, address_), open_, hooks<tcp>(remote_));
    }
    front_.hosts = own_hosts(address_, o);
    if (!o.unix_socket.empty()) unix_.emplace(open_local(io_, o, socket_file_), open_, hooks<Local>(local_));
    if (tcp_) asio::co_spawn(io_, tcp_->run(), asio::detached);
    if (unix_) asio::co_spawn(io_, unix_->run(), asio::detached);
    asio::co_spawn(io_, tick(), asio::detached);
    core_.journal.add({.kind = "start",
                       .text = o.instance + " started, version " + o.version,
                       .audit = true,
                       .action = "start"});
    core_.observer.second();
    asio::post(*worker_, lower_priority);
    const base::SignalsBlocked blocked;
    thread_ = std::thread([this] {
      lower_priority();
      io_.run();
    });
  }

  ~Impl() {
    // While it still listens: a successor replaces only the socket of a process that does not.
    socket_file_.remove();
    // The worker first: the loop still sends the responses of its handlers.
    asio::post(io_, [this] {
      if (tcp_) tcp_->close();
      if (unix_) unix_->close();
    });
    worker_->join();
    io_.stop();
    thread_.join();
    core_.observer.stop();
    core_.journal.report_suppressed();
    core_.journal.add({.kind = "stop", .text = "all overrides end", .audit = true, .action = "stop"});
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  std::uint16_t port() const noexcept { return tcp_ ? tcp_->port() : 0; }
  std::string url() const {
    if (!tcp_) return "";
    const bool v6 = address_.host.find(':') != std::string::npos;
    return (tls_ ? "https://" : "http://") + (v6 ? '[' + address_.host + ']' : address_.host) + ':' +
           std::to_string(port());
  }
  void set_stopping() noexcept { core_.stopping = true; }
  bool drain(TimePoint until) {
    set_stopping();
    asio::post(io_, [this] {
      if (!std::exchange(draining_, true)) asio::co_spawn(io_, leave(), asio::detached);
    });
    return open_.wait(until);
  }
  void note(std::string_view kind, std::string_view text) {
    core_.journal.add({.kind = std::string(kind), .text = std::string(text)});
  }

 private:
  template <class Protocol>
  typename beast::Listener<Protocol>::Hooks hooks(Connections& connections) {
    return {
        .has_room = [] { return true; },  // Connections makes room
        .executor = [this] { return asio::any_io_executor(io_.get_executor()); },
        .serve =
            [this, &connections](typename Protocol::socket socket) {
              if (!connections.make_room()) return;  // closes the socket
              const bool local = &connections == &local_;
              Caller caller = local ? local_caller(socket.native_handle()) : Caller{};
              auto stream = make_stream(Socket(std::move(socket)), local ? nullptr : tls_);
              asio::co_spawn(io_,
                             control::serve(shared_, std::move(stream), connections, std::move(caller),
                                            open_.connection()),
                             asio::detached);
            },
        .failed =
            [this](const error_code& error, bool again) {
              if (!again)
                core_.journal.add({.kind = "error", .text = "cannot accept connections: " + error.message()});
            }};
  }

  awaitable<void> tick() {
    asio::steady_timer timer(io_);
    auto next = std::chrono::steady_clock::now();
    for (int glances = 1;; ++glances) {
      // A late tick is not made up for.
      next = std::max(next + kGlance, std::chrono::steady_clock::now());
      timer.expires_at(next);
      error_code error;
      co_await timer.async_wait(asio::redirect_error(asio::use_awaitable, error));
      if (error) co_return;
      if (glances % kGlancesPerSecond != 0) {
        core_.observer.glance();
        continue;
      }
      try {
        core_.observer.second();
      } catch (const std::exception& wrong) {
        core_.journal.add({.kind = "error", .text = wrong.what()});
      }
      if (core_.operations.count() > 0) asio::post(*worker_, [this] { core_.expire(); });
      wake_streams();
    }
  }

  void wake_streams() {
    for (asio::steady_timer* const waiting : shared_.subscribers) waiting->cancel();
  }

  awaitable<void> leave() {
    if (tcp_) tcp_->drain();
    if (unix_) unix_->drain();
    wake_streams();
    // A request that is on its way is still answered. A connection that answers one now closes by itself.
    asio::steady_timer pause(io_, kDrainIdle);
    error_code ignored;
    co_await pause.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
    remote_.close_idle();
    local_.close_idle();
  }

  Core core_;
  Front front_{core_};
  Address address_;
  std::shared_ptr<TlsContext> tls_;
  Connections remote_{core_.options.max_connections}, local_{core_.options.max_local_connections};
  beast::OpenConnections open_;
  const std::unique_ptr<asio::thread_pool> worker_ = make_worker();
  Shared shared_{core_, front_, io_, *worker_};
  bool draining_ = false;
  asio::io_context io_{1};  // its destructor destroys waiting coroutines, which use the members above
  SocketFile socket_file_;
  std::optional<beast::Listener<tcp>> tcp_;
  std::optional<beast::Listener<Local>> unix_;
  std::thread thread_;
};

Server::Server(Registry& registry, LiveConfig& live, ServerOptions options)
    : impl_(std::make_unique<Impl>(registry, &live, std::move(options))) {}
Server::Server(Registry& registry, ServerOptions options)
    : impl_(std::make_unique<Impl>(registry, nullptr, std::move(options))) {}
Server::~Server() = default;
std::uint16_t Server::port() const noexcept { return impl_->port(); }
std::string Server::url() const { return impl_->url(); }
void Server::set_stopping() noexcept { impl_->set_stopping(); }
bool Server::drain(TimePoint until) { return impl_->drain(until); }
void Server::note(std::string_view kind, std::string_view text) { impl_->note(kind, text); }

}  // namespace bulkhead::control
