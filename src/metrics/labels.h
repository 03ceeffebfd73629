// labels.h - label values that every reader of a page can take.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace bulkhead::metrics {

// Valid UTF-8 of at most `max_bytes`. A value that had to be changed for that ends in ~ and a hash of what it
// was, so that two of them stay two.
std::string clean(std::string_view value, std::size_t max_bytes);

// Appends name="value", with the value cleaned and escaped.
void append_label(std::string& out, std::string_view name, std::string_view value, std::size_t max_bytes);

}  // namespace bulkhead::metrics
