#include <boost/beast/http/empty_body.hpp>
struct Rows {
  bool empty() const;
};
Rows query();
boost::asio::awaitable<bulkhead::beast::Response> answer(const bulkhead::beast::Request&,
                                                         bulkhead::TimePoint deadline);
bulkhead::beast::Response send(const boost::beast::http::request<boost::beast::http::empty_body>&);
bulkhead::beast::Response page_of(const Rows&);
