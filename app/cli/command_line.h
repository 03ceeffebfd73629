// command_line.h - what was typed, understood or explained.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace CLI {
class App;
}

namespace bulkhead::cli {

// As in docs: 0 ok, 1 failure, 2 usage, 3 a file that is not valid.
inline constexpr int kFailure = 1, kUsage = 2, kInvalid = 3;

// Parses and then calls `run`, which gives the exit code. Help and version go to standard output; whatever
// is not understood is explained on standard error, with the nearest valid word. Output that cannot be written
// is a failure.
int parse_and_run(CLI::App& app, int argc, char** argv, const std::function<int()>& run);

// Says that a change needs a reason, with the command as it was typed and a reason added to it.
int needs_reason(std::string_view command);

// For CLI::Option::check: "" when `text` is a number from low to high, else what is wrong and what
// would be right.
std::string check_number(const std::string& text, double low, double high);
std::string check_whole_number(const std::string& text, std::uint64_t low = 0,
                               std::uint64_t high = UINT64_MAX);

}  // namespace bulkhead::cli
