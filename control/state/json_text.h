// json_text.h - JSON as text.
#pragma once

#include <boost/json/value.hpp>
#include <string>

namespace bulkhead::control {

// As boost::json::serialize, but numbers are written as people write them (412.5, not 4.125E2), and bytes that are not
// UTF-8 become U+FFFD.
std::string text_of(const boost::json::value& value);

}  // namespace bulkhead::control
