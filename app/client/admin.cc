#include "app/client/admin.h"

#include <fmt/format.h>
#include <netdb.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <boost/json/parse.hpp>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <utility>

#include "app/cli/text.h"
#include "app/client/tls.h"

namespace bulkhead::client {
namespace {

class Fd {
 public:
  explicit Fd(int fd = -1) noexcept : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  ~Fd() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const noexcept { return fd_; }

 private:
  int fd_;
};

Fd connect_local(const std::string& path) {
  sockaddr_un to{};
  to.sun_family = AF_UNIX;
  if (path.size() >= sizeof to.sun_path) return errno = ENAMETOOLONG, Fd{};
  path.copy(to.sun_path, path.size());
  Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0) return Fd{};
  return fd;
}

Fd connect_tcp(const std::string& host, const std::string& port, std::string& trouble) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int unknown = ::getaddrinfo(host.c_str(), port.c_str(), &hints, &found); unknown != 0)
    return trouble = ::gai_strerror(unknown), Fd{};
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> list(found, ::freeaddrinfo);
  for (const addrinfo* a = found; a; a = a->ai_next) {
    Fd fd(::socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol));
    if (::connect(fd.get(), a->ai_addr, a->ai_addrlen) == 0) return fd;
  }
  return Fd{};
}

bool send_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::send(fd, text.data(), text.size(), MSG_NOSIGNAL);
    if (n <= 0) return false;
    text.remove_prefix(static_cast<std::size_t>(n));
  }
  return true;
}

// The texts come from other people, and the server may not be a control plane: they must not control this terminal.
void make_printable(boost::json::value& value, bool lines) {
  if (auto* const text = value.if_string()) {
    *text = cli::printable(*text, lines);
  } else if (auto* const list = value.if_array()) {
    for (boost::json::value& element : *list) make_printable(element, lines);
  } else if (auto* const object = value.if_object()) {
    for (auto& [key, member] : *object)
      make_printable(member, key == "error");  // which shows lines of the file
  }
}

bool is_socket(const std::string& path) {
  struct stat found{};
  return ::stat(path.c_str(), &found) == 0 && S_ISSOCK(found.st_mode);
}

// "127.0.0.1:9920", "[::1]:9920", "localhost:9920"; not "unix:PATH" nor a path.
bool is_host_and_port(std::string_view where) {
  const std::size_t colon = where.rfind(':');
  if (colon == where.npos || colon == 0 || colon + 1 == where.size()) return false;
  return where.find('/') == where.npos && where.find_first_not_of("0123456789", colon + 1) == where.npos &&
         !is_socket(std::string(where));
}

// The server speaks of routes and JSON pointers; at the command line there are commands and options.
std::string in_words_of_the_command_line(std::string text) {
  constexpr std::pair<std::string_view, std::string_view> kWords[] = {
      {"GET /v1/bulkheads lists them", "bulkhead status lists them"},
      {"GET /v1/switches lists them", "bulkhead switch lists them"},
      {"PUT /v1/drains/", "bulkhead drain "},
      {"end the fault with DELETE", "end it with --end"},
      {"and a token that has it: Authorization: Bearer TOKEN, or the unix socket",
       "and a token that has it (--token), or the unix socket (--admin PATH)"},
      {"/max_concurrent", "--max-concurrent"},
      {"/max_queue", "--max-queue"},
      {"/ttl", "--for"},
      {"/reason", "--reason"},
      {"/latency", "--latency"},
      {"/error:", "--error:"}};
  for (const auto& [from, to] : kWords)
    for (std::size_t at = text.find(from); at != text.npos; at = text.find(from, at + to.size()))
      text.replace(at, from.size(), to);
  return text;
}

std::string header(std::string_view head, std::string_view name) {
  const std::size_t at = head.find(fmt::format("\r\n{}: ", name));
  if (at == std::string_view::npos) return "";
  const std::size_t start = at + name.size() + 4;
  return std::string(head.substr(start, head.find("\r\n", start) - start));
}

}  // namespace

