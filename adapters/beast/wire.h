// wire.h - HTTP/1.1 requests from bytes and the heads of responses to bytes, for the servers of adapters/beast and control.
//
//   RequestReader reader(max_header_bytes, max_body_bytes);
//   reader.next();
//   while (!reader.done()) reader.take(read_some(socket, reader.room()));     // or reader.fail(error)
//   if (reader.error()) ...                                                   // see status_of()
//   Request request = reader.release();
//
// Threads: one at a time.
#pragma once

#include <boost/asio/buffer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace bulkhead::beast {

class RequestReader {
 public:
  RequestReader(std::uint32_t max_header_bytes, std::uint64_t max_body_bytes)
      : max_header_(max_header_bytes), max_body_(max_body_bytes) {}

  void next();  // starts the next request with the bytes that are left over
  bool done() const noexcept { return done_; }
  bool begun() const noexcept { return begun_; }  // some bytes of the request are there
  bool has_header() const { return parser_ && parser_->is_header_done(); }
  bool expects_continue() const;  // the client waits for 100 Continue before it sends the body
  bool has_more() const noexcept { return buffer_.size() > 0; }  // of the next request

  boost::asio::mutable_buffer room();  // for the next read
  void take(std::size_t bytes);        // that were read into it
  void fail(boost::system::error_code error);
  const boost::system::error_code& error() const noexcept { return error_; }  // why there is no request

  boost::beast::http::request<boost::beast::http::string_body> release() { return parser_->release(); }
  bool keep_alive() const { return parser_->keep_alive(); }  // of the request, also after release()

 private:
  void parse();

  std::uint32_t max_header_;
  std::uint64_t max_body_;
  boost::beast::flat_buffer buffer_;
  std::optional<boost::beast::http::request_parser<boost::beast::http::string_body>> parser_;
  boost::system::error_code error_;
  bool done_ = false, begun_ = false;
};

// The status to answer with: 400, 413, 431; -1 if the client has gone or was too slow.
int status_of(const boost::system::error_code& error);

struct Head {
  bool chunked = false, connection = false;  // it has such a field
};
// Appends the status line and the fields, and Content-Length if nothing says where the body ends. Without `body_size` the end
// of the connection ends the body.
Head append_head(std::string& out, const boost::beast::http::response_header<>& response,
                 std::optional<std::size_t> body_size);
bool has_no_body(unsigned status) noexcept;

void append(std::string& out, std::size_t number, int base = 10);

}  // namespace bulkhead::beast
