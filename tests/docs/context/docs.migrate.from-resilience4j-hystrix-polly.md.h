#include <stop_token>
struct Order {
} order;
struct Receipt {};
Receipt pay(const Order&, std::stop_token);
Receipt later(const Order&);
