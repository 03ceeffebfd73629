#include "bulkhead/process_stats.h"

#include <sys/resource.h>
#include <unistd.h>

#include <charconv>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <system_error>

namespace bulkhead {
namespace {

std::string first_line(const char* path) {
  std::string line;
  std::ifstream file(path);
  std::getline(file, line);
  return line;
}

std::uint64_t number(std::string_view text) {
  std::uint64_t n = 0;
  std::from_chars(text.data(), text.data() + text.size(), n);
  return n;
}

// When the system started, in seconds since 1970; 0: unknown.
std::uint64_t boot_time() {
  std::ifstream file("/proc/stat");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("btime ")) return number(std::string_view(line).substr(6));
  return 0;
}

std::uint64_t open_files() {
  std::error_code error;
  std::uint64_t n = 0;
  for (std::filesystem::directory_iterator i("/proc/self/fd", error), end; !error && i != end;
       i.increment(error))
    ++n;
  return n > 0 ? n - 1 : 0;  // without the descriptor of the listing itself
}

}  // namespace

std::optional<ProcessStats> process_stats() {
  const std::string stat = first_line("/proc/self/stat");
  // The second field is the program's name in parentheses, which may contain any character; the third follows it.
  const std::size_t name_ends = stat.rfind(')');
  if (name_ends == std::string::npos || name_ends + 2 > stat.size()) return std::nullopt;
  std::string_view rest = std::string_view(stat).substr(name_ends + 2);
  std::uint64_t fields[25]{};  // by their numbers in proc(5)
  for (std::size_t i = 3; i < std::size(fields) && !rest.empty(); ++i) {
    const std::size_t space = rest.find(' ');
    fields[i] = number(rest.substr(0, space));
    rest = space == std::string_view::npos ? std::string_view{} : rest.substr(space + 1);
  }
  static const double ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
  static const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  static const std::uint64_t booted = boot_time();

  ProcessStats s;
  s.cpu_seconds = static_cast<double>(fields[14] + fields[15]) / ticks;
  s.threads = fields[20];
  s.start_time_seconds = static_cast<double>(booted) + static_cast<double>(fields[22]) / ticks;
  s.virtual_bytes = fields[23];
  s.resident_bytes = fields[24] * page;
  s.open_fds = open_files();
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) s.max_fds = limit.rlim_cur;
  return s;
}

}  // namespace bulkhead
