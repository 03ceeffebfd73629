// text.h - the few texts the library composes itself.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

namespace bulkhead::base {

std::string join(std::initializer_list<std::string_view> parts);

// std::invalid_argument; prints the text and aborts in a build without exceptions.
[[noreturn]] void throw_invalid(const std::string& what);

}  // namespace bulkhead::base
