#include "wire.h"

#include <charconv>

namespace bulkhead::beast {
namespace http = boost::beast::http;
using boost::system::error_code;

namespace {

void append(std::string& out, boost::beast::string_view text) { out.append(text.data(), text.size()); }

}  // namespace

void append(std::string& out, std::size_t number, int base) {
  char digits[20];
  out.append(digits, std::to_chars(digits, digits + sizeof digits, number, base).ptr);
}

void RequestReader::next() {
  parser_.emplace();
  parser_->header_limit(max_header_);
  parser_->body_limit(max_body_);
  done_ = false;
  error_.clear();
  begun_ = buffer_.size() > 0;
  if (begun_) parse();
}

bool RequestReader::expects_continue() const { return parser_->get()[http::field::expect] == "100-continue"; }

boost::asio::mutable_buffer RequestReader::room() {
  return buffer_.prepare(parser_->is_header_done() ? 64 * 1024 : 2 * 1024);
}

void RequestReader::take(std::size_t bytes) {
  begun_ = true;
  buffer_.commit(bytes);
  if (bytes > 0) parse();
}

void RequestReader::parse() {
  error_code error;
  do {  // the header, then as much of the body as is there
    buffer_.consume(parser_->put(buffer_.data(), error));
    if (!error && parser_->is_header_done()) parser_->eager(true);
  } while (!error && !parser_->is_done() && buffer_.size() > 0);
  if (error && error != http::error::need_more) return fail(error);
  done_ = parser_->is_done();
}

void RequestReader::fail(error_code error) {
  done_ = true;
  error_ = error;
}

int status_of(const error_code& error) {
  static const auto& protocol = http::make_error_code(http::error::end_of_stream).category();
  if (error.category() != protocol || error == http::error::end_of_stream ||
      error == http::error::partial_message)
    return -1;
  if (error == http::error::header_limit) return 431;
  return error == http::error::body_limit ? 413 : 400;
}

bool has_no_body(unsigned status) noexcept { return status < 200 || status == 204 || status == 304; }

Head append_head(std::string& out, const http::response_header<>& response,
                 std::optional<std::size_t> body_size) {
  Head head;
  out.append(response.version() == 10 ? "HTTP/1.0 " : "HTTP/1.1 ");
  append(out, std::size_t{response.result_int()});
  out += ' ';
  append(out, response.reason());
  out.append("\r\n");
  bool framed = has_no_body(response.result_int());
  for (const auto& field : response) {
    framed |= field.name() == http::field::content_length;
    head.chunked |= field.name() == http::field::transfer_encoding;
    head.connection |= field.name() == http::field::connection;
    append(out, field.name_string());
    out.append(": ");
    append(out, field.value());
    out.append("\r\n");
  }
  if (!framed && !head.chunked && body_size) {
    out.append("Content-Length: ");
    append(out, *body_size);
    out.append("\r\n");
  }
  out.append("\r\n");
  return head;
}

}  // namespace bulkhead::beast
