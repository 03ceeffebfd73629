// What the examples of the public headers assume: the reader's own functions, types and objects.
//
// body of include/bulkhead/gate.h: Coroutine
// body of include/bulkhead/acquire_all.h: Coroutine
// body of include/bulkhead/task.h: Coroutine
// body of include/bulkhead/live_config.h: int
// body of adapters/asio/async_execute.h: boost::asio::awaitable<void>
// body of adapters/asio/async_submit.h: boost::asio::awaitable<void>
// body of adapters/asio/async_acquire.h: boost::asio::awaitable<void>
#include <boost/asio/bind_executor.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <csignal>
#include <iostream>
#include <map>
#include <string>

#include "tests/docs/coroutine.h"
#include "tests/docs/grpc_store.h"

namespace asio = boost::asio;

struct Order {
} order;
struct Receipt {};
using Rows = int;
struct Report {};
struct Reply {
  int status;
};
struct NotFound {};
struct Connection {
  void query(std::string_view);
};

Receipt pay();
Receipt pay(int cents);
Receipt pay(const Order&, std::stop_token);
asio::awaitable<Receipt> pay_async(const Order&);
Receipt queue_it(const Order&, const bulkhead::Cause&);
Rows query();
bool succeeds();
Report slow_report(std::stop_token);
std::string report();
Reply fetch();
Connection connect(std::string_view host, bulkhead::TimePoint deadline);
void work();
void refresh_cache();
void place_order();
double loop_lag();
void copy_rows(std::stop_token);
void show(const Report&);
void show_cached(bulkhead::Reason);

void reply(int status);
void reply(int status, std::chrono::nanoseconds retry_after);
void reply(int status, std::string_view message);
void reply(int status, std::string_view type, std::string_view body);
void send();
void send(const bulkhead::http::Response&);
void retry_in(std::chrono::nanoseconds);
void call_at(bulkhead::TimePoint, void (*)());
void log(std::string_view);
template <class T>
void use(const T&);
void reject(const bulkhead::ResourceError&);
bulkhead::http::Response handle();
asio::awaitable<bulkhead::beast::Response> answer(const bulkhead::beast::Request&);
template <class... T>
void print(const T&...);

bulkhead::TimePoint now();
std::uint32_t random_bits();
bulkhead::TimePoint arrived, deadline, in_200_ms;
std::chrono::nanoseconds took;
std::string path, ip, customer;
std::map<std::string_view, std::string_view> request, upstream;
bulkhead::Registry registry;
bulkhead::Rejection rejection;
bulkhead::Gate process{{}}, database{{}}, db{{}}, gate{{}}, budget{{}};
std::uint32_t used() { return 1; }
bulkhead::Bulkhead payments{{}}, shop{{}};
bulkhead::Breaker breaker{{}};
bulkhead::Pool pool{{}}, reports{{}};
bulkhead::http::TrustedPeers peers;
bulkhead::LiveConfig live{registry, {}};
bulkhead::postgres::Pool checkout{{}};
bulkhead::watch::FileWatch* the_watch;
asio::io_context io;
asio::ip::tcp::socket client(io);
auto strand = asio::make_strand(io);
::grpc::ServerBuilder builder;
struct ShopService : ::store::Shop::Service {
} service;
::grpc::ServerContext* served;
::store::Order lamp;
::store::Receipt receipt;
