#include "server.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/basic_stream.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/ssl/ssl_stream.hpp>
#include <cerrno>
#include <cstdio>
#include <ctime>
#include <future>
#include <list>
#include <system_error>
#include <thread>

#include "front.h"
#include "handlers.h"
#include "sockets.h"

namespace bulkhead::control {
namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using asio::awaitable;
using error_code = boost::system::error_code;

namespace {

constexpr auto use_tuple = asio::as_tuple(asio::use_awaitable);
constexpr std::chrono::milliseconds kGlance{100};
constexpr int kGlancesPerSecond = 10;

using Socket = beast::basic_stream<asio::generic::stream_protocol>;
using TlsSocket = beast::ssl_stream<Socket>;

// Whoever serves calls comes first.
void lower_priority() noexcept { ::setpriority(PRIO_PROCESS, static_cast<id_t>(::syscall(SYS_gettid)), 10); }

// "Tue, 17 Nov 2026 09:30:00 GMT" (RFC 9110), whatever the program's locale.
std::string http_date(std::chrono::system_clock::time_point time) {
  constexpr std::string_view days = "SunMonTueWedThuFriSat", months = "JanFebMarAprMayJunJulAugSepOctNovDec";
  const std::time_t seconds = std::chrono::system_clock::to_time_t(time);
  std::tm utc{};
  ::gmtime_r(&seconds, &utc);
  const auto of = [](std::string_view names, int i) { return names.data() + 3 * i; };
  char text[64];
  std::snprintf(text, sizeof text, "%.3s, %02d %.3s %d %02d:%02d:%02d GMT", of(days, utc.tm_wday),
                utc.tm_mday, of(months, utc.tm_mon), utc.tm_year + 1900, utc.tm_hour, utc.tm_min, utc.tm_sec);
  return text;
}

// Signals are for the program's own threads: those made while this lives block them all.
class SignalsBlocked {
 public:
  SignalsBlocked() noexcept {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_{};
};

// One of the connections of a listener, for the time it lasts.
struct Connection {
  bool waits = true;  // for a request, or for the rest of one
  std::function<void()> close;
};

struct Listener {
  std::size_t max;
  std::list<Connection> connections{};  // those that began to wait first come first
};

}  // namespace

// Invariants: everything but core_ is used by the thread of io_ only, but for the constructor before that thread runs and
// the destructor after it. A connection is in its listener's list as long as its coroutine lives.
class Server::Impl {
 public:
  Impl(Plant plant, ServerOptions options) : core_(std::move(plant), std::move(options)) {
    ServerOptions& o = core_.options;
    if (o.instance.empty()) {
      char name[256] = {};
      ::gethostname(name, sizeof name - 1);
      o.instance = name;
    }
    if (o.listen.empty() && o.unix_socket.empty())
      throw std::invalid_argument(
          "control: neither listen nor unix_socket is given: there would be no way in");
    if (!o.listen.empty()) {
      address_ = parse_listen(o.listen);
      check_listen(address_, o, core_.tokens);
      if (!o.certificate.empty()) load_certificate(o);
      tcp_.emplace(open_tcp(io_, address_));
      port_ = tcp_->local_endpoint().port();
    }
    core_.hosts = own_hosts(address_, o);
    if (!o.unix_socket.empty()) local_.emplace(open_local(io_, o.unix_socket));
    if (tcp_) asio::co_spawn(io_, accept(*tcp_, remote_listener_), asio::detached);
    if (local_) asio::co_spawn(io_, accept(*local_, local_listener_), asio::detached);
    asio::co_spawn(io_, tick(), asio::detached);
    core_.journal.add({.kind = "start",
                       .text = o.instance + " is up, version " + o.version,
                       .audit = true,
                       .action = "start"});
    core_.observer.second();
    const SignalsBlocked blocked;
    worker_.emplace(1);
    asio::post(*worker_, lower_priority);
    thread_ = std::thread([this] {
      lower_priority();
      io_.run();
    });
  }

