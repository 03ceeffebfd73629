#include <stop_token>
#include <string>

#include "bulkhead/bulkhead.h"
struct Order {
} order;
struct Answer {};
bulkhead::TimePoint deadline;
void resume_request(bulkhead::Result<bulkhead::Call>);
void reply(int status, const std::string& text);
Answer fetch(const Order&, std::stop_token);
