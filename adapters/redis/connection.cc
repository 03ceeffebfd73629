#include "connection.h"

#include <boost/asio/connect.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/asio/write.hpp>
#include <charconv>
#include <optional>
#include <stdexcept>
#include <system_error>

#include "resp.h"

namespace bulkhead::redis {

namespace asio = boost::asio;
using boost::system::error_code;

struct Connection::Io {
  using Socket = asio::generic::stream_protocol::socket;

  asio::io_context context;
  Socket socket{context};
  std::optional<asio::ssl::context> certificates;
  std::optional<asio::ssl::stream<Socket&>> tls;
  bool done = false;
  error_code error;
  std::size_t size = 0;

  // For the handlers: notes the outcome of the one operation that is under way.
  auto note() {
    return [this](error_code e, std::size_t n = 0) {
      done = true;
      error = e;
      size = n;
    };
  }

  // Runs the operation that was started last, until its end or `until`.
  std::size_t wait(const Address& to, const char* what, Until until) {
    context.restart();
    context.run_until(until);
    if (!done) {
      error_code ignored;
      socket.close(ignored);
      context.restart();
      context.run();
      done = false;  // its handler has run: it was cancelled
      throw std::runtime_error(to_string(to) + ": no answer in time (" + what + ")");
    }
    done = false;
    if (!error) return size;
    std::string why = error.message();
    if (tls && ::SSL_get_verify_result(tls->native_handle()) != X509_V_OK)
      why = std::string("its certificate is not trusted: ") +
            ::X509_verify_cert_error_string(::SSL_get_verify_result(tls->native_handle())) +
            " (fleet.ca_file)";
    throw std::runtime_error(to_string(to) + ": " + why + " (" + what + ")");
  }
};

namespace {

void load_certificates(asio::ssl::context& into, const std::string& file) {
  error_code error;
  into.load_verify_file(file, error);
  if (error) throw std::runtime_error("fleet.ca_file \"" + file + "\" cannot be read: " + error.message());
}

std::vector<asio::ip::tcp::endpoint> endpoints(const Address& address, Connection::Until until,
                                               Names& names) {
  unsigned short port = 0;
  const char* const end = address.port.data() + address.port.size();
  if (const auto [stop, error] = std::from_chars(address.port.data(), end, port);
      error != std::errc() || stop != end)
    throw std::runtime_error(to_string(address) + ": its port is not a number");
  error_code no_address;
  const auto literal = asio::ip::make_address(address.host, no_address);
  if (!no_address) return {{literal, port}};
  try {
    std::vector<asio::ip::tcp::endpoint> found;
    for (const std::string& text : names.find(address.host, until))
      found.emplace_back(asio::ip::make_address(text), port);
    return found;
  } catch (const std::runtime_error& error) {
    throw std::runtime_error(to_string(address) + ": " + error.what());
  }
}

}  // namespace

Connection::Connection(const Endpoint& to, Until until, Names& names)
    : address_(to.address), io_(std::make_unique<Io>()) {
  const Address& address = address_;
  try {
    if (!address.path.empty()) {
      io_->socket.async_connect(asio::local::stream_protocol::endpoint(address.path), io_->note());
      io_->wait(address_, "connect", until);
    } else {
      std::string first;
      const auto all = endpoints(address, until, names);
      for (std::size_t i = 0; i < all.size(); ++i) {
        try {
          if (io_->socket.is_open()) io_->socket.close();
          io_->socket.async_connect(asio::generic::stream_protocol::endpoint(all[i]), io_->note());
          io_->wait(address_, "connect", part_of(until, all.size() - i));
          first.clear();
          break;
        } catch (const std::runtime_error& failed) {
          if (first.empty()) first = failed.what();
        }
      }
      if (!first.empty()) throw std::runtime_error(first);
      error_code ignored;
      io_->socket.set_option(asio::ip::tcp::no_delay(true), ignored);
    }
    if (!to.tls) return;
    io_->certificates.emplace(asio::ssl::context::tls_client);
    io_->certificates->set_options(asio::ssl::context::no_tlsv1 | asio::ssl::context::no_tlsv1_1);
    if (to.ca_file.empty())
      io_->certificates->set_default_verify_paths();
    else
      load_certificates(*io_->certificates, to.ca_file);
    io_->tls.emplace(io_->socket, *io_->certificates);
    io_->tls->set_verify_mode(asio::ssl::verify_peer);
    io_->tls->set_verify_callback(asio::ssl::host_name_verification(address.host));
    // As the macro SSL_set_tlsext_host_name does, but for its cast.
    ::SSL_ctrl(io_->tls->native_handle(), SSL_CTRL_SET_TLSEXT_HOSTNAME, TLSEXT_NAMETYPE_host_name,
               const_cast<char*>(address.host.c_str()));
    io_->tls->async_handshake(asio::ssl::stream_base::client, io_->note());
    io_->wait(address_, "TLS handshake", until);
  } catch (const boost::system::system_error& error) {
    throw std::runtime_error(to_string(address) + ": " + error.what());
  }
}

Connection::~Connection() = default;

void Connection::read_more(Until until) {
  const std::size_t before = input_.size();
  input_.resize(before + 4096);
  const auto space = asio::buffer(input_.data() + before, 4096);
  if (io_->tls)
    io_->tls->async_read_some(space, io_->note());
  else
    io_->socket.async_read_some(space, io_->note());
  input_.resize(before + io_->wait(address_, "reply", until));
}

// Pipelined: all commands are written before the first reply is read.
std::vector<Value> Connection::exchange(const std::vector<Command>& commands, Until until) {
  std::string request;
  for (const Command& command : commands) append_command(request, command);
  const auto bytes = asio::buffer(request);
  if (io_->tls)
    asio::async_write(*io_->tls, bytes, io_->note());
  else
    asio::async_write(io_->socket, bytes, io_->note());
  io_->wait(address_, "request", until);
  std::vector<Value> replies;
  while (replies.size() < commands.size()) {
    Value value;
    std::size_t used = 0;
    const Parsed parsed = parse(input_, value, used);
    if (parsed == Parsed::malformed)
      throw std::runtime_error(to_string(address_) + ": what it sent is not RESP");
    if (parsed == Parsed::incomplete) {
      read_more(until);
      continue;
    }
    input_.erase(0, used);
    replies.push_back(std::move(value));
  }
  return replies;
}

}  // namespace bulkhead::redis
