struct Order {
} order;
struct Receipt {};
Receipt pay(const Order&, std::stop_token);
Receipt later(const Order&, const std::string& why);
void query();
void reply(int status, const std::string& message);
