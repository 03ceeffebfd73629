#include "server.h"

#include <pwd.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
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
#include <future>
#include <list>
#include <system_error>
#include <thread>

#include "routes.h"

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

constexpr std::string_view kPagePolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

using Socket = beast::basic_stream<asio::generic::stream_protocol>;
using TlsSocket = beast::ssl_stream<Socket>;

std::string user_name(uid_t uid) {
  char buffer[4096];
  passwd entry{};
  passwd* found = nullptr;
  if (::getpwuid_r(uid, &entry, buffer, sizeof buffer, &found) == 0 && found)
    return std::string("unix:") + found->pw_name;
  return "unix:" + std::to_string(uid);
}

Caller local_caller(int fd) {
  ucred peer{};
  socklen_t size = sizeof peer;
  Caller caller{.actor = "unix:unknown", .role = Role::admin, .local = true};
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0) caller.actor = user_name(peer.uid);
  return caller;
}

// Whoever serves calls comes first.
void lower_priority() noexcept { ::setpriority(PRIO_PROCESS, static_cast<id_t>(::syscall(SYS_gettid)), 10); }

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

[[noreturn]] void fail(int error, const std::string& what) {
  throw std::system_error(error, std::generic_category(), "control: " + what);
}

// A socket file that nobody listens on any more is replaced; one that is alive is left alone.
asio::local::stream_protocol::acceptor open_local(asio::io_context& io, const std::string& path) {
  using Local = asio::local::stream_protocol;
  const std::string what = "cannot listen on unix_socket \"" + path + '"';
  if (path.size() >= sizeof(sockaddr_un::sun_path)) fail(ENAMETOOLONG, what);
  const Local::endpoint endpoint(path);
  struct stat status{};
  if (::lstat(path.c_str(), &status) == 0) {
    if (!S_ISSOCK(status.st_mode)) fail(EEXIST, what + ": there is something that is not a socket");
    Local::socket probe(io);
    error_code error;
    probe.connect(endpoint, error);
    if (!error) fail(EADDRINUSE, what + ": another process listens there");
    ::unlink(path.c_str());
  }
  Local::acceptor acceptor(io);
  acceptor.open();
  ::fchmod(acceptor.native_handle(), 0660);  // before bind(): the file is never open to more
  error_code error;
  acceptor.bind(endpoint, error);
  if (!error) ::chmod(path.c_str(), 0660);  // whatever the umask
  if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
  if (error) fail(error.value(), what);
  return acceptor;
}

asio::ip::tcp::acceptor open_tcp(asio::io_context& io, const Address& address) {
  error_code error;
  const std::string what = "cannot listen on \"" + address.host + ':' + std::to_string(address.port) + '"';
  const auto ip = asio::ip::make_address(address.host, error);
  if (error) throw std::invalid_argument("control: listen: \"" + address.host + "\" is not an IP address");
  const asio::ip::tcp::endpoint endpoint(ip, address.port);
  asio::ip::tcp::acceptor acceptor(io);
  acceptor.open(endpoint.protocol());
  acceptor.set_option(asio::socket_base::reuse_address(true));
  acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
  if (error) fail(error.value(), what);
  return acceptor;
}

// One of the connections of a listener, for the time it lasts.
struct Connection {
  bool waits = true;  // for a request, or for the rest of one
  std::function<void()> close;
};

struct Listener {
  std::size_t max;
  std::list<Connection> connections{};  // those that began to wait first come first
};

