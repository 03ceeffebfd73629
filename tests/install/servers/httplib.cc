// Apart, because two large headers in one file take longer than one in each of two.
#include <bulkhead/adapters/httplib/server.h>

int httplib_port(bulkhead::http::Guard& guard);

int httplib_port(bulkhead::http::Guard& guard) {
  bulkhead::httplib::Server server(guard);
  return server.bind_to_any_port("127.0.0.1");
}
