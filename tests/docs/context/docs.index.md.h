// body of docs/index.md: Coroutine
#include "tests/docs/coroutine.h"
struct Order {
} order;
struct Receipt {};
struct Rows {};
struct Report {};
struct Request {
  bulkhead::TimePoint deadline;
} request;
Receipt pay(const Order&, std::stop_token);
Receipt pay();
Receipt later(const Order&, const std::string& why);
Rows query();
Report slow_report(std::stop_token);
void show(const Report&);
void send();
