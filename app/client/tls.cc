#include "app/client/tls.h"

#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/asio/write.hpp>
#include <chrono>

namespace bulkhead::client {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

// Each step starts the next; the first that fails says why, and nothing is left to do.
class Request {
 public:
  Request(asio::io_context& io, asio::ssl::context& context, const std::string& host, std::string_view text)
      : host_(host), text_(text), names_(io), stream_(io, context) {
    stream_.set_verify_mode(asio::ssl::verify_peer);
    stream_.set_verify_callback(asio::ssl::host_name_verification(host));
    // As the macro SSL_set_tlsext_host_name does, but for its cast.
    ::SSL_ctrl(stream_.native_handle(), SSL_CTRL_SET_TLSEXT_HOSTNAME, TLSEXT_NAMETYPE_host_name,
               const_cast<char*>(host_.c_str()));
  }

  void start(const std::string& port) {
    names_.async_resolve(host_, port, [this](error_code error, const auto& found) {
      if (failed(error)) return;
      asio::async_connect(stream_.lowest_layer(), found, [this](error_code e, const auto&) {
        if (!failed(e)) shake_hands();
      });
    });
  }

  std::string answer{}, trouble = "no answer in time";

 private:
  bool failed(error_code error) {
    if (!error) return false;
    const long verdict = ::SSL_get_verify_result(stream_.native_handle());
    trouble = verdict == X509_V_OK ? error.message()
                                   : std::string("its certificate is not trusted: ") +
                                         ::X509_verify_cert_error_string(verdict) + " (SSL_CERT_FILE)";
    if (trouble.find("certificate required") != trouble.npos) trouble += "; give --certificate FILE";
    return true;
  }

  void shake_hands() {
    stream_.async_handshake(asio::ssl::stream_base::client, [this](error_code error) {
      if (failed(error)) return;
      asio::async_write(stream_, asio::buffer(text_), [this](error_code e, std::size_t) {
        if (!failed(e)) read();
      });
    });
  }

  // How a server closes differs; whether the answer is whole, its length tells.
  void read() {
    asio::async_read(stream_, asio::dynamic_buffer(answer), [this](error_code error, std::size_t) {
      if (!answer.empty())
        trouble.clear();
      else
        failed(error);
    });
  }

  const std::string host_, text_;
  asio::ip::tcp::resolver names_;
  asio::ssl::stream<asio::ip::tcp::socket> stream_;
};

}  // namespace

std::string ask_over_tls(const std::string& host, const std::string& port, const std::string& certificate,
                         std::string_view request, std::string& trouble) {
  asio::ssl::context context(asio::ssl::context::tls_client);
  context.set_options(asio::ssl::context::no_tlsv1 | asio::ssl::context::no_tlsv1_1);
  context.set_default_verify_paths();
  if (!certificate.empty()) {
    error_code error;
    context.use_certificate_chain_file(certificate, error);
    if (!error) context.use_private_key_file(certificate, asio::ssl::context::pem, error);
    if (error) return trouble = "cannot use the certificate \"" + certificate + "\": " + error.message(), "";
  }
  asio::io_context io;
  Request one(io, context, host, request);
  one.start(port);
  io.run_for(std::chrono::seconds(10));
  trouble = one.trouble;
  return trouble.empty() ? one.answer : "";
}

}  // namespace bulkhead::client
