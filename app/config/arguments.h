// arguments.h - rates and durations as arguments of commands.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

namespace bulkhead::config {

std::chrono::nanoseconds duration_of(const std::string& text);  // 0: not valid
double rate_of(std::string_view text);  // "200", "200/s", "12000/m", per second; 0: not valid

// For CLI::Option::check: "" if the text is valid, else the error.
std::string check_duration(const std::string& text, bool may_be_zero);
std::string check_rate(const std::string& text);

}  // namespace bulkhead::config