std::string encoded(std::string_view name) {
  std::string out;
  for (const char c : name) {
    const bool plain =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || std::strchr("-_.~", c);
    out += plain && c != '\0' ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return out;
}

Admin Admin::at(const std::string& where, const std::string& token, const std::string& certificate) {
  Admin admin;
  admin.where_ = where;
  admin.token_ = token;
  admin.certificate_ = certificate;
  const char* const environment = std::getenv("BULKHEAD_ADMIN");
  if (admin.where_.empty() && environment) admin.where_ = environment;
  if (admin.where_.empty())
    admin.where_ = ::access(std::string(kUsualSocket).c_str(), F_OK) == 0 ? kUsualSocket : kUsualUrl;
  if (is_host_and_port(admin.where_)) admin.where_ = "http://" + admin.where_;
  std::string_view rest = admin.where_;
  admin.tls_ = rest.starts_with("https://");
  if (!admin.tls_ && !rest.starts_with("http://")) {
    const bool looks_like_one = rest.find('/') != rest.npos && rest.find("://") == rest.npos;
    const bool path = rest.starts_with("unix:") || looks_like_one || is_socket(admin.where_);
    if (rest.starts_with("unix:")) rest.remove_prefix(5);
    if (!path || rest.empty())
      throw std::invalid_argument(fmt::format(
          "--admin \"{}\" is not a path, unix:PATH, host:port, http://host:port or https://host:port",
          admin.where_));
    admin.socket_path_ = rest;
    return admin;
  }
  rest.remove_prefix(admin.tls_ ? 8 : 7);
  rest = rest.substr(0, rest.find_first_of("?#"));
  const std::size_t slash = std::min(rest.find('/'), rest.size());
  admin.prefix_ = rest.substr(slash);
  while (admin.prefix_.ends_with('/')) admin.prefix_.pop_back();
  if (admin.prefix_.ends_with("/ui"))
    admin.prefix_.resize(admin.prefix_.size() - 3);  // the dashboard's address
  rest = rest.substr(0, slash);
  const std::size_t colon = rest.rfind(':');
  const std::size_t bracket = rest.rfind(']');
  const bool has_port =
      colon != std::string_view::npos && (bracket == std::string_view::npos || colon > bracket);
  admin.host_ = rest.substr(0, has_port ? colon : rest.size());
  admin.port_ = has_port ? rest.substr(colon + 1) : admin.tls_ ? "443" : "80";
  return admin;
}

std::string Admin::send(const std::string& request, std::string& trouble) const {
  std::string bare = host_;
  if (bare.starts_with('[') && bare.ends_with(']')) bare = bare.substr(1, bare.size() - 2);
  if (tls_) return ask_over_tls(bare, port_, certificate_, request, trouble);
  const Fd fd = socket_path_.empty() ? connect_tcp(bare, port_, trouble) : connect_local(socket_path_);
  const timeval patience{10, 0};
  std::string answer;
  if (fd.get() < 0 || ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) != 0 ||
      !send_all(fd.get(), request)) {
    if (trouble.empty()) trouble = std::strerror(errno);
    return answer;
  }
  char buffer[16384];
  for (ssize_t n; (n = ::recv(fd.get(), buffer, sizeof buffer, 0)) > 0;)
    answer.append(buffer, static_cast<std::size_t>(n));
  return answer;
}

Reply Admin::ask(const Question& q) const {
  const bool local = !socket_path_.empty();
  std::string text =
      fmt::format("{} {} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nAccept: application/json\r\n", q.method,
                  prefix_ + q.path, local ? "localhost" : host_ + ':' + port_);
  if (!token_.empty() && !local) text += fmt::format("Authorization: Bearer {}\r\n", token_);
  if (!q.if_match.empty()) text += fmt::format("If-Match: {}\r\n", q.if_match);
  if (!q.body.empty())
    text += fmt::format("Content-Type: application/json\r\nContent-Length: {}\r\n", q.body.size());
  Reply reply;
  const std::string answer = send(text + "\r\n" + q.body, reply.trouble);
  if (!reply.trouble.empty()) {
    reply.denied = local && ::access(socket_path_.c_str(), W_OK) != 0 && errno == EACCES;
    return reply;
  }
  const std::size_t end = answer.find("\r\n\r\n");
  const std::string_view head = std::string_view(answer).substr(0, end == answer.npos ? 0 : end + 2);
  const std::string length = header(head, "Content-Length");
  if (!head.starts_with("HTTP/1.1 ") ||
      (!length.empty() && length != std::to_string(answer.size() - end - 4))) {
    reply.trouble = "the server there is not a control plane, or it did not answer in time";
    return reply;
  }
  std::from_chars(answer.data() + 9, answer.data() + 12, reply.status);
  reply.etag = header(head, "ETag");
  reply.body = answer.substr(end + 4);
  return reply;
}

boost::json::value Reply::json() const {
  boost::system::error_code error;
  boost::json::value value = boost::json::parse(body, error);
  if (error) return nullptr;
  make_printable(value, false);
  return value;
}

int Reply::exit_code() const noexcept {
  if (ok()) return 0;
  switch (status) {
    case 0:
      return denied ? kForbidden : kUnreachable;
    case 401:
    case 403:
      return kForbidden;
    case 409:
    case 412:
      return kConflict;
    case 400:
    case 422:
      return kInvalid;
    default:
      return 1;
  }
}

std::string Reply::explain() const { return in_words_of_the_command_line(explain_as_sent()); }

std::string Reply::explain_as_sent() const {
  if (status == 0) return trouble + '\n';
  if (status == 412) return "another operator has changed it meanwhile\n";
  const boost::json::value problem = json();
  const auto text = [](const boost::json::value& v, std::string_view name) {
    const auto* const member = v.is_object() ? v.get_object().if_contains(name) : nullptr;
    return member && member->is_string() ? std::string(member->get_string()) : std::string();
  };
  std::string out = text(problem, "detail");
  if (out.empty()) out = fmt::format("HTTP status {}", status);
  out += '\n';
  const auto* const errors = problem.is_object() ? problem.get_object().if_contains("errors") : nullptr;
  if (!errors || !errors->is_array()) return out;
  if (errors->get_array().size() == 1) {
    const boost::json::value& only = errors->get_array().front();
    const std::string hint = text(only, "hint");
    if (out.find(text(only, "message")) != out.npos)  // no need to say it twice
      return out + (hint.empty() ? "" : fmt::format("  {}\n", hint));
  }
  for (const auto& error : errors->get_array()) {
    const std::string pointer = text(error, "pointer"), hint = text(error, "hint");
    std::string line;
    if (const auto* const n = error.is_object() ? error.get_object().if_contains("line") : nullptr;
        n && n->is_int64() && n->get_int64() > 0)
      line = fmt::format("line {}: ", n->get_int64());
    out += fmt::format("  {}{}{}{}\n", line, pointer.empty() ? "" : pointer + ": ", text(error, "message"),
                       hint.empty() ? "" : " (" + hint + ")");
  }
  return out;
}

}  // namespace bulkhead::client