Response problem(unsigned status, std::string type, std::string detail) {
  return respond(Problem{.status = status, .type = std::move(type), .detail = std::move(detail)}, 0);
}

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
      Entry entry{.kind = plan.errors.empty() ? "reload" : "reload_failed",
                  .actor = std::string(actor),
                  .audit = true,
                  .action = "reload"};
      entry.text = plan.errors.empty() ? std::to_string(plan.changes.size()) + " changes"
                                       : plan.errors.front().message;
      entry.result = plan.errors.empty() ? "ok" : "failed";
      entry.after = plan.revision;
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
      const auto [error, size] = co_await http::async_read(stream, buffer, parser, use_tuple);
      enrolled.waits(false);
      if (error) {
        if (Response refusal = refusal_of(error); refusal.body) co_await write(stream, refusal, false, false);
        break;
      }
      http::request<http::string_body> raw = parser.release();
      const bool keep = raw.keep_alive() && !core_.stopping;
      Request request = understand(raw, caller);
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

  static Response refusal_of(const error_code& error) {
    if (error == http::error::header_limit) return problem(431, "too_large", "the header is too large");
    if (error == http::error::body_limit || error == http::error::buffer_overflow)
      return problem(413, "too_large", "the body is too large");
    if (error == http::error::end_of_stream || error == http::error::partial_message ||
        error.category() != http::make_error_code(http::error::end_of_stream).category())
      return {};  // gone, or too slow
    return problem(400, "bad_request", "this is not HTTP: " + error.message());
  }

  Request understand(const http::request<http::string_body>& raw, const Caller& caller) {
    const auto header = [&](http::field name) { return std::string(raw[name]); };
    Request r;
    r.id = ++requests_;
    r.method = std::string(raw.method_string());
    r.host = header(http::field::host);
    r.origin = header(http::field::origin);
    r.fetch_site = std::string(raw["Sec-Fetch-Site"]);
    r.authorization = header(http::field::authorization);
    r.content_type = header(http::field::content_type);
    r.if_match = header(http::field::if_match);
    r.if_none_match = header(http::field::if_none_match);
    r.accept = header(http::field::accept);
    r.body = raw.body();
    if (!parse_target({raw.target().data(), raw.target().size()}, r)) r.path.clear();
    r.caller = caller;
    if (caller.local) return r;
    if (!r.authorization.empty())
      r.caller = core_.tokens.check(r.authorization, std::chrono::system_clock::now());
    else
      r.caller.role = core_.options.anonymous;
    return r;
  }

  awaitable<Response> answer(Request request) {
    const Route* route = nullptr;
    Response response;
    try {
      if (request.path.empty())
        throw Problem{
            .status = 400, .type = "bad_request", .detail = "the target is not a path, or badly encoded"};
      if (is_page(request)) co_return page(request);
      const bool probe = request.segments[0] == "livez" || request.segments[0] == "readyz";
      const Request asked = probe ? trusted(request) : request;
      check_access(core_, nullptr, asked);  // before it is told what there is
      route = &find_route(request);
      check_access(core_, route, asked);
      if (route->where == Where::loop) co_return handle(core_, *route, request);
    } catch (const Problem& wrong) {
      co_return respond(wrong, request.id);
    }
    co_return co_await asio::co_spawn(
        *worker_,
        [this, route, &request]() -> awaitable<Response> {
          core_.expire();
          co_return handle(core_, *route, request);
        },
        asio::use_awaitable);
  }

  // Probes are asked for their Host, but not for who they are.
  static Request trusted(Request request) {
    request.caller.role = Role::viewer;
    request.caller.denied.clear();
    return request;
  }

  static bool is_page(const Request& r) {
    return !r.changes() && (r.path == "/" || (!r.segments.empty() && r.segments[0] == "ui"));
  }

  Response page(const Request& r) {
    Request own = r;  // a link from elsewhere may lead here: the page shows nothing by itself
    own.fetch_site.clear();
    own.origin.clear();
    if (const std::string why = wrong_site(own, core_.hosts); !why.empty())
      return respond(Problem{.status = 403, .type = "forbidden", .detail = why}, r.id);
    if (core_.options.assets.empty())
      return respond("Bulkhead control plane, without its dashboard. /v1/openapi.json says what there is.\n",
                     "text/plain; charset=utf-8", r.path == "/" ? 200 : 404);
    if (r.segments.size() < 2) {  // without the last slash
      Response response = respond("", "text/plain", 302);
      response.headers.emplace_back("Location", "ui/");  // relative: there may be a prefix before it
      return response;
    }
    const std::string_view path = r.segments[1].empty() ? "index.html" : std::string_view(r.path).substr(4);
    for (const Asset& asset : core_.options.assets) {
      if (asset.path != path) continue;
      const bool known = !r.if_none_match.empty() && r.if_none_match == asset.etag;
      Response response = respond(known ? std::string() : std::string(asset.gzip.begin(), asset.gzip.end()),
                                  std::string(asset.content_type), known ? 304 : 200);
      response.headers = {{"Content-Encoding", "gzip"},
                          {"Content-Security-Policy", std::string(kPagePolicy)},
                          {"ETag", std::string(asset.etag)},
                          {"Cache-Control", "no-cache"}};
      return response;
    }
    return respond(Problem{.status = 404, .type = "not_found", .detail = "the dashboard has no such file"},
                   r.id);
  }

  template <class Message>
  static void add_headers(Message& message, const Response& response) {
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
      Response refusal = problem(503, "unavailable",
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
