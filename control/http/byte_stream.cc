#include "byte_stream.h"

#include <array>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/basic_stream.hpp>
#include <boost/beast/ssl/ssl_stream.hpp>
#include <stdexcept>
#include <type_traits>
#include <utility>

namespace bulkhead::control {
namespace asio = boost::asio;
using asio::awaitable;
using error_code = boost::system::error_code;

namespace {

using Plain = boost::beast::basic_stream<asio::generic::stream_protocol>;
using Encrypted = boost::beast::ssl_stream<Plain>;

template <class Stream>
class StreamOf final : public ByteStream {
 public:
  explicit StreamOf(Socket socket) : stream_(std::move(socket)) {}
  StreamOf(Socket socket, const std::shared_ptr<TlsContext>& tls)
      : tls_(tls), stream_(Plain(std::move(socket)), *tls) {}

  awaitable<error_code> handshake() override {
    error_code error;
    if constexpr (std::is_same_v<Stream, Encrypted>)
      co_await stream_.async_handshake(asio::ssl::stream_base::server,
                                       asio::redirect_error(asio::use_awaitable, error));
    co_return error;
  }
  awaitable<std::size_t> read_some(asio::mutable_buffer into, error_code& error) override {
    return stream_.async_read_some(into, asio::redirect_error(asio::use_awaitable, error));
  }
  awaitable<error_code> write(asio::const_buffer first, asio::const_buffer second) override {
    const std::array both{first, second};
    error_code error;
    co_await asio::async_write(stream_, both, asio::redirect_error(asio::use_awaitable, error));
    co_return error;
  }
  void expires_after(std::chrono::milliseconds time) override { lowest().expires_after(time); }
  void expires_never() override { lowest().expires_never(); }
  void shutdown() override {
    error_code ignored;
    lowest().socket().shutdown(asio::socket_base::shutdown_both, ignored);
  }
  void close() override { lowest().close(); }

 private:
  Plain& lowest() { return boost::beast::get_lowest_layer(stream_); }
  std::shared_ptr<TlsContext> tls_;  // outlives the stream
  Stream stream_;
};

}  // namespace

std::unique_ptr<ByteStream> make_stream(Socket socket, const std::shared_ptr<TlsContext>& tls) {
  if (tls) return std::make_unique<StreamOf<Encrypted>>(std::move(socket), tls);
  return std::make_unique<StreamOf<Plain>>(std::move(socket));
}

std::shared_ptr<TlsContext> load_tls(const std::string& certificate, const std::string& private_key,
                                     const std::string& client_authorities) {
  auto tls = std::make_shared<TlsContext>(TlsContext::tls_server);
  tls->set_options(TlsContext::default_workarounds | TlsContext::no_sslv2 | TlsContext::no_sslv3 |
                   TlsContext::no_tlsv1 | TlsContext::no_tlsv1_1);
  error_code error;
  tls->use_certificate_chain_file(certificate, error);
  if (error) throw std::invalid_argument("control: certificate \"" + certificate + "\": " + error.message());
  tls->use_private_key_file(private_key, TlsContext::pem, error);
  if (error) throw std::invalid_argument("control: private_key \"" + private_key + "\": " + error.message());
  if (client_authorities.empty()) return tls;
  tls->load_verify_file(client_authorities, error);
  if (error)
    throw std::invalid_argument("control: client_authorities \"" + client_authorities +
                                "\": " + error.message());
  tls->set_verify_mode(TlsContext::verify_peer | TlsContext::verify_fail_if_no_peer_cert);
  return tls;
}

}  // namespace bulkhead::control
