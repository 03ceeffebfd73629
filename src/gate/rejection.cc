#include "bulkhead/rejection.h"

#include "base/text.h"

namespace bulkhead {

std::string Rejection::message() const {
  return base::join({"bulkhead \"", name, "\" rejected (", to_string(reason),
                     "): ", std::to_string(in_flight), "/", std::to_string(max_concurrent), " running, ",
                     std::to_string(waiting), "/", std::to_string(max_queue), " waiting"});
}

}  // namespace bulkhead