  ~Impl() {
    // The worker first: what it has in hand is answered to a loop that still runs.
    asio::post(io_, [this] { close_acceptors(); });
    worker_->join();
    io_.stop();
    thread_.join();
    if (local_) ::unlink(core_.options.unix_socket.c_str());
    core_.journal.add({.kind = "stop", .text = "overrides end here", .audit = true, .action = "stop"});
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  std::uint16_t port() const noexcept { return port_; }
  std::string url() const {
    if (!tcp_) return "";
    const bool v6 = address_.host.find(':') != std::string::npos;
    return (tls_ ? "https://" : "http://") + (v6 ? '[' + address_.host + ']' : address_.host) + ':' +
           std::to_string(port_);
  }
  void set_stopping() noexcept { core_.stopping = true; }
  void reloaded(const ConfigPlan& plan, std::string_view actor) {
    std::promise<void> done;
    asio::post(*worker_, [&] {
      Entry entry{.actor = std::string(actor), .audit = true, .action = "reload"};
      tell_reload(entry, core_.options.config.path, plan);
      core_.journal.add(std::move(entry));
      if (plan.errors.empty()) core_.reconcile();
      core_.changed = true;
      done.set_value();
    });
    done.get_future().wait();
  }
  void note(std::string_view kind, std::string_view text) {
    core_.journal.add({.kind = std::string(kind), .text = std::string(text)});
  }

 private:
  void load_certificate(const ServerOptions& o) {
    tls_.emplace(asio::ssl::context::tls_server);
    tls_->set_options(asio::ssl::context::default_workarounds | asio::ssl::context::no_sslv2 |
                      asio::ssl::context::no_sslv3 | asio::ssl::context::no_tlsv1 |
                      asio::ssl::context::no_tlsv1_1);
    error_code error;
    tls_->use_certificate_chain_file(o.certificate, error);
    if (error)
      throw std::invalid_argument("control: certificate \"" + o.certificate + "\": " + error.message());
    tls_->use_private_key_file(o.private_key, asio::ssl::context::pem, error);
    if (error)
      throw std::invalid_argument("control: private_key \"" + o.private_key + "\": " + error.message());
  }

  void close_acceptors() {
    error_code ignored;
    if (tcp_) tcp_->close(ignored);
    if (local_) local_->close(ignored);
  }

  awaitable<void> tick() {
    asio::steady_timer timer(io_);
    auto next = std::chrono::steady_clock::now();
    for (int glances = 1;; ++glances) {
      // A tick that comes late is not made up for.
      next = std::max(next + kGlance, std::chrono::steady_clock::now());
      timer.expires_at(next);
      const auto [error] = co_await timer.async_wait(use_tuple);
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
      if (core_.changes.count() > 0) asio::post(*worker_, [this] { core_.expire(); });
      for (asio::steady_timer* const waiting : subscribers_) waiting->cancel();
    }
  }

  template <class Acceptor>
  awaitable<void> accept(Acceptor& acceptor, Listener& listener) {
    for (;;) {
      auto [error, socket] = co_await acceptor.async_accept(use_tuple);
      if (!acceptor.is_open()) co_return;
      if (error) {  // no more descriptors, say: they will come back
        asio::steady_timer pause(io_, kGlance);
        co_await pause.async_wait(use_tuple);
        continue;
      }
      if (!make_room(listener)) continue;  // closes the socket
      const bool local = &listener == &local_listener_;
      Caller caller = local ? local_caller(socket.native_handle()) : Caller{};
      Socket stream{asio::generic::stream_protocol::socket(std::move(socket))};
      if (!local && tls_)
        asio::co_spawn(io_, connection_tls(std::move(stream), listener, std::move(caller)), asio::detached);
      else
        asio::co_spawn(io_, connection(std::move(stream), listener, std::move(caller)), asio::detached);
    }
  }

  // At the limit, the connection that has waited longest for a request goes: a slow client costs others nothing.
  static bool make_room(Listener& listener) {
    if (listener.connections.size() < listener.max) return true;
    for (Connection& connection : listener.connections) {
      if (!connection.waits) continue;
      connection.waits = false;  // its coroutine ends in its own time
      connection.close();
      return true;
    }
    return false;
  }

  class Enrolled {
   public:
    Enrolled(Listener& listener, std::function<void()> close) : listener_(listener) {
      listener.connections.push_back({true, std::move(close)});
      self_ = std::prev(listener.connections.end());
    }
    ~Enrolled() { listener_.connections.erase(self_); }
    Enrolled(const Enrolled&) = delete;
    Enrolled& operator=(const Enrolled&) = delete;
    void waits(bool on) {
      self_->waits = on;
      if (on) listener_.connections.splice(listener_.connections.end(), listener_.connections, self_);
    }

   private:
    Listener& listener_;
    std::list<Connection>::iterator self_;
  };

  awaitable<void> connection(Socket stream, Listener& listener, Caller caller) {
    Enrolled enrolled(listener, [&stream] { stream.close(); });
    co_await requests(stream, enrolled, std::move(caller));
  }

  awaitable<void> connection_tls(Socket socket, Listener& listener, Caller caller) {
    TlsSocket stream(std::move(socket), *tls_);
    Enrolled enrolled(listener, [&stream] { beast::get_lowest_layer(stream).close(); });
    beast::get_lowest_layer(stream).expires_after(core_.options.request_timeout);
    const auto [error] = co_await stream.async_handshake(asio::ssl::stream_base::server, use_tuple);
    if (!error) co_await requests(stream, enrolled, std::move(caller));
  }

  template <class Stream>
  awaitable<void> requests(Stream& stream, Enrolled& enrolled, Caller caller) {
    const ServerOptions& o = core_.options;
    beast::flat_buffer buffer(o.max_header + o.max_body);
    for (;;) {
      enrolled.waits(true);
      http::request_parser<http::string_body> parser;
      parser.header_limit(static_cast<std::uint32_t>(o.max_header));
      parser.body_limit(o.max_body);
      beast::get_lowest_layer(stream).expires_after(o.request_timeout);
      const error_code error = co_await read(stream, buffer, parser);
      enrolled.waits(false);
      if (error) {
        if (Response refusal = refusal_of(error); refusal.body) co_await write(stream, refusal, false, false);
        break;
      }
      http::request<http::string_body> raw = parser.release();
      const bool keep = raw.keep_alive() && !core_.stopping;
      Request request = understand(core_, raw, caller, ++requests_);
      const Response response = co_await answer(std::move(request));
      if (response.stream) {
        co_await stream_frames(stream);
        break;
      }
      if (!co_await write(stream, response, keep, raw.method() == http::verb::head) || !keep) break;
    }
    error_code ignored;
    beast::get_lowest_layer(stream).socket().shutdown(asio::socket_base::shutdown_both, ignored);
  }

  template <class Stream>
  static awaitable<error_code> read(Stream& stream, beast::flat_buffer& buffer,
                                    http::request_parser<http::string_body>& parser) {
    const auto [no_header, header] = co_await http::async_read_header(stream, buffer, parser, use_tuple);
    if (no_header) co_return no_header;
    // It waits for a word before it sends its body.
    if (!parser.is_done() && beast::iequals(parser.get()[http::field::expect], "100-continue")) {
      const http::response<http::empty_body> go_on(http::status::continue_, 11);
      const auto [gone, written] = co_await http::async_write(stream, go_on, use_tuple);
      if (gone) co_return gone;
    }
    const auto [error, size] = co_await http::async_read(stream, buffer, parser, use_tuple);
    co_return error;
  }

  awaitable<Response> answer(Request request) {
    const Answered decided = answer_at_once(core_, request);
    if (!decided.route) co_return decided.response;
    co_return co_await asio::co_spawn(
        *worker_,
        [this, route = decided.route, &request]() -> awaitable<Response> {
          core_.expire();
          co_return handle(core_, *route, request);
        },
        asio::use_awaitable);
  }

  template <class Message>
  static void add_headers(Message& message, const Response& response) {
    message.set(http::field::date, http_date(std::chrono::system_clock::now()));
    message.set(http::field::content_type, response.type);
    message.set(http::field::cache_control, "no-store");
    message.set("X-Content-Type-Options", "nosniff");
    message.set("X-Frame-Options", "DENY");
    message.set("Referrer-Policy", "no-referrer");
    for (const auto& [name, value] : response.headers) message.set(name, value);
  }

  template <class Stream>
  awaitable<bool> write(Stream& stream, const Response& response, bool keep, bool head_only) {
    static const auto nothing = std::make_shared<const std::string>();
    const std::shared_ptr<const std::string> body = response.body ? response.body : nothing;
    http::response<http::span_body<const char>> message(http::int_to_status(response.status), 11);
    add_headers(message, response);
    message.keep_alive(keep);
    message.content_length(body->size());
    if (!head_only) message.body() = beast::span<const char>(body->data(), body->size());
    beast::get_lowest_layer(stream).expires_after(core_.options.write_timeout);
    const auto [error, size] = co_await http::async_write(stream, message, use_tuple);
    co_return !error;
  }

  class Subscribed {
   public:
    Subscribed(std::list<asio::steady_timer*>& all, asio::steady_timer& timer) : all_(all) {
      self_ = all.insert(all.end(), &timer);
    }
    ~Subscribed() { all_.erase(self_); }
    Subscribed(const Subscribed&) = delete;
    Subscribed& operator=(const Subscribed&) = delete;

   private:
    std::list<asio::steady_timer*>& all_;
    std::list<asio::steady_timer*>::iterator self_;
  };

  template <class Stream>
  awaitable<void> stream_frames(Stream& stream) {
    if (subscribers_.size() >= core_.options.max_streams) {
      Response refusal = refuse(503, "unavailable",
                                "there are " + std::to_string(subscribers_.size()) +
                                    " streams already: ask GET /v1/snapshot every 5 seconds instead");
      refusal.headers.emplace_back("Retry-After", "5");
      co_await write(stream, refusal, false, false);
      co_return;
    }
    asio::steady_timer next(io_);
    const Subscribed subscribed(subscribers_, next);
    Response start;
    start.type = "text/event-stream";
    start.headers.emplace_back("X-Accel-Buffering", "no");  // for proxies that would wait for more
    http::response<http::empty_body> head(http::status::ok, 11);
    add_headers(head, start);
    head.keep_alive(false);
    http::response_serializer<http::empty_body> serializer(head);
    beast::get_lowest_layer(stream).expires_after(core_.options.write_timeout);
    const auto [failed, written] = co_await http::async_write_header(stream, serializer, use_tuple);
    if (failed) co_return;
    std::uint64_t seq = core_.observer.seq();
    auto frame = std::make_shared<const std::string>(
        "id: " + std::to_string(seq) + "\nevent: snapshot\ndata: " + text_of(core_.observer.snapshot(50)) +
        "\n\n");
    for (;;) {
      beast::get_lowest_layer(stream).expires_after(core_.options.write_timeout);
      const auto [error, sent] = co_await asio::async_write(stream, asio::buffer(*frame), use_tuple);
      if (error || core_.stopping) co_return;
      // One that took long to read is given the newest frame, not those it missed.
      beast::get_lowest_layer(stream).expires_never();
      while (core_.observer.seq() == seq) {
        next.expires_at(asio::steady_timer::time_point::max());
        co_await next.async_wait(use_tuple);
      }
      seq = core_.observer.seq();
      frame = core_.observer.frame();
    }
  }

  Core core_;
  Address address_;
  std::uint16_t port_ = 0;
  Listener remote_listener_{core_.options.max_connections},
      local_listener_{core_.options.max_local_connections};
  std::list<asio::steady_timer*> subscribers_;
  std::uint64_t requests_ = 0;
  std::optional<asio::ssl::context> tls_;
  asio::io_context io_{1};  // ends the coroutines that still wait, which look at what stands above
  std::optional<asio::ip::tcp::acceptor> tcp_;
  std::optional<asio::local::stream_protocol::acceptor> local_;
  std::optional<asio::thread_pool> worker_;
  std::thread thread_;
};

Plant plant_of(Registry& registry) {
  return {.snapshot = [&registry] { return registry.snapshot(); },
          .find = [&registry](std::string_view name) { return registry.find(name); },
          .resize = [&registry](std::string_view name, std::uint32_t n) { registry.resize(name, n); },
          .resize_queue = [&registry](std::string_view name,
                                      std::uint32_t n) { registry.resize_queue(name, n); }};
}

Server::Server(Plant plant, ServerOptions options)
    : impl_(std::make_unique<Impl>(std::move(plant), std::move(options))) {}
Server::~Server() = default;
std::uint16_t Server::port() const noexcept { return impl_->port(); }
std::string Server::url() const { return impl_->url(); }
void Server::set_stopping() noexcept { impl_->set_stopping(); }
void Server::reloaded(const ConfigPlan& plan, std::string_view actor) { impl_->reloaded(plan, actor); }
void Server::note(std::string_view kind, std::string_view text) { impl_->note(kind, text); }

}  // namespace bulkhead::control
