// suggest.h - "did you mean ...?"
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace bulkhead::base {

// The nearest of `known` if it is near enough to be a typing error, else "".
std::string suggest(std::string_view typed, std::span<const std::string> known);

}  // namespace bulkhead::base
