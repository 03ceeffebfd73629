#include <boost/asio/use_awaitable.hpp>
#include <memory>
#include <stop_token>
struct Order {};
struct Receipt {};
struct Client {
  asio::awaitable<Receipt> pay(const Order&);
  void notify(const Order&);
};
asio::awaitable<Receipt> pay(const Order&);
Receipt later(const Order&);
