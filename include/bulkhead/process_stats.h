// process_stats.h - what the system knows about this process: time, memory, files, threads.
//
//   if (const auto self = bulkhead::process_stats()) print(self->resident_bytes);
//
// Threads: any. Cost: reads three small files of /proc and lists /proc/self/fd; some 50 us.
#pragma once

#include <cstdint>
#include <optional>

namespace bulkhead {

struct ProcessStats {
  double cpu_seconds = 0;         // user and system, since it began
  double start_time_seconds = 0;  // since 1970
  std::uint64_t resident_bytes = 0, virtual_bytes = 0;
  std::uint64_t open_fds = 0, max_fds = 0;
  std::uint64_t threads = 0;
};

std::optional<ProcessStats> process_stats();  // none where there is no /proc

}  // namespace bulkhead
